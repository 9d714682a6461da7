"""How much of the cluster people outside of pools may ask for, as long as it costs them nothing.

Never counts what is paid for, nor what an open pool or the workspace's owner waits for."""

from __future__ import annotations

from automate.errors import PoolError
from automate.pools.exchange import Context, Process

MOST_TOKENS = 1024
"""The longest answer that an outsider may ask for without paying."""
_POOLED = "EXISTS (SELECT 1 FROM pools WHERE pools.dataset = d.id AND pools.state = 'open')"
# Rows of data sets are counted where they were started: what is on its way to the router counts at once.
_WAITING = f"""SELECT (SELECT count(*) FROM inferences INDEXED BY inferences_waiting WHERE
    state IN ('unpaid', 'queued', 'sent') AND price = 0 AND requester <> ?1
    AND requester NOT IN (SELECT id FROM processes WHERE kind = 'dataset'))
  + (SELECT count(*) FROM evaluations WHERE state = 'started' AND dataset IN
    (SELECT d.id FROM processes d WHERE d.kind = 'dataset' AND d.owner <> ?1 AND NOT {_POOLED}))"""  # noqa: S608


def is_one(context: Context, dataset: Process) -> bool:
    """Whether a data set is an outsider's: not the workspace owner's, without an open pool, and nothing is paid."""
    price = context.settings.price
    if price.prompt or price.token or dataset.owner == context.owner:
        return False
    return context.db.execute("SELECT 1 FROM pools WHERE dataset = ? AND state = 'open'",
                              (dataset.id,)).fetchone() is None


def room(context: Context) -> int:
    """How many more free inferences outsiders may ask for."""
    waiting = int(context.db.execute(_WAITING, (context.owner,)).fetchone()[0])
    return max(0, context.settings.max_waiting - waiting)


def check_room(context: Context, more: int) -> None:
    """Raises PoolError where these are too many."""
    left = room(context)
    if more > left:
        raise PoolError(f"{context.settings.max_waiting - left} free inferences wait already, and outsiders' may be "
                        f"{context.settings.max_waiting} in all", todo="send more when these are answered")


def check_tokens(tokens: int, where: str | None = None) -> None:
    """Raises PoolError for a longer answer than outsiders may ask for without paying."""
    if tokens > MOST_TOKENS:
        raise PoolError(f"{tokens} tokens of an answer are over {MOST_TOKENS}, the most outside of a pool",
                        where=where, todo="ask for less, or open a pool")
