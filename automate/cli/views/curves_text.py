"""Curves as lines of text: scores of runs or groups over steps, best checkpoints, rankings, what was left out. Pure.

Every line fits the width that it is asked for; names are cleaned of what a terminal would obey."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from automate.cli.views.blocks import table
from automate.cli.views.cells import ELLIPSIS, Column, clean, fold, writable
from automate.results.training.data import FINAL, Curves, Mean, Point

NAME = 32
"""Cells of a run's name where room is short."""
LONGEST_COURSE = 24


@dataclass(frozen=True)
class Signs:
    """Characters of the table; ASCII where a terminal can't show the others."""

    bars: str = "▁▂▃▄▅▆▇█"
    spread: str = "±"
    none: str = "–"
    to: str = "–"
    left_out: str = ELLIPSIS


UNICODE = Signs()
ASCII = Signs(bars="_.-=+*#@", spread="+-", none="-", to="..", left_out="~")


def signs_for(encoding: str) -> Signs:
    """The characters that an encoding can write."""
    return writable(UNICODE, ASCII, encoding)


@dataclass(frozen=True)
class Row:
    """A row of the main table: a run or a group's value, its points by column, its best and how sure that is."""

    name: str
    points: Mapping[str, Point | Mean]
    best: str
    share: float | None = None


def lines(curves: Curves, by: str, width: int, signs: Signs) -> list[str]:
    """All of it; `by` is `run` or one of the pattern's groups."""
    out = []
    if curves.runs:
        out += _scores(curves, by, width, signs)
        out += _bests(curves, width, signs)
        out += _rankings(curves, width, signs)
    else:
        out += fold("No model's name is a checkpoint by the pattern, or none of them has a score.", width)
        out += fold(f"The pattern: {clean(curves.pattern)}", width)
        out += fold("Set curves.pattern, or give --pattern, with the groups (?P<run>...) and (?P<step>...).", width)
    return [line.replace(ELLIPSIS, signs.left_out) for line in (*out, *_left_out(curves, width))]


# --- scores -------------------------------------------------------------------------------------
def _scores(curves: Curves, by: str, width: int, signs: Signs) -> list[str]:
    rows = _run_rows(curves) if by == "run" else _mean_rows(curves, by)
    course = _courses(rows, curves.columns, signs)
    shown = list(curves.columns)
    while len(shown) > 2 and _wanted(by, rows, shown, course, signs) > width:
        shown = _fewer(curves.columns, len(shown) - 1)
    columns = [Column(by, least=12, how="middle"), *(Column(title, "right") for title in _titles(shown)),
               Column("course", drop=2), Column("best", "right"), Column("sure", "right", drop=1)]
    cells = [_cells(row, shown, course[at], signs) for at, row in enumerate(rows)]
    if by != "run":
        columns, cells = columns[:-1], [one[:-1] for one in cells]
    head, body = table(columns, cells, width)
    told = _told(curves, by, shown, any(_fewer_runs(row, column) for row in rows for column in shown))
    return [*fold(_heading(curves), width), "", head, *body,
            *(line for one in told for line in fold(one, width, "  ", "  ")), ""]


def _told(curves: Curves, by: str, shown: Sequence[str], fewer_runs: bool) -> list[str]:
    """What the signs of the table mean, and what is not in it."""
    told = []
    if len(shown) < len(curves.columns):
        told.append(f"{len(shown)} of {len(curves.columns)} steps are shown; --csv has them all.")
    if by == "run":
        told.append("* marks the best step of a run; sure: in how many of the bootstrap rounds it is the best.")
    else:
        told.append(f"Means over the runs that have a step; * marks the highest of a {clean(by)}.")
    if fewer_runs:
        told.append("(n): the mean of n runs only, where others have more; compare these with care.")
    return told


def _titles(shown: Sequence[str]) -> list[str]:
    return [column if at or column == FINAL else f"step {column}" for at, column in enumerate(shown)]


def _cells(row: Row, shown: Sequence[str], course: str, signs: Signs) -> list[str]:
    return [clean(row.name), *(_cell(row, column, signs) for column in shown), course, clean(row.best),
            _percent(row.share)]


def _wanted(by: str, rows: Sequence[Row], shown: Sequence[str], course: Sequence[str], signs: Signs) -> int:
    """How wide the table would like to be, with names of at most NAME cells."""
    titles = [by, *_titles(shown), "course", "best", "sure"]
    cells = [titles, *(_cells(row, shown, course[at], signs) for at, row in enumerate(rows))]
    sizes = [max(cell_len(one[at]) for one in cells) for at in range(len(titles))]
    return 2 + min(sizes[0], NAME) + sum(size + 2 for size in sizes[1:])


def _fewer(columns: Sequence[str], room: int) -> list[str]:
    """So many of the columns: the first, the last and others at even distances."""
    places = {round(at * (len(columns) - 1) / (room - 1)) for at in range(room)}
    return [column for at, column in enumerate(columns) if at in places]


