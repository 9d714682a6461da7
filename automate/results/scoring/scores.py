"""Scores against the baseline with their intervals: the leaderboard, in the mode and with the style that are asked for.

Never reads files, and never mixes the two modes: a board says in its options how it was computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from automate.errors import ConfigError, DataError
from automate.results.battles import Battles, Floats, Style
from automate.results.boards import Board, Options, Score
from automate.results.reading.folder import named
from automate.results.reading.messages import many
from automate.results.scoring.intervals import chosen, question_scores, ratio, resampled_scores, score_interval

__all__ = ["Scored", "leaderboard", "question_scores", "scored"]

STYLES = ("length", "markdown")
FEW_QUESTIONS = 30
FEW = "few questions, so rough intervals"


@dataclass(frozen=True)
class Played:
    """How much of each model was judged: arrays over models. `questions` with both verdicts, and their `games`."""

    games: NDArray[np.int64]
    questions: NDArray[np.int64]


@dataclass(frozen=True)
class Scored:
    """A board and what it was made from: scores in percent in each round, shape (rounds, models of the battles)."""

    board: Board
    rounds: Floats


def leaderboard(battles: Battles, options: Options, style: Style | None = None) -> Board:
    """Scores of all models that have any, best first, the baseline among them at 50.

    Questions of all categories are pooled, each against its own category's baseline, unless the options name a
    category. With several baselines no row of a baseline is added, as 50 then means something else in each category.
    Raises DataError where there is nothing to compute from, ConfigError for an unknown style feature.
    """
    if options.mode == "compatible":
        from automate.results.compatible.result import board

        check(battles, options)
        return board(battles, options, style)
    return scored(battles, options, style).board


def scored(battles: Battles, options: Options, style: Style | None = None) -> Scored:
    """The leaderboard of the default mode, and its resampled scores for what else is told of the same models.

    Raises as `leaderboard`.
    """
    options = replace(options, mode="default")
    check(battles, options)
    if options.style:
        from automate.results.scoring.style import scored as style_scored

        return Scored(*style_scored(battles, options, style))
    won, weight = question_scores(battles, options)
    rounds = resampled_scores(battles, options)
    values = ratio(won.sum(axis=1), weight.sum(axis=1))
    return Scored(assembled(battles, options, values, rounds), rounds)


def check(battles: Battles, options: Options) -> None:
    """Refuse what no score can be computed from."""
    unknown = [name for name in options.style if name not in STYLES]
    if unknown:
        raise ConfigError(f"no style feature is called {', '.join(unknown)}", todo=f"known are {', '.join(STYLES)}")
    if not len(battles):
        raise DataError("no judgments: there is no row to compute a score from",
                        todo="check the names of the bench and of the judge, and that models were judged")
    if not len(chosen(battles, options)):
        what = f" of the category {options.category}" if options.category else ""
        raise DataError(f"no question{what} has verdicts in both games ({len(battles)} rows were read)",
                        todo="see the causes with `flock-hpc status`, and judge again what is missing")


def played(battles: Battles, options: Options) -> Played:
    """Games and questions of each model in the options' category."""
    rows = battles if options.category is None else battles.take(
        battles.category == battles.categories.index(options.category))
    size = len(battles.models)
    kept = rows.take(rows.complete)
    games = 2 * np.bincount(kept.model, minlength=size).astype(np.int64)
    pairs = np.unique(np.stack([kept.model, kept.question]), axis=1)[0]
    return Played(games, np.bincount(pairs, minlength=size).astype(np.int64))


def assembled(battles: Battles, options: Options, values: Floats, rounds: Floats, *,
              coefficients: dict[str, float] | None = None, notes: tuple[str, ...] = (),
              warnings: tuple[str, ...] = ()) -> Board:
    """A board of scores in percent, `values` of shape (models,) and `rounds` of shape (rounds, models).

    A model whose value is NaN has no score and is named in the notes.
    """
    counts = played(battles, options)
    scores = [_score(battles, index, float(values[index]), rounds[:, index], counts, options)
              for index in range(len(battles.models)) if np.isfinite(values[index])]
    baselines = baselines_of(battles, options)
    missing = [name for name, value in zip(battles.models, values, strict=True) if not np.isfinite(value)]
    told = notes + ((_scoreless(missing, options.category),)
                    if missing else ())
    if len(baselines) == 1 and baselines[0] not in battles.models:
        scores.append(Score(baselines[0], 50.0, 50.0, 50.0, is_baseline=True))
    scores.sort(key=lambda score: (-score.score, score.model))
    mixed = _mixed(battles, options)
    return Board(tuple(scores), options, baselines, judges_of(battles), coefficients or {},
                 told + _notes(battles, options, baselines), warnings + mixed + _warnings(battles, options, counts),
                 comparable=not mixed)


