"""What all pool commands share: workspace, key and place of the database, and how a message becomes an answer.

No logic of its own; money, pools and data sets know nothing of it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from automate.cli.options import workspace_option

if TYPE_CHECKING:
    from automate.pool_places import PoolPlaces
    from automate.pools.desk import Desk
    from automate.pools.keys import Key
    from automate.pools.messages import Receipt
    from automate.workspace import Workspace

F = TypeVar("F", bound=Callable[..., Any])
DASHED = re.compile(r"-[A-Za-z0-9_][A-Za-z0-9_-]{4,41}|--[A-Za-z0-9_-]{41}|--[A-Za-z0-9_-]{8}|-[0-9.]+")
"""An id, or the beginning of one that is shown, that begins with a dash; a number."""
KEY_VARIABLE = "FLOCK_HPC_POOL_KEY"
NEW = """# Settings of this workspace; see docs/settings.md. Everything has its default so far.
pools: {}
"""


class IdCommand(click.Command):
    """A command that takes ids, which may begin with a dash: one that is no option of its own is an argument."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, ids_last(args, {name: takes_value(one) for one in self.get_params(ctx)
                                                       for name in (*one.opts, *one.secondary_opts)}))


def takes_value(param: click.Parameter) -> bool:
    """Whether the word after an option belongs to it."""
    return isinstance(param, click.Option) and not param.is_flag and not param.count


def ids_last(args: Sequence[str], options: Mapping[str, bool]) -> list[str]:
    """Arguments with ids that begin with a dash at the end, behind `--`. `options`: whether each takes a value."""
    words: list[str] = []
    ids: list[str] = []
    for place, word in enumerate(args):
        if word == "--":
            return [*words, "--", *ids, *args[place + 1:]]
        valued = bool(words) and options.get(words[-1], False) and (place == 0 or args[place - 1] == words[-1])
        if not valued and word not in options and DASHED.fullmatch(word):
            ids.append(word)
        else:
            words.append(word)
    return [*words, "--", *ids] if ids else words


def now_ms() -> int:
    """The time: milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def key_option(function: F) -> F:
    """`--key`: who sends."""
    return click.option("--key", "key_name", envvar=KEY_VARIABLE, metavar="NAME|FILE",
                        help=f"Who sends: a key's name, or a file (default: 'default', or {KEY_VARIABLE}).")(function)


def url_option(function: F) -> F:
    """`--url`: another machine's `pool serve`."""
    return click.option("--url", metavar="URL", help="Ask a 'pool serve' at this address, not the workspace's own "
                                                     "database.")(function)


def common_options(function: F) -> F:
    """Workspace, key and address."""
    return workspace_option(key_option(url_option(function)))


def executor_option(function: F) -> F:
    """Where evaluation jobs run."""
    return click.option("--executor", type=click.Choice(["auto", "slurm", "local"]),
                        help="Where jobs run (default: Slurm if it is on this machine, else here).")(function)


def open_pools(workspace_dir: Path | None, *, make: bool = False) -> tuple[Workspace, PoolPlaces]:
    """The workspace and the places of its pools. With `make`, a flock-hpc.yaml is written where there is none."""
    import os

    from automate.errors import WorkspaceError
    from automate.journal import replace_file
    from automate.pool_places import PoolPlaces
    from automate.workspace import SETTINGS_FILE, find_root, open_workspace

    try:
        root = find_root(workspace_dir)
    except WorkspaceError:
        root = (workspace_dir or Path()).resolve()
        if not make or not root.is_dir() or (workspace_dir is None and os.environ.get("FLOCK_HPC_WORKSPACE")):
            raise
        replace_file(root / SETTINGS_FILE, NEW.encode())
        click.echo(f"made {root / SETTINGS_FILE}", err=True)
    workspace = open_workspace(root)
    return workspace, PoolPlaces(workspace.root, workspace.settings.pools)


