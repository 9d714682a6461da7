"""A pool's leaderboard as data: ranks, scores, intervals, states; read only.

Never changes anything and never prints."""

from __future__ import annotations

from dataclasses import dataclass

from automate.pools.store import Statements


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
    raise NotImplementedError
