"""Pictures of curves as matplotlib figures: runs over steps, means of groups, how early the ranking was settled.

Only draws what `training/curves.py` found out; no pyplot, so no state outside it. Call it inside `drawing()`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from automate.results.plotting.look import DASHED, GREY, Look, look, shown
from automate.results.plotting.panels import Line, Panel
from automate.results.plotting.sheet import Sheet
from automate.results.training.data import FINAL, Curves, Mean, Point, Settled

LETTERS = 105
"""Characters of a note's line that fit below a figure."""


def score_figure(curves: Curves, panels: Sequence[Panel], title: str) -> Figure:
    """Score over steps with intervals as bands, in one or several panels with the same axes."""
    labels = list(dict.fromkeys(line.label for panel in panels for line in panel.lines))
    looks = {label: look(place) for place, label in enumerate(labels)}
    points = [point for panel in panels for line in panel.lines for point in line.points]
    limits = _limits(points)
    sheet = Sheet(title, len(panels), _notes(curves, points, limits), looks if len(labels) > 1 else {})
    for axes, panel in zip(sheet.axes, panels, strict=False):
        for line, shift in zip(panel.lines, _shifts(len(panel.lines), points), strict=True):
            _draw(axes, line, looks[line.label], shift)
        axes.axhline(50, color=GREY, linewidth=1.0, linestyle=DASHED, zorder=1)
        axes.set_ylim(limits)
        _steps(axes, points)
        if panel.title:
            narrow = len(panels) not in (1, 2, 4)
            axes.set_title(shown(panel.title, 29 if narrow else 42), loc="left", fontsize=7.5 if narrow else 8.5)
    return sheet.finished("training step", "score (%)")


def settled_figure(curves: Curves, title: str) -> Figure:
    """Spearman's correlation of each step's ranking with the final one, with its interval and the threshold."""
    known = [one for one in curves.settled if not math.isnan(one.correlation)]
    bounded = [one for one in known if not math.isnan(one.low)]
    threshold = curves.stop.threshold
    sheet = Sheet(title, 1, [_settled_note(curves, known)], {})
    axes, how = sheet.axes[0], look(0)
    axes.fill_between([one.place for one in bounded], [one.low for one in bounded], [one.high for one in bounded],
                      color=how.colour, alpha=0.15, linewidth=0)
    for one in bounded:
        axes.plot([one.place] * 2, [one.low, one.high], color=how.colour, linewidth=0.9)
    axes.plot([one.place for one in known], [one.correlation for one in known], color=how.colour, marker=how.marker)
    axes.axhline(threshold, color=GREY, linewidth=1.0, linestyle=DASHED)
    low = min([threshold, *(one.correlation for one in known), *(one.low for one in bounded)])
    air = 0.05 * (1 - low) + 0.01
    axes.set_ylim(low - 3 * air, 1 + air)
    if len({one.runs for one in known}) > 1:
        for one in known:
            axes.annotate(str(one.runs), (one.place, low - 2.6 * air), ha="center", va="bottom", fontsize=7, color=GREY)
    axes.xaxis.set_major_locator(_locator())
    axes.xaxis.set_major_formatter(lambda value, _: _step(value))
    return sheet.finished("training step", "Spearman correlation (-1 to 1)")


# --- parts --------------------------------------------------------------------------------------
def _draw(axes: Axes, line: Line, how: Look, shift: float) -> None:
    """A line with its band; an end whose step is not known hangs on a thin line and has a hollow marker."""
    points = [replace(point, place=point.place + shift) if point.guessed else point for point in line.points]
    known = [point for point in points if not point.guessed]
    apart = [point for point in points if point.guessed]
    places, scores = [point.place for point in known], [point.score for point in known]
    if len(known) > 1:
        axes.fill_between(places, [point.low for point in known], [point.high for point in known], color=how.colour,
                          alpha=0.13, linewidth=0, zorder=2)
    axes.plot(places, scores, color=how.colour, linestyle=how.dashes, marker=how.marker, zorder=4)
    for point in apart:
        if known:
            axes.plot([places[-1], point.place], [scores[-1], point.score], color=how.colour, linewidth=0.8,
                      linestyle=(0, (1, 2)), zorder=3)
        axes.plot([point.place], [point.score], color=how.colour, marker=how.marker, markerfacecolor="white",
                  linestyle="none", zorder=4)
    for point in apart if len(known) > 1 else points:
        axes.plot([point.place] * 2, [point.low, point.high], color=how.colour, linewidth=0.9, zorder=3)
    for point in points:
        if isinstance(point, Point) and point.best and len(points) > 1:
            axes.plot([point.place], [point.score], marker="o", markersize=10, markerfacecolor="none",
                      markeredgecolor=how.colour, markeredgewidth=0.9, linestyle="none", zorder=5)


