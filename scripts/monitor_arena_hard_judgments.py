#!/usr/bin/env python3
"""Show how far a workspace's judgments are: jobs, models, failures, logs. Options are those of 'flock-hpc monitor'."""

# Any python3 from 3.6 on may start this file, so it keeps to that syntax; flock-hpc itself needs 3.11.
import os
import shutil
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve()


def elsewhere() -> "list[str] | None":
    """The command that starts a flock-hpc of another Python: of the checkout's .venv, one beside this, or PATH's."""
    for folder in (SCRIPT.parent.parent, SCRIPT.parent):
        python = folder / ".venv" / "bin" / "python"
        if python.is_file() and python.with_name("flock-hpc").is_file():
            return [str(python), "-P", "-m", "automate"]
    found = shutil.which("flock-hpc")
    return [found] if found else None


def run(argv: "list[str]") -> int:
    """Carry out a flock-hpc command here, or in place of this process where another Python has flock-hpc."""
    try:
        from automate.cli.main import main as flock_hpc
    except (ImportError, SyntaxError):  # not installed for this python3, or this one is too old
        command = elsewhere()
    else:
        return flock_hpc(argv)
    if command is not None:
        sys.stdout.flush()
        os.execv(command[0], command + argv)  # noqa: S606 - the very purpose
    print(f"flock-hpc was not found: not by {sys.executable}, not in a .venv near {SCRIPT}, not on PATH.\n"
          "  -> install it with 'pip install .' in its checkout and activate that environment", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(run(["monitor", *sys.argv[1:]]))
