"""Score over training steps: curves of runs, best checkpoints, and from which step on their ranking was settled.

Computes from battles alone; never reads files and never draws (`plotting/` does)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from automate.results.battles import Battles, Floats, Style
from automate.results.boards import Board, Options
from automate.results.reading.folder import named
from automate.results.scoring.intervals import score_interval
from automate.results.scoring.scores import Scored, scored
from automate.results.training import rounds as rounds_of
from automate.results.training.checkpoints import Checkpoint, group_names, natural, parse, same_place
from automate.results.training.data import FINAL, Best, Curves, Mean, Point, Run, Settled, Stop
from automate.results.training.shared import Shared
from automate.results.training.stop import stop

__all__ = ["THRESHOLD", "Best", "Curves", "Mean", "Point", "Run", "Settled", "Stop", "curves"]

THRESHOLD = 0.9
"""Spearman's correlation from which on two rankings count as the same, where no other is named."""


def curves(battles: Battles, options: Options, pattern: str, *, final_step: int | None = None,
           style: Style | None = None, threshold: float = THRESHOLD, found: Scored | None = None) -> Curves:
    """Curves of all models whose name fits `pattern` whole (named groups `run`, `step` and any others).

    `final_step`: the step of ends whose name has no number. `found`: the scores of the same battles and options, if
    they are at hand. Raises ConfigError for the pattern, DataError where no score can be computed.
    """
    named_so, unmatched = parse(battles.models, pattern, final_step)
    found = found or scored(battles, options, style)
    board = found.board
    with_score = {score.model for score in board.scores if not score.is_baseline and np.isfinite(score.score)}
    there = [checkpoint for checkpoint in named_so if checkpoint.model in with_score]
    scoreless = tuple(checkpoint.model for checkpoint in named_so if checkpoint.model not in with_score)
    draws = Shared(battles, replace(options, mode="default"), style, found)
    runs = _runs(there, board, draws)
    columns = _columns(runs)
    groups = tuple(group_names(there))
    bests = tuple(_bests(runs, groups, draws))
    settled = tuple(_settled(runs, columns, draws, options.confidence))
    return Curves(
        runs, columns, groups, tuple(_means(runs, columns, groups, draws, options.confidence)),
        bests, settled, stop(settled, threshold, options.confidence, len(runs)),
        tuple(unmatched), scoreless, options, pattern, board.baselines, board.judges,
        (*same_place(named_so), *_notes(runs), *_unlike(runs, bests, settled, draws), *board.warnings, *board.notes))


# --- runs ---------------------------------------------------------------------------------------
def _runs(there: Sequence[Checkpoint], board: Board, draws: Shared) -> tuple[Run, ...]:
    by_run: dict[str, list[Checkpoint]] = {}
    for checkpoint in there:
        by_run.setdefault(checkpoint.run, []).append(checkpoint)
    gap = _gap(there)
    return tuple(_run(name, checkpoints, board, draws, gap) for name, checkpoints in by_run.items())


def _run(name: str, checkpoints: Sequence[Checkpoint], board: Board, draws: Shared, gap: float) -> Run:
    last = max((one.step for one in checkpoints if one.step is not None), default=0)
    points = []
    for checkpoint in checkpoints:
        score = board.score_of(checkpoint.model)
        assert score is not None  # only checkpoints that have one come here
        place = float(checkpoint.step) if checkpoint.step is not None else last + gap
        points.append(Point(checkpoint, score.score, score.low, score.high, score.questions, score.games, place,
                            guessed=checkpoint.step is None))
    values, rounds = draws.of(points)
    shares, top = rounds_of.best_shares(rounds), _order(points, values)[0]
    marked = tuple(replace(point, share=float(shares[at]), best=at == top) for at, point in enumerate(points))
    return Run(name, _shared_groups(checkpoints), marked)


def _shared_groups(checkpoints: Sequence[Checkpoint]) -> Mapping[str, str]:
    """The groups in which all points of a run agree."""
    first = checkpoints[0].groups
    return {name: value for name, value in first.items() if all(one.groups.get(name) == value for one in checkpoints)}


def _gap(checkpoints: Sequence[Checkpoint]) -> float:
    """How far behind its run's last step an end is drawn whose step isn't known: the usual distance of two steps."""
    steps = sorted({one.step for one in checkpoints if one.step is not None})
    if len(steps) > 1:
        return float(np.median(np.diff(steps)))
    return max(1.0, steps[0] / 4) if steps else 1.0


def _columns(runs: Sequence[Run]) -> tuple[str, ...]:
    points = [point for run in runs for point in run.points]
    steps = sorted({point.checkpoint.step or 0 for point in points if not point.checkpoint.final})
    return (*map(str, steps), *((FINAL,) if any(point.checkpoint.final for point in points) else ()))


