"""Arena-Hard v0.1: scores and intervals of a battles file, as its published leaderboards were made, or by question.

Never reads a file. Rows are single verdicts whose strong ones stand there three times already, so that the weight of
strong verdicts can't be chosen any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from automate.errors import ConfigError, DataError
from automate.results.battles import Floats, Ints
from automate.results.boards import Board, Options, Score
from automate.results.reading.battle_rows import BattleRows
from automate.results.scoring.compare import neighbours, with_ranks
from automate.results.scoring.intervals import drawn, ratio, score_interval
from automate.results.scoring.pairs import plain

SEED, ROUNDS = 42, 100
SCALE = 400.0
"""Rating points in which the odds grow tenfold."""
LOW, HIGH = 2.5, 97.5
COPIES = 3
"""Rows that a strong verdict is written as."""
TIE = 1
"""Twice the outcome of a tie."""


@dataclass(frozen=True)
class Published:
    """A row of a v0.1 leaderboard: percent, rounded to two digits; the baseline's is 50 throughout."""

    model: str
    score: float
    low: float
    high: float

    @property
    def interval(self) -> str:
        """The column `CI`: the distances of the rounded bounds."""
        return f"(-{self.score - self.low:.2f}, +{self.high - self.score:.2f})"


def published(rows: BattleRows, *, seed: int = SEED, rounds: int = ROUNDS) -> tuple[Published, ...]:
    """Scores and 95 % intervals, best first, equal to the published tables to their digits with the seed 42.

    All rows of the file are resampled together, a model's score is its mean outcome, and percentiles are taken of
    ratings, 400 log10 of the odds. Raises DataError where there are no rows.
    """
    baseline = _baseline(rows)
    size, count = len(rows.models), len(rows.outcome)
    scores = _means(rows.model, rows.outcome, size)
    resampled = _resampled(rows, np.random.RandomState(seed), rounds, count)
    found = [Published(name, round(float(scores[index]), 2), *_bounds(resampled[:, index]))
             for index, name in enumerate(rows.models) if name != baseline]
    found.append(Published(baseline, 50.0, 50.0, 50.0))
    return tuple(sorted(found, key=lambda row: (-row.score, row.model)))


def _baseline(rows: BattleRows) -> str:
    if not len(rows.outcome):
        raise DataError("no battles", todo="name a battles file with rows")
    if len(rows.baselines) != 1:
        raise DataError(f"battles against {len(rows.baselines)} baselines ({', '.join(rows.baselines) or 'none named'})"
                        " can't be scored together", todo="split the file by model_a")
    return rows.baselines[0]


def _resampled(rows: BattleRows, generator: np.random.RandomState, rounds: int, count: int) -> Floats:
    size = len(rows.models)
    found = np.full((rounds, size), np.nan)
    for number in range(rounds):
        picked = generator.randint(0, count, count)
        found[number] = _means(rows.model[picked], rows.outcome[picked], size)
    return found


def _means(model: Ints, outcome: Floats, size: int) -> Floats:
    """Mean outcome of each model in percent."""
    won = np.bincount(model, outcome, size).astype(np.float64)
    return ratio(won, np.bincount(model, minlength=size).astype(np.float64))


def _bounds(scores: Floats) -> tuple[float, float]:
    """Percentiles on the rating scale, back in percent. All won or all lost is as far out as a float can say."""
    known = scores[np.isfinite(scores)]
    if not len(known):
        return 0.0, 100.0
    share = np.clip(known / 100.0, 1e-12, 1 - 1e-12)
    low, high = np.percentile(SCALE * np.log10(share / (1 - share)), [LOW, HIGH])
    return tuple(round(float(100.0 / (1.0 + 10.0 ** (-rating / SCALE))), 2) for rating in (low, high))  # type: ignore[return-value]


def board(rows: BattleRows, options: Options) -> Board:
    """The board of `table`. Raises as that."""
    return table(rows, options)[0]


