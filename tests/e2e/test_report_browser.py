"""The report in a real browser: it sorts, shows games, looks right on screens and paper, and asks no network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from automate.results.boards import Options
from automate.results.reading.folder import BenchFolder, of_data
from automate.results.reporting.facts import of_data as facts_of_data
from automate.results.reporting.report import Extent, write_report
from automate.settings_results import Curves
from tests.e2e.support import TULU, flock, judge_now, make_workspace
from tests.rigs.browser import chromium
from tests.unit.report_support import DOWN, EVIL, HOSTILE, LEVEL, SPLIT, UP, Models, write_bench, write_rows
from tests.unit.support import real_data

MADE = datetime(2026, 3, 4, tzinfo=UTC)
LONG = "\n".join(f"line {number} of a long text" for number in range(200))
MODELS: Models = {"run-step100": [UP, DOWN, LEVEL, SPLIT, (None, "A>B")] * 12,
                  "run-step200": [UP, UP, LEVEL, SPLIT, UP] * 12, EVIL: [DOWN, DOWN, LEVEL, DOWN, DOWN] * 12}
NARROW, WIDE = {"width": 390, "height": 844}, {"width": 1280, "height": 900}


@dataclass
class Watched:
    """A page with the report, and what it said and asked for."""

    page: Page
    path: Path
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def column(self, number: int) -> list[str]:
        return self.page.locator(f".board tbody tr > :nth-child({number})").all_inner_texts()

    def quiet(self) -> None:
        """Nothing went wrong, and nothing but the file itself was asked for."""
        assert self.said == []
        assert {address.split("#")[0] for address in self.asked if not address.startswith(("data:", "blob:"))} == {
            self.path.as_uri()}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium of this machine."""
    with chromium() as started:
        yield started


