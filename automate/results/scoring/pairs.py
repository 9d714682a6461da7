"""Differences of models' scores, each pair on the questions that both have, with standard errors paired by question.

Never takes a difference between scores of different questions: a pair that shares too few has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from automate.results.battles import Battles, Floats, Style
from automate.results.boards import Options
from automate.results.scoring.intervals import draws, question_scores, ratio, spreads
from automate.results.scoring.scores import Scored, scored

Masks = NDArray[np.bool_]
CHUNK = 1 << 22
"""Numbers that are held at once: rounds are worked on in parts."""
SMALL = 1 << 18
"""Multiplications of one matrix product."""
NOTHING = 1e-9
"""Of all that a model played in a round: less of it is rounding."""
MOST_FITS = 4
"""Sets of shared questions for which the style fit is done again; with more of them that would take too long."""


@dataclass(frozen=True)
class Pairs:
    """Of all pairs of some models, shape (models, models): first minus second in points, its standard error (NaN where
    unknown), and the shared questions."""

    differences: Floats
    errors: Floats
    questions: Floats


def pairs(battles: Battles, options: Options, models: Sequence[int | None], style: Style | None = None,
          whole: Scored | None = None) -> Pairs:
    """Differences of these models of the battles, the baseline being None. `whole`: their scores, if at hand."""
    if options.style:
        return _styled(known_only(battles, options, style), options, models, style, whole)
    won, weight = played(battles, options, models)
    return plain(won, weight, draws(battles, options))


def known_only(battles: Battles, options: Options, style: Style | None) -> Battles:
    """The rows that scores are computed from: with style control those with metadata on both sides."""
    if not options.style:
        return battles
    from automate.results.scoring.style_features import differences

    return battles.take(differences(battles, style, options.style).known)


def played(battles: Battles, options: Options, models: Sequence[int | None]) -> tuple[Floats, Floats]:
    """`question_scores` of these models, shape (models, questions); the baseline has half of every question."""
    won, weight = question_scores(battles, options)
    used = np.asarray((weight > 0).any(axis=0), np.float64)
    return (np.stack([0.5 * used if model is None else won[model] for model in models]),
            np.stack([used if model is None else weight[model] for model in models]))


def plain(won: Floats, weight: Floats, counts: Floats, styled: tuple[Floats, Floats] | None = None) -> Pairs:
    """Pairs of plain scores: sums of shape (models, questions), and how often each question is drawn in each round.

    `styled`: style-controlled scores of the models on their own questions, shape (models,), and in each round; what
    they differ by from the plain ones is added then.
    """
    used = np.flatnonzero((weight > 0).any(axis=0))
    won, weight, counts = won[:, used], weight[:, used], counts[:, used]
    masks, kind = _kinds(weight > 0)
    questions = (weight > 0).astype(np.float64) @ (weight > 0).T.astype(np.float64)
    scores = _restricted(won, weight, masks, np.ones((1, len(used))))[:, 0]
    found = scores[kind].T - scores[kind]  # [i, j]: i's score on j's questions, minus j's on i's
    more = None
    if styled is not None:
        own = styled[0] - ratio(won.sum(axis=1), weight.sum(axis=1))
        found = found + own[:, None] - own
        more = styled[1] - ratio(counts @ won.T, counts @ weight.T)
    return Pairs(found, _errors(won, weight, (masks, kind), counts, found, questions, more), questions)


def _kinds(has: Masks) -> tuple[Masks, NDArray[np.intp]]:
    """The different sets of questions, and which of them each model has."""
    masks, kind = np.unique(has, axis=0, return_inverse=True)
    return masks, kind.reshape(-1)


def _restricted(won: Floats, weight: Floats, masks: Masks, counts: Floats) -> Floats:
    """Each model's score on the questions of each set, in percent, shape (sets, rounds, models)."""
    total = counts @ won.T, counts @ weight.T
    found = np.empty((len(masks), len(counts), len(won)))
    for number, mask in enumerate(masks):
        found[number] = ratio(*_on(won, weight, mask, counts, total))
    return found


