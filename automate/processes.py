"""Processes of this machine, by /proc and prctl(2): who is below whom, and who lives.

Standard library only, so that a guard process starts fast. Never ends a process by itself."""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path

PR_SET_PDEATHSIG, PR_GET_DUMPABLE, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 3, 4, 36
MOUNTS = Path("/proc/self/mounts")


def prctl(option: int, value: int) -> None:
    """Linux's prctl(2); a failure is ignored, as every use of it is a second line of defence."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def keep_private(mounts: Path = MOUNTS) -> bool:
    """Keep other processes of the same user from this one's memory and environment; whether that is so now.

    What it starts is as open as ever. Nothing is done where /proc hides such a process whole (`hidepid`): nobody could
    see then that it lives, and its claims would be taken for a dead one's. Root reads everything anyway.
    """
    if hides_processes(mounts):
        return False
    prctl(PR_SET_DUMPABLE, 0)
    with contextlib.suppress(OSError, AttributeError):
        return int(ctypes.CDLL(None).prctl(PR_GET_DUMPABLE, 0, 0, 0, 0)) == 0
    return False


def hides_processes(mounts: Path = MOUNTS) -> bool:
    """Whether /proc is mounted with `hidepid`, or nobody can say."""
    try:
        lines = [line.split() for line in mounts.read_text(errors="replace").splitlines()]
    except OSError:
        return True
    options = [option for line in lines if len(line) > 3 and line[1:3] == ["/proc", "proc"]
               for option in line[3].split(",")]
    return any(option.startswith("hidepid=") and option not in ("hidepid=0", "hidepid=off") for option in options)


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; empty where there is no such process."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def process_start(pid: int) -> str | None:
    """Start time of a process in clock ticks since boot, or None where no such process runs."""
    fields = _stat(pid)
    return fields[19] if len(fields) > 19 and fields[0] not in {"Z", "X"} else None


def descendants(root: int) -> list[int]:
    """Processes below `root`, parents before children; ended ones that nobody collected are left out."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if len(fields) > 1 and fields[0] != "Z":
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    todo = [root]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return found
