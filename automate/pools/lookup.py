"""Which pool, model or data set a message means, and who may ask the pool for what.

Never guesses: what could be several things is refused, with the choices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from automate.errors import PoolError
from automate.pools.exchange import Context, Process
from automate.pools.messages import Message, json_data, parse_json
from automate.pools.store import Row, Statements

EVER = 2**62
"""Later than any time, in ms."""

_POOL = "SELECT rowid AS seq, * FROM pools WHERE id = ?"
_OF_DATASET = "SELECT rowid AS seq, * FROM pools WHERE dataset = ? ORDER BY start_time, rowid"
_SHOWN = 10
"""Pools that an error names: those with the most funds, so that many small ones hide none."""


def pool_of(context: Context, given: str, *, open_only: bool = False) -> Row:
    """The pool that a `dataset` field means: a pool id, or a data set (id or name); see `pool_of_dataset`.

    open_only: it must not be over. Raises PoolError naming the choices.
    """
    row: Row | None = context.db.execute(_POOL, (given,)).fetchone()
    if row is None:
        return _of_dataset(context, given, open_only)
    if open_only and state_of(row, context.now) != "open":
        raise PoolError(f"pool {row['id']} is {state_of(row, context.now)}: it ended at {row['end_time']} (ms)",
                        todo="name a pool that is still open; Get-Pools lists them")
    return row


def _of_dataset(context: Context, given: str, open_only: bool) -> Row:
    dataset = context.process(given)
    if dataset is None or dataset.kind != "dataset":
        raise PoolError(f"there is no pool and no data set {given[:60]!r}", todo="Get-Pools lists all pools")
    states = ("open",) if open_only else ("open", "over")
    return pool_of_dataset(context.db, dataset.id, dataset.name, context.now, states)


def pool_of_dataset(db: Statements, dataset: str, name: str, now: int, states: Sequence[str], *,
                    newest: bool = False) -> Row:
    """The one pool of a data set (id, name) in the first of `states` that any is in. Open means not over.

    newest: where none is in any of them, the one that was opened last. Raises PoolError: several, or none.
    """
    rows: list[Row] = db.execute(_OF_DATASET, (dataset,)).fetchall()
    if not rows:
        raise PoolError(f"data set {name} has no pool", todo="fund one: a Transfer to the pool process with"
                        " X-Dataset and X-Allocation")
    for state in states:
        fitting = [row for row in rows if state_of(row, now) == state]
        if len(fitting) > 1:
            raise PoolError(f"data set {name} has {len(fitting)} pools that are {state}: "
                            f"{_choices(fitting, now)}", todo="name one by its id")
        if fitting:
            return fitting[0]
    if newest:
        return rows[-1]
    raise PoolError(f"data set {name} has no pool that is {' or '.join(states)}: {_choices(rows, now)}",
                    todo="name one by its id")


def _choices(rows: Sequence[Row], now: int) -> str:
    shown = sorted(rows, key=lambda row: (-row["funds"], row["start_time"], row["seq"]))[:_SHOWN]
    more = f", and {len(rows) - len(shown)} with less funds" if len(rows) > len(shown) else ""
    return ", ".join(f"{row['id']} ({state_of(row, now)}, {_age(row, now)})" for row in shown) + more


def _age(pool: Row, now: int) -> str:
    """When a pool ends or ended, in days."""
    days = (now - int(pool["end_time"])) / 86_400_000
    return f"ended {days:.1f} days ago" if days >= 0 else f"ends in {-days:.1f} days"


def state_of(pool: Row, now: int) -> str:
    """open, over (to be paid), paid or refunded. A pool is over from its end time on."""
    state = str(pool["state"])
    return "over" if state == "open" and now >= pool["end_time"] else state


def model_of(db: Statements, given: str) -> Row:
    """The model by process id, name or number. Raises PoolError."""
    row: Row | None = None
    for column in ("process", "name"):
        row = row or db.execute(f"SELECT * FROM models WHERE {column} = ?", (given,)).fetchone()  # noqa: S608
    if row is None and given.isascii() and given.isdigit() and len(given) < 19:
        row = db.execute("SELECT * FROM models WHERE id = ?", (int(given),)).fetchone()
    if row is None:
        raise PoolError(f"there is no model {given[:60]!r}", todo="add it first with Add-Model; Get-Models lists them")
    return row


def dataset_process(context: Context, given: str) -> Process:
    """A data set's process by id or name. Raises PoolError."""
    found = context.process(given) if given else None
    if found is None or found.kind != "dataset":
        raise PoolError(f"there is no data set {given[:60]!r}", todo="name a data set's process; Info lists them")
    return found


def text(data: Mapping[str, object], field: str) -> str:
    """A field of Data as text; numbers too, as ids may be numbers. Raises PoolError."""
    value = data.get(field)
    if isinstance(value, str) and value:
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise PoolError(f"field {field!r} of Data must be text" if field in data else f"Data lacks the field {field!r}",
                    todo=f'send Data as a JSON object with "{field}"')


def until_of(message: Message) -> int:
    """The tag Until of Score and Score-Response: only questions added before it count (ms; without it all do).

    Raises PoolError."""
    given = message.tags.get("Until")
    if given is None:
        return EVER
    if not (given.isascii() and given.isdigit() and len(given) < 19):
        raise PoolError(f"the tag Until {given[:60]!r} is no time", todo="give milliseconds since 1970 as digits")
    return int(given)


def pool_data(message: Message) -> str:
    """The pool that Data names: the id alone, as the spec's Leaderboard (as JSON too), or `dataset` in an object."""
    plain = message.data.strip()
    if plain and not plain.startswith(("{", "[", '"')):
        return plain
    if plain.startswith('"'):
        return text({"dataset": parse_json(plain)}, "dataset")
    return text(json_data(message, "dataset"), "dataset")


def check_may(context: Context, message: Message, pool: Row) -> None:
    """The pool's funder, its participants, the workspace's owner and the clock. Raises PoolError for others."""
    if context.trusted(message) or message.sender == pool["funder"]:
        return
    joined = context.db.execute("SELECT 1 FROM pool_models WHERE pool = ? AND participant = ? LIMIT 1",
                                (pool["id"], message.sender)).fetchone()
    if joined is None:
        raise PoolError(f"only the funder and the participants of pool {pool['id']} may send {message.action}",
                        todo="anybody may read it: send Leaderboard")
