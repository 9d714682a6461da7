"""A sheet for plots: title above, panels with common axes, below them what the signs mean and the legend.

Knows nothing of curves; every part has its own band of the sheet, so that none covers another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from automate.results.plotting.look import GREY, Look, shown

WIDTH = 7.2  # inches: a page of A4 between its margins
TITLE, ACROSS, NOTE, ROW, EDGE = 0.34, 0.24, 0.16, 0.2, 0.06  # inches: heights of the bands, and the sheet's edge
LEFT, RIGHT, BESIDE = 0.62, 0.12, 0.2  # inches: left and right of the panels, between two of them
ABOVE, APART, TICKS = 0.24, 0.5, 0.26  # inches: a panel's title, between two rows of panels, the steps' numbers
HANDLE, LETTER, GAP = 0.62, 0.083, 0.3  # inches: a legend's line, a letter of its text, between two of its columns


class Sheet:
    """A figure with `panels` axes (`axes`, row by row) and the bands around them."""

    def __init__(self, title: str, panels: int, notes: Sequence[str], legend: Mapping[str, Look]) -> None:
        wide = min(panels, 3) if panels != 4 else 2
        high = math.ceil(panels / wide)
        self._legend_columns = _columns(list(legend))
        rows = math.ceil(len(legend) / self._legend_columns)
        self._notes_top = EDGE + rows * ROW + (0.08 if rows else 0) + NOTE * len(notes)
        self._below = self._notes_top + ACROSS
        self._above = TITLE + (ABOVE if panels > 1 else 0.05)
        tall = 2.7 if high == 1 and wide < 3 else 1.55
        self._height = self._above + high * tall + (high - 1) * APART + TICKS + self._below
        self._notes, self._legend = notes, legend
        self.figure = Figure(figsize=(WIDTH, self._height))
        grid = self.figure.subplots(high, wide, sharex=True, sharey=True, squeeze=False)
        across = (WIDTH - LEFT - RIGHT - (wide - 1) * BESIDE) / wide
        self.figure.subplots_adjust(left=LEFT / WIDTH, right=1 - RIGHT / WIDTH, wspace=BESIDE / across,
                                    bottom=(self._below + TICKS) / self._height, hspace=APART / tall,
                                    top=1 - self._above / self._height)
        every: list[Axes] = list(grid.ravel())
        self.axes, spare = every[:panels], every[panels:]
        for axes in spare:
            axes.set_visible(False)
        for axes in self.axes[-wide:]:
            axes.tick_params(labelbottom=True)
        self.figure.text(EDGE / WIDTH, 1 - EDGE / self._height, title, va="top", fontsize=10.5, fontweight="bold")

    def finished(self, across: str, up: str) -> Figure:
        """The figure with its axis titles, notes and legend."""
        figure, height = self.figure, self._height
        middle = (self._below + TICKS + height - self._above) / 2 / height
        figure.text(EDGE / WIDTH, middle, up, va="center", ha="left", fontsize=9, rotation=90)
        figure.text((LEFT + WIDTH - RIGHT) / 2 / WIDTH, self._below / height, across, va="top", ha="center", fontsize=9)
        for line, note in enumerate(self._notes):
            figure.text(EDGE / WIDTH, (self._notes_top - NOTE * line) / height, note, va="top", fontsize=7.5,
                        color=GREY)
        if self._legend:
            self._draw_legend()
        return figure

    def _draw_legend(self) -> None:
        handles = [Line2D([], [], color=how.colour, linestyle=how.dashes,  # type: ignore[arg-type]  # stubs: names alone
                          marker=how.marker)
                   for how in self._legend.values()]
        self.figure.legend(
            handles, [f" {shown(label)}" for label in self._legend],  # a name that begins with _ would be left out
            loc="lower left", bbox_to_anchor=(EDGE / WIDTH, EDGE / self._height), ncols=self._legend_columns,
            handlelength=4.2, borderpad=0, borderaxespad=0, columnspacing=1.5)


def _columns(labels: Sequence[str]) -> int:
    """How many columns of the legend fit side by side."""
    if not labels:
        return 1
    widest = HANDLE + GAP + LETTER * max(len(shown(label)) for label in labels)
    return max(1, min(len(labels), 5, int(WIDTH / widest)))