def _shifts(lines: int, points: Sequence[Point | Mean]) -> list[float]:
    """How far each line's end is moved aside where its step isn't known, so that none covers another."""
    places = [point.place for point in points]
    width = max(places) - min(places) or 5.0
    apart = min(0.03, 0.08 / lines) * width
    return [(at - (lines - 1) / 2) * apart for at in range(lines)]


def _steps(axes: Axes, points: Sequence[Point | Mean]) -> None:
    """Ticks at known steps only; an end whose step is not known is called `final` instead of a number."""
    places = [point.place for point in points]
    known = [point.place for point in points if not point.guessed]
    ends = sorted({point.place for point in points if point.guessed})
    ticks = [float(tick) for tick in _locator().tick_values(min(known), max(known)) if tick <= max(known)] \
        if known else []
    names = [_step(tick) for tick in ticks]
    if len(ends) == 1:
        width = max(places) - min(places)
        ticks = [tick for tick in ticks if ends[0] - tick > 0.1 * width]
        names = [*map(_step, ticks), FINAL]
        ticks.append(ends[0])
    axes.set_xticks(ticks, names)
    air = 0.06 * (max(places) - min(places)) or 0.5
    axes.set_xlim(min(places) - air, max(places) + air)


def _locator() -> MaxNLocator:
    return MaxNLocator(5, integer=True, steps=[1, 2, 2.5, 5, 10])


def _limits(points: Sequence[Point | Mean]) -> tuple[float, float]:
    """The scores' range with some air, and 50 within it where that is near enough not to flatten the curves."""
    low, high = min(point.low for point in points), max(point.high for point in points)
    room = max(high - low, 5.0)
    if low - 1.2 * room <= 50 <= high + 1.2 * room:
        low, high = min(low, 50.0), max(high, 50.0)
    air = 0.06 * max(high - low, 5.0)
    return low - air, high + air


def _notes(curves: Curves, points: Sequence[Point | Mean], limits: tuple[float, float]) -> list[str]:
    """Lines below the figure that say what its signs mean."""
    low, high = limits
    level = f"50, as good as {_against(curves)}"
    runs = [point for point in points if isinstance(point, Point)]
    said = [f"band and bar: {curves.options.confidence:g} % interval by questions",
            f"dashed grey: {level}" if low <= 50 <= high else
            f"{level}, is {'above' if high < 50 else 'below'} what is shown"]
    if any(point.best for point in runs) and len(runs) > 1:
        said.append("ring: best of its run")
    if any(point.guessed for point in points):
        said.append("hollow: final, its step is not known")
    if len(runs) < len(points):
        said.append("mean of the runs that have the step")
    lines = [said[0]]
    for part in said[1:]:
        joined = f"{lines[-1]}; {part}"
        lines[-1:] = [joined] if len(joined) <= LETTERS else [lines[-1], part]
    return lines


def _settled_note(curves: Curves, known: Sequence[Settled]) -> str:
    counts = {one.runs for one in known}
    runs = "small numbers: runs compared" if len(counts) > 1 else f"{counts.pop()} runs at each step"
    return (f"band: {curves.options.confidence:g} % interval by questions; dashed grey: {curves.stop.threshold:g}; "
            f"1 is the same ranking as at the end; {runs}")


def _against(curves: Curves) -> str:
    return shown(curves.baselines[0]) if len(curves.baselines) == 1 else "each category's baseline"


def _step(value: float) -> str:
    if value >= 1e6 and value % 1e5 == 0:
        return f"{value / 1e6:g}M"
    return f"{value / 1000:g}k" if value >= 1000 and value % 100 == 0 else f"{value:.15g}"
