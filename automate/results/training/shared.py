"""Scores of checkpoints on the questions that all of them have, whole and in each bootstrap round.

Never compares scores of different questions: where too few are shared, there is no value to compare."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from automate.results.battles import Battles, Floats, Style
from automate.results.boards import Options
from automate.results.scoring.intervals import draws, question_scores, ratio
from automate.results.scoring.pairs import known_only
from automate.results.scoring.scores import Scored
from automate.results.training.data import Point

LEAST_SHARE = 0.5
"""Of the questions of the checkpoint with the most: with fewer shared ones the comparison is of something else."""
DIGITS = 9
"""Values are rounded so that ties are ties."""


class Shared:
    """Scores of a board's models and their rounds, and what they are computed from, to do it for some questions."""

    def __init__(self, battles: Battles, options: Options, style: Style | None, found: Scored) -> None:
        self.rounds = np.round(found.rounds, DIGITS)
        self.index = {name: place for place, name in enumerate(battles.models)}
        self.won, self.weight = question_scores(known_only(battles, options, style), options)
        self.counts = None if options.style else draws(battles, options)

    def own(self, points: Sequence[Point]) -> Floats:
        """Rounds of these points, each on its own questions, shape (rounds, points)."""
        return self.rounds[:, [self.index[point.checkpoint.model] for point in points]]

    def same(self, points: Sequence[Point]) -> bool:
        """Whether all of these were judged on the same questions."""
        has = self._weight(points) > 0
        return bool((has == has[:1]).all())

    def of(self, points: Sequence[Point]) -> tuple[Floats, Floats]:
        """Scores of these points on the questions that all have, shape (points,), and their rounds (rounds, points).

        NaN throughout where they share too few questions, or where style control would have to be fitted anew.
        """
        if self.same(points):
            return np.round(np.array([point.score for point in points]), DIGITS), self.own(points)
        weight = self._weight(points)
        shared = (weight > 0).all(axis=0)
        if self.counts is None or shared.sum() < max(2.0, LEAST_SHARE * (weight > 0).sum(axis=1).max()):
            return np.full(len(points), np.nan), np.full((len(self.rounds), len(points)), np.nan)
        won, weight = self.won[self._places(points)][:, shared], weight[:, shared]
        counts = self.counts[:, shared]
        return (np.round(ratio(won.sum(axis=1), weight.sum(axis=1)), DIGITS),
                np.round(ratio(counts @ won.T, counts @ weight.T), DIGITS))

    def _places(self, points: Sequence[Point]) -> list[int]:
        return [self.index[point.checkpoint.model] for point in points]

    def _weight(self, points: Sequence[Point]) -> Floats:
        return self.weight[self._places(points)]
