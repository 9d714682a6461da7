"""Two models on the questions that both have, and which of all models can't be told apart.

Never compares scores as if they were independent: all resampling is paired by question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from automate.errors import DataError
from automate.results.battles import Battles, Floats, Style
from automate.results.boards import Board, Comparison, Options
from automate.results.scoring.intervals import quantile
from automate.results.scoring.pairs import Pairs, known_only, pairs, played
from automate.results.scoring.scores import Scored, baselines_of

POWER = 0.8
EXACT = 1e-9
"""Points: a smaller standard error, or a smaller difference, is rounding."""
MOST_POINTS = 100.0
"""No difference can be larger."""
NOBODY = Pairs(np.zeros((1, 1)), np.zeros((1, 1)), np.zeros((1, 1)))
"""The pairs of a board with one score."""


def compare(battles: Battles, first: str, second: str, options: Options, style: Style | None = None) -> Comparison:
    """The difference of two models' scores in points on the questions that both have, first minus second.

    Interval and two-sided p-value come from one statistic, Student's t over the difference's standard error, which is
    that of resampled questions; so they never contradict each other. The baseline can be one of the two: its score is
    50. With style features all models' games on the shared questions go into the fit. Raises DataError where a model
    is unknown, or where they share no question.
    """
    options = replace(options, mode="default")
    _known(battles, (first, second), options)
    models = [battles.models.index(name) if name in battles.models else None for name in (first, second)]
    won, weight = played(known_only(battles, options, style), options, models)
    shared = (weight > 0).all(axis=0)
    if not shared.any():
        raise DataError(f"{first} and {second} have no question in common that has verdicts in both games",
                        todo="judge the missing games, or compare other models")
    found = pairs(battles, options, models, style)
    shares = won[:, shared] / weight[:, shared]
    return _comparison((first, second), found, shares, options)


def _known(battles: Battles, names: tuple[str, str], options: Options) -> None:
    baselines = baselines_of(battles, options)
    if names[0] == names[1]:
        raise DataError(f"{names[0]} can't be compared with itself", todo="name two models")
    for name in names:
        if name not in battles.models and baselines != (name,):
            raise DataError(f"no judgments of {name}", todo="name one of: " + ", ".join(battles.models))


def _comparison(names: tuple[str, str], found: Pairs, shares: Floats, options: Options) -> Comparison:
    """Of the pair's difference; `shares` of each shared question that the two models won, shape (2, questions)."""
    value, error, questions = float(found.differences[0, 1]), float(found.errors[0, 1]), shares.shape[1]
    reach = quantile(options.confidence, questions) * error
    low, high = (-100.0, 100.0) if not np.isfinite(error) else (max(value - reach, -100.0), min(value + reach, 100.0))
    ahead = np.sign(np.round(shares[0] - shares[1], 12))
    return Comparison(*names, value, low, high, p_value(value, error, questions), questions, int((ahead > 0).sum()),
                      int((ahead < 0).sum()), int((ahead == 0).sum()), detectable(error, questions, options.confidence))


def p_value(difference: float, error: float, questions: int) -> float:
    """Two-sided, by Student's t. Where every question shows the same difference there is no error: the sign test."""
    return float(p_values(np.array([difference]), np.array([error]), np.array([float(questions)]))[0])


def p_values(differences: Floats, errors: Floats, questions: Floats) -> Floats:
    """The same of many differences, arrays of one shape."""
    size = np.abs(differences)
    exact = errors <= EXACT
    usual = 2.0 * stdtr(np.maximum(questions - 1.0, 1.0), -size / np.where(exact, 1.0, errors))
    signs = np.where(size <= EXACT, 1.0, np.minimum(1.0, 2.0 * 0.5**questions))
    found: Floats = np.where(np.isfinite(errors) & np.isfinite(differences), np.where(exact, signs, usual), 1.0)
    return found


def detectable(error: float, questions: int, confidence: float) -> float | None:
    """The true difference in points that would be found with 80 % power, given this standard error.

    None where it can't be said: verdicts that don't vary at all, or so few questions that it would be over 100 points.
    """
    if not error > EXACT or questions < 2:
        return None
    found = float((quantile(confidence, questions) + stdtrit(questions - 1, POWER)) * error)
    return found if found <= MOST_POINTS else None


def ranked(found: Scored, battles: Battles, options: Options, style: Style | None = None) -> Board:
    """A scored board with the ranks that each model may hold, from the rounds that it was made from."""
    return groups(found.board, battles, options, style, whole=found)


def groups(board: Board, battles: Battles, options: Options, style: Style | None = None, *,
           whole: Scored | None = None) -> Board:
    """The board with the ranks that each model may hold.

    All pairs are compared, each on the questions that both have and paired by question, as `compare` does; p-values are
    corrected for the number of pairs (Holm, 1979), so that with the options' confidence all ranges hold at once. A
    model's best rank is 1 and the number of models that are surely better; its worst leaves room for those that are
    surely worse. The baseline takes part. `whole`: the scores of the same battles and options, if they are at hand.
    """
    return standing(board, battles, options, style, whole=whole)[0]


def standing(board: Board, battles: Battles, options: Options, style: Style | None = None, *,
             whole: Scored | None = None) -> tuple[Board, Pairs]:
    """The same, and the pairs in the board's order that it rests on; no ranks where the board says it has none."""
    if not board.comparable:
        return board, NOBODY
    places = {name: place for place, name in enumerate(battles.models)}
    models = [None if score.is_baseline else places[score.model] for score in board.scores]
    options = replace(options, mode="default")
    found = pairs(battles, options, models, style, whole) if len(models) > 1 else NOBODY
    return with_ranks(board, found, options.confidence), found


def with_ranks(board: Board, found: Pairs, confidence: float) -> Board:
    """The board with the ranks that follow from all its pairs, in its order."""
    total = len(board.scores)
    upper = np.triu_indices(total, 1)
    differences = found.differences[upper]
    sure = holm(p_values(differences, found.errors[upper], found.questions[upper]), 1.0 - confidence / 100.0)
    better = np.zeros((total, total), np.bool_)
    better[upper] = sure & (differences > 0)
    better.T[upper] = sure & (differences < 0)
    scores = [replace(score, rank_low=1 + int(better[:, at].sum()), rank_high=total - int(better[at].sum()))
              for at, score in enumerate(board.scores)]
    return replace(board, scores=tuple(scores))


def neighbours(found: Pairs, places: Sequence[int], confidence: float) -> float | None:
    """The median over neighbours of the smallest difference that their shared questions can show, in points.

    `places` of the models to look at, best first. None where for more than half of them it can't be said.
    """
    each = [detectable(float(found.errors[one, two]), int(found.questions[one, two]), confidence)
            for one, two in pairwise(places)]
    known = [value for value in each if value is not None]
    return float(np.median(known)) if known and len(known) * 2 >= len(each) else None


def holm(p_values: Floats, level: float) -> NDArray[np.bool_]:
    """Which hypotheses are rejected at that family-wise level, by Holm's step-down rule."""
    order = np.argsort(p_values, kind="stable")
    passed = p_values[order] <= level / np.arange(len(p_values), 0, -1)
    rejected = np.zeros(len(p_values), np.bool_)
    rejected[order[: int(np.argmin(passed)) if not passed.all() else len(passed)]] = True
    return rejected
