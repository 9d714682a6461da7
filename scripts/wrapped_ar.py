#!/usr/bin/env python3
"""Send tokens to a data set, which pays for its inferences, or to anybody; or ask for a balance.

What the spec's wrappedAR script does, carried out by 'flock-hpc pool'. Amounts are in the token's smallest unit.
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
    commands = out.add_subparsers(dest="command", metavar="transfer|balance")
    commands.required = True
    transfer = commands.add_parser("transfer", help="send tokens")
    transfer.add_argument("quantity", metavar="QUANTITY")
    transfer.add_argument("--to", default="siqa", metavar="NAME|ADDRESS",
                          help="a data set or process by its name, or an address (default: siqa)")
    balance = commands.add_parser("balance", help="what somebody has")
    balance.add_argument("address", nargs="?", default="me", metavar="ADDRESS",
                         help="an address, a key's or data set's name (default: me)")
    return out


def arguments(given: argparse.Namespace) -> "list[str]":
    """flock-hpc's arguments."""
    who = [word for name in ("workspace", "key") if getattr(given, name) is not None
           for word in ("--" + name, getattr(given, name))]
    if given.command == "balance":
        return ["pool", "balance", *who, "--", given.address]
    return ["pool", "send", *who, "--action", "Transfer", "--tag", "Recipient=" + given.to,
            "--tag", "Quantity=" + given.quantity]


if __name__ == "__main__":
    sys.exit(run(arguments(parser().parse_args())))
