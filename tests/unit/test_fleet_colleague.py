"""A fleet in a workspace that two users share: the other one is told whose it is, and his own work goes on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from automate.cluster.local.executor import LocalCluster
from automate.errors import ConfigError
from automate.fleet_places import FleetPlaces
from automate.fleets.handing import make_fleet
from automate.fleets.jobs import fleets_of, fleets_of_others, refuse_others
from automate.serving.fleet.records import FleetSpec, Group
from tests.e2e.support import JUDGE, PROJECT, make_workspace

NOBODY = 65534
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="starts a process of another user: needs root")
WHOSE = "the fleet 'mine' is root's: only they can see and use it"


def fleet(root: Path, name: str) -> FleetPlaces:
    """A fleet of this user with a server that was never submitted."""
    places = FleetPlaces(root, name)
    group = Group(1, "m", str(places.script(1)), 1, 1)
    spec = FleetSpec(name, "id", "0", time.time(), "root", "local", (group,), "print")
    make_fleet(places, spec, {1: "#!/bin/bash\n"}, cluster=LocalCluster(root / "q", root, 1))
    return places


@pytest.fixture
def shared() -> Iterator[Path]:
    """A workspace that everybody may change, with a fleet of this user; not in pytest's folders, which are closed."""
    top = Path(tempfile.mkdtemp(prefix="flock-hpc-shared-"))
    root = make_workspace(top / "w", questions=2)
    fleet(root, "mine")
    for path in (top, root, *(path for path in root.rglob("*") if ".flock-hpc/fleets/mine" not in path.as_posix())):
        path.chmod(path.stat().st_mode | (0o777 if path.is_dir() else 0o666))
    yield root
    shutil.rmtree(top, ignore_errors=True)


COMMANDS = """
import contextlib, importlib, io, json, os, pkgutil, sys
import automate
from automate.cli.main import main
told = json.loads(sys.argv[1])
for module in pkgutil.walk_packages(automate.__path__, "automate."):
    if not module.name.startswith(("automate.validation", "automate.__main__")):
        with contextlib.suppress(ImportError, SystemExit):
            importlib.import_module(module.name)

def run(args):
    said, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
        status = main(args)
    return {"status": status, "out": said.getvalue(), "err": errors.getvalue()}

os.chdir(told["warm"])
for args in told["commands"]:  # what is imported late can't be read by the other user
    run([one for one in args if one != "--submit"])
os.chdir(told["root"])
os.setgroups([])
os.setgid(told["uid"])
os.setuid(told["uid"])
print(json.dumps([run(args) for args in told["commands"]]))
"""


def colleague(root: Path, *commands: tuple[str, ...]) -> list[dict[str, Any]]:
    """Status, output and errors of commands as another user has them."""
    warm = make_workspace(root.parent / "warm", questions=2)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLOCK_HPC_")}
    told = {"uid": NOBODY, "commands": commands, "root": str(root), "warm": str(warm)}
    done = subprocess.run([sys.executable, "-c", COMMANDS, json.dumps(told)], cwd=PROJECT, capture_output=True,
                          text=True, check=False, timeout=120, env={**kept, "HOME": str(root), "COLUMNS": "200"})
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@AS_ROOT
def test_another_users_fleet_is_named_as_theirs(shared: Path) -> None:
    asked = {("serve", "--status"): 0, ("serve", "--status", "--name", "mine"): 1, ("serve", "--stop"): 1,
             ("serve", "--scale", "2"): 1, ("router",): 1, ("router", "--name", "mine"): 1,
             ("serve", JUDGE, "--name", "mine", "--submit"): 1, ("serve", JUDGE, "--name", "mine"): 1}
    for (args, status), done in zip(asked.items(), colleague(shared, *asked), strict=True):
        assert WHOSE in " ".join((done["out"] + done["err"]).split()), (args, done)
        assert (done["status"], "Traceback" in done["err"]) == (status, False), args


@AS_ROOT
def test_the_other_users_own_work_goes_on(shared: Path) -> None:
    monitor, status, own = colleague(shared, ("monitor", "--json"), ("serve", "--status", "--json"),
                                     ("serve", JUDGE, "--name", "his"))
    assert monitor["status"] == 0, monitor["err"]
    assert any(WHOSE in problem for problem in json.loads(monitor["out"])["problems"])
    found = json.loads(status["out"])
    assert (found["fleets"], found["others"]) == ([], {"mine": "root"})
    assert own["status"] == 0, own["err"]
    assert "nothing was submitted" in own["out"]


def test_ones_own_fleet_is_nobody_elses(tmp_path: Path) -> None:
    fleet(tmp_path, "mine")
    assert (fleets_of(tmp_path), fleets_of_others(tmp_path)) == (["mine"], {})
    refuse_others(tmp_path, "mine")
    refuse_others(tmp_path, None)


def test_a_folder_that_is_closed_is_another_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet(tmp_path, "mine")
    plain = Path.is_file

    def closed(path: Path) -> bool:
        if path.name == "fleet.json":
            raise PermissionError(13, "Permission denied", str(path))
        return plain(path)

    monkeypatch.setattr(Path, "is_file", closed)
    assert fleets_of(tmp_path) == []
    assert list(fleets_of_others(tmp_path)) == ["mine"]
    for name in ("mine", None):
        with pytest.raises(ConfigError, match="only they can see and use it"):
            refuse_others(tmp_path, name)
