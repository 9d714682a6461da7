"""Two models on the questions that both have, and which of all models can't be told apart.

Never compares scores as if they were independent: all resampling is paired by question."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from automate.errors import DataError
from automate.results.battles import Battles, Floats, Style
from automate.results.boards import Board, Comparison, Options
from automate.results.scoring.intervals import quantile, question_scores, resampled_scores, spread, spreads
from automate.results.scoring.scores import Scored, baselines_of, scored

POWER = 0.8
EXACT = 1e-9
"""Points: a smaller standard error, or a smaller difference, is rounding."""


def compare(battles: Battles, first: str, second: str, options: Options, style: Style | None = None) -> Comparison:
    """The difference of two models' scores in points on the questions that both have, first minus second.

    Interval and two-sided p-value come from one statistic, Student's t over the difference's standard error, which is
    that of resampled questions; so they never contradict each other. The baseline can be one of the two: its score is
    50. With style features all models' games on the shared questions go into the fit. Raises DataError where a model
    is unknown, or where they share no question.
    """
    options = replace(options, mode="default")
    _known(battles, (first, second), options)
    won, weight = question_scores(battles, options)
    rows = [battles.models.index(name) if name in battles.models else None for name in (first, second)]
    shared = np.flatnonzero(np.all([weight[row] > 0 for row in rows if row is not None], axis=0))
    if not len(shared):
        raise DataError(f"{first} and {second} have no question in common that has verdicts in both games",
                        todo="judge the missing games, or compare other models")
    part = battles.take(np.isin(battles.question, shared))
    value, rounds = _difference(part, rows, options, style)
    shares = [_shares(won, weight, row, shared) for row in rows]
    return _comparison((first, second), value, rounds, shares, options)


def _known(battles: Battles, names: tuple[str, str], options: Options) -> None:
    baselines = baselines_of(battles, options)
    if names[0] == names[1]:
        raise DataError(f"{names[0]} can't be compared with itself", todo="name two models")
    for name in names:
        if name not in battles.models and baselines != (name,):
            raise DataError(f"no judgments of {name}", todo="name one of: " + ", ".join(battles.models))


def _difference(part: Battles, rows: list[int | None], options: Options, style: Style | None) -> tuple[float, Floats]:
    """The difference in points, and in each round."""
    whole = scored(part, options, style)
    rounds = whole.rounds
    found = [whole.board.score_of(part.models[row]) if row is not None else None for row in rows]
    values = [score.score if score else 50.0 if row is None else float("nan")
              for score, row in zip(found, rows, strict=True)]
    each = [np.full(len(rounds), 50.0) if row is None else rounds[:, row] for row in rows]
    return values[0] - values[1], each[0] - each[1]


def _shares(won: Floats, weight: Floats, row: int | None, shared: NDArray[np.intp]) -> Floats:
    """Share of each shared question that a model won."""
    return np.full(len(shared), 0.5) if row is None else won[row, shared] / weight[row, shared]


def _comparison(names: tuple[str, str], value: float, rounds: Floats, shares: list[Floats],
                options: Options) -> Comparison:
    questions = len(shares[0])
    error = spread(rounds, questions)
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


def detectable(error: float, questions: int, confidence: float) -> float:
    """The true difference in points that would be found with 80 % power, given this standard error."""
    return float((quantile(confidence, questions) + stdtrit(max(questions - 1, 1), POWER)) * error)


def ranked(found: Scored, battles: Battles, options: Options) -> Board:
    """A scored board with the ranks that each model may hold, from the rounds that it was made from."""
    return groups(found.board, battles, options, rounds=found.rounds) if len(found.board.scores) > 1 else found.board


def groups(board: Board, battles: Battles, options: Options, style: Style | None = None, *,
           rounds: Floats | None = None) -> Board:
    """The board with the ranks that each model may hold.

    All pairs are compared, paired by question; p-values are corrected for the number of pairs (Holm, 1979), so that
    with the options' confidence all ranges hold at once. A model's best rank is 1 and the number of models that are
    surely better; its worst leaves room for those that are surely worse. The baseline takes part. `rounds`: the
    resampled scores of the same battles and options, if they are at hand.
    """
    total = len(board.scores)
    if rounds is None:
        rounds = resampled_scores(battles, replace(options, mode="default"), style)
    first, second = np.triu_indices(total, 1)
    sure = holm(_p_values(board, _columns(board, battles, rounds)), 1.0 - options.confidence / 100.0)
    values = np.array([score.score for score in board.scores])
    ahead, better = values[first] >= values[second], np.zeros((total, total), np.bool_)
    better[np.where(ahead, first, second), np.where(ahead, second, first)] = sure
    scores = [replace(score, rank_low=1 + int(better[:, at].sum()), rank_high=total - int(better[at].sum()))
              for at, score in enumerate(board.scores)]
    return replace(board, scores=tuple(scores))


def _columns(board: Board, battles: Battles, rounds: Floats) -> Floats:
    """The rounds of the board's scores in its order, shape (rounds, scores); 50 for the baseline."""
    places = {name: place for place, name in enumerate(battles.models)}
    return np.stack([np.full(len(rounds), 50.0) if score.is_baseline or score.model not in places
                     else rounds[:, places[score.model]] for score in board.scores], axis=1)


def _p_values(board: Board, each: Floats) -> Floats:
    """Of all pairs, first against second, first against third and so on."""
    values = np.array([score.score for score in board.scores])
    asked = np.array([score.questions if not score.is_baseline else np.inf for score in board.scores])
    found = [np.zeros(0)]
    for one in range(len(values) - 1):
        others = slice(one + 1, None)
        questions = np.minimum(asked[one], asked[others])
        errors = spreads(each[:, one, None] - each[:, others], questions)
        found.append(p_values(values[one] - values[others], errors, questions))
    return np.concatenate(found)


def holm(p_values: Floats, level: float) -> NDArray[np.bool_]:
    """Which hypotheses are rejected at that family-wise level, by Holm's step-down rule."""
    order = np.argsort(p_values, kind="stable")
    passed = p_values[order] <= level / np.arange(len(p_values), 0, -1)
    rejected = np.zeros(len(p_values), np.bool_)
    rejected[order[: int(np.argmin(passed)) if not passed.all() else len(passed)]] = True
    return rejected
