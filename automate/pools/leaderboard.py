"""A pool's leaderboard as data: ranks, scores, intervals, states; read only.

Never changes anything and never prints."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from operator import itemgetter
from typing import Any

from automate.errors import PoolError
from automate.pools.allocation import value
from automate.pools.lookup import state_of
from automate.pools.store import Row, Statements

Z = 1.959963984540054
"""The normal distribution's 97.5 % point."""
_SQUARE = Z * Z

_PLACES = """
SELECT models.id, models.name, models.process, pm.participant, pm.score, pm.progress, pm.correct, pm.answered,
  pm.failed, pm.total, pm.joined, pm.updated, pm.rowid
FROM pool_models AS pm JOIN models ON models.id = pm.model WHERE pm.pool = ?"""
_Joined = tuple[int, str, str, str, float, float, int, int, int, int, int, int | None, int]
"""A row of `_PLACES`."""


@dataclass(frozen=True)
class Place:
    """One row. `score` = correct/answered, `progress` = answered/total, `value` = correct/total (what ranks; the spec's
    score*progress); `low`, `high`: 95 % Wilson interval of score; ties share nothing: `rank` is unique (see
    allocation.ranked)."""

    rank: int
    model: str
    process: str
    participant: str
    score: float
    progress: float
    value: float
    low: float
    high: float
    correct: int
    answered: int
    failed: int
    total: int
    joined: int
    updated: int | None
    reward: int | None


@dataclass(frozen=True)
class Board:
    """A pool and its places, best first. state: open, over (to be paid), paid, refunded. Times in ms."""

    pool: str
    dataset: str
    dataset_name: str
    funder: str
    funds: int
    allocation: str
    start_time: int
    end_time: int
    state: str
    updated: int | None
    places: tuple[Place, ...]


def board(db: Statements, pool: str, now: int) -> Board:
    """The leaderboard of a pool by its id. Raises PoolError. 10,000 models within 50 ms is the goal."""
    row: Row | None = db.execute("SELECT pools.*, processes.name AS dataset_name FROM pools JOIN processes "
                                 "ON processes.id = pools.dataset WHERE pools.id = ?", (pool,)).fetchone()
    if row is None:
        raise PoolError(f"there is no pool {pool[:60]!r}", todo="Get-Pools lists all pools")
    rewards = dict(_plain(db, "SELECT model, amount FROM payouts WHERE pool = ? AND kind = 'reward'", pool))
    found = _ordered(_plain(db, _PLACES, pool))
    places = tuple([_place(rank, one, rewards.get(one[0])) for rank, one in enumerate(found, 1)])
    return Board(pool, row["dataset"], row["dataset_name"], row["funder"], row["funds"], row["allocation"],
                 row["start_time"], row["end_time"], state_of(row, now), row["updated"], places)


def wilson(correct: int, answered: int) -> tuple[float, float]:
    """The 95 % interval of correct/answered (Wilson 1927); all of 0 to 1 where nothing was answered."""
    if answered <= 0:
        return 0.0, 1.0
    middle, scale = correct + _SQUARE / 2, answered + _SQUARE
    width = Z * sqrt(correct * (answered - correct) / answered + _SQUARE / 4)
    low, high = (middle - width) / scale, (middle + width) / scale
    return (low if low > 0 else 0.0), (high if high < 1 else 1.0)


def rows(shown: Board) -> list[dict[str, object]]:
    """What the message Leaderboard answers: the spec's `model` (process id) and `score` (score*progress), and rank,
    name, participant, progress, accuracy (correct/answered) with its interval low to high, counts, reward."""
    return [{"model": one.process, "score": one.value, "rank": one.rank, "name": one.model,
             "participant": one.participant, "progress": one.progress, "accuracy": one.score, "correct": one.correct,
             "answered": one.answered, "failed": one.failed, "total": one.total, "low": one.low, "high": one.high,
             "reward": None if one.reward is None else str(one.reward)} for one in shown.places]


def _plain(db: Statements, sql: str, pool: str) -> list[Any]:
    """Rows as plain tuples, which are quicker than rows by name."""
    cursor = db.execute(sql, (pool,))
    cursor.row_factory = None
    return cursor.fetchall()


def _ordered(found: list[_Joined]) -> list[_Joined]:
    """As allocation.ranked: by value, then time and order of joining. Sorts are stable; three are quicker than one."""
    found.sort(key=itemgetter(12))
    found.sort(key=itemgetter(10))
    found.sort(key=lambda row: value(row[6], row[9]), reverse=True)
    return found


def _place(rank: int, row: _Joined, reward: int | None) -> Place:
    """A Place without its constructor, which takes as long as all else together for a frozen class."""
    _, model, process, participant, score, progress, correct, answered, failed, total, joined, updated, _ = row
    low, high = wilson(correct, answered)
    place = object.__new__(Place)
    place.__dict__.update(
        rank=rank, model=model, process=process, participant=participant, score=score, progress=progress,
        value=value(correct, total), low=low, high=high, correct=correct, answered=answered, failed=failed,
        total=total, joined=joined, updated=updated, reward=reward)
    return place
