"""What a process keeps to itself, and what others must still see of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from automate.processes import hides_processes, keep_private
from tests.unit.support import ROOT

NOBODY = 65534
SEES = """
import os, sys
parent = f"/proc/{os.getppid()}"
def opens(name):
    try:
        with open(f"{parent}/{name}", "rb") as file:
            file.read(1)
        return True
    except OSError:
        return False
print(opens("environ"), opens("mem") or opens("auxv"), opens("stat"))
print(open("/proc/self/environ", "rb").read() != b"")
"""
HOLDS = f"""
import ctypes, os, subprocess, sys
sys.path.insert(0, {str(ROOT)!r})
from automate.processes import keep_private, process_start
if sys.argv[1] == "private":
    print(keep_private(), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
print(process_start(os.getpid()) is not None, os.readlink("/proc/self/ns/pid") != "", flush=True)
subprocess.run([sys.executable, "-c", {SEES!r}], check=True)
"""


def hold(kind: str, **values: object) -> list[str]:
    python = sys.executable if not values else shutil.which("python3", path="/usr/bin:/usr/local/bin") or "python3"
    done = subprocess.run([python, "-c", HOLDS, kind], capture_output=True, text=True, cwd="/", timeout=60,
                          **values)  # type: ignore[call-overload]
    return str(done.stdout).splitlines() if done.returncode == 0 else [str(done.stderr)]


def test_it_is_private_and_its_children_are_as_ever() -> None:
    if hides_processes():
        pytest.skip("/proc is mounted with hidepid here")
    lines = hold("private")
    assert lines[0] == "True 0"
    assert lines[1] == "True True"
    assert lines[2].endswith(" True") and lines[3] == "True"


def test_others_of_the_same_user_see_that_it_lives_and_nothing_else() -> None:
    if hides_processes():
        pytest.skip("/proc is mounted with hidepid here")
    who = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
    if hold("open", **who)[1:2] != ["True True True"]:
        pytest.skip("no user without rights can run Python here, and root reads everything")
    assert hold("private", **who)[2] == "False False True"


@pytest.mark.parametrize(("options", "hides"), [
    ("rw,nosuid", False), ("rw,hidepid=0", False), ("rw,hidepid=off,gid=4", False), ("rw,hidepid=1", True),
    ("rw,hidepid=invisible", True), ("rw,gid=4,hidepid=ptraceable", True)])
def test_where_processes_are_hidden_nothing_is_done(tmp_path: Path, options: str, hides: bool) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"sysfs /sys sysfs rw,hidepid=2 0 0\nproc /proc proc {options} 0 0\n")
    assert hides_processes(mounts) is hides
    assert not (hides and keep_private(mounts))


def test_without_a_list_of_mounts_nothing_is_done(tmp_path: Path) -> None:
    assert hides_processes(tmp_path / "none") and not keep_private(tmp_path / "none")
