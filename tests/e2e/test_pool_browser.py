"""The served pages in a real browser: they look right on screens, say what is so, and ask nothing of other places."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from automate.pools.leaderboard import Board
from automate.pools.web.page import render
from tests.rigs.browser import chromium
from tests.unit.pool_support import Bench
from tests.unit.pool_web_rig import served
from tests.unit.test_pool_web_page import one_board, one_place

SIZES = {"360": {"width": 360, "height": 740}, "1280": {"width": 1280, "height": 900}}
HOSTILE = ("<img src=x onerror=alert(1)>", "<script>alert(1)</script>", "'\"><svg onload=alert(1)>", "x" * 200,
           "小明的模型", "javascript:alert(1)")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium of this machine."""
    with chromium() as started:
        yield started


@dataclass
class Watched:
    """A page, what it said and asked for."""

    page: Page
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


def watch(browser: Browser, address: str, **context: object) -> Watched:
    page = browser.new_page(**context)  # type: ignore[arg-type]
    watched = Watched(page)
    page.on("console", lambda message: watched.said.append(message.text))
    page.on("pageerror", lambda error: watched.said.append(str(error)))
    page.on("dialog", lambda dialog: watched.said.append(f"dialog: {dialog.message}"))
    page.on("request", lambda request: watched.asked.append(request.url))
    page.goto(address)
    return watched


def _pool(bench: Bench) -> None:
    """A pool with three models, one of which has answers."""
    dataset = bench.dataset("siqa")
    bench.send("ann", "token", "Transfer", Recipient=bench.exchange.pool, Quantity="50", X_Dataset=dataset,
               X_Allocation="Equal")
    for name in ("first", "second", "third"):
        bench.send("ann", "pool", "Add-Model", {"name": name, "inference_process": "", "data_tx": "owner/name"})
        joined = bench.send("ann", "pool", "Join-Pool", {"dataset": dataset, "model": name})
        assert joined.state == "handled", joined
    with bench.store.transaction():
        bench.store.db.execute("UPDATE pool_models SET score = 2.0 / 3, progress = 1, correct = 2, answered = 3, "
                               "total = 3, updated = ? WHERE model = 2", (bench.clock.now,))


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a workspace with a pool is served, by a thread with a loop of its own."""
    root = tmp_path_factory.mktemp("served")
    started, ended, found = threading.Event(), threading.Event(), list[str]()

    async def run() -> None:
        async with served(root, _pool) as web:
            found.append(web.url)
            started.set()
            await asyncio.to_thread(ended.wait)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert started.wait(60)
    yield found[0]
    ended.set()
    thread.join(60)


def test_from_the_list_to_a_leaderboard(browser: Browser, address: str) -> None:
    watched = watch(browser, address, viewport=SIZES["1280"])
    page = watched.page
    page.get_by_role("link", name="siqa").click()
    page.locator("table.board").wait_for()
    assert page.locator(".board tbody th").all_inner_texts() == ["second", "first", "third"]
    first = page.locator(".board tbody tr").first
    assert "66.7 %" in first.inner_text()
    assert first.locator("svg").get_attribute("aria-label") == "between 20.8 % and 93.9 %"
    assert page.locator(".board tbody tr").nth(1).locator("svg").count() == 0
    page.get_by_role("link", name="Benchmark pools").click()
    page.locator("table.pools").wait_for()
    assert watched.said == []
    assert {one.startswith(address) for one in watched.asked} == {True}
    page.close()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    board: Board = one_board(*(one_place(number, model=name, score=0.8, low=0.6, high=0.9, answered=10, reward=10**17)
                               for number, name in enumerate(HOSTILE, 1)), dataset_name=HOSTILE[0], state="paid")
    path = tmp_path_factory.mktemp("page") / "board.html"
    path.write_text(render(board, 1_720_656_000_000))
    return path


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_the_screen(browser: Browser, hostile: Path, tmp_path: Path, size: dict[str, int],
                            scheme: str) -> None:
    watched = watch(browser, hostile.as_uri(), viewport=size, color_scheme=scheme)
    page = watched.page
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(255, 255, 255)") == (scheme == "light")
    bar, range_ = page.locator(".board svg").first.bounding_box(), page.locator(".board .range").first.bounding_box()
    assert bar is not None and range_ is not None
    assert bar["width"] > 150
    assert range_["width"] / bar["width"] == pytest.approx(0.3, abs=0.02)
    assert (range_["x"] - bar["x"]) / bar["width"] == pytest.approx(0.6, abs=0.02)
    assert len(page.screenshot(path=tmp_path / "shot.png", full_page=True)) > 20_000
    assert watched.said == []
    assert watched.asked == [hostile.as_uri()]
    page.close()


def test_hostile_names_are_shown_as_they_are(browser: Browser, hostile: Path) -> None:
    watched = watch(browser, hostile.as_uri(), viewport=SIZES["1280"])
    assert watched.page.locator(".board tbody th").all_inner_texts() == list(HOSTILE)
    assert watched.page.locator("img, script, iframe").count() == 0
    assert watched.page.locator("svg[onload]").count() == 0
    assert watched.said == []
    watched.page.close()


def test_a_large_leaderboard_opens(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "large.html"
    path.write_text(render(one_board(*(one_place(number) for number in range(1, 10_001))), home="/"))
    watched = watch(browser, path.as_uri(), viewport=SIZES["360"])
    assert watched.page.locator(".board tbody tr").count() == 1000
    assert watched.page.get_by_text("The first 1,000 of 10,000 models are shown").is_visible()
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= 360
    watched.page.close()


def test_paper_is_light(browser: Browser, hostile: Path) -> None:
    page = watch(browser, hostile.as_uri(), color_scheme="dark").page
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.close()
