"""Whose turn it is: a data set's participants one after the other, and of each its models one after the other.

Never lets anybody have two turns while another one who waits has none; who comes later waits behind those there."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from automate.pools.store import Statements

_WAITING = """SELECT e.model_id AS model, m.owner, e.n AS count, t.turn
  FROM (SELECT model_id, count(*) AS n FROM evaluations WHERE dataset = ?1 AND state = 'pending' GROUP BY model_id) e
  JOIN models m ON m.id = e.model_id LEFT JOIN turns t ON t.dataset = ?1 AND t.model = e.model_id"""
_LAST = """SELECT m.owner, max(t.turn) AS turn FROM turns t JOIN models m ON m.id = t.model
  WHERE t.dataset = ? GROUP BY m.owner"""


@dataclass(frozen=True)
class Waiting:
    """A model with questions to be asked. owner: who takes part with it; turn: its place, and its owner's, of the last
    time: the lower, the longer ago."""

    model: int
    owner: str
    count: int
    turn: int = 0
    owner_turn: int = 0


def waiting(db: Statements, dataset: str) -> tuple[list[Waiting], int]:
    """The models of a data set with something to ask, and its last turn. A participant is the owner of a model: only
    the owner joins a pool with it. Who was never here comes behind all that were."""
    owners = {str(row["owner"]): int(row["turn"]) for row in db.execute(_LAST, (dataset,)).fetchall()}
    last = max(owners.values(), default=0)
    return [Waiting(row["model"], row["owner"], row["count"], row["turn"] or 0, owners.get(row["owner"], last))
            for row in db.execute(_WAITING, (dataset,)).fetchall()], last


def order(models: Iterable[Waiting], limit: int) -> Iterator[int]:
    """The model of each next question, `limit` at most: owners in turn, from the one whose turn is the longest ago, and
    each time that owner's next model. As equal as may be: what one leaves goes to the others."""
    mine: dict[tuple[int, str], list[Waiting]] = defaultdict(list)
    for one in models:
        mine[one.owner_turn, one.owner].append(one)
    owners = deque(deque([one.model, one.count] for one in sorted(mine[key], key=lambda one: (one.turn, one.model))
                         if one.count > 0) for key in sorted(mine))
    while limit > 0 and owners:
        own = owners.popleft()
        if not own:
            continue
        next_one = own.popleft()
        yield next_one[0]
        limit -= 1
        next_one[1] -= 1
        if next_one[1]:
            own.append(next_one)
        owners.append(own)


def remember(db: Statements, dataset: str, seen: Sequence[Waiting], last: int, started: Sequence[int]) -> None:
    """Keep whose turn it was: each start is a turn. Who was seen for the first time has a place in the line now."""
    turns = {one.model: one.owner_turn for one in seen if one.turn == 0} | {
        model: last + place for place, model in enumerate(started, 1)}
    db.executemany("INSERT INTO turns (dataset, model, turn) VALUES (?, ?, ?) ON CONFLICT (dataset, model) DO UPDATE "
                   "SET turn = excluded.turn", [(dataset, model, turn) for model, turn in turns.items()])