def _on(won: Floats, weight: Floats, mask: Masks, counts: Floats,
        total: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """Sums over the questions of a set: of them, or of all less the others, whichever are fewer."""
    if mask.all():
        return total
    if mask.mean() < 0.5:
        part = counts[:, mask]
        return _product(part, won[:, mask].T), _product(part, weight[:, mask].T)
    part = counts[:, ~mask]
    left = total[1] - _product(part, weight[:, ~mask].T)
    return total[0] - _product(part, won[:, ~mask].T), np.where(left > NOTHING * total[1], left, 0.0)


def _product(left: Floats, right: Floats) -> Floats:
    """The matrix product in parts so small that BLAS starts no threads, which cost more than they gain when busy."""
    step = max(1, SMALL // max(right.size, 1))
    if step >= len(left):
        return left @ right
    return np.concatenate([left[first: first + step] @ right for first in range(0, len(left), step)])


def _errors(won: Floats, weight: Floats, sets: tuple[Masks, NDArray[np.intp]], counts: Floats, found: Floats,
            questions: Floats, more: Floats | None) -> Floats:
    """Standard errors from all rounds, in parts: sums of what differs from the whole's difference, and of its squares.

    `more`: what is added to each model's score in each round.
    """
    masks, kind = sets
    size = len(won)
    known, sums, squares = (np.zeros((size, size)) for _ in range(3))
    middle = np.where(np.isfinite(found), found, 0.0)
    step = max(1, CHUNK // (len(masks) * size))
    for first in range(0, len(counts), step):
        each = _restricted(won, weight, masks, counts[first: first + step])
        for model in range(size):
            rest = each[kind, :, model].T - each[kind[model]] - middle[model]
            if more is not None:
                part = more[first: first + step]
                rest += part[:, [model]] - part
            there = np.isfinite(rest)
            rest = np.where(there, rest, 0.0)
            known[model] += there.sum(axis=0)
            sums[model] += rest.sum(axis=0)
            squares[model] += (rest * rest).sum(axis=0)
    variance = np.maximum(squares - sums * sums / np.maximum(known, 1), 0.0) / np.maximum(known - 1, 1)
    right = questions / np.maximum(questions - 1.0, 1.0)
    errors: Floats = np.where((known >= 2) & (questions >= 2), np.sqrt(variance * right), np.nan)
    return errors


def _styled(battles: Battles, options: Options, models: Sequence[int | None], style: Style | None,
            whole: Scored | None) -> Pairs:
    """Pairs of style-controlled scores: a fit for each set of shared questions, if there are few such sets.

    With many of them, plain differences on shared questions, and what style control changes on each model's own.
    """
    won, weight = played(battles, options, models)
    masks, kind = _kinds(weight > 0)
    one, two = np.triu_indices(len(masks))
    sets = np.unique(masks[one] & masks[two], axis=0) if len(masks) <= MOST_FITS else masks
    if len(sets) > MOST_FITS:
        return plain(won, weight, draws(battles, options), _scores_of(
            whole or scored(battles, options, style), battles, models))
    has, shape = (weight > 0).astype(np.float64), (len(models), len(models))
    found = Pairs(np.full(shape, np.nan), np.full(shape, np.nan), has @ has.T)
    first, second = np.triu_indices(len(models), 1)
    both = masks[kind[first]] & masks[kind[second]] if len(masks) > 1 else None
    for shared in sets:
        at = np.arange(len(first)) if both is None else np.flatnonzero((both == shared).all(axis=1))
        if shared.sum() >= 2 and len(at):
            same = whole if bool((shared == masks.any(axis=0)).all()) else None
            fitted = same or scored(battles.take(shared[battles.question]), options, style)
            _fill(found, _scores_of(fitted, battles, models), (first[at], second[at]), int(shared.sum()))
    return found


def _scores_of(one: Scored, battles: Battles, models: Sequence[int | None]) -> tuple[Floats, Floats]:
    """Scores of these models, shape (models,), and in each round; NaN where there is none."""
    rows = [one.board.score_of(battles.models[model]) if model is not None else None for model in models]
    values = np.array([50.0 if model is None else row.score if row else np.nan
                       for model, row in zip(models, rows, strict=True)])
    return values, np.stack([np.full(len(one.rounds), 50.0) if model is None else one.rounds[:, model]
                             for model in models], axis=1)


def _fill(found: Pairs, scores: tuple[Floats, Floats], at: tuple[NDArray[np.intp], NDArray[np.intp]],
          questions: int) -> None:
    """Put in the differences of the pairs `at`, and their errors, from scores on one set of questions."""
    values, rounds = scores
    for first in np.unique(at[0]):
        others = at[1][at[0] == first]
        errors = spreads(rounds[:, [first]] - rounds[:, others], np.full(len(others), float(questions)))
        for one_way, sign in (((first, others), 1.0), ((others, first), -1.0)):
            found.differences[one_way] = sign * (values[first] - values[others])
            found.errors[one_way] = errors
