"""Modules' environments for real, by venv and by uv: built once, rebuilt after a change, never damaged by a failure."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from automate.errors import ModuleEnvironmentError
from automate.settings_validation import Validation
from automate.validation import catalogue, environments
from automate.validation.catalogue import Source
from automate.validation.environments import folders
from automate.validation_places import ValidationPlaces

PROJECT = Path(__file__).resolve().parents[2]
MANAGERS = ("venv", "uv")
PATIENCE = 180.0
BACKEND = '''
import os, time, zipfile
from pathlib import Path

HERE = Path(__file__).parent

def build_wheel(folder, config_settings=None, metadata_directory=None):
    parent = os.getppid()
    (HERE / "started").write_text(str(os.getpid()))
    while not (HERE / "go").exists() and os.getppid() == parent:
        time.sleep(0.02)
    name = "slow-1.0-py3-none-any.whl"
    with zipfile.ZipFile(Path(folder) / name, "w") as wheel:
        about = "slow-1.0.dist-info/"
        wheel.writestr("slow.py", "")
        wheel.writestr(about + "METADATA", "Metadata-Version: 2.1\\nName: slow\\nVersion: 1.0\\n")
        wheel.writestr(about + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(about + "RECORD", "")
    return name
'''
BUILDER = """
import sys
from pathlib import Path
from automate.errors import FlockError
from automate.settings_validation import Validation
from automate.validation import catalogue, environments
from automate.validation_places import ValidationPlaces
places = ValidationPlaces(Path(sys.argv[1]), Validation(manager=sys.argv[2], module_folders=["mine"]))
try:
    print(environments.create(catalogue.find("own", places), places, say=print).status)
except FlockError as error:
    print(error)
    sys.exit(7)
"""


def places_of(root: Path, manager: str) -> ValidationPlaces:
    return ValidationPlaces(root, Validation.model_validate({"manager": manager, "module_folders": ["mine"]}))


def own(root: Path, requirements: str) -> Source:
    """A module of one's own with these requirements."""
    folder = root / "mine"
    folder.mkdir(exist_ok=True)
    (folder / "own.py").write_text("MODULE = None\n")
    (folder / "own.requirements.txt").write_text(requirements)
    return catalogue.find("own", places_of(root, "venv"))


def slow_package(root: Path) -> Path:
    """A package whose build waits until it is told to go on, and shows that it has begun."""
    folder = root / "slow"
    folder.mkdir()
    (folder / "backend.py").write_text(BACKEND)
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "slow"\nversion = "1.0"\n')
    return folder