def table(rows: BattleRows, options: Options) -> tuple[Board, float | None]:
    """A battles file as a board, and the smallest difference that its neighbours can show, where that is known.

    The published way in the compatible mode, without ranges of ranks; questions resampled in the default one.
    Raises ConfigError where style control or a category is asked for: a battles file holds neither.
    """
    if options.style or options.category:
        raise ConfigError("a battles file has neither categories nor style", todo="leave these options out")
    baseline = _baseline(rows)
    counts = _questions(rows)
    games = _games(rows)
    if options.mode == "compatible":
        index = {name: number for number, name in enumerate(rows.models)}
        scores = [Score(row.model, row.score, row.low, row.high, int(games[index[row.model]]) if row.model in index
                        else 0, int(counts[index[row.model]]) if row.model in index else 0,
                        is_baseline=row.model == baseline) for row in published(rows)]
        settled = replace(options, confidence=HIGH - LOW, rounds=ROUNDS, seed=SEED, strong_weight=3.0)
        return Board(tuple(scores), settled, (baseline,), ()), None
    return _by_question(rows, options, baseline, games.tolist(), counts.tolist())


def _questions(rows: BattleRows) -> Floats:
    """How many questions each model has."""
    pairs = np.unique(np.stack([rows.model, rows.question]), axis=1)[0]
    return np.bincount(pairs, minlength=len(rows.models)).astype(np.float64)


def _games(rows: BattleRows) -> Ints:
    """How many games each model has: three equal rows of a question that are no tie are one strong verdict."""
    outcome = np.round(2.0 * rows.outcome).astype(np.int64)
    each, count = np.unique(np.stack([rows.model, rows.question, outcome]), axis=1, return_counts=True)
    games = np.where(each[2] == TIE, count, count // COPIES + count % COPIES)
    return np.bincount(each[0], games, len(rows.models)).astype(np.int32)


def _by_question(rows: BattleRows, options: Options, baseline: str, games: list[int],
                 counts: list[float]) -> tuple[Board, float | None]:
    """The board with ranks as of any other, and the smallest difference that neighbours can show."""
    shape = (len(rows.models), len(rows.questions))
    cell = rows.model.astype(np.int64) * shape[1] + rows.question
    won = np.bincount(cell, rows.outcome, shape[0] * shape[1]).astype(np.float64).reshape(shape)
    weight = np.bincount(cell, minlength=shape[0] * shape[1]).astype(np.float64).reshape(shape)
    draws = drawn([np.unique(rows.question).astype(np.int64)], shape[1], options)
    values, rounds = ratio(won.sum(axis=1), weight.sum(axis=1)), ratio(draws @ won.T, draws @ weight.T)
    scores: dict[int | None, Score] = {None: Score(baseline, 50.0, 50.0, 50.0, is_baseline=True)}
    for index, name in enumerate(rows.models):
        if name != baseline:
            many = int(counts[index])
            low, high = score_interval(float(values[index]), rounds[:, index], many, options.confidence)
            scores[index] = Score(name, float(values[index]), low, high, games[index], many)
    order = sorted(scores, key=lambda index: (-scores[index].score, scores[index].model))
    note = (f"{len(rows.outcome):,} rows are {sum(games):,} games: a strong verdict is written as {COPIES} equal rows, "
            "so that it has its weight already")
    found = Board(tuple(scores[index] for index in order), options, (baseline,), (), notes=(note,))
    between = plain(_with_baseline(won, 0.5, order), _with_baseline(weight, 1.0, order), draws)
    places = [place for place, index in enumerate(order) if index is not None]
    return with_ranks(found, between, options.confidence), neighbours(between, places, options.confidence)


def _with_baseline(sums: Floats, half: float, order: Sequence[int | None]) -> Floats:
    """Sums by question in that order; `half` of each question for the baseline (None)."""
    return np.stack([np.full(sums.shape[1], half) if index is None else sums[index] for index in order])
