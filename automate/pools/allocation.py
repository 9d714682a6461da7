"""Rules by which a pool's funds become rewards: pure functions of funds and ranked models.

Never rounds up: what is left over by rounding is dust, which goes back to the funder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import lcm


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


def value(correct: int, total: int) -> float:
    """What ranks, from 0 to 1: correct/total; 0 where nothing was asked. Exact enough to tell any two apart below 2**26
    questions."""
    return correct / total if total > 0 else 0.0


def ranked(standings: Sequence[Standing]) -> list[Standing]:
    """Best first: correct/total, then who joined first, then the order of joining."""
    return sorted(standings, key=lambda one: (-value(one.correct, one.total), one.joined, one.seq))


def arithmetic_decrease(funds: int, standings: Sequence[Standing], winners: int) -> Allocation:
    """The best k = min(models, winners) get k, k-1, ..., 1 parts of the k(k+1)/2; models without a right answer too."""
    best = ranked(standings)[:winners]
    return _share(funds, best, range(len(best), 0, -1))


def equal(funds: int, standings: Sequence[Standing], winners: int) -> Allocation:
    """Every model that joined gets the same, whatever it answered and however many they are."""
    return _share(funds, ranked(standings), [1] * len(standings))


def winner_takes_all(funds: int, standings: Sequence[Standing], winners: int) -> Allocation:
    """The best model gets all; where no model has a right answer the funder has it back."""
    best = [one for one in ranked(standings)[:1] if one.correct > 0 and one.total > 0]
    return _share(funds, best, [1] * len(best))


def proportional(funds: int, standings: Sequence[Standing], winners: int) -> Allocation:
    """The best `winners` models get parts in proportion to correct/total; where all are 0 the funder has it back."""
    best = [one for one in ranked(standings)[:winners] if one.correct > 0 and one.total > 0]
    scale = lcm(*(one.total for one in best))
    return _share(funds, best, [one.correct * (scale // one.total) for one in best])


RULES: Mapping[str, Rule] = {
    "ArithmeticDecrease": arithmetic_decrease, "Equal": equal, "WinnerTakesAll": winner_takes_all,
    "Proportional": proportional}
"""ArithmeticDecrease, Equal, WinnerTakesAll, Proportional."""


def _share(funds: int, best: Sequence[Standing], weights: Sequence[int]) -> Allocation:
    """Each floor(funds * weight / sum of weights); what rounding leaves is dust; all is refund where nobody wins."""
    parts = sum(weights)
    if not parts:
        return Allocation((), 0, funds)
    amounts = [funds * weight // parts for weight in weights]
    shares = tuple(Share(one.model, one.participant, rank, amount)
                   for rank, (one, amount) in enumerate(zip(best, amounts, strict=True), 1) if amount)
    return Allocation(shares, funds - sum(amounts), 0)
