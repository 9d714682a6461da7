"""Carries out flock-hpc commands for the scripts beside it, wherever flock-hpc is installed.

Never holds an option of its own."""

# Any python3 from 3.6 on may load this file, so it keeps to that syntax; flock-hpc itself needs 3.11.
import shutil
import subprocess
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


def run(*commands: "list[str]") -> int:
    """Carry out flock-hpc commands one after the other, up to the first that fails; its exit status."""
    try:
        from automate.cli.main import main as flock_hpc
    except (ImportError, SyntaxError):  # not installed for this python3, or this one is too old
        command = elsewhere()
        if command is None:
            print(f"flock-hpc was not found: not by {sys.executable}, not in a .venv near {SCRIPT}, not on PATH.\n"
                  "  -> install it with 'pip install .' in its checkout and activate that environment",
                  file=sys.stderr)
            return 1
        statuses = (subprocess.call(command + argv) for argv in commands)
    else:
        statuses = (flock_hpc(argv) for argv in commands)
    return next((status for status in statuses if status), 0)
