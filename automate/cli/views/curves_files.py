"""Curves for other programs: everything as CSV, one row a fact, and as JSON. Pure; numbers are not rounded for show.

Writes no files."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import asdict

from automate.cli.views.files import Json, cell, plain
from automate.results.training.data import Best, Curves, Point, Run

COLUMNS = ("table", "group", "value", "run", "model", "step", "place", "estimate", "low", "high", "questions", "games",
           "runs", "share_best", "best")
"""`table`: `score` (a checkpoint, percent), `mean` (of a group at a step, percent), `best` (checkpoint of a run or
group, percent), `spearman` (a step's ranking with the final one, -1 to 1), `no score`, `unmatched` (names alone)."""


def as_csv(curves: Curves) -> str:
    """All there is in one table; after COLUMNS, a column `group_NAME` for each of the pattern's groups."""
    out = io.StringIO()
    writer = csv.DictWriter(out, [*COLUMNS, *(f"group_{name}" for name in curves.groups)], lineterminator="\n")
    writer.writeheader()
    for row in _rows(curves):
        writer.writerow({name: _cell(value) for name, value in row.items()})
    return out.getvalue()


def _cell(value: object) -> object:
    """A number in full, or a text that no spreadsheet takes for a formula."""
    if isinstance(value, float):
        return f"{value:.6f}" if math.isfinite(value) else ""
    return cell(value) if isinstance(value, str) else value


def _rows(curves: Curves) -> Iterator[dict[str, object]]:
    for run in curves.runs:
        for point in run.points:
            yield {"table": "score", **_point(point), "share_best": point.share, "best": int(point.best)}
    for mean in curves.means:
        yield {"table": "mean", "group": mean.group, "value": mean.value, "step": mean.column, "place": mean.place,
               "estimate": mean.score, "low": mean.low, "high": mean.high, "runs": mean.runs}
    for best in curves.bests:
        yield {"table": "best", "group": best.group, "value": best.value, **_point(best.point),
               "share_best": best.share, "best": 1}
    for one in curves.settled:
        yield {"table": "spearman", "step": one.column, "place": one.place, "estimate": one.correlation,
               "low": one.low, "high": one.high, "runs": one.runs}
    for what, names in (("no score", curves.scoreless), ("unmatched", curves.unmatched)):
        for name in names:
            yield {"table": what, "model": name}


def _point(point: Point) -> dict[str, object]:
    one = point.checkpoint
    return {"run": one.run, "model": one.model, "step": one.label, "place": "" if point.guessed else point.place,
            "estimate": point.score, "low": point.low, "high": point.high, "questions": point.questions,
            "games": point.games, **{f"group_{name}": value for name, value in one.groups.items()}}


def as_json(curves: Curves) -> Json:
    """Everything as one document."""
    return plain({
        "baselines": curves.baselines, "judges": curves.judges, "options": asdict(curves.options),
        "pattern": curves.pattern, "steps": curves.columns, "groups": curves.groups,
        "runs": [_run_json(run) for run in curves.runs],
        "means": [asdict(mean) for mean in curves.means],
        "best": [_best_json(best) for best in curves.bests],
        "rankings": [asdict(one) for one in curves.settled],
        "stop": asdict(curves.stop),
        "unmatched": curves.unmatched, "no_score": curves.scoreless, "notes": curves.notes,
    })


def _run_json(run: Run) -> dict[str, object]:
    return {"run": run.name, "groups": run.groups, "end": run.end.checkpoint.model, "has_final": run.has_final,
            "best": run.best.checkpoint.model, "points": [_point_json(point) for point in run.points]}


def _point_json(point: Point) -> dict[str, object]:
    one = point.checkpoint
    return {"model": one.model, "step": one.step, "final": one.final, "place": None if point.guessed else point.place,
            "groups": one.groups, "score": point.score, "low": point.low, "high": point.high,
            "questions": point.questions, "games": point.games, "share_best": point.share, "best": point.best}


def _best_json(best: Best) -> dict[str, object]:
    return {"group": best.group, "value": best.value, **_point_json(best.point), "share_best": best.share,
            "of": best.of, "runner_up": best.runner_up}