def write(folder: BenchFolder, path: Path, **extent: object) -> Path:
    judges = folder.judges()
    curves = Curves(pattern=r"(?P<run>.+)-(?P<step>step\d+)")
    return write_report(folder, judges, path, Options(rounds=50), facts_of_data(judges), made=MADE,
                        extent=Extent(curves=curves, **extent))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with hostile texts and names, and a long text."""
    folder = tmp_path_factory.mktemp("report")
    return write(write_bench(folder, MODELS, texts=(*HOSTILE, LONG)), folder / "report.html")


def watch(browser: Browser, path: Path, **context: object) -> Watched:
    page = browser.new_page(**context)  # type: ignore[arg-type]
    watched = Watched(page, path)
    page.on("console", lambda message: watched.said.append(message.text))
    page.on("pageerror", lambda error: watched.said.append(str(error)))
    page.on("dialog", lambda dialog: watched.said.append(f"dialog: {dialog.message}"))
    page.on("request", lambda request: watched.asked.append(request.url))
    page.goto(path.as_uri())
    return watched


@pytest.fixture
def open_report(browser: Browser, report: Path) -> Iterator[Watched]:
    watched = watch(browser, report, viewport=WIDE)
    yield watched
    watched.quiet()
    watched.page.close()


def test_a_column_sorts_by_click_and_by_key(open_report: Watched) -> None:
    page, score = open_report.page, open_report.page.locator(".board thead th", has_text="score").first
    numbers = [float(text.split()[0]) for text in open_report.column(3)]
    assert score.get_attribute("aria-sort") == "descending"
    assert numbers == sorted(numbers, reverse=True)
    score.locator("button").click()
    assert [float(text.split()[0]) for text in open_report.column(3)] == numbers[::-1]
    assert score.get_attribute("aria-sort") == "ascending"
    page.locator(".board thead th", has_text="model").locator("button").focus()
    page.keyboard.press("Enter")
    names = open_report.column(2)
    assert names[0].startswith(EVIL)
    assert [name.split()[0] for name in names[1:]] == ["base", "run-step100", "run-step200"]
    assert page.locator(".board th[aria-sort]").count() == 1
    disagree = page.locator(".board thead th", has_text="orders disagree")
    disagree.locator("button").press("Space")
    shares = [text.strip() for text in open_report.column(8)]
    assert shares[2:] == ["0.0 %", "–"]
    assert float(shares[0].split()[0]) > float(shares[1].split()[0]) > 10


@pytest.mark.parametrize("width", [1280, 900])
def test_the_leaderboard_fits_and_its_pictures_are_wide(browser: Browser, report: Path, width: int) -> None:
    page = watch(browser, report, viewport={"width": width, "height": 900}).page
    wide, there = page.locator("#leaderboard .scroll").evaluate("one => [one.scrollWidth, one.clientWidth]")
    assert wide <= there
    picture = page.locator(".board svg.bar").first.bounding_box()
    assert picture is not None and picture["width"] > (250 if width == 1280 else 90)
    page.close()


def test_a_row_leads_to_its_games(open_report: Watched) -> None:
    page = open_report.page
    page.get_by_role("link", name="run-step200").first.click()
    page.locator("#games-list li").first.wait_for()
    assert page.locator("#pick-model option:checked").inner_text() == "run-step200"
    assert page.locator("#games-count").inner_text() == "60 of 60 questions in this file; 25 shown."
    outcomes = page.locator("#games-list .verdict").all_inner_texts()
    assert outcomes[:12] == ["orders disagree"] * 12
    assert "orders disagree" not in outcomes[12:]
    page.locator("#games-list summary").first.click()
    game = page.locator("#games-list .body").first
    game.wait_for()
    texts = game.inner_text()
    for words in ("Question", "u003", "run-step200", "base (baseline)", "First order: A is the baseline",
                  "Second order: A is the model", "[[B>A]]", "model wins", "baseline wins"):
        assert words in texts, words
    page.locator("#more-games").click()
    assert page.locator("#games-list > li").count() == 50
    page.go_back()
    assert open_report.page.url == open_report.path.as_uri()


def test_games_are_filtered_and_found(open_report: Watched) -> None:
    page = open_report.page
    page.goto(open_report.path.as_uri() + "#games-1")
    page.locator("#games-list li").first.wait_for()
    for value, count in (("disagree", 12), ("win", 12), ("loss", 12), ("tie", 12), ("none", 12), ("all", 60)):
        page.select_option("#pick-outcome", value)
        assert page.locator("#games-count").inner_text().startswith(f"{count} of 60 "), value
    page.fill("#search", "  u017 ")
    expect(page.locator("#games-count")).to_have_text(re.compile("^1 of 60 "))
    page.fill("#search", "RIGHT TO left")
    expect(page.locator("#games-count")).to_have_text(re.compile("^7 of 60 "))
    page.fill("#search", "nothing holds this")
    expect(page.locator("#games-count")).to_have_text(re.compile("^0 of 60 "))


def test_hostile_texts_are_shown_as_they_are(open_report: Watched) -> None:
    page = open_report.page
    page.get_by_role("link", name=EVIL).click()
    page.locator("#games-list li").first.wait_for()
    page.locator("#more-games").click()
    page.locator("#more-games").click()
    assert page.locator("#games-list > li").count() == 60
    for number in range(60):
        page.locator("#games-list > li > details > summary").nth(number).click()
    shown = page.locator("#games-list .words").evaluate_all("all => all.map((one) => one.textContent)")
    for text in HOSTILE[:-1]:
        printable = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
        assert any(text in one or printable[:14] in one for one in shown), repr(text)
    assert page.locator("#games-list img, #games-list script, #games-list b").count() == 0
    assert page.locator(".empty", has_text="(empty)").count() > 0


def test_a_long_text_unfolds(open_report: Watched) -> None:
    page = open_report.page
    page.goto(open_report.path.as_uri() + "#games-0")
    page.fill("#search", "line 199")
    expect(page.locator("#games-count")).to_have_text(re.compile("^7 of 60 "))
    page.locator("#games-list summary").first.click()
    button = page.get_by_role("button", name="Show all").first
    words = page.locator("#games-list .words").first
    before = words.evaluate("one => one.clientHeight")
    button.focus()
    page.keyboard.press("Enter")
    assert words.evaluate("one => one.clientHeight") > 3 * before
    assert page.get_by_role("button", name="Show less").first.get_attribute("aria-expanded") == "true"


@pytest.mark.parametrize("size", [NARROW, WIDE], ids=["390", "1280"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_the_screen(browser: Browser, report: Path, tmp_path: Path, size: dict[str, int], scheme: str) -> None:
    watched = watch(browser, report, viewport=size, color_scheme=scheme)
    page = watched.page
    page.goto(report.as_uri() + "#games-0")
    page.locator("#games-list summary").first.click()
    page.locator("#games-list .body").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    assert page.evaluate("[...document.querySelectorAll('.scroll')].every((one) => one.tabIndex === 0)")
    images = page.locator("figure img").evaluate_all("all => all.map((one) => one.naturalWidth)")
    assert images and all(images)
    picture = page.screenshot(path=tmp_path / "shot.png", full_page=True)
    assert len(picture) > 30_000
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(255, 255, 255)") == (scheme == "light")
    watched.quiet()
    page.close()


def test_paper_is_light_and_holds_what_was_folded(browser: Browser, report: Path, tmp_path: Path) -> None:
    watched = watch(browser, report, viewport=WIDE, color_scheme="dark")
    page = watched.page
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("nav").is_visible()
    assert not page.locator("#games").is_visible()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("table.files").is_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert not page.locator("table.files").is_visible()
    assert page.pdf(path=tmp_path / "report.pdf", format="A4")[:5] == b"%PDF-"
    watched.quiet()
    page.close()


def test_tables_need_no_script(browser: Browser, report: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri())
    assert page.locator(".board tbody tr").count() == 4
    assert page.get_by_text("need JavaScript to be shown").is_visible()
    assert not page.locator("#viewer").is_visible()
    context.close()


def test_the_real_leaderboard(browser: Browser, tmp_path: Path) -> None:
    folder = of_data(real_data("leaderboard-dev", "data"), "ko")
    watched = watch(browser, write(folder, tmp_path / "r.html"), viewport=WIDE)
    names = watched.column(2)
    assert len(names) == 25
    watched.page.locator(".board thead th", has_text="score").last.locator("button").click()
    assert watched.column(2) != names
    watched.page.get_by_role("link", name="o3-medium", exact=True).click()
    watched.page.locator("#games-list summary").first.click()
    assert len(watched.page.screenshot(full_page=True)) > 100_000
    watched.quiet()
    watched.page.close()


def test_real_answers_of_a_campaign(browser: Browser, tmp_path: Path) -> None:
    root = make_workspace(tmp_path / "campaign", real=True)
    judge_now(root, "--all")
    done = flock("report", cwd=root)
    assert done.returncode == 0, done.stderr
    watched = watch(browser, root / "results" / "report.html", viewport=WIDE)
    page = watched.page
    page.get_by_role("link", name=TULU[2]).first.click()
    page.fill("#search", "zig program")
    expect(page.locator("#games-count")).to_have_text(re.compile(r"^\d{1,2} of 750 "))
    page.locator("#games-list summary").first.click()
    assert "Rehearsal verdict; it means nothing" in page.locator("#games-list .body").first.inner_text()
    page.fill("#search", "")
    expect(page.locator("#games-count")).to_have_text(re.compile("^750 of 750 "))
    assert page.get_by_text("so do all scores here").is_visible()
    assert watched.path.stat().st_size < 10_000_000
    watched.quiet()
    page.close()


def test_data_without_texts(browser: Browser, tmp_path: Path) -> None:
    folder = write_bench(tmp_path, {"one": [UP, SPLIT], "two": [DOWN, LEVEL]}, answers=False)
    folder.questions.unlink()
    for name in ("one", "two"):
        write_rows(folder.judgments / "the-judge" / f"{name}.jsonl", [
            {"uid": f"u{number}", "category": "c", "baseline": "base", "games": [{"score": "A>B"}] * 2}
            for number in range(3)])
    watched = watch(browser, write(folder, tmp_path / "r.html"), viewport=WIDE)
    page = watched.page
    page.get_by_role("link", name="one").click()
    page.locator("#games-list summary").first.click()
    assert "not in the data" in page.locator("#games-list .body").first.inner_text()
    assert page.get_by_text("The data holds verdicts only").is_visible()
    watched.quiet()
    page.close()
