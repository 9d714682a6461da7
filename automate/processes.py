"""Processes of this machine, by /proc and prctl(2): who is below whom, and who lives.

Standard library only, so that a guard process starts fast. Never ends a process by itself."""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def prctl(option: int, value: int) -> None:
    """Linux's prctl(2); a failure is ignored, as every use of it is a second line of defence."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


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
