"""What Arena-Hard-Auto's `show_result.py` prints for the same judgments and seed: the compatible mode.

Never lends a number to the default mode: its scores are means or medians over 100 resamples of single verdicts, its
intervals 90 %, and its style fit stops before it has converged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from automate.errors import ConfigError
from automate.results.battles import Battles, Floats, Style
from automate.results.boards import Board, Options, Score
from automate.results.compatible.draws import Draws
from automate.results.compatible.fit import Sums, fitted
from automate.results.compatible.text import Line, table, tensor
from automate.results.scoring.intervals import STRONG, chosen
from automate.results.scoring.scores import check, judges_of, played
from automate.results.scoring.style_features import Differences, differences

ROUNDS, WEIGHT, LOW, HIGH, CONFIDENCE = 100, 3, 0.05, 0.95, 90.0
CELLS = 1 << 23
"""Rounds are fitted in parts of about this many cells, to keep memory small;"""
PRODUCT = 1 << 18
"""and so few at a time that BLAS starts no threads for their products, which cost far more on a busy machine."""
ALONE = {"length": "with `length` alone Arena-Hard's own program stops with an error; this is what it means to print",
         "markdown": "with `markdown` alone Arena-Hard's own program prints the names shifted by one line; here each "
                     "score stands beside its own model"}


@dataclass(frozen=True)
class _Result:
    """One category's lines in the order of names, the medians of the style coefficients, and what there is to say."""

    lines: list[Line]
    coefficients: dict[str, float]
    notes: tuple[str, ...]


def loading_lines(battles: Battles) -> str:
    """What is printed before the tables: the judges, and how many rows have a game without a verdict."""
    missing = int(len(battles) - battles.complete.sum())
    return "\n".join([*(f"Loading {judge} judgments..." for judge in battles.judges),
                      f"Number of null judgments found: {missing}"])


def show_result(battles: Battles, style: Style | None, *, seed: int, control: Sequence[str] = (),
                category: str | Sequence[str] | None = None) -> str:
    """The original's text after its loading lines, for one or several categories; None: all that there are.

    `control`: any of `markdown` and `length`, printed in the order given. The random generator is seeded once, before
    the first category. Where the original would stop with an error or mix names up, the text is what it means to say,
    and a line that begins with `Note:` tells so. Raises DataError and ConfigError as `scores.leaderboard` does.
    """
    names = [category] if isinstance(category, str) else list(category) if category else list(battles.categories)
    generator = Draws(seed)
    texts = []
    for name in names:
        options = Options("compatible", tuple(control), name, seed=seed)
        check(battles, options)
        found = _result(battles, options, style, generator)
        texts += [f"INFO: Control features: {list(control)}"] if control else []
        texts += [f"##### Category: {name} #####", table(found.lines)]
        texts += [f"Feature Coefs: {tensor(_values(found.coefficients))}"] if control else []
        texts += [f"Note: {note}" for note in found.notes]
    if len(names) > 1:
        texts.append("Note: with several categories Arena-Hard's own program stops after the first")
    return "\n".join(texts)


def board(battles: Battles, options: Options, style: Style | None) -> Board:
    """The same numbers as a board; its options say the rounds, confidence and weight that this mode always has."""
    if options.category is None and len(np.unique(chosen(battles, options).category)) > 1:
        raise ConfigError("the compatible mode scores one category at a time, and there are several",
                          todo=f"name one of: {', '.join(battles.categories)}")
    found = _result(battles, options, style, Draws(options.seed))
    counts, baseline = played(battles, options), _baseline(chosen(battles, options))
    scores = []
    for line in found.lines:
        rows = [index for index, name in enumerate(battles.models) if _short(name) == line.model]
        scores.append(Score(line.model, 100 * line.score, 100 * line.low, 100 * line.high,
                            int(counts.games[rows].sum()), int(counts.questions[rows].sum()),
                            is_baseline=line.model == baseline and not rows))
    scores.sort(key=lambda score: (-score.score, score.model))
    settled = replace(options, confidence=CONFIDENCE, rounds=ROUNDS, strong_weight=float(WEIGHT))
    return Board(tuple(scores), settled, (baseline,), judges_of(battles), found.coefficients, found.notes)


def _values(coefficients: dict[str, float]) -> Floats:
    return np.array(list(coefficients.values()))


def _short(name: str) -> str:
    """A model's name without the folders of its path, as the original shows it."""
    return name.split("/")[-1]


def _baseline(rows: Battles) -> str:
    """The baseline that most rows were judged against."""
    return rows.baselines[int(np.bincount(rows.baseline).argmax())]


def _result(battles: Battles, options: Options, style: Style | None, generator: Draws) -> _Result:
    rows = chosen(battles, options)
    notes: tuple[str, ...] = ()
    used = np.unique(rows.baseline)
    if len(used) > 1:
        others = ", ".join(rows.baselines[index] for index in used)
        notes = (f"these judgments are against {len(used)} baselines ({others}) and are scored as if against one",)
    found = _with_style(rows, options, style, generator) if options.style else _plain(rows, generator)
    return _Result(found.lines, found.coefficients, notes + found.notes)


