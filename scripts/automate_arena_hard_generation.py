#!/usr/bin/env python3
"""Generate models' Arena-Hard answers: this command's options, carried out by flock-hpc.

The list of models is arena_hard_models_to_test.txt, unless --models, --models-file, --missing-models-file or --all
names others. Nothing is submitted without --submit. Settings are in flock-hpc.yaml of the workspace.
"""

# Any python3 from 3.6 on may start this file, so it keeps to that syntax; flock-hpc itself needs 3.11.
import argparse
import os
import shlex
import shutil
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve()


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    out = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = out.add_argument_group("which models (one of these; default: the workspace's models file)")
    one = which.add_mutually_exclusive_group()
    one.add_argument("--models", nargs="+", metavar="NAME", help="these models")
    one.add_argument("--models-file", metavar="FILE", help="the models in this file, one name a line")
    one.add_argument("--missing-models-file", metavar="FILE", help="the same: a list of models that lack answers")
    one.add_argument("--all", action="store_true", help="models of api_config.yaml that match models_pattern")
    what = out.add_argument_group("what to do with them (default: as with --dry-run)")
    what.add_argument("--dry-run", action="store_true", help="write job scripts and configs, submit nothing")
    what.add_argument("--submit", action="store_true", help="submit the jobs")
    how = out.add_argument_group("how")
    how.add_argument("--batch-size", type=int, metavar="N", help="models a job (default: generate.batch_size)")
    how.add_argument("--workspace", metavar="DIR", help="the workspace (default: this folder or one above it)")
    how.add_argument("--executor", choices=["auto", "slurm", "local"], help="where jobs run")
    how.add_argument("--limit-questions", type=int, metavar="N", help="only the first N questions: a smoke run")
    how.add_argument("--skip-missing", action="store_true", help="leave out models that are not ready")
    how.add_argument("--wait", action="store_true", help="with --submit: follow the jobs to their end")
    return out


def arguments(given: argparse.Namespace) -> "list[str]":
    """flock-hpc's arguments. Where both actions are given, the more careful one counts."""
    out = ["generate"]
    for option, value in (("--workspace", given.workspace), ("--executor", given.executor),
                          ("--limit-questions", given.limit_questions), ("--batch-size", given.batch_size),
                          ("--models-file", given.models_file or given.missing_models_file)):
        if value is not None:
            out += [option, str(value)]
    for name in given.models or []:
        out += ["--models", name]
    if given.all:
        out.append("--from-api-config=")
    if given.skip_missing:
        out.append("--skip-missing")
    if given.dry_run or not given.submit:
        return [*out, "--dry-run"]
    return [*out, "--submit", *(["--wait"] if given.wait else [])]


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


def main() -> int:
    """Translate the options and carry them out; the exit status."""
    options = parser()
    given = options.parse_args()
    if given.wait and (given.dry_run or not given.submit):
        options.error("--wait needs --submit")
    if not (given.submit or given.dry_run):
        words = " ".join(shlex.quote(word) for word in ["python3", sys.argv[0], *sys.argv[1:], "--submit"])
        print(f"Nothing will be submitted. To submit:  {words}\n")
    return run(arguments(given))


if __name__ == "__main__":
    sys.exit(main())
