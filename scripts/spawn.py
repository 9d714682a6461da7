#!/usr/bin/env python3
"""Set up all processes of benchmark pools, and print their ids: token, pool, router and the data set siqa.

What the spec's spawn script does, carried out by 'flock-hpc pool'. The same again changes nothing.
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
    out.add_argument("--key", metavar="NAME", help="who owns the data set: a key's name or file (default: 'default')")
    out.add_argument("--name", default="siqa", metavar="NAME", help="what the data set is called (default: siqa)")
    return out


def commands(given: argparse.Namespace) -> "list[list[str]]":
    """flock-hpc's arguments, command by command."""
    place = ["--workspace", given.workspace] if given.workspace is not None else []
    key = ["--key", given.key] if given.key is not None else []
    return [["pool", "dataset", "create", *place, *key, "--quiet", "--name", given.name, "siqa"],
            ["pool", "processes", *place]]


if __name__ == "__main__":
    sys.exit(run(*commands(parser().parse_args())))
