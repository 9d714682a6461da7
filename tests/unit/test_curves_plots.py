"""Plots of curves: which there are, that bytes are the same each time, and that hostile names stay names."""

from __future__ import annotations

import os
import subprocess
import sys
from io import BytesIO
from xml.etree import ElementTree

import matplotlib
import pytest
from PIL import Image

from automate.results.battles import Battles
from automate.results.plotting import pictures as plots
from automate.results.plotting.look import COLOURS, look, shown
from automate.results.plotting.panels import TOGETHER, run_panels, split
from automate.results.training.curves import curves
from automate.results.training.data import Curves
from tests.unit.curves_rig import OPTIONS, PATTERN, drawn, exact, grid, name
from tests.unit.support import ROOT

HOSTILE = ['_$m^2$ <script>alert(1)</script> id="x"', "a]]>&amp;\"'{{7*7}}", "模型\x1b[31m\u202e\nred", "%s{0}\\n$",
           "lone\udcff\ufffe\x00"]


def small() -> Curves:
    return curves(grid([8, 64], ["1e5", "5e6"], [1000, 2000, "final"]), OPTIONS, PATTERN)


def test_which_plots_there_are() -> None:
    assert list(plots.titles(small())) == [
        "curves", "curves-by-rank", "curves-mean-rank", "curves-by-lr", "curves-mean-lr", "curves-rankings"]


def test_no_checkpoint_no_plot() -> None:
    found = curves(exact({"x": 10}), OPTIONS, PATTERN)
    assert plots.titles(found) == {}
    with pytest.raises(KeyError):
        plots.svg(found, "curves")


@pytest.mark.parametrize("battles", [
    exact({name("a", 5): 10}), exact({name("a", "final"): 10}), exact({name("a", 0): 0, name("a", 1): 0}),
    exact({name("a", 5): 100, name("b", 5): 100}), exact({name("a", 10**15 - 1): 10, name("a", 1): 60})])
def test_curves_with_hardly_anything_in_them(battles: Battles) -> None:
    found = curves(battles, OPTIONS, PATTERN)
    for plot in plots.titles(found):
        assert plots.svg(found, plot).startswith("<svg")
        assert plots.png(found, plot, dpi=50).startswith(b"\x89PNG")


@pytest.mark.parametrize("plot", ["curves", "curves-by-lr", "curves-mean-rank", "curves-rankings"])
def test_the_same_data_give_the_same_bytes(plot: str) -> None:
    matplotlib.rcParams["xtick.major.size"] = 30  # a user's own matplotlibrc changes nothing
    try:
        text = plots.svg(small(), plot)
        assert plots.svg(small(), plot) == text
        first = plots.png(small(), plot, dpi=50)
    finally:
        matplotlib.rcdefaults()
    assert plots.png(small(), plot, dpi=50) == first
    assert plots.svg(small(), plot) == text


def test_another_process_draws_the_same_bytes() -> None:
    code = ("from tests.unit.test_curves_plots import *; import sys; "
            "sys.stdout.buffer.write(plots.svg(small(), 'curves').encode())")
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True, timeout=120,
                         env={**os.environ, "PYTHONHASHSEED": "5"})
    assert run.stdout.decode() == plots.svg(small(), "curves")


def test_matplotlibs_settings_are_left_alone() -> None:
    matplotlib.rcParams["font.size"] = 30
    try:
        before = matplotlib.rcParams.copy()
        plots.png(small(), "curves", dpi=50)
        assert matplotlib.rcParams.copy() == before
    finally:
        matplotlib.rcdefaults()


