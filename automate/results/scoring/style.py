"""Style control in the default mode: scores as they would be if style were the same, fitted to convergence.

Never stops early: the fit that Arena-Hard's own program stops after 50 small steps is the work of `compatible/`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from automate.results.battles import Battles, Floats, Ints, Style
from automate.results.boards import Board, Options
from automate.results.scoring.intervals import chosen, draws, points
from automate.results.scoring.scores import assembled
from automate.results.scoring.style_features import Differences, differences
from automate.results.scoring.style_fit import Cells, Fit, fit, refit


@dataclass(frozen=True)
class Prepared:
    """Rows with known style, their cells, and which model each group of the cells is."""

    battles: Battles
    cells: Cells
    model: Ints
    names: tuple[str, ...]
    notes: tuple[str, ...]


def scored(battles: Battles, options: Options, style: Style | None) -> tuple[Board, Floats]:
    """The leaderboard with style control, and its rounds. Raises DataError where no row has metadata on both sides."""
    prepared = prepare(battles, options, style)
    whole = fit(prepared.cells)
    values = _scores(prepared, whole, np.ones((1, len(battles.questions))))[0]
    rounds = _resampled(prepared, options, whole)
    names = prepared.names
    coefficients = dict(zip(names, map(float, whole.coefficients), strict=True))
    board = assembled(prepared.battles, options, values, rounds, coefficients=coefficients, notes=prepared.notes,
                      warnings=_warnings(prepared, whole))
    return board, rounds


def resampled(battles: Battles, options: Options, style: Style | None) -> Floats:
    """Scores in percent with style control in every round, shape (rounds, models)."""
    prepared = prepare(battles, options, style)
    return _resampled(prepared, options, fit(prepared.cells))


def prepare(battles: Battles, options: Options, style: Style | None) -> Prepared:
    """Choose the rows, standardise their features and add them up by group and question.

    Features get mean 0 and variance 1 over games counted with their weights (n - 1 in the variance). One without
    variance is dropped and named in the notes.
    """
    kept = chosen(battles, options)
    found = differences(kept, style, options.style)
    used = kept.take(found.known)
    won, weight = (first + second for first, second in zip(
        points(used.first, options.strong_weight), points(used.second, options.strong_weight), strict=True))
    names, values, notes = _standardised(found, weight)
    shape = (len(battles.models), len(battles.baselines))
    pairs, group = np.unique(np.ravel_multi_index((used.model, used.baseline), shape), return_inverse=True)
    cells = _cells((len(pairs), len(battles.questions)), group.astype(np.int64) * len(battles.questions)
                   + used.question, won, weight, values)
    return Prepared(_known_only(battles, options, style), cells, (pairs // shape[1]).astype(np.int32), names,
                    found.notes + notes)


def _known_only(battles: Battles, options: Options, style: Style | None) -> Battles:
    """Rows with style metadata, complete or not, so that a board counts what its scores are computed from."""
    return battles.take(differences(battles, style, options.style).known)


def _standardised(found: Differences, weight: Floats) -> tuple[tuple[str, ...], Floats, tuple[str, ...]]:
    values = found.values[found.known]
    total = weight.sum()
    centred = values - (weight @ values) / total
    deviation = np.sqrt(weight @ centred**2 / max(total - 1.0, 1.0))
    varies = deviation > 1e-9
    names = tuple(name for name, kept in zip(found.names, varies, strict=True) if kept)
    dropped = [name for name, kept in zip(found.names, varies, strict=True) if not kept]
    notes = (f"style features left out, as they are the same in all rows: {', '.join(dropped)}",) if dropped else ()
    return names, centred[:, varies] / deviation[varies], notes


def _cells(shape: tuple[int, int], cell: Ints | Floats, won: Floats, weight: Floats, values: Floats) -> Cells:
    """Rows added up; the rows of one cell (several judges) have the same features."""
    size, place = shape[0] * shape[1], np.asarray(cell, np.int64)
    features = np.zeros((size, values.shape[1]))
    features[place] = values
    return Cells(np.bincount(place, won, size).astype(np.float64).reshape(shape),
                 np.bincount(place, weight, size).astype(np.float64).reshape(shape),
                 features.reshape(*shape, values.shape[1]))


def _resampled(prepared: Prepared, options: Options, whole: Fit) -> Floats:
    counts = draws(prepared.battles, options)
    return _scores(prepared, refit(prepared.cells, counts, whole), counts)


def _scores(prepared: Prepared, found: Fit, counts: Floats) -> Floats:
    """Percent of each model in each round at the round's own mean style; NaN where it has no game.

    A model with several baselines (one a category) has the mean of its scores, weighted by its games against each.
    """
    cells = prepared.cells
    weight = counts @ cells.weight.T
    total = np.maximum(weight.sum(axis=1), 1e-300)
    sums = counts @ np.einsum("gq,gqf->qf", cells.weight, cells.features)
    shift = np.einsum("rf,rf->r", sums / total[:, None], np.broadcast_to(found.coefficients, sums.shape))
    won = counts @ cells.won.T
    chance = expit(np.broadcast_to(found.intercepts, weight.shape) + shift[:, None])
    chance = np.where(won >= weight - 1e-12, 1.0, np.where(won <= 1e-12, 0.0, chance))
    of_model = np.zeros((len(prepared.model), len(prepared.battles.models)))
    of_model[np.arange(len(prepared.model)), prepared.model] = 1.0
    games = weight @ of_model
    return 100.0 * np.divide((weight * chance) @ of_model, games, out=np.full_like(games, np.nan), where=games > 0)


def _warnings(prepared: Prepared, whole: Fit) -> tuple[str, ...]:
    found = []
    if not whole.converged:
        found.append("the style fit has no maximum: style alone predicts the verdicts, so these scores mean nothing; "
                     "look at the scores without style control")
    if whole.rank < len(prepared.names):
        found.append("style features can't be told apart from each other or from the models: they vary too little "
                     "within models; look at the scores without style control")
    if len(set(prepared.model.tolist())) == 1:
        found.append("one model only: style control compares it with its own mean style, which says little")
    return tuple(found)
