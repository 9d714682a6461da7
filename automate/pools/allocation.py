"""Rules by which a pool's funds become rewards: pure functions of funds and ranked models.

Never rounds up: what is left over by rounding is dust, which goes back to the funder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Standing:
    """One model in a pool: `correct` of `total` answered rightly (the leaderboard's number is correct/total), when it
    joined (ms), and the order of joining (`seq`), which decides last."""

    model: int
    participant: str
    correct: int
    total: int
    joined: int
    seq: int


@dataclass(frozen=True)
class Share:
    """What a model gets: its rank from 1 on, and the amount."""

    model: int
    participant: str
    rank: int
    amount: int


@dataclass(frozen=True)
class Allocation:
    """Shares with an amount above 0, best first; dust and refund go to the funder. sum(shares) + dust + refund = funds.
    """

    shares: tuple[Share, ...]
    dust: int
    refund: int


Rule = Callable[[int, Sequence[Standing], int], Allocation]
"""Funds, standings in any order, most winners; the allocation."""

RULES: Mapping[str, Rule] = {}
"""ArithmeticDecrease, Equal, WinnerTakesAll, Proportional."""


def ranked(standings: Sequence[Standing]) -> list[Standing]:
    """Best first: correct/total, then who joined first, then the order of joining."""
    raise NotImplementedError