@dataclass(frozen=True)
class Counter:
    """What a command stands at: a desk to ask and to send by, and the keys that it may sign with."""

    desk: Desk
    places: PoolPlaces
    key_name: str | None

    def key(self, name: str | None = None) -> Key:
        """The key that is named, or that of the command. Raises ConfigError."""
        from automate.pools.keys import find_key

        return find_key(self.places, name or self.key_name)

    def find(self, kind: str, given: str) -> str:
        """A whole id from a name, number or beginning of an id. Raises PoolError."""
        return str(self.desk.ask("find", kind=kind, given=given))

    def held(self, address: str) -> str:
        """What an address has, for a person; by a message where a question can't be asked."""
        found = answer_of(self.desk.ask("balance", account=address, last=0))
        return f"{found['balance']:,}"

    def send(self, target: str, action: str, data: str = "", tags: Mapping[str, str] | None = None, *,
             key: Key | None = None) -> Receipt:
        """Sign a message and send it, to a process by its name or id; whatever became of it."""
        signed = (key or self.key()).sign(self.find("account", target), action, data, tags, timestamp=now_ms())
        return self.desk.send(signed)

    def must(self, target: str, action: str, data: str = "", tags: Mapping[str, str] | None = None, *,
             key: Key | None = None) -> Receipt:
        """As `send`. Raises PoolError where the message was refused, or answered with an error."""
        return fine(self.send(target, action, data, tags, key=key))



def fine(receipt: Receipt) -> Receipt:
    """A receipt of a message that had its effect. Raises PoolError with the reason otherwise."""
    from automate.errors import PoolError

    problem = problem_of(receipt)
    if problem is not None:
        raise PoolError(*problem.partition("; ")[:1], todo=problem.partition("; ")[2] or None)
    return receipt


def problem_of(receipt: Receipt) -> str | None:
    """Why a message had no effect, or not the one that was meant; None where all is well."""
    if receipt.state in ("refused", "failed"):
        return receipt.error or f"the message was {receipt.state}"
    errors = [reply for reply in receipt.replies if str(reply.get("Action", "")).endswith("-Error")]
    return (tag(errors[0], "Error") or str(errors[0].get("Data"))) if errors else None


def tag(message: Mapping[str, object], name: str) -> str | None:
    """A tag's value of a message as JSON."""
    tags = message.get("Tags")
    for one in tags if isinstance(tags, Sequence) else ():
        if isinstance(one, Mapping) and one.get("name") == name:
            return str(one.get("value"))
    return None


def answer(receipt: Receipt, action: str) -> dict[str, Any]:
    """The Data of the reply with this Action, as a JSON object; empty where there is none."""
    import json

    for reply in receipt.replies:
        if reply.get("Action") == action:
            try:
                found = json.loads(str(reply.get("Data") or "{}"))
            except ValueError:
                return {}
            return found if isinstance(found, dict) else {"data": found}
    return {}


def answer_of(value: object) -> dict[str, Any]:
    """An answer that is a JSON object."""
    return value if isinstance(value, dict) else {}


def rows_of(value: object) -> list[dict[str, Any]]:
    """An answer that is a list of JSON objects."""
    return value if isinstance(value, list) else []


def names_of(desk: Counter) -> dict[str, str]:
    """Names of the addresses that are known here: processes, keys, and one's own key as `me`."""
    import contextlib

    from automate.errors import FlockError
    from automate.pools.keys import load_key

    known = rows_of(desk.desk.ask("processes"))
    names = {str(one["owner"]): "genesis" for one in known if one["kind"] == "token"}
    names |= {str(one["id"]): str(one["name"]) for one in known}
    for file in sorted(desk.places.keys.glob("*.pem")):
        with contextlib.suppress(FlockError):  # a key that can't be used names nobody
            names.setdefault(load_key(file).address, file.stem)
    with contextlib.suppress(FlockError):  # who only looks needs no key
        names[desk.key().address] = "me"
    return names


def show_json(value: object) -> None:
    """An answer as one JSON document."""
    from automate.cli.views.pools_files import as_json

    click.echo(as_json(value), nl=False)


@contextmanager
def counter(workspace_dir: Path | None, key_name: str | None = None, url: str | None = None, *,
            make: bool = True, signs: bool = True) -> Iterator[Counter]:
    """Open the database, or reach who serves it. A database that is made is said, with its genesis key.

    make: False for who only looks. signs: whether the command needs a key of its own; then none is made in vain.
    """
    from automate.pools.keys import GENESIS, find_key

    _, places = open_pools(workspace_dir)
    if make and signs and key_name != GENESIS:
        find_key(places, key_name)
    if url is not None:
        from automate.cli.pool.remote import HttpDesk

        yield Counter(HttpDesk(url, lambda: find_key(places, key_name)), places, key_name)
        return
    from automate.pools.desk import open_desk

    new = not places.key(GENESIS).exists()
    with open_desk(places, clock=now_ms, make=make) as desk:
        if new and places.key(GENESIS).exists():
            address = find_key(places, GENESIS).address
            click.echo(f"made {places.database}\nmade {places.key(GENESIS)}\n  the genesis key, which mints tokens: "
                       f"keep a copy, and show it to nobody. Its address: {address}", err=True)
        yield Counter(desk, places, key_name)