def _heading(curves: Curves) -> str:
    options = curves.options
    against = clean(curves.baselines[0]) if len(curves.baselines) == 1 else "each category's baseline"
    style = f", style control ({', '.join(options.style)})" if options.style else ""
    category = f", category {clean(options.category)}" if options.category else ""
    return (f"Score over training steps, in percent against {against} (50: as good), {options.confidence:g} % "
            f"intervals by questions{category}{style}: {_count(len(curves.points), 'checkpoint')} of "
            f"{_count(len(curves.runs), 'run')}")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _run_rows(curves: Curves) -> list[Row]:
    return [Row(run.name, {column: point for column in curves.columns if (point := run.at(column))},
                run.best.checkpoint.label, run.best.share if len(run.points) > 1 else None) for run in curves.runs]


def _mean_rows(curves: Curves, by: str) -> list[Row]:
    rows = []
    for value in curves.values(by):
        points: dict[str, Point | Mean] = {mean.column: mean for mean in curves.means
                                           if mean.group == by and mean.value == value}
        best = max(points, key=lambda column: points[column].score)
        rows.append(Row(value, points, best))
    return rows


def _cell(row: Row, column: str, signs: Signs) -> str:
    point = row.points.get(column)
    if point is None:
        return signs.none
    best = point.best if isinstance(point, Point) else column == row.best
    mark = "*" if best and len(row.points) > 1 else ""
    fewer = f" ({runs})" if (runs := _fewer_runs(row, column)) else ""
    return f"{mark}{point.score:.1f} {signs.spread}{(point.high - point.low) / 2:.1f}{fewer}"


def _fewer_runs(row: Row, column: str) -> int:
    """How many runs a mean is of, where that is fewer than at another step of its row; else 0."""
    point = row.points.get(column)
    most = max(one.runs for one in row.points.values() if isinstance(one, Mean)) if isinstance(point, Mean) else 0
    return point.runs if isinstance(point, Mean) and point.runs < most else 0


def _courses(rows: Sequence[Row], columns: Sequence[str], signs: Signs) -> list[str]:
    """A small picture of each row, all on one scale; none where there are too many steps or only one."""
    if not 1 < len(columns) <= LONGEST_COURSE:
        return [""] * len(rows)
    scores = [point.score for row in rows for point in row.points.values()]
    low, spread = min(scores), max(scores) - min(scores)

    def bar(point: Point | Mean | None) -> str:
        if point is None:
            return " "
        return signs.bars[round((point.score - low) / spread * (len(signs.bars) - 1)) if spread else 0]

    return ["".join(bar(row.points.get(column)) for column in columns) for row in rows]


# --- the rest -----------------------------------------------------------------------------------
def _bests(curves: Curves, width: int, signs: Signs) -> list[str]:
    found = [best for best in curves.bests if best.group != "run"]
    if not found or len(curves.points) < 2:
        return []
    columns = [Column("best of"), Column("checkpoint", least=16, how="middle"), Column("score", "right"),
               Column("interval", "right"), Column("sure", "right"), Column("of", "right", drop=1),
               Column("next best", least=20, drop=2, how="middle")]
    cells = [["all" if best.group == "all" else clean(f"{best.group} {best.value}"),
              clean(best.point.checkpoint.model), f"{best.point.score:.1f}",
              f"{best.point.low:.1f} {signs.to} {best.point.high:.1f}", _percent(best.share if best.of > 1 else None),
              str(best.of), clean(best.runner_up or signs.none)] for best in found]
    head, body = table(columns, cells, width)
    return ["Best checkpoints", head, *body, ""]


def _rankings(curves: Curves, width: int, signs: Signs) -> list[str]:
    out = fold("Could training have been stopped earlier?", width)
    if any(not math.isnan(one.correlation) for one in curves.settled):
        columns = [Column("step", "right"), Column("Spearman", "right"), Column("interval", "right"),
                   Column("runs", "right")]
        cells = [[one.column, _number(one.correlation, signs), _range(one.low, one.high, signs), str(one.runs)]
                 for one in curves.settled]
        head, body = table(columns, cells, width)
        out += [head, *body]
    return [*out, *fold(clean(curves.stop.text), width, "  ", "  "), ""]


def _left_out(curves: Curves, width: int) -> list[str]:
    out = []
    for names, noun, says in ((curves.scoreless, "checkpoint", "without a game that counts, so without a score"),
                              (curves.unmatched, "name", "not a checkpoint's by the pattern")):
        if names:
            out += fold(f"{_count(len(names), noun)} {says}: {', '.join(map(clean, names))}", width, "  ")
    return out + [line for note in curves.notes for line in fold(f"Note: {clean(note)}", width, "  ")]


def _percent(share: float | None) -> str:
    return "" if share is None or math.isnan(share) else f"{100 * share:.0f} %"


def _number(value: float, signs: Signs) -> str:
    return signs.none if math.isnan(value) else f"{value:.2f}"


def _range(low: float, high: float, signs: Signs) -> str:
    return "" if math.isnan(low) or math.isnan(high) else f"{low:.2f} {signs.to} {high:.2f}"
