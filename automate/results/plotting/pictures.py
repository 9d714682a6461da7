"""Plots of curves as SVG and PNG: which there are, and their bytes; the same data give the same bytes.

Touches no files and no global state; what a figure shows is in `curves.py`."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from xml.etree import ElementTree

from matplotlib.figure import Figure

from automate.results.plotting.curves import score_figure, settled_figure
from automate.results.plotting.look import drawing
from automate.results.plotting.panels import mean_panels, run_panels, split, varying
from automate.results.training.data import Curves

RANKINGS = "curves-rankings"
DPI = 200
MOST_DOTS = 20_000
"""Of a picture's height; matplotlib itself draws at most 65,535."""
_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_SVG_METADATA = ("Date", "Creator", "Format", "Type")
_PREFIX = re.compile(r"[^\W\d_][\w-]*")
_FAMILY = "'DejaVu Sans', Verdana, Arial, sans-serif"


def titles(curves: Curves) -> Mapping[str, str]:
    """The plots that these curves have: name (fit for a file) to title. Empty where there is no checkpoint.

    `curves`: all runs; `curves-by-GROUP`: a panel for each value; `curves-mean-GROUP`: means over runs;
    `curves-rankings`: how early the ranking was like the final one.
    """
    if not curves.runs:
        return {}
    found = {"curves": "Score over training steps"}
    for group in varying(curves):
        if group != split(curves):
            found[f"curves-by-{group}"] = f"Score over training steps, by {group}"
        found[f"curves-mean-{group}"] = f"Mean score over training steps, by {group}"
    if any(one.correlation == one.correlation for one in curves.settled):  # not NaN
        found[RANKINGS] = "How early the ranking of the runs was settled"
    return found


def svg(curves: Curves, name: str, prefix: str | None = None) -> str:
    """A plot as SVG text, to be written to a file or put into a page as it is: no script, nothing from outside.

    Its ids begin with `prefix` (a letter, then letters, digits, `-`, `_`), so that several fit into one page; the
    default is the plot's name. Raises KeyError for an unknown name, ValueError for a prefix that is none.
    """
    prefix = name if prefix is None else prefix
    if not _PREFIX.fullmatch(prefix):
        raise ValueError(f"not a prefix for ids: {prefix!r}")
    out = io.BytesIO()
    with drawing():
        _figure(curves, name).savefig(out, format="svg", metadata=dict.fromkeys(_SVG_METADATA))
    return _clean(out.getvalue(), prefix, titles(curves)[name])


def png(curves: Curves, name: str, dpi: int = DPI) -> bytes:
    """A plot as PNG, at fewer dots per inch where it would be too high to draw. KeyError for an unknown name."""
    out = io.BytesIO()
    with drawing():
        figure = _figure(curves, name)
        figure.savefig(out, format="png", dpi=min(dpi, MOST_DOTS / figure.get_figheight()),
                       metadata={"Software": None})
    return out.getvalue()


def _figure(curves: Curves, name: str) -> Figure:
    title = titles(curves)[name]
    if name == RANKINGS:
        return settled_figure(curves, title)
    if name.startswith("curves-mean-"):
        return score_figure(curves, mean_panels(curves, name.removeprefix("curves-mean-")), title)
    by = name.removeprefix("curves-by-") if name != "curves" else split(curves)
    return score_figure(curves, run_panels(curves, by), title)


def _clean(data: bytes, prefix: str, title: str) -> str:
    """Ids of its own, no metadata, no style sheet (it would rule the whole page), and a name for screen readers."""
    root = ElementTree.fromstring(data)  # noqa: S314 - matplotlib's own output
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _XLINK)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"):
                parent.remove(child)
    for element in root.iter():
        _rename(element, prefix)
    root.set("style", "stroke-linejoin: round; stroke-linecap: butt")
    root.set("role", "img")
    root.set("aria-label", title)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _rename(element: ElementTree.Element, prefix: str) -> None:
    for key, value in element.attrib.items():
        if key == "id":
            element.set(key, f"{prefix}-{value}")
        elif key in ("href", f"{{{_XLINK}}}href") and value.startswith("#"):
            element.set(key, f"#{prefix}-{value[1:]}")
        elif "url(#" in value:
            element.set(key, value.replace("url(#", f"url(#{prefix}-"))
        elif key == "style" and "DejaVu Sans" in value:
            element.set(key, value.replace("'DejaVu Sans'", _FAMILY))