def _scoreless(missing: Sequence[str], category: str | None) -> str:
    where = f" in category {category}" if category else ""
    return f"no score for {many(len(missing), 'model')} without a usable question{where}: {', '.join(missing)}"


def _score(battles: Battles, index: int, value: float, rounds: Floats, counts: Played, options: Options) -> Score:
    questions = int(counts.questions[index])
    low, high = score_interval(value, rounds, questions, options.confidence)
    return Score(battles.models[index], value, low, high, int(counts.games[index]), questions)


def baselines_of(battles: Battles, options: Options) -> tuple[str, ...]:
    """Names of the baselines that the scored rows were judged against."""
    return tuple(battles.baselines[index] for index in np.unique(chosen(battles, options).baseline))


def judges_of(battles: Battles) -> tuple[str, ...]:
    """Names of the judges whose rows there are."""
    return tuple(battles.judges[index] for index in np.unique(battles.judge))


def _notes(battles: Battles, options: Options, baselines: tuple[str, ...]) -> tuple[str, ...]:
    kept = chosen(battles, options)
    categories = [battles.categories[index] for index in np.unique(kept.category)]
    found = []
    if len(categories) > 1:
        found.append(f"questions of {len(categories)} categories together ({', '.join(categories)})"
                     + (", each against its own baseline" if len(baselines) > 1 else ""))
    itself = [name for name in baselines if len(baselines) == 1 and name in battles.models]
    found += [f"{name} is the baseline and was judged against itself" for name in itself]
    partial = int(len(battles) - battles.complete.sum())
    if partial:
        found.append(f"{partial} of {len(battles)} rows left out: a verdict of their two games is missing")
    return tuple(found)


def _mixed(battles: Battles, options: Options) -> tuple[str, ...]:
    """Why the scores can't be ranked: they are against several baselines, and not all of them against the same."""
    kept = chosen(battles, options)
    found = []
    for category in np.unique(kept.category):
        used = [battles.baselines[index] for index in np.unique(kept.baseline[kept.category == category])]
        if len(used) > 1:
            found.append(f"category {battles.categories[category]} has judgments against {len(used)} baselines "
                         f"({', '.join(used)}): these scores can't be compared, so there are no ranks; choose one with "
                         "--baseline")
    pairs = np.unique(np.stack([kept.model, kept.baseline]), axis=1)
    against = np.bincount(pairs[0])
    if not found and against[against > 0].min() < against.max():
        fewer = [battles.models[index] for index in np.flatnonzero(against) if against[index] < against.max()]
        found.append(f"not judged against all {against.max()} baselines: {', '.join(fewer)}; scores against different "
                     "baselines can't be compared, so there are no ranks; choose one with --baseline or --category")
    return tuple(found)


def _warnings(battles: Battles, options: Options, counts: Played) -> tuple[str, ...]:
    few = {battles.models[index]: int(counts.questions[index]) for index in np.flatnonzero(counts.questions)
           if counts.questions[index] < FEW_QUESTIONS}
    found = [few_questions([(options.category, few)])] if few else []
    return (*found, *_unlike(chosen(battles, options), battles, counts))


def few_questions(parts: Sequence[tuple[str | None, Mapping[str, int]]]) -> str:
    """A warning of models with few questions: their numbers by category (None: all together), the same in each part."""
    if len(parts) == 1:
        category, numbers = parts[0]
        return FEW + (f" in category {category}" if category else "") + ": " + ", ".join(
            f"{model} {number}" for model, number in numbers.items())
    each = [(category or "all") + " " + " to ".join(map(str, sorted({min(few.values()), max(few.values())})))
            for category, few in parts]
    return f"{FEW}: {', '.join(parts[0][1])} ({'; '.join(each)})"


def _unlike(kept: Battles, battles: Battles, counts: Played) -> list[str]:
    """Which models lack questions that others have, as their scores are of something else then."""
    has = np.zeros((len(battles.models), len(battles.questions)), np.bool_)
    has[kept.model, kept.question] = True
    total = int(has.any(axis=0).sum())
    lacking = [index for index in np.argsort(counts.questions, kind="stable") if 0 < counts.questions[index] < total]
    if not lacking:
        return []
    each = named([f"{battles.models[index]} {counts.questions[index]:,}" for index in lacking])
    return [f"models were not judged on the same questions: of the {total:,} that any model has both verdicts on, "
            f"{many(len(lacking), 'model lacks', 'models lack')} some ({each}); scores of different questions can't be "
            "compared: ranks and --compare go by the questions that two models share"]
