"""Rows of the report's tables: a board beside its style-controlled one, categories, with the places of interval bars.

Pure; knows numbers and names, nothing of HTML."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from automate.results.boards import Board, Quality, Score
from automate.results.reporting.content import Content

WIDTH, EDGE = 100, 1.5
"""An interval bar's places are percent of its picture's width; so much is left free at both ends for a dot."""


@dataclass(frozen=True)
class Bar:
    """Places of an interval's ends, its score and the baseline's 50, in percent of a picture's width."""

    low: float
    high: float
    score: float
    middle: float


@dataclass(frozen=True)
class Axis:
    """From which score to which the bars go."""

    start: float
    end: float

    def place(self, value: float) -> float:
        inside = min(max(value, self.start), self.end)
        return round(EDGE + (WIDTH - 2 * EDGE) * (inside - self.start) / (self.end - self.start), 1)

    def bar(self, score: Score) -> Bar | None:
        if not math.isfinite(score.score):
            return None
        low, high = (value if math.isfinite(value) else score.score for value in (score.low, score.high))
        return Bar(self.place(low), self.place(high), self.place(score.score), self.place(50.0))


@dataclass(frozen=True)
class Row:
    """A model's line. `flips` and `nulls` over all judges; `games` is its place among the packed games, or None."""

    place: int
    ranks: str
    score: Score
    bar: Bar | None
    styled: Score | None = None
    styled_ranks: str = ""
    flips: float | None = None
    nulls: int = 0
    games: int | None = None

    @property
    def model(self) -> str:
        return self.score.model


@dataclass(frozen=True)
class CategoryRow:
    """A model's scores: over all, then by category (None: no games there)."""

    model: str
    is_baseline: bool
    scores: tuple[Score | None, ...]


def axis_of(scores: Sequence[Score]) -> Axis:
    """A range of whole tens that holds all intervals and the baseline's 50."""
    values = [value for one in scores for value in (one.low, one.high, one.score) if math.isfinite(value)] or [50.0]
    start = math.floor(min(50.0, *values) / 10) * 10
    end = math.ceil(max(50.0, *values) / 10) * 10
    return Axis(float(start), float(end if end > start else start + 10))


def ranks(score: Score, place: int, comparable: bool = True) -> str:
    """The ranks that a model may hold, or its place where they are not known; none on a board that has none."""
    if not comparable:
        return "–"
    if not score.rank_low:
        return str(place)
    same = score.rank_low == score.rank_high
    return str(score.rank_low) if same else f"{score.rank_low}–{score.rank_high}"


def board_rows(content: Content) -> tuple[tuple[Row, ...], Axis]:
    """The leaderboard's rows, best first, and the bars' axis."""
    axis = axis_of(content.board.scores)
    styled = {score.model: (place, score)
              for place, score in enumerate(content.styled.scores if content.styled else (), 1)}
    games = {one.model: place for place, one in enumerate(content.games.models) if one.questions}
    comparable = content.styled.comparable if content.styled else True
    rows = []
    for place, score in enumerate(content.board.scores, 1):
        second = styled.get(score.model)
        flips, nulls = _quality_of(content.quality, score.model)
        controlled = ranks(second[1], second[0], comparable) if second else ""
        rows.append(Row(place, ranks(score, place, content.board.comparable), score, axis.bar(score),
                        second[1] if second else None, controlled, flips, nulls, games.get(score.model)))
    return tuple(rows), axis


def _quality_of(quality: Sequence[Quality], model: str) -> tuple[float | None, int]:
    own = [one for one in quality if one.model == model]
    questions = sum(one.questions for one in own if math.isfinite(one.flips))
    flips = sum(one.flips * one.questions for one in own if math.isfinite(one.flips)) / questions if questions else None
    return flips, sum(sum(one.nulls.values()) for one in own)


def category_rows(board: Board, by_category: Mapping[str, Board]) -> tuple[CategoryRow, ...]:
    """Every model of the board with its score in each category."""
    return tuple(CategoryRow(score.model, score.is_baseline,
                             (score, *(one.score_of(score.model) for one in by_category.values())))
                 for score in board.scores)