def test_pyplot_is_not_used() -> None:
    code = ("from tests.unit.test_curves_plots import *; found = small(); "
            "[(plots.svg(found, plot), plots.png(found, plot, dpi=30)) for plot in plots.titles(found)]; "
            "sys.exit('matplotlib.pyplot' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=120).returncode == 0


def test_ids_are_unique_on_a_page() -> None:
    found = small()
    pictures = [plots.svg(found, plot) for plot in plots.titles(found)] + [plots.svg(found, "curves", "other")]
    ids = [element.get("id") for picture in pictures for element in ElementTree.fromstring(picture).iter()
           if element.get("id")]
    assert len(ids) == len(set(ids)) > 100
    with pytest.raises(ValueError, match="prefix"):
        plots.svg(found, "curves", 'x" onload="')


def test_references_point_into_the_picture_and_nowhere_else() -> None:
    root = ElementTree.fromstring(plots.svg(small(), "curves", "p"))
    ids = {element.get("id") for element in root.iter()}
    links = [value for element in root.iter() for key, value in element.attrib.items() if key.endswith("href")]
    clips = [value for element in root.iter() for key, value in element.attrib.items() if "url(" in value]
    assert links
    assert clips
    assert {link.removeprefix("#") for link in links} <= ids
    assert {clip[5:-1] for clip in clips} <= ids
    tags = {str(element.tag).rpartition("}")[2] for element in root.iter()}
    assert not tags & {"script", "style", "metadata", "image", "foreignObject", "a"}


def test_hostile_names_stay_names() -> None:
    pattern = r"(?s)(?P<run>.+)-(?P<step>\d+)"
    chances = {f"{run}-{step}": 0.2 + 0.1 * step for run in HOSTILE for step in (1, 2, 3)}
    found = curves(drawn(chances, 50), OPTIONS, pattern)
    text = plots.svg(found, "curves")
    root = ElementTree.fromstring(text)
    texts = [(element.text or "").strip() for element in root.iter() if element.tag.endswith("}text")]
    for run in HOSTILE:
        assert shown(run).strip() in texts
    assert "<script" not in text
    assert "\x1b" not in text
    assert not [element for element in root.iter() if element.get("onload")]
    assert plots.png(found, "curves", dpi=50)


def test_words_can_be_read_by_programs() -> None:
    text = plots.svg(small(), "curves")
    for words in ("Score over training steps", "score (%)", "50, as good as base", "training step",
                  "95 % interval by questions", "tulu3-8b-rank64-alpha1e5"):
        assert words in text
    assert 'role="img"' in text


def test_many_runs_are_spread_over_panels() -> None:
    several = curves(grid([8, 16, 64], ["1e5", "5e6", "1e6"], [1, 2]), OPTIONS, PATTERN)
    assert split(several) == "rank"
    assert "curves-by-rank" not in plots.titles(several)  # it would be the same picture
    panels = run_panels(several, "rank")
    assert [panel.title for panel in panels] == ["rank 8", "rank 16", "rank 64"]
    assert [line.label for line in panels[0].lines] == ["lr 1e5", "lr 1e6", "lr 5e6"]
    single = curves(drawn({f"m{at}-{step}": 0.3 for at in range(TOGETHER + 1) for step in (1, 2)}, 30), OPTIONS,
                    r"(?P<run>m\d+)-(?P<step>\d+)")
    assert split(single) == "run"
    assert len(run_panels(single, "run")) == TOGETHER + 1


def test_runs_without_the_group_have_their_own_panel() -> None:
    found = curves(drawn({"a-1": 0.3, "a-seed2-1": 0.4, "b-seed2-1": 0.4}, 30), OPTIONS,
                   r"(?P<run>[ab](-seed(?P<seed>\d+))?)-(?P<step>\d+)")
    assert [panel.title for panel in run_panels(found, "seed")] == ["seed 2", "without seed"]


def test_a_picture_too_high_to_draw_gets_fewer_dots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "MOST_DOTS", 500)
    assert 495 <= Image.open(BytesIO(plots.png(small(), "curves"))).height <= 500


def test_lines_differ_without_colour() -> None:
    looks = [(look(at).dashes, look(at).marker) for at in range(60)]
    assert len(set(looks)) == 60
    assert len(set(COLOURS)) == len(COLOURS)


def test_a_picture_is_wide_enough_for_a_page() -> None:
    image = Image.open(BytesIO(plots.png(small(), "curves")))
    assert image.width == 1440  # 7.2 inches at 200 dots
    assert 600 < image.height < 1400
    assert "Software" not in image.info
