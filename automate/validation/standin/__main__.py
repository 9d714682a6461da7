"""The stand-in of the Flock API as a program: prints its base URL, serves until SIGTERM, then writes its books.

Never listens on anything but this machine; the key it accepts comes from the environment."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from automate.errors import DataError, FlockError, StorageError
from automate.journal import parse_object, write_json
from automate.validation.secrets import read_key
from automate.validation.standin.plan import Plan, plan_of
from automate.validation.standin.server import StandIn


def read_plan(path: Path | None) -> Plan:
    """The plan in a file; the usual one without a file. Raises ConfigError, DataError, StorageError."""
    if path is None:
        return Plan()
    try:
        return plan_of(parse_object(path.read_bytes()), str(path))
    except OSError as error:
        raise StorageError.of(error, path, "read the plan") from error
    except ValueError as error:
        raise DataError(str(error), where=str(path)) from error


def write_books(standin: StandIn, path: Path) -> None:
    """All that the stand-in saw and gave, as one JSON document."""
    with standin.books.lock:
        whole = {"assignments": {name: asdict(record) for name, record in standin.assignments.items()},
                 "calls": [asdict(call) for call in standin.calls], "violations": standin.violations,
                 "rate_limited": standin.books.rate_limited, "waiting": standin.books.left()}
    write_json(path, json.loads(json.dumps(whole, default=list)))


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m automate.validation.standin", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one (default)")
    parser.add_argument("--plan", type=Path, metavar="FILE", help="JSON with the fields of Plan and TaskPlan")
    parser.add_argument("--books", type=Path, metavar="FILE", help="where the books go at the end")
    parser.add_argument("--key-env", default="FLOCK_API_KEY", metavar="NAME", help="variable with the key it accepts")
    args = parser.parse_args(argv)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    try:
        plan, key = read_plan(args.plan), read_key(os.environ, args.key_env)
        if key is None and not plan.key:
            parser.error(f"set {args.key_env} to the key that it is to accept")
        with StandIn(replace(plan, key=key or plan.key), port=args.port) as standin:
            print(standin.base_url, flush=True)
            ended.wait()
        if args.books is not None:
            write_books(standin, args.books)
    except (FlockError, OSError) as error:
        print(f"the stand-in can't go on: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
