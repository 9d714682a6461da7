"""What preflight says: findings with stable codes, and small helpers to write them.

Never checks anything itself."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from automate.errors import FlockError, StorageError

Run = Callable[[Sequence[str]], tuple[int, str]]


class Level(StrEnum):
    """How much a finding matters; an error stops its model, or the campaign where it names no model."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """One thing that was found. `code` is stable; `model` is None where it concerns the whole campaign."""

    code: str
    level: Level
    subject: str
    what: str
    todo: str = ""
    model: str | None = None


def _finding(level: Level, code: str, subject: str, what: str, todo: str = "", model: str | None = None) -> Finding:
    return Finding(code, level, subject, what, todo, model)


passed, note = partial(_finding, Level.OK), partial(_finding, Level.NOTE)
warning, error = partial(_finding, Level.WARNING), partial(_finding, Level.ERROR)


def from_error(code: str, subject: str, problem: FlockError | OSError, model: str | None = None) -> Finding:
    """The finding that an error is."""
    told = StorageError.of(problem, problem.filename or subject, "read it") if isinstance(problem, OSError) else problem
    return error(code, told.where or subject, told.what, told.todo or "", model)


def some(items: Collection[str], most: int = 5) -> str:
    """The first few items, and how many more there are."""
    rest = len(items) - most
    return ", ".join(list(items)[:most]) + (f" and {rest} more" if rest > 0 else "")


def run_command(arguments: Sequence[str]) -> tuple[int, str]:
    """Exit status and output of a local command, run from / without a shell; 127: not there, 124: no end in 60 s."""
    try:
        done = subprocess.run(list(arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/",
                              errors="replace", timeout=60, stdin=subprocess.DEVNULL, check=False)
    except subprocess.TimeoutExpired:
        return 124, "no end within 60 s"
    except OSError as problem:
        return 127, str(problem)
    return done.returncode, done.stdout
