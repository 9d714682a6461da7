"""What a person means by a name, a number or the beginning of an id: which pool, data set, model or account.

Never guesses: what fits several things is refused, with the choices."""

from __future__ import annotations

from automate.errors import PoolError
from automate.pools.lookup import pool_of_dataset
from automate.pools.store import Statements

LEAST = 6
"""The shortest beginning of an id that stands for it."""
SHOWN = 5


def _start(given: str) -> str:
    """A GLOB pattern for ids that begin so; one that fits nothing where it is too short or holds other characters."""
    usable = len(given) >= LEAST and all(char.isascii() and (char.isalnum() or char in "-_") for char in given)
    return f"{given}*" if usable else ""


def choices(names: list[str]) -> str:
    """Names for an error, the first few of them."""
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def listed(db: Statements, kind: str, sql: str, given: str, todo: str | None = None) -> str:
    """The id that `sql` finds; it has two placeholders, for the whole id and for a pattern of its beginning.

    Raises PoolError: none, or several (named).
    """
    ids = [str(row[0]) for row in db.execute(sql, (given, _start(given))).fetchall()]
    if given in ids:
        return given
    if not ids:
        raise PoolError(f"no {kind} {given!r}", todo=todo or f"give its id, or at least {LEAST} characters of it")
    if len(ids) > 1:
        raise PoolError(f"{given!r} is the beginning of several: {choices(ids)}", todo="give more of the id")
    return ids[0]


def pool_id(db: Statements, given: str, now: int) -> str:
    """A pool by its id or the beginning of it, or by its data set: the one that is open, else the one that is over and
    to be paid, else the newest. `now` in ms."""
    dataset = db.execute("SELECT id, name FROM processes WHERE kind = 'dataset' AND (name = ? OR id = ?)",
                         (given, given)).fetchone()
    if dataset is not None:
        return str(pool_of_dataset(db, dataset["id"], dataset["name"], now, ("open", "over"), newest=True)["id"])
    return listed(db, "pool", "SELECT id FROM pools WHERE id = ? OR id GLOB ?", given,
                  "'flock-hpc pool list' shows the pools")


def dataset_id(db: Statements, given: str) -> str:
    """A data set by its name, its id or the beginning of it."""
    row = db.execute("SELECT id FROM processes WHERE kind = 'dataset' AND name = ?", (given,)).fetchone()
    if row is not None:
        return str(row["id"])
    names = [str(one["name"]) for one in db.execute(
        "SELECT name FROM processes WHERE kind = 'dataset' ORDER BY created").fetchall()]
    todo = f"there are: {choices(names)}" if names else "make one: flock-hpc pool dataset create KIND --from FILE"
    return listed(db, "data set", "SELECT id FROM processes WHERE kind = 'dataset' AND (id = ? OR id GLOB ?)", given,
                  todo)


def model_number(db: Statements, given: str) -> int:
    """A model's number in `models`, by its name, its number, its process id or the beginning of that."""
    row = db.execute("SELECT id FROM models WHERE name = ? OR process = ?", (given, given)).fetchone()
    if row is None and given.isascii() and given.isdigit() and len(given) < 19:
        row = db.execute("SELECT id FROM models WHERE id = ?", (int(given),)).fetchone()
    if row is None:
        process = listed(db, "model", "SELECT process FROM models WHERE process = ? OR process GLOB ?", given,
                         "'flock-hpc pool model list' shows the models")
        row = db.execute("SELECT id FROM models WHERE process = ?", (process,)).fetchone()
    return int(row["id"])


def named(db: Statements, given: str) -> str:
    """An account: a process by its name or the beginning of its id; anything else is an address as it stands."""
    row = db.execute("SELECT id FROM processes WHERE name = ?", (given,)).fetchone()
    if row is not None:
        return str(row["id"])
    rows = db.execute("SELECT id FROM processes WHERE id GLOB ?", (_start(given),)).fetchall()
    return str(rows[0]["id"]) if len(rows) == 1 else given
