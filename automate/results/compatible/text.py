"""The text of Arena-Hard's own leaderboard: a table as pandas prints it, coefficients as torch prints a tensor.

Never computes a score; it only rounds and lays out, in the way that the original's printed digits come about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from automate.errors import visible
from automate.results.battles import Floats

HEAD = ("Model", "Scores (%)", "CI (%)")


@dataclass(frozen=True)
class Line:
    """A model's score and bounds as shares of 1."""

    model: str
    score: float
    low: float
    high: float

    @property
    def percent(self) -> float:
        """The score in percent as it is printed."""
        return round(float(self.score) * 100, 1)

    @property
    def interval(self) -> str:
        """The distances of the bounds in points, as they are printed."""
        below, above = float(self.score) - float(self.low), float(self.high) - float(self.score)
        return f"(-{round(below * 100, 1)} / +{round(above * 100, 1)})"


def ordered(lines: Sequence[Line]) -> list[Line]:
    """Best first. Lines of one printed score come out in the order in which numpy's quicksort leaves them."""
    scores = np.array([line.percent for line in lines])
    return [lines[index] for index in np.arange(len(lines))[::-1][np.argsort(scores[::-1], kind="quicksort")][::-1]]


def table(lines: Sequence[Line]) -> str:
    """The table, best first, as `DataFrame.to_string()` lays it out."""
    rows = [(_one_line(line.model), f"{line.percent:.1f}", line.interval) for line in ordered(lines)]
    number = len(str(max(len(rows) - 1, 0)))
    widths = [max(len(name) + numeric, *(len(row[column]) + 1 for row in rows))
              for column, (name, numeric) in enumerate(zip(HEAD, (False, True, False), strict=True))]
    return "\n".join(" ".join([at.ljust(number), *(cell.rjust(width) for cell, width in zip(row, widths, strict=True))])
                     for at, row in (("", HEAD), *((str(place), row) for place, row in enumerate(rows))))


def _one_line(name: str) -> str:
    return visible(name.replace("\n", "?").replace("\t", "?"))


def tensor(values: Floats) -> str:
    """A one-dimensional float tensor with four digits, as torch prints it."""
    sizes = [abs(float(value)) for value in values if value != 0 and np.isfinite(value)]
    small = bool(sizes) and (max(sizes) / min(sizes) > 1000.0 or max(sizes) > 1e8 or min(sizes) < 1e-4)
    texts = [f"{float(value):.4e}" if small else f"{float(value):.4f}" for value in values]
    width = max((len(text) for text in texts), default=0)
    return "tensor([" + ", ".join(text.rjust(width) for text in texts) + "])"
