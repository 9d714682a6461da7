"""The inner layer: `python -m automate.validation.runner ASSIGNMENT_DIR` does one assignment with one module.

Needs pydantic and what the module declares; never talks to the API. What it prints is the module's log."""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from automate.validation.inner import words
from automate.validation.inner.files import Outcome, Result, read_run, write_result
from automate.validation.inner.stopping import Stopped
from automate.validation.inner.working import Start

WROTE, NO_RESULT, USAGE, REFUSED = 0, 1, 2, 3
"""Exit statuses; 128 + n after signal n, with no result."""


def _say(line: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # a log that is closed or full takes no result away
        print(line, file=sys.stderr, flush=True)


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m automate.validation.runner",
                                     description="Do one assignment with the module that its run.json names.")
    parser.add_argument("folder", type=Path, help="the assignment's folder")
    parser.add_argument("--step", type=int, choices=(1, 2), default=1, help="2: finish what the first step left")
    parser.add_argument("--check", action="store_true", help="read module, config and input only")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """0: `result.json` is written (or `--check` found nothing); 3: `--check` found something, which it says there.

    1: no result could be written; 2: the command itself is wrong; 128 + n: told to stop by signal n.
    """
    asked = _arguments(sys.argv[1:] if argv is None else argv)
    folder = asked.folder.absolute()
    try:
        run = read_run(folder)
    except (OSError, ValueError) as error:
        _say(f"{words.plain(str(folder), 300)}: no assignment to do: {words.of(error)}")
        return USAGE
    start = Start(folder, run, asked.step, os.environ, _say)
    try:
        return _check(start) if asked.check else _write(start, start.work())
    except Stopped as stopped:
        _say(f"{run.assignment_id}: {stopped}; there is no result")
        return 128 + stopped.number


def _check(start: Start) -> int:
    try:
        start.check()
    except Exception as error:
        return _write(start, start.verdict(error)) or REFUSED
    return WROTE


def _write(start: Start, result: Result) -> int:
    try:
        write_result(start.folder, result)
    except (OSError, ValueError) as error:
        _say(f"{result.assignment_id}: the result can't be written: {words.of(error)}")
        return NO_RESULT
    why = f" ({result.cause}): {result.reason}" if result.outcome is not Outcome.COMPLETED and result.cause else ""
    _say(f"{words.plain(result.assignment_id, 80)}: {result.module} {result.outcome.value}{why}")
    return WROTE


def _end(status: int) -> None:
    """End at once: a module's threads can't hold it up, and what its libraries do at exit can't change the status."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    faulthandler.enable()
    sys.path[:] = [entry for entry in sys.path if entry not in ("", str(Path.cwd()))]
    _end(main())