# --- groups -------------------------------------------------------------------------------------
def _by_value(runs: Sequence[Run], group: str) -> dict[str, list[Run]]:
    values: dict[str, list[Run]] = {}
    for run in runs:
        if group in run.groups:
            values.setdefault(run.groups[group], []).append(run)
    return {value: values[value] for value in sorted(values, key=natural)}


def _means(runs: Sequence[Run], columns: Sequence[str], groups: Sequence[str], draws: Shared,
           confidence: float) -> list[Mean]:
    found = []
    for group in groups:
        for value, members in _by_value(runs, group).items():
            for column in columns:
                points = [point for run in members if (point := run.at(column))]
                if points:
                    found.append(_mean(group, value, column, points, draws, confidence))
    return found


def _mean(group: str, value: str, column: str, points: Sequence[Point], draws: Shared, confidence: float) -> Mean:
    score = float(np.mean([point.score for point in points]))
    questions = min(point.questions for point in points)
    low, high = score_interval(score, rounds_of.mean_rounds(draws.own(points)), questions, confidence)
    place = max(point.place for point in points)
    return Mean(group, value, column, place, score, low, high, len(points), any(point.guessed for point in points))


def _bests(runs: Sequence[Run], groups: Sequence[str], draws: Shared) -> list[Best]:
    found = [_best("run", run.name, run.points, draws) for run in runs]
    for group in groups:
        values: dict[str, list[Point]] = {}
        for point in (point for run in runs for point in run.points):
            if group in point.checkpoint.groups:
                values.setdefault(point.checkpoint.groups[group], []).append(point)
        found += [_best(group, value, values[value], draws) for value in sorted(values, key=natural)]
    if len(runs) > 1:
        found.append(_best("all", "all", [point for run in runs for point in run.points], draws))
    return found


def _best(group: str, value: str, points: Sequence[Point], draws: Shared) -> Best:
    values, rounds = draws.of(points)
    order = _order(points, values)
    share = float(rounds_of.best_shares(rounds)[order[0]])
    second = points[order[1]].checkpoint.model if len(points) > 1 else None
    return Best(group, value, points[order[0]], share, len(points), second)


def _order(points: Sequence[Point], values: Floats) -> list[int]:
    """Places of the points, best first, of equals the first; by their own scores where none can be compared."""
    known = not np.isnan(values).any()
    return sorted(range(len(points)), key=lambda at: -values[at] if known else -points[at].score)


# --- rankings -----------------------------------------------------------------------------------
def _settled(runs: Sequence[Run], columns: Sequence[str], draws: Shared, confidence: float) -> list[Settled]:
    """Each step's ranking against the one at the ends, where at least one run goes on after the step."""
    found = []
    for column in columns:
        pairs = [(point, run.end) for run in runs if (point := run.at(column))]
        going_on = sum(point is not end for point, end in pairs)
        if column == FINAL or not going_on:
            continue
        then, ends = [point for point, _ in pairs], [end for _, end in pairs]
        values, rounds = draws.of([*then, *ends])
        correlation = rounds_of.spearman(values[:len(then)], values[len(then):])
        both = rounds_of.spearman_rounds(rounds[:, :len(then)], rounds[:, len(then):])
        low, high = rounds_of.around(correlation, both, confidence)
        place = float(then[0].checkpoint.step or 0)
        found.append(Settled(column, place, correlation, low, high, len(pairs), going_on))
    return found


def _notes(runs: Sequence[Run]) -> list[str]:
    notes = []
    open_ended = [run.name for run in runs if not run.has_final]
    if open_ended:
        notes.append(f"{len(open_ended)} of {len(runs)} runs have no final checkpoint, so their last step counts as "
                     f"the end: {named(open_ended)}")
    if any(point.guessed for run in runs for point in run.points):
        notes.append("the step of 'final' is not known: it is drawn after its run's last step (curves.final_step sets "
                     "its place)")
    single = [run.name for run in runs if len(run.points) == 1]
    if single:
        notes.append(f"{len(single)} of {len(runs)} runs have one checkpoint only, so no curve: {named(single)}")
    return notes


def _unlike(runs: Sequence[Run], bests: Sequence[Best], settled: Sequence[Settled], draws: Shared) -> list[str]:
    """What is compared on fewer questions than the scores are of, and what can't be compared at all."""
    points = [point for run in runs for point in run.points]
    if not points or draws.same(points):
        return []
    left = [best.value for best in bests if best.of > 1 and np.isnan(best.share)]
    lost = [one.column for one in settled if np.isnan(one.correlation)]
    why = "too few questions are shared" if draws.counts is not None else "style control is fitted to all questions"
    return ["checkpoints were not all judged on the same questions: the best ones, how sure they are, and Spearman's "
            "correlations go by the questions that all concerned share, while scores and means go by each one's own",
            *([f"not said how sure the best one of {named(left)} is: {why}"] if left else []),
            *([f"rankings not compared at step {named(lost)}: {why}, or too few runs"] if lost else [])]
