"""What a leaderboard says: scores with intervals, comparisons, quality of the judge. Plain frozen data.

Computed in `scoring/` and `compatible/`; shown by the command line, curves and report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Mode = Literal["default", "compatible"]


@dataclass(frozen=True)
class Options:
    """How scores are computed. `confidence` in percent; `category` None: all categories together."""

    mode: Mode = "default"
    style: tuple[str, ...] = ()
    """Style features to control for: any of `length`, `markdown`; empty: none."""
    category: str | None = None
    confidence: float = 95.0
    rounds: int = 1000
    seed: int = 0
    strong_weight: float = 3.0


@dataclass(frozen=True)
class Score:
    """A model's score against the baseline in percent (50: as good), with its interval.

    `games` that count, of rows with both verdicts, and their `questions`. `rank_low`..`rank_high`: the ranks it may
    hold, by groups that can't be told apart; 0 where they weren't computed. The baseline's own
    row has `is_baseline` and no interval.
    """

    model: str
    score: float
    low: float
    high: float
    games: int = 0
    questions: int = 0
    rank_low: int = 0
    rank_high: int = 0
    is_baseline: bool = False


@dataclass(frozen=True)
class Board:
    """A leaderboard, best first. `coefficients`: of the style features; `warnings` say what makes it unsafe.

    `comparable` False: a category has games against several baselines, so that no model has a rank.
    """

    scores: tuple[Score, ...]
    options: Options
    baselines: tuple[str, ...]
    judges: tuple[str, ...]
    coefficients: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    comparable: bool = True

    def score_of(self, model: str) -> Score | None:
        return next((score for score in self.scores if score.model == model), None)


@dataclass(frozen=True)
class Comparison:
    """Two models on the questions that both have: difference of scores (first minus second) in points.

    `p_value` two-sided; `detectable`: the smallest difference that this many questions can show (80 % power at the
    options' confidence), None where that can't be said. `wins`, `losses`, `ties` by question.
    """

    first: str
    second: str
    difference: float
    low: float
    high: float
    p_value: float
    questions: int
    wins: int
    losses: int
    ties: int
    detectable: float | None


@dataclass(frozen=True)
class Quality:
    """How far a judge's verdicts on one model (or on all: `model` None) can be trusted. Shares of 0 to 1.

    `flips`: questions whose two games name different winners, one of them each (no ties); `agreement`: both orders
    name the same winner, or both a tie; `first_wins`/`second_wins`/`ties`: of games, by the answer's place; `nulls`:
    games by cause; `length_correlation`: Spearman's, of verdict and difference in token_len; None where unknown.
    """

    judge: str
    model: str | None
    games: int
    questions: int
    flips: float
    agreement: float
    first_wins: float
    second_wins: float
    ties: float
    nulls: Mapping[str, int] = field(default_factory=dict)
    length_correlation: float | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Agreement:
    """How far two judges agree on the same games: share of equal winners, and Cohen's kappa of winner/tie/loser."""

    first: str
    second: str
    games: int
    agreement: float
    kappa: float