def builder(root: Path, manager: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", BUILDER, str(root), manager], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, cwd=PROJECT)


def wait_for(what: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.05)


def run_inside(source: Source, places: ValidationPlaces, code: str) -> list[str]:
    """What one statement prints in a module's environment, called as the inner layer is."""
    argv, added = environments.inner_call(source, places, [])
    done = subprocess.run([argv[0], "-c", code], env={**os.environ, **added}, cwd=places.root, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("manager", MANAGERS)
def test_the_example_s_environment_is_built_once_and_holds_what_it_declares(manager: str, tmp_path: Path) -> None:
    places = places_of(tmp_path, manager)
    source = catalogue.find("example", places)
    made = environments.create(source, places, say=print)
    assert (made.name, made.status, made.manager) == ("flock-validation-example", "ready", manager)
    assert made.folder
    where, this, absent = run_inside(
        source, places, "import pydantic, automate, importlib.util as u; print(pydantic.__file__);"
                        "print(automate.__file__); print(u.find_spec('orjson'))")
    assert Path(where).is_relative_to(made.folder)
    assert Path(this).resolve() == PROJECT / "automate" / "__init__.py"
    assert absent == "None"
    again = environments.create(source, places, say=print)
    assert again.folder == made.folder
    assert folders.builds_of(places, "example") == [made.folder]
    assert_does_an_assignment(source, places, "example")


def assert_does_an_assignment(source: Source, places: ValidationPlaces, module: str) -> None:
    """The inner layer runs in the environment, by the command that the outer layer uses."""
    folder = places.root / f"assignment-{module}"
    folder.mkdir()
    (folder / "rows.jsonl").write_text('{"value": 1}\n{"value": 4}\n')
    (folder / "reply.json").write_text(json.dumps(
        {"id": 1, "task_submission": {"id": 2, "task_id": 3, "data": {}}, "status": "validating",
         "data": {"validation_set_url": "https://example.invalid/set"}}))
    (folder / "run.json").write_text(json.dumps(
        {"assignment_id": "1", "task_id": "3", "module": module, "data": str(folder / "rows.jsonl"),
         "module_path": str(source.path) if source.path else None}))
    argv, added = environments.inner_call(source, places, [str(folder)])
    done = subprocess.run(argv, env={**os.environ, **added}, cwd=places.root, capture_output=True, text=True)
    assert (folder / "result.json").is_file(), done.stderr
    result = json.loads((folder / "result.json").read_text())
    assert (result["outcome"], result["payload"]) == ("completed", {"score": 2.5}), result


def test_a_package_of_one_s_own_runs_in_an_environment_of_its_own(tmp_path: Path) -> None:
    """A copy of the example under another name, in a folder of the settings, with a part of it in a second file."""
    example = (PROJECT / "automate" / "validation" / "modules" / "example" / "__init__.py").read_text()
    folder = tmp_path / "mine" / "mirror"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(example + "\nfrom .more import EXTRA  # noqa: E402\nassert EXTRA\n")
    (folder / "more.py").write_text("EXTRA = 1\n")
    (folder / "requirements.txt").write_text("pydantic>=2.7\n")
    places = places_of(tmp_path, "uv")
    source = catalogue.find("mirror", places)
    assert source.path == folder
    assert environments.create(source, places, say=print).name == "flock-validation-mirror"
    assert_does_an_assignment(source, places, "mirror")


@pytest.mark.parametrize("manager", MANAGERS)
def test_rebuilt_after_a_change_only_and_intact_after_a_build_that_fails(manager: str, tmp_path: Path) -> None:
    places = places_of(tmp_path, manager)
    source = own(tmp_path, "pydantic>=2.7\n")
    first = environments.create(source, places, say=print)
    assert environments.create(source, places, say=print).folder == first.folder
    own(tmp_path, "pydantic>=2.7\n# changed\n")
    assert environments.state(source, places).status == "outdated"
    second = environments.create(source, places, say=print)
    assert second.status == "ready"
    assert second.folder != first.folder
    own(tmp_path, "--no-index\nno-such-distribution-anywhere\n")
    with pytest.raises(ModuleEnvironmentError, match="no-such-distribution-anywhere"):
        environments.create(source, places, say=print)
    assert folders.link_of(places, "own").resolve() == second.folder
    own(tmp_path, "pydantic>=2.7\n# changed\n")
    assert environments.create(source, places, say=print).folder == second.folder
    assert run_inside(source, places, "import pydantic; print('works')") == ["works"]


@pytest.mark.parametrize("manager", MANAGERS)
def test_a_builder_killed_in_the_middle_leaves_the_working_one(manager: str, tmp_path: Path) -> None:
    places = places_of(tmp_path, manager)
    source = own(tmp_path, "pydantic>=2.7\n")
    first = environments.create(source, places, say=print)
    slow = slow_package(tmp_path)
    own(tmp_path, f"pydantic>=2.7\n{slow}\n")
    process = builder(tmp_path, manager)
    wait_for((slow / "started").exists)
    children = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    _, alive = psutil.wait_procs(children, timeout=PATIENCE)
    assert not alive, "what the builder started lives on"
    assert folders.link_of(places, "own").resolve() == first.folder
    [left_over] = [folder for folder in folders.builds_of(places, "own") if folder != first.folder]
    (slow / "go").touch()
    said: list[str] = []
    second = environments.create(source, places, say=said.append, stale=1.0)
    assert second.status == "ready"
    assert not left_over.exists()
    assert run_inside(source, places, "import pydantic, slow; print('works')") == ["works"]


@pytest.mark.parametrize("manager", MANAGERS)
def test_of_two_builders_at_once_one_builds_and_the_other_says_who(manager: str, tmp_path: Path) -> None:
    places = places_of(tmp_path, manager)
    slow = slow_package(tmp_path)
    source = own(tmp_path, f"pydantic>=2.7\n{slow}\n")
    first = builder(tmp_path, manager)
    wait_for((slow / "started").exists)
    second = builder(tmp_path, manager)
    said, _ = second.communicate(timeout=PATIENCE)
    assert second.returncode == 7
    assert f"process {first.pid}" in said
    assert "Traceback" not in said
    (slow / "go").touch()
    said, _ = first.communicate(timeout=PATIENCE)
    assert first.returncode == 0, said
    assert len(folders.builds_of(places, "own")) == 1
    assert environments.state(source, places).status == "ready"


def test_a_wheel_brings_the_declarations_and_leads_the_inner_layer_to_itself(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(PROJECT)]
    done = subprocess.run(build, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    wheel = next(tmp_path.glob("*.whl"))
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    for name in ("example", "llm_judge", "lora", "rl"):
        for file in (catalogue.REQUIREMENTS, catalogue.ENVIRONMENT):
            assert (site / "automate" / "validation" / "modules" / name / file).is_file()
    code = BUILDER.replace('"own"', '"example"') + """
import os, subprocess
argv, added = environments.inner_call(catalogue.find("example", places), places, [])
subprocess.run([argv[0], "-c", "import automate.validation.inner.files as f; print(f.__file__)"],
               env={**os.environ, **added}, check=True)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path), "uv"], cwd=tmp_path, capture_output=True,
                          text=True, env={**os.environ, "PYTHONPATH": str(site)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert Path(done.stdout.splitlines()[-1]).resolve() == site / "automate/validation/inner/files.py"
