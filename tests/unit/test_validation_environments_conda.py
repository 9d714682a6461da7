"""Conda, mamba and micromamba by their documented calls, against a stand-in program on PATH."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from automate import claims
from automate.errors import ClaimedError, ModuleEnvironmentError
from automate.validation import environments
from automate.validation.environments import building, folders
from tests.unit.environment_support import calls, install, module_of, places_of

YML = "name: anything\ndependencies: [python, pip]\n"
SECRET = "hf-very-secret-token"


def environ_of(folder: Path, **more: str) -> dict[str, str]:
    return {"PATH": f"{folder}:/usr/bin:/bin", "HOME": os.environ["HOME"], **more}


@pytest.mark.parametrize(("manager", "verb"), [
    ("conda", ["env", "create"]), ("mamba", ["env", "create"]), ("micromamba", ["create", "--yes"])])
def test_an_environment_file_is_built_by_the_documented_call(manager: str, verb: list[str], tmp_path: Path) -> None:
    source, places = module_of(tmp_path, requirements=None, yml=YML), places_of(tmp_path, manager=manager)
    binaries = install(tmp_path / "bin", manager)
    made = environments.create(source, places, say=print, environ=environ_of(binaries))
    assert (made.status, made.manager) == ("ready", manager)
    [call] = calls(binaries)
    assert call["argv"][:len(verb)] == verb
    assert call["argv"][len(verb):-1] == ["--prefix", str(made.folder), "--file"]
    assert (call["name"], call["text"]) == ("environment.yml", YML)
    assert {name: call["environ"][name] for name in ("CONDA_ALWAYS_YES", "MAMBA_ALWAYS_YES", "PIP_NO_INPUT")} == {
        "CONDA_ALWAYS_YES": "true", "MAMBA_ALWAYS_YES": "true", "PIP_NO_INPUT": "1"}


def test_requirements_alone_are_installed_by_pip_into_a_bare_environment(tmp_path: Path) -> None:
    source, places = module_of(tmp_path, requirements="-r empty.txt\n"), places_of(tmp_path, manager="micromamba",
                                                                                  python="3.12")
    (tmp_path / "mine" / "empty.txt").write_text("")
    binaries = install(tmp_path / "bin", "micromamba")
    made = environments.create(source, places, say=print, environ=environ_of(binaries))
    assert calls(binaries)[0]["argv"] == ["create", "--yes", "--prefix", str(made.folder), "--override-channels",
                                          "--channel", "conda-forge", "python=3.12", "pip"]
    said = (binaries / "python-calls").read_text().splitlines()
    assert said[0] == f"-m pip install --no-input -r {source.requirements}"
    assert said[1].startswith("-c import sys")


def test_the_environment_s_own_python_is_called_rather_than_conda_run(tmp_path: Path) -> None:
    source, places = module_of(tmp_path, yml=YML), places_of(tmp_path)
    binaries = install(tmp_path / "bin", "conda")
    made = environments.create(source, places, say=print, environ=environ_of(binaries))
    argv, added = environments.inner_call(source, places, ["A"], environ={"PATH": "/bin"})
    assert made.folder
    assert argv == [str(made.folder / "bin" / "python"), "-m", "automate.validation.runner", "A"]
    assert (added["CONDA_PREFIX"], added["VIRTUAL_ENV"]) == (str(made.folder), "")
    done = subprocess.run([argv[0], "-c", "import automate; print(automate.__file__)"], env={**os.environ, **added},
                          capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.strip() == f"{added['PYTHONPATH']}/automate/__init__.py"


def test_a_build_sees_no_secret_and_no_other_environment(tmp_path: Path) -> None:
    source, places = module_of(tmp_path, yml=YML), places_of(tmp_path, manager="conda", hf_token_env="MY_ODD_NAME")
    binaries = install(tmp_path / "bin", "conda")
    environments.create(source, places, say=print, environ=environ_of(
        binaries, MY_ODD_NAME=SECRET, COPY_OF_IT=SECRET, FLOCK_API_KEY="flock-key", OPENAI_API_KEY="sk-1",
        PYTHONPATH="/evil", PYTHONHOME="/evil", VIRTUAL_ENV="/evil", PIP_TARGET="/evil", HTTPS_PROXY="http://p:1"))
    [call] = calls(binaries)
    assert not {SECRET, "flock-key", "sk-1", "/evil"} & set(call["environ"].values())
    assert call["environ"]["HTTPS_PROXY"] == "http://p:1"
    everything = b"".join(path.read_bytes() for path in places.environments.rglob("*") if path.is_file())
    assert SECRET.encode() not in everything


def test_a_failing_build_names_the_log_and_leaves_what_was_there(tmp_path: Path) -> None:
    source, places = module_of(tmp_path, yml=YML), places_of(tmp_path, manager="conda")
    binaries = install(tmp_path / "bin", "conda")
    environ = environ_of(binaries)
    first = environments.create(source, places, say=print, environ=environ)
    module_of(tmp_path, yml=YML + "# changed\n")
    (binaries / "broken").touch()
    with pytest.raises(ModuleEnvironmentError) as caught:
        environments.create(source, places, say=print, environ=environ)
    assert "conda ended with status 3" in caught.value.what
    assert "CondaError: no such channel" in caught.value.what
    assert caught.value.where
    assert "no such channel" in Path(caught.value.where).read_text()
    after = environments.state(source, places, environ=environ)
    assert (after.status, after.folder) == ("outdated", first.folder)
    assert folders.builds_of(places, "own") == [first.folder]
    (binaries / "broken").unlink()
    assert environments.create(source, places, say=print, environ=environ).status == "ready"


def test_nothing_is_built_twice(tmp_path: Path) -> None:
    source, places = module_of(tmp_path, yml=YML), places_of(tmp_path, manager="conda")
    binaries = install(tmp_path / "bin", "conda")
    for _ in range(2):
        environments.create(source, places, say=print, environ=environ_of(binaries))
    assert len(calls(binaries)) == 1
    held = claims.take(places.environment_claim("own"), stale=60)
    assert environments.create(source, places, say=print, environ=environ_of(binaries)).status == "ready"
    held.release()


def test_what_another_builder_finished_meanwhile_is_taken(tmp_path: Path) -> None:
    source, places = module_of(tmp_path, yml=YML), places_of(tmp_path, manager="conda")
    binaries = install(tmp_path / "bin", "conda")
    gone = replace(claims.myself(), started="0")
    claims.take(places.environment_claim("own"), stale=60, me=gone)
    said: list[str] = []

    def say(text: str) -> None:
        if not said:
            other = places_of(tmp_path / "elsewhere", manager="conda", environments=str(places.environments))
            moved = claims.take(other.environment_claim("own"), stale=0)
            building.build(source, places, environ_of(binaries), moved, said.append)
            moved.release()
        said.append(text)

    made = environments.create(source, places, say=say, environ=environ_of(binaries), stale=1.0)
    assert made.status == "ready"
    assert said[-1].endswith("built meanwhile")
    assert len(calls(binaries)) == 1


def test_left_overs_go_even_where_the_next_build_fails(tmp_path: Path) -> None:
    source, places = module_of(tmp_path, yml=YML), places_of(tmp_path, manager="conda")
    binaries = install(tmp_path / "bin", "conda")
    (binaries / "broken").touch()
    left_over = folders.fresh_folder(places, "own", "0" * 64)
    left_over.mkdir(parents=True)
    with pytest.raises(ModuleEnvironmentError):
        environments.create(source, places, say=print, environ=environ_of(binaries))
    assert folders.builds_of(places, "own") == []


def test_an_environment_that_lacks_what_the_inner_layer_needs_is_refused(tmp_path: Path) -> None:
    source, places = module_of(tmp_path, yml=YML), places_of(tmp_path, manager="conda")
    binaries = install(tmp_path / "bin", "conda")
    bare = f"{sys.base_prefix}/bin/python3"
    (binaries / "conda").write_text((binaries / "conda").read_text().replace(f"exec {sys.executable}",
                                                                             f"exec {bare} -S"))
    with pytest.raises(ModuleEnvironmentError, match="pydantic"):
        environments.create(source, places, say=print, environ=environ_of(binaries))
    assert environments.state(source, places, environ=environ_of(binaries)).status == "missing"


def test_a_manager_that_went_away_is_replaced_by_one_that_is_there(tmp_path: Path) -> None:
    source, places = module_of(tmp_path, yml=YML), places_of(tmp_path)
    environments.create(source, places, say=print, environ=environ_of(install(tmp_path / "a", "conda")))
    module_of(tmp_path, yml=YML + "# changed\n")
    made = environments.create(source, places, say=print, environ=environ_of(install(tmp_path / "b", "micromamba")))
    assert (made.status, made.manager) == ("ready", "micromamba")


def test_a_second_builder_is_told_who_is_at_it(tmp_path: Path) -> None:
    source, places = module_of(tmp_path, yml=YML), places_of(tmp_path, manager="conda")
    binaries = install(tmp_path / "bin", "conda")
    held = claims.take(places.environment_claim("own"), stale=60)
    with pytest.raises(ClaimedError, match=r"held by .*process"):
        environments.create(source, places, say=print, environ=environ_of(binaries))
    assert calls(binaries) == []
    held.release()
    results: list[str] = []

    def build() -> None:
        try:
            results.append(environments.create(source, places, say=lambda _: None, environ=environ_of(binaries)).status)
        except ClaimedError:
            results.append("told")

    threads = [threading.Thread(target=build) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "ready" in results and set(results) <= {"ready", "told"}
    assert len(calls(binaries)) == 1
