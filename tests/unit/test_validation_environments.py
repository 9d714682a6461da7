"""Environments of modules: what is declared, when it is outdated, and the command that runs the inner layer."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from automate.errors import ConfigError, ModuleEnvironmentError
from automate.settings_validation import Validation
from automate.validation import catalogue, environments
from automate.validation.catalogue import Source
from automate.validation.environments import folders, managers, own
from automate.validation.environments.declarations import declaration_for, digest
from automate.validation_places import ValidationPlaces
from tests.unit.environment_support import install, module_of, places_of

MODULES = ("example", "llm_judge", "lora", "rl")


def shipped(name: str, root: Path) -> Source:
    return catalogue.find(name, ValidationPlaces(root, Validation()))


def finish(source: Source, places: ValidationPlaces, manager: str = "venv", python: Path | None = None) -> Path:
    """A build that looks finished, put into place."""
    declared = declaration_for(source, manager)
    key = "" if declared.kind == "environment.yml" else "{}.{}".format(*sys.version_info[:2])
    made = digest(declared, manager, key)
    folder = folders.fresh_folder(places, source.name, made)
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(python or sys.executable)
    before = folders.current(places, source.name)
    built = folders.Built(folder, made, manager, 0.0, before.folder.name if before else None)
    folders.put_in_place(places, source.name, built)
    return folder


@pytest.mark.parametrize("name", MODULES)
def test_both_declarations_of_a_shipped_module_say_the_same(name: str, tmp_path: Path) -> None:
    source = shipped(name, tmp_path)
    assert source.requirements
    assert source.environment_yml
    document = yaml.safe_load(source.environment_yml.read_text())
    named = [item for item in document["dependencies"] if isinstance(item, str)]
    by_pip = [item["pip"] for item in document["dependencies"] if isinstance(item, dict)]
    assert document["name"] == f"flock-validation-{name}"
    assert document["channels"] == ["conda-forge", "nodefaults"]
    assert {item.partition(">")[0] for item in named} == {"python", "pip"}
    assert by_pip == [source.requirements.read_text().split()]
    assert any(item.startswith("pydantic>=2") for item in by_pip[0])


def test_the_hash_changes_with_the_file_the_manager_the_python_and_what_is_included(tmp_path: Path) -> None:
    source = module_of(tmp_path, requirements="-r more.txt\npydantic\n")
    more = tmp_path / "mine" / "more.txt"
    more.write_text("-r own.requirements.txt\nnumpy\n")
    declared = declaration_for(source, "venv")
    first = digest(declared, "venv", "3.11")
    assert first == digest(declared, "venv", "3.11")
    assert len({first, digest(declared, "uv", "3.11"), digest(declared, "venv", "3.12")}) == 3
    more.write_text("numpy<2\n")
    assert digest(declared, "venv", "3.11") != first


def test_a_yml_alone_needs_a_manager_that_reads_it(tmp_path: Path) -> None:
    source = module_of(tmp_path, requirements=None, yml="dependencies: [python]\n")
    assert declaration_for(source, "mamba").kind == "environment.yml"
    with pytest.raises(ModuleEnvironmentError, match="install conda, mamba or micromamba"):
        declaration_for(source, "venv")
    found = environments.state(source, places_of(tmp_path), environ={"PATH": ""})
    assert found.status == "missing"
    assert "install conda, mamba or micromamba" in found.why


def test_a_module_without_declaration_is_told_what_to_write(tmp_path: Path) -> None:
    source = module_of(tmp_path, requirements=None)
    with pytest.raises(ModuleEnvironmentError, match=r"own\.requirements\.txt"):
        declaration_for(source, "uv")


def test_conda_goes_before_uv_and_uv_before_venv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    source, places = module_of(tmp_path), places_of(tmp_path)

    def chosen(path: Path | str, last: str | None = None) -> str:
        return managers.choose(source, places, {"PATH": str(path)}, last=last).manager

    assert chosen("") == "venv"
    assert chosen(install(tmp_path / "a", "uv")) == "uv"
    assert chosen(install(tmp_path / "b", "uv", "micromamba")) == "micromamba"
    assert chosen(install(tmp_path / "c", "uv", "conda", "mamba")) == "mamba"
    assert chosen(tmp_path / "c", last="venv") == "venv"


def test_conda_is_found_where_its_own_variable_says(tmp_path: Path) -> None:
    folder = install(tmp_path / "a", "conda", "micromamba")
    environ = {"PATH": "", "CONDA_EXE": str(folder / "conda"), "MAMBA_EXE": str(folder / "micromamba")}
    assert managers.program_of("conda", environ) == str(folder / "conda")
    assert managers.program_of("micromamba", environ) == str(folder / "micromamba")
    assert managers.program_of("mamba", environ) is None


def test_a_manager_of_the_settings_that_is_not_installed_is_named(tmp_path: Path) -> None:
    source, places = module_of(tmp_path), places_of(tmp_path, manager="mamba")
    with pytest.raises(ModuleEnvironmentError, match=r"validation\.manager is mamba, which is not installed"):
        managers.choose(source, places, {"PATH": ""})


def test_states_over_an_environment_s_life(tmp_path: Path) -> None:
    source, places = module_of(tmp_path), places_of(tmp_path, manager="venv")
    found = environments.state(source, places)
    assert (found.name, found.status, found.folder) == ("flock-validation-own", "missing", None)
    folder = finish(source, places)
    ready = environments.state(source, places)
    assert (ready.status, ready.folder, ready.why) == ("ready", folder, "")
    assert ready.hash == found.hash
    module_of(tmp_path, requirements="pydantic>=2.8\n")
    outdated = environments.state(source, places)
    assert (outdated.status, outdated.folder) == ("outdated", folder)
    module_of(tmp_path)
    (folder / "bin" / "python").unlink()
    assert "Python has gone" in environments.state(source, places).why


def test_another_shell_s_path_does_not_outdate_an_environment(tmp_path: Path) -> None:
    source = module_of(tmp_path, yml="dependencies: [python]\n")
    places = places_of(tmp_path)
    path = install(tmp_path / "bin", "conda")
    finish(source, places, manager="conda")
    assert environments.state(source, places, environ={"PATH": str(path)}).status == "ready"
    assert environments.state(source, places, environ={"PATH": ""}).status == "ready"


def test_a_half_built_folder_is_not_an_environment(tmp_path: Path) -> None:
    source, places = module_of(tmp_path), places_of(tmp_path, manager="venv")
    folder = finish(source, places)
    (folder / folders.MARKER).write_bytes(b'{"hash": "x"')
    assert environments.state(source, places).status == "missing"


def test_the_inner_call_leads_into_the_environment_and_nowhere_else(tmp_path: Path) -> None:
    source, places = module_of(tmp_path), places_of(tmp_path, manager="venv")
    folder = finish(source, places)
    hostile = {"PATH": "/bin", "PYTHONPATH": "/evil", "PYTHONHOME": "/evil", "VIRTUAL_ENV": "/evil"}
    argv, added = environments.inner_call(source, places, ["/a b/c", "--step", "2"], environ=hostile)
    assert argv == [str(folder / "bin" / "python"), "-m", "automate.validation.runner", "/a b/c", "--step", "2"]
    assert added["PYTHONNOUSERSITE"] == added["PYTHONSAFEPATH"] == "1"
    assert added["PYTHONHOME"] == added["CONDA_PREFIX"] == ""
    assert added["VIRTUAL_ENV"] == str(folder)
    assert added["PATH"] == f"{folder}/bin:/bin"
    only = list(Path(added["PYTHONPATH"]).iterdir())
    assert [entry.name for entry in only] == ["automate"]
    assert (only[0] / "errors.py").is_file()
    assert Path(added["PYTHONPATH"]).is_relative_to(places.environments)


def test_this_package_is_found_and_its_dependencies_are_not(tmp_path: Path) -> None:
    """A Python without any packages finds the inner layer's files by that folder alone, whatever the cwd holds."""
    source, places = module_of(tmp_path), places_of(tmp_path, manager="venv")
    finish(source, places)
    (tmp_path / "automate").mkdir()
    (tmp_path / "automate" / "__init__.py").write_text("raise SystemExit('the wrong one')")
    _, added = environments.inner_call(source, places, [])
    bare = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    code = ("import automate.validation.inner.files, importlib.util as u; "
            "print([u.find_spec(n) for n in ('orjson', 'submitit')])")
    done = subprocess.run([str(bare), "-S", "-c", code], env={**os.environ, **added}, cwd=tmp_path,
                          capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("[None, None]\n", 0), done.stderr


def test_a_running_start_keeps_its_build_when_the_link_moves(tmp_path: Path) -> None:
    source, places = module_of(tmp_path), places_of(tmp_path, manager="venv")
    first = finish(source, places)
    argv, _ = environments.inner_call(source, places, [])
    second = finish(source, places)
    assert Path(argv[0]).parent.parent == first != second
    assert folders.link_of(places, "own").resolve() == second
    assert not os.path.isabs(os.readlink(folders.link_of(places, "own")))  # noqa: PTH115, PTH117


def test_a_folder_that_no_python_path_can_hold_is_refused(tmp_path: Path) -> None:
    places = places_of(tmp_path / "a:b", manager="current")
    with pytest.raises(ModuleEnvironmentError, match=r"set validation\.environments to another one"):
        environments.inner_call(module_of(tmp_path), places, [])


@pytest.mark.parametrize("settings", [{"manager": "venv"}, {"manager": "conda"}])
def test_no_call_without_an_environment(settings: dict[str, str], tmp_path: Path) -> None:
    source = module_of(tmp_path)
    with pytest.raises(ModuleEnvironmentError, match="flock-hpc validation env create own"):
        environments.inner_call(source, places_of(tmp_path, **settings), [], environ={"PATH": ""})


def test_current_runs_in_this_python(tmp_path: Path) -> None:
    source = module_of(tmp_path, requirements=None)
    places = places_of(tmp_path, manager="current")
    assert environments.state(source, places).status == "current"
    argv, added = environments.inner_call(source, places, ["x"], environ={"PYTHONPATH": "/site"})
    assert argv[0] == sys.executable
    assert added["PYTHONPATH"].endswith(":/site")
    said: list[str] = []
    assert environments.create(source, places, say=said.append).status == "current"
    assert said


def test_current_says_what_is_lacking(tmp_path: Path) -> None:
    file = tmp_path / "r.txt"
    file.write_text("pydantic>=2.7 # fine\nno-such-thing>=1\npydantic>900\nx; python_version < '3'\n-r other.txt\n#\n")
    said = own.lacking(file)
    assert "no-such-thing>=1" in said
    assert "pydantic>900 (there is" in said
    assert "x" not in said.replace("no-such-thing", "").split()
    assert own.lacking(None) == own.lacking(tmp_path / "absent") == ""


def test_replaced_builds_are_swept_but_for_the_last_and_those_used_lately(tmp_path: Path) -> None:
    source, places = module_of(tmp_path), places_of(tmp_path, manager="venv")
    old, used, before, now = [finish(source, places) for _ in range(4)]
    folders.mark_used(used)
    left_over = folders.fresh_folder(places, "own", "0" * 64)
    left_over.mkdir()
    folders.mark_used(left_over)
    other = places.environments / "flock-validation-owned-000000000000-00000000"
    other.mkdir()
    assert set(folders.sweep(places, "own")) == {old.name, left_over.name}
    assert used.is_dir() and before.is_dir() and now.is_dir() and other.is_dir()
    assert folders.sweep(places, "own", now=used.stat().st_mtime + 15 * 86400) == [used.name]


def test_a_folder_of_somebody_else_s_at_the_link_s_place_is_left_alone(tmp_path: Path) -> None:
    source, places = module_of(tmp_path), places_of(tmp_path, manager="venv")
    mine = folders.link_of(places, "own")
    mine.mkdir(parents=True)
    with pytest.raises(ModuleEnvironmentError, match="move it away"):
        environments.create(source, places, say=print)
    assert mine.is_dir()


def test_a_python_that_is_not_there_is_named(tmp_path: Path) -> None:
    source, places = module_of(tmp_path), places_of(tmp_path, manager="venv", python="9.99")
    chosen = managers.choose(source, places, os.environ)
    with pytest.raises(ModuleEnvironmentError, match=r"python9\.99"):
        managers.commands(chosen, tmp_path / "x", "9.99", tmp_path / "r.txt")


def test_the_settings_refuse_a_manager_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="manager"):
        Validation.model_validate({"manager": "poetry"})
    assert issubclass(ModuleEnvironmentError, Exception) and not issubclass(ModuleEnvironmentError, ConfigError)


def imported(file: Path, *, top_only: bool) -> set[str]:
    """First names of what a file imports; `top_only`: as soon as it is imported itself."""
    tree = ast.parse(file.read_text())
    nodes = tree.body if top_only else list(ast.walk(tree))
    found = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    found |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    return {name.partition(".")[0] for name in found} - set(sys.stdlib_module_names) - {"automate"}


@pytest.mark.parametrize("name", MODULES)
def test_a_shipped_module_declares_all_that_it_imports(name: str, tmp_path: Path) -> None:
    source = shipped(name, tmp_path)
    assert source.requirements
    declared = {re.split(r"[<>=!~\[ ;]", line)[0].replace("-", "_") for line in source.requirements.read_text().split()}
    used = set().union(*(imported(file, top_only=False) for file in source.requirements.parent.rglob("*.py")))
    assert used <= declared


def test_the_inner_layer_itself_imports_pydantic_and_nothing_else() -> None:
    validation = Path(catalogue.__file__).parent
    files = [validation / "runner.py", validation / "modules" / "base.py", *(validation / "inner").rglob("*.py")]
    assert set().union(*(imported(file, top_only=True) for file in files)) == {"pydantic"}
