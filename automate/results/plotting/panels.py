"""Which lines of curves go into which panel of a picture, and what the legend calls them.

Draws nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from automate.results.training.checkpoints import natural
from automate.results.training.data import Curves, Mean, Point, Run

TOGETHER = 7
"""So many lines in one panel can be told apart; more are spread over panels."""


@dataclass(frozen=True)
class Line:
    """One line of a panel: its points in order, and the name that the legend gives it."""

    label: str
    points: Sequence[Point | Mean]


@dataclass(frozen=True)
class Panel:
    """A panel's title ("" for none) and its lines."""

    title: str
    lines: Sequence[Line]


def run_panels(curves: Curves, by: str | None = None) -> list[Panel]:
    """Runs in panels: by a group's value, or each run in its own (`run`), or all in one (None)."""
    if by is None:
        return [Panel("", [_line(run, run.name) for run in curves.runs])]
    if by == "run":
        return [Panel(run.name, [_line(run, "score")]) for run in curves.runs]
    found = []
    values = sorted({run.groups[by] for run in curves.runs if by in run.groups}, key=natural)
    names = _short_names(curves, by)
    for value in [*values, None]:
        runs = [run for run in curves.runs if run.groups.get(by) == value]
        if runs:
            title = f"without {by}" if value is None else f"{by} {value}"
            found.append(Panel(title, [_line(run, names[run.name]) for run in runs]))
    return found


def mean_panels(curves: Curves, group: str) -> list[Panel]:
    """The means of a group's values as lines of one panel."""
    lines = []
    for value in curves.values(group):
        means = [mean for mean in curves.means if mean.group == group and mean.value == value]
        lines.append(Line(f"{group} {value}", means))
    return [Panel("", lines)]


def varying(curves: Curves) -> list[str]:
    """Groups that split the runs: more than one value, and fewer values than runs."""
    counts = {group: len({run.groups.get(group) for run in curves.runs}) for group in curves.groups}
    return [group for group, count in counts.items() if 1 < count < len(curves.runs)]


def split(curves: Curves) -> str | None:
    """By what the runs are spread over panels so that no panel has too many lines; None: they fit into one."""
    if len(curves.runs) <= TOGETHER:
        return None
    for group in varying(curves):
        if max(len(panel.lines) for panel in run_panels(curves, group)) <= TOGETHER:
            return group
    return "run"


def _line(run: Run, label: str) -> Line:
    return Line(label, run.points)


def _short_names(curves: Curves, by: str) -> Mapping[str, str]:
    """A short name for each run: its other groups' values, where these tell the runs of every panel apart."""
    others = [group for group in varying(curves) if group != by]
    names = {run.name: ", ".join(f"{group} {run.groups.get(group, '-')}" for group in others) for run in curves.runs}
    taken = {(run.groups.get(by), names[run.name]) for run in curves.runs}
    return names if others and len(taken) == len(curves.runs) else {run.name: run.name for run in curves.runs}
