"""How plots look: colours that the colour-blind can tell apart, line styles and markers that differ without colour.

Sets nothing globally: `drawing()` is a context, and leaves matplotlib as it was."""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import matplotlib

# Okabe and Ito's palette (jfly.uni-koeln.de/color) without its yellow, which is too light for a line on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
DASHES: tuple[str | tuple[int, tuple[float, ...]], ...] = (
    "solid", (0, (5, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)), (0, (3, 1, 1, 1, 1, 1)), (0, (9, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h")
GREY = "#595959"
DASHED = (0, (2, 2))
"""Of lines that are no data: the baseline, a threshold."""
_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
LONGEST = 48
"""Characters of a name in a plot; longer ones are cut in the middle."""

_PARAMETERS = {
    "text.parse_math": False,  # a name with dollar signs is a name
    "text.usetex": False,
    "svg.fonttype": "none",  # text stays text: it can be searched, read aloud and copied
    "svg.hashsalt": "flock-hpc",
    "font.family": ["DejaVu Sans"],
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "axes.labelsize": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
    "axes.unicode_minus": False,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.5,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "savefig.facecolor": "white",
}


@dataclass(frozen=True)
class Look:
    """How one line is drawn."""

    colour: str
    dashes: str | tuple[int, tuple[float, ...]]
    marker: str


def look(place: int) -> Look:
    """The look of the n-th line. The cycles have lengths without a common factor, so that 462 lines differ."""
    return Look(COLOURS[place % len(COLOURS)], DASHES[place % len(DASHES)], MARKERS[place % len(MARKERS)])


@contextmanager
def drawing() -> Iterator[None]:
    """Matplotlib's own defaults and the parameters above, whatever the user's matplotlibrc says."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a glyph that the font lacks is drawn as a box
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_PARAMETERS)  # type: ignore[arg-type]  # stubs: literal keys
        yield


def shown(name: str, most: int = LONGEST) -> str:
    """A name as a plot shows it: one line, at most so many characters, `?` for those that can't be seen."""
    text = "".join("?" if unicodedata.category(char) in _UNSEEN else char for char in " ".join(name.splitlines()))
    return text if len(text) <= most else f"{text[:most // 3]}…{text[-(most - most // 3 - 1):]}"