def expanded(rows: Battles) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Verdicts one by one: of which row, and 1, 0.5 or 0 for the model; the second game first, strong ones thrice."""
    second, first = (np.where(np.abs(verdicts) == STRONG, WEIGHT, 1) for verdicts in (rows.second, rows.first))
    row = np.repeat(np.arange(len(rows)), second + first)
    place = np.arange(len(row)) - np.repeat(np.cumsum(second + first) - second - first, second + first)
    sign = np.where(place < second[row], np.sign(rows.second)[row], np.sign(rows.first)[row])
    return row, ((sign + 1) / 2).astype(np.float32)


def _by_name(rows: Battles, extra: Sequence[str] = ()) -> tuple[list[str], NDArray[np.int64]]:
    """Models that have rows (and `extra`) in the order of their names, and each row's place in that list."""
    shorts = [_short(name) for name in rows.models]
    names = sorted({shorts[index] for index in np.unique(rows.model)} | set(extra))
    place = {name: index for index, name in enumerate(names)}
    return names, np.array([place.get(name, -1) for name in shorts], np.int64)[rows.model]


def _plain(rows: Battles, generator: Draws) -> _Result:
    """Mean over the rounds of each model's resampled mean, and quantiles."""
    names, model = _by_name(rows)
    row, outcome = expanded(rows)
    each = [outcome[model[row] == index] for index in range(len(names))]
    below, sizes = generator.below, [len(scores) for scores in each]
    ones = [np.ones(size, np.float32) for size in sizes]  # halves add up to the same in any order
    sums = [[scores.take(below(size, size)).dot(one) for scores, size, one in zip(each, sizes, ones, strict=True)]
            for _ in range(ROUNDS)]
    means = np.array(sums, np.float64) / sizes
    lines = [Line(name, math.fsum(column) / ROUNDS, _quantile(column, LOW), _quantile(column, HIGH))
             for name, column in zip(names, means.T, strict=True)]
    return _Result([*lines, Line(_baseline(rows), 0.5, 0.5, 0.5)], {}, ())


def _quantile(values: Floats, share: float) -> float:
    """The quantile of the values, linear between neighbours."""
    ordered = np.sort(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (ordered[above] - ordered[below]) * (place - below))


def _with_style(rows: Battles, options: Options, style: Style | None, generator: Draws) -> _Result:
    """Medians and quantiles over the rounds of the win chance against the baseline at the features' means."""
    found = differences(rows, style, options.style)
    rows = rows.take(found.known)
    baseline = _baseline(rows)
    names, model = _by_name(rows, [baseline])
    row, outcome = expanded(rows)
    kept, features, notes = _standardised(found, row)
    draws = generator.below(len(row), ROUNDS * len(row)).reshape(ROUNDS, -1).astype(np.int64)
    coefficients = _rounds(rows, names, model, baseline, (row, outcome, features), draws)
    strength = np.exp(coefficients[:, :len(names)])
    own = strength[:, [names.index(baseline)]]
    shares = (strength / (strength + own)).astype(np.float64)
    lines = [Line(name, *(_quantile(column, share) for share in (0.5, LOW, HIGH)))
             for name, column in zip(names, shares.T, strict=True)]
    medians = np.quantile(coefficients[:, len(names):], 0.5, axis=0)
    alone = (ALONE[options.style[0]],) if len(set(options.style)) == 1 else ()
    return _Result(lines, dict(zip(kept, map(float, medians), strict=True)), found.notes + notes + alone)


def _standardised(found: Differences, row: NDArray[np.int64]) -> tuple[list[str], NDArray[np.float32], tuple[str, ...]]:
    """Features of the rows, standardised over the verdicts one by one; those without variance left out."""
    values = found.values[found.known].astype(np.float32)
    all_of_them = values[row].astype(np.float64)
    mean, deviation = all_of_them.mean(axis=0), all_of_them.std(axis=0, ddof=1) if len(row) > 1 else np.zeros(1)
    varies = np.broadcast_to(deviation > 1e-9, mean.shape)
    kept = [name for name, used in zip(found.names, varies, strict=True) if used]
    dropped = [name for name, used in zip(found.names, varies, strict=True) if not used]
    notes = (f"style features left out, as they are the same in all rows: {', '.join(dropped)}",) if dropped else ()
    scale = np.where(varies, deviation, 1.0)
    return kept, ((values - mean) / scale).astype(np.float32)[:, varies], notes


def _rounds(rows: Battles, names: list[str], model: NDArray[np.int64], baseline: str,
            verdicts: tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]],
            draws: NDArray[np.int64]) -> NDArray[np.float32]:
    """Fit every round; verdicts of one model, question and baseline are added up."""
    row, outcome, features = verdicts
    groups, group = np.unique(model * len(rows.baselines) + rows.baseline, return_inverse=True)
    questions, question = np.unique(rows.question, return_inverse=True)
    shape = (len(groups), len(questions))
    cell = group * len(questions) + question
    values = np.zeros((shape[0] * shape[1], features.shape[1]), np.float32)
    values[cell] = features
    design = _design(groups // len(rows.baselines), len(names), names.index(baseline))
    part = max(1, min(CELLS // (shape[0] * shape[1]), PRODUCT // (shape[1] * max(features.shape[1], 1))))
    found = []
    for first in range(0, len(draws), part):
        some = draws[first:first + part]
        sums = [np.stack([np.bincount(cell[row[drawn]], weights, shape[0] * shape[1]).astype(np.float32)
                          for drawn, weights in ((drawn, None if one else outcome[drawn]) for drawn in some)])
                for one in (False, True)]
        won, weight = (np.ascontiguousarray(each.reshape(-1, *shape).swapaxes(0, 1)) for each in sums)
        found.append(fitted(Sums(won, weight, values.reshape(*shape, features.shape[1]), design)))
    return np.concatenate(found)


def _design(models: NDArray[np.int64], size: int, baseline: int) -> NDArray[np.float32]:
    """+1 for the model and -1 for the baseline; a baseline judged against itself keeps the -1 alone."""
    design = np.zeros((len(models), size), np.float32)
    design[np.arange(len(models)), models] = 1
    design[:, baseline] = -1
    return design
