"""The report's page: whole, closed to the outside, and unmoved by what texts and names hold."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from datetime import UTC, datetime
from pathlib import Path

from automate.results.boards import Options
from automate.results.reading.folder import BenchFolder, of_data
from automate.results.reporting.facts import of_data as facts_of_data
from automate.results.reporting.report import Extent, write_report
from tests.unit.report_support import (
    BENCH,
    DOWN,
    EVIL,
    HOSTILE,
    JUDGE,
    LEVEL,
    SPLIT,
    UP,
    Models,
    Page,
    block,
    unpacked,
    write_bench,
    write_rows,
)
from tests.unit.support import real_data

MADE = datetime(2026, 3, 4, 5, 6, tzinfo=UTC)
MODELS: Models = {"one-step100": [UP, UP, LEVEL, SPLIT] * 5, "one-step200": [DOWN, LEVEL, UP, UP] * 5,
                  "two": [DOWN, DOWN, LEVEL, (None, "A>B")] * 5}


def page_of(folder: BenchFolder, tmp_path: Path, options: Options | None = None, **extent: object) -> str:
    judges = folder.judges()
    path = write_report(folder, judges, tmp_path / "out" / "report.html", options or Options(rounds=50),
                        facts_of_data(judges), extent=Extent(**extent), made=MADE)  # type: ignore[arg-type]
    return path.read_text(encoding="utf-8")


def test_everything_is_in_it(tmp_path: Path) -> None:
    page = page_of(write_bench(tmp_path, MODELS), tmp_path)
    read = Page(page)
    assert read.open == []
    assert len(set(read.ids)) == len(read.ids)
    assert {"leaderboard", "categories", "quality", "games", "facts"} <= set(read.ids)
    for words in ("The best of 3 models is one-step100", "4 March 2026, 05:06 UTC", "style controlled", "hard", "easy",
                  "How far the judge can be trusted", "not known: judgments without settings", "rounds 50"):
        assert words in read.text, words
    assert hashlib.sha256((tmp_path / "data" / BENCH / "question.jsonl").read_bytes()).hexdigest() in page
    assert len(unpacked(page, "games-data-2")) == 20
    assert json.loads(block(page, "games-index"))["models"][0]["name"] == "one-step100"


def test_without_a_verdict_there_is_no_ranking_to_speak_of(tmp_path: Path) -> None:
    page = page_of(write_bench(tmp_path, {"one": [(None, None)] * 5}), tmp_path)
    text = Page(page).text
    assert "There is no leaderboard: no model has a question whose two games both have a verdict." in text
    assert "Why there is no ranking" in text and "unsafe" not in text
    assert 'class="sortable board"' not in page


def test_a_judges_warning_on_one_model_is_in_it(tmp_path: Path) -> None:
    page = page_of(write_bench(tmp_path, {"sure": [UP, LEVEL] * 60, "torn": [UP, SPLIT, SPLIT] * 40}), tmp_path)
    assert "on 'torn': the two orders agree on only 33" in Page(page).text


def test_it_reaches_nothing_outside(tmp_path: Path) -> None:
    page = page_of(write_bench(tmp_path, MODELS), tmp_path)
    read = Page(page)
    assert read.handlers == []
    assert all(address.startswith(("#", "data:")) for address in read.addresses), read.addresses
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    told = policy[1].replace("&#39;", "'")
    assert told.startswith("default-src 'none'; ")
    assert "unsafe" not in told
    for tag in ("style", "script"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" in told


def test_hostile_texts_and_names_stay_texts(tmp_path: Path) -> None:
    folder = write_bench(tmp_path, {EVIL: [UP, DOWN] * 7, "two": [LEVEL, SPLIT] * 7}, texts=HOSTILE,
                         baseline="</script><script>alert(9)</script>\x00\u202e\ud800"[:-1],
                         categories=("<b>bold</b>", "{{ 7 * 7 }}"), answers=False)
    for name in (EVIL, "two"):
        write_rows(folder.answers / f"{name}.jsonl", [{"uid": "u000", "messages": [{"content": HOSTILE[0]}]}])
    page = page_of(folder, tmp_path)
    read = Page(page)
    assert read.open == []
    assert read.handlers == []
    assert page.count("<script") == page.count("</script>") == 5  # the page's own, index, shared, two models
    assert "alert(2)" not in page
    assert "{{ 7 * 7 }}" in read.text
    assert EVIL in read.text
    assert not re.search("[\x00\x07\x1b\u202e\u2028]", page)
    assert json.loads(block(page, "games-index"))["models"][1]["name"] == EVIL
    assert {entry["a"] for entry in unpacked(page, "games-data-1")} == {HOSTILE[0], None}


def test_the_same_data_give_the_same_page(tmp_path: Path) -> None:
    folder = write_bench(tmp_path, MODELS, texts=HOSTILE)
    assert page_of(folder, tmp_path) == page_of(folder, tmp_path)


def test_curves_stand_in_it(tmp_path: Path) -> None:
    from automate.settings_results import Curves

    folder = write_bench(tmp_path, MODELS)
    page = page_of(folder, tmp_path, curves=Curves(pattern=r"(?P<run>.+)-(?P<step>step\d+)"))
    assert page.count("data:image/svg+xml;base64,") >= 1
    assert "two" in Page(page).text
    assert "Training curves" not in page_of(folder, tmp_path)


def test_some_models_only(tmp_path: Path) -> None:
    page = page_of(write_bench(tmp_path, MODELS), tmp_path, models=("two",))
    assert "The only model is two" in page
    assert "one-step100" not in page


def test_one_category_only(tmp_path: Path) -> None:
    page = page_of(write_bench(tmp_path, MODELS), tmp_path, Options(rounds=50, category="easy"))
    assert "By category" not in page
    assert {entry["c"] for entry in unpacked(page, "games-data-0")} == {"easy"}


def test_no_metadata_no_style_and_says_so(tmp_path: Path) -> None:
    page = page_of(write_bench(tmp_path, MODELS, answers=False), tmp_path)
    assert "style controlled" not in page
    assert "No style-controlled scores" in page
    assert "No answers." in page


def test_games_that_do_not_fit_are_told(tmp_path: Path) -> None:
    page = page_of(write_bench(tmp_path, MODELS), tmp_path, games=3)
    assert "In this file are 9 of 60 judged questions" in Page(page).text
    assert "--games 0" in page_of(write_bench(tmp_path, MODELS), tmp_path, games=0)


def test_games_without_any_verdict_still_give_a_page(tmp_path: Path) -> None:
    page = page_of(write_bench(tmp_path, {"one": [(None, None)] * 4, "two": [(None, "A")] * 4}), tmp_path)
    read = Page(page)
    assert "No model has a game with a verdict" in read.text
    assert "no question has verdicts in both games" in read.text
    assert len(unpacked(page, "games-data-0")) == 4


def test_one_model_only(tmp_path: Path) -> None:
    assert "The only model is one" in page_of(write_bench(tmp_path, {"one": [UP, DOWN, LEVEL] * 4}), tmp_path)


def test_several_judges_and_their_agreement(tmp_path: Path) -> None:
    write_bench(tmp_path, MODELS)
    page = page_of(write_bench(tmp_path, {name: rows[::-1] for name, rows in MODELS.items()}, judge="other"), tmp_path)
    assert "Agreement of judges" in page
    assert json.loads(block(page, "games-index"))["judges"] == ["other", JUDGE]
    assert {len(entry["g"]) for entry in unpacked(page, "games-data-0")} == {2}


# --- real data ------------------------------------------------------------------------------------
def test_24_real_models_fit(tmp_path: Path) -> None:
    folder = of_data(real_data("leaderboard-dev", "data"), "ko")
    page = page_of(folder, tmp_path)
    text = Page(page).text
    assert "The best of 24 models is o3-medium with a score of 85.8" in text
    assert "No texts." in text
    assert len(unpacked(page, "games-data-23")) == 500
    assert len(page) < 2_000_000
