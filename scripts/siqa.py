#!/usr/bin/env python3
"""Set up the data set siqa, load its questions, have a model evaluated on it, and look at it.

What the spec's siqa script does, carried out by 'flock-hpc pool'. The questions themselves are in no file of this
project: FILE has one JSON object a line (or an array of them, or CSV) with the fields context, question, answerA,
answerB, answerC and result.
"""

# Any python3 from 3.6 on may start this file, so it keeps to that syntax; flock-hpc itself needs 3.11.
import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from scripts.flock_hpc_command import run


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    out = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    out.add_argument("--workspace", metavar="DIR", help="the workspace (default: this folder or one above it)")
    out.add_argument("--key", metavar="NAME", help="who sends: a key's name or file (default: 'default')")
    out.add_argument("--name", default="siqa", metavar="NAME", help="what the data set is called (default: siqa)")
    commands = out.add_subparsers(dest="command", metavar="init|load-data|benchmark|evaluate|info")
    commands.required = True
    commands.add_parser("init", help="make the data set and its tables; the same again changes nothing")
    load = commands.add_parser("load-data", help="load questions; the same again adds nothing")
    load.add_argument("file", metavar="FILE")
    benchmark = commands.add_parser("benchmark", help="make all questions due for a model")
    benchmark.add_argument("model", metavar="MODEL")
    evaluate = commands.add_parser("evaluate", help="put questions that are due on the way to their models")
    evaluate.add_argument("limit", nargs="?", metavar="N", help="at most so many (default: pools.evaluate_limit)")
    evaluate.add_argument("--model", metavar="MODEL", help="only of this model")
    commands.add_parser("info", help="what the data set holds, and how far its evaluations are")
    return out


def arguments(given: argparse.Namespace) -> "list[str]":
    """flock-hpc's arguments."""
    who = [word for name in ("workspace", "key") if getattr(given, name) is not None
           for word in ("--" + name, getattr(given, name))]
    if given.command == "info":
        return ["pool", "dataset", "info", *who, "--", given.name]
    if given.command in ("init", "load-data"):
        load = ["--from", given.file] if given.command == "load-data" else []
        return ["pool", "dataset", "create", *who, "--name", given.name, *load, "siqa"]
    send = ["pool", "send", *who, "--target", given.name]
    if given.command == "benchmark":
        return [*send, "--action", "Benchmark", "--data", given.model]
    return [*send, "--action", "Evaluate", *(["--tag", "Model=" + given.model] if given.model else []),
            *(["--data", given.limit] if given.limit else [])]


if __name__ == "__main__":
    sys.exit(run(arguments(parser().parse_args())))
