"""Scores by question, resampled by question: the spread of a score and the interval that follows from it.

Never looks at a single row of a bootstrap: a question's games always stay together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from automate.errors import DataError
from automate.results.battles import Battles, Floats, Style
from automate.results.boards import Options

CERTAIN = 1e-9
"""A share of wins nearer than this to 0 or 1 is that: where style alone foresees verdicts, fits come so near."""
STRONG = 2
"""The size of a strong verdict (>> or <<) in `Battles`."""


def chosen(battles: Battles, options: Options) -> Battles:
    """The complete rows of the options' category. DataError where the category has none at all."""
    rows = battles.complete
    if options.category is not None:
        if options.category not in battles.categories:
            known = ", ".join(battles.categories) or "none"
            raise DataError(f"no judgment is of the category {options.category}",
                            todo=f"choose one of the categories there are: {known}")
        rows = rows & (battles.category == battles.categories.index(options.category))
    return battles.take(rows)


def points(verdicts: NDArray[np.int8], strong_weight: float) -> tuple[Floats, Floats]:
    """What games count, and how much of it the model won: (won, weight). Win 1, tie 0.5, loss 0, times the weight."""
    weight = np.where(np.abs(verdicts) == STRONG, strong_weight, 1.0)
    return weight * (np.sign(verdicts) + 1.0) / 2.0, weight


def question_scores(battles: Battles, options: Options) -> tuple[Floats, Floats]:
    """Sums of weighted game scores and of weights, each of shape (models, questions), from complete rows.

    A question's two games, its strong verdicts and the rows of several judges are added up, so that these two arrays
    are all that plain scores and anything resampled by question need.
    """
    kept = chosen(battles, options)
    shape = (len(battles.models), len(battles.questions))
    cell = np.ravel_multi_index((kept.model, kept.question), shape) if len(kept) else np.zeros(0, np.int64)
    won_first, weight_first = points(kept.first, options.strong_weight)
    won_second, weight_second = points(kept.second, options.strong_weight)
    size = shape[0] * shape[1]
    won = np.bincount(cell, won_first + won_second, size).astype(np.float64)
    weight = np.bincount(cell, weight_first + weight_second, size).astype(np.float64)
    return won.reshape(shape), weight.reshape(shape)


def strata(battles: Battles, options: Options) -> list[NDArray[np.int64]]:
    """The questions with a complete row, by category: indexes into `battles.questions`, each question once."""
    kept = chosen(battles, options)
    questions, at = np.unique(kept.question, return_index=True)
    category = kept.category[at]
    return [questions[category == one].astype(np.int64) for one in np.unique(category)]


def draws(battles: Battles, options: Options) -> Floats:
    """How often each question is drawn in each round, shape (rounds, questions).

    As many questions as there are, with replacement, within each category: the split over categories is the bench's
    and no matter of chance. The same draws serve all models, so that differences between models are paired.
    """
    return drawn(strata(battles, options), len(battles.questions), options)


def drawn(parts: list[NDArray[np.int64]], total: int, options: Options) -> Floats:
    """The same from the questions of each category, as indexes below `total`; shape (rounds, total)."""
    generator = np.random.default_rng(options.seed)
    counts = np.zeros((options.rounds, total))
    for questions in parts:
        size = len(questions)
        picks = generator.integers(size, size=(options.rounds, size))
        picks += np.arange(options.rounds)[:, None] * size
        counts[:, questions] = np.bincount(picks.ravel(), minlength=options.rounds * size).reshape(-1, size)
    return counts


def resampled_scores(battles: Battles, options: Options, style: Style | None = None) -> Floats:
    """Scores in percent of every model in every round, shape (rounds, models); NaN where a model has no game in it.

    The same questions are drawn for all models. With style features in the options the style fit is resampled.
    """
    if options.style:
        from automate.results.scoring.style import resampled

        return resampled(battles, options, style)
    won, weight = question_scores(battles, options)
    counts = draws(battles, options)
    return ratio(counts @ won.T, counts @ weight.T)


def ratio(won: Floats, weight: Floats) -> Floats:
    """Percent won; NaN where nothing was played."""
    return 100.0 * np.divide(won, weight, out=np.full_like(won, np.nan), where=weight > 0)


def spread(rounds: Floats, questions: int) -> float:
    """Standard error of a score or difference from its resampled values, in their unit; NaN where it can't be had.

    A sample of n questions drawn from n has a variance that is too small by n - 1 to n; that is put right.
    """
    return float(spreads(rounds[:, None], np.array([float(questions)]))[0])


def spreads(rounds: Floats, questions: Floats) -> Floats:
    """The same of many scores or differences: `rounds` of shape (rounds, n), `questions` of shape (n,)."""
    known = np.isfinite(rounds)
    count = known.sum(axis=0)
    usable = (count >= 2) & (questions >= 2)
    rest = np.where(known, rounds, 0.0) if not known.all() else rounds
    rest = rest - rest.sum(axis=0) / np.maximum(count, 1)
    squares = (rest * rest * known).sum(axis=0)
    variance = squares / np.maximum(count - 1, 1)
    found: Floats = np.where(usable, np.sqrt(variance * questions / np.maximum(questions - 1.0, 1.0)), np.nan)
    return found


def score_interval(score: float, rounds: Floats, questions: int, confidence: float) -> tuple[float, float]:
    """A score's interval from its resampled values, whose spread is taken on the logit scale, where it is used.

    A round in which everything was won or lost counts as half a game away from that.
    """
    share = score / 100.0
    if questions < 2 or not CERTAIN < share < 1.0 - CERTAIN:
        return interval(score, 0.0, questions, confidence)
    edge = min(0.25 / questions, share, 1.0 - share)
    shares = np.clip(rounds[np.isfinite(rounds)] / 100.0, edge, 1.0 - edge)
    error = spread(np.log(shares / (1.0 - shares)), questions) * share * (1.0 - share)
    return interval(score, 100.0 * error, questions, confidence)


def quantile(confidence: float, questions: int) -> float:
    """Student's t for a two-sided interval of `confidence` percent over that many questions."""
    return float(stdtrit(max(questions - 1, 1), 0.5 + confidence / 200.0))


def interval(score: float, error: float, questions: int, confidence: float) -> tuple[float, float]:
    """The interval of a score in percent with that standard error, by Student's t on the logit scale.

    On that scale the error is nearly symmetric also near 0 and 100, and no bound leaves that range. Where all games
    went the same way there is no spread to go by: then the exact binomial bound, one trial a question
    (Clopper and Pearson, 1934). One question or none says nothing: 0 to 100.
    """
    if questions < 2 or not np.isfinite(score):
        return 0.0, 100.0
    share = score / 100.0
    edge = 100.0 * (0.5 - confidence / 200.0) ** (1.0 / questions)
    if share <= CERTAIN:
        return 0.0, 100.0 - edge
    if share >= 1.0 - CERTAIN:
        return edge, 100.0
    if not np.isfinite(error):
        return 0.0, 100.0
    middle = np.log(share / (1.0 - share))
    reach = quantile(confidence, questions) * error / 100.0 / (share * (1.0 - share))
    low, high = 100.0 / (1.0 + np.exp(-(middle + np.array([-reach, reach]))))
    return float(low), float(high)


