"""The page on messages, tables and clocks of pools says what is there: nothing less, nothing else."""

from __future__ import annotations

import importlib
import re
import sqlite3
from pathlib import Path

import pytest

from automate.pools.exchange import handlers_of
from automate.pools.schema import TABLES
from automate.settings_pools import Pools

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "pools-reference.md").read_text(encoding="utf-8")
SPEC = {
    "token": {"Transfer", "Balance", "Mint"},
    "pool": {"Create-Pool", "Join-Pool", "Get-Pools", "Update-Leaderboard", "Allocate-Rewards", "Score-Response",
             "Leaderboard"},
    "dataset": {"Init", "Load-Data", "Info", "Get-Models", "Benchmark", "Evaluate", "Score", "Transfer-Error"},
    "router": {"Register-Worker", "Unregister-Worker", "Inference", "Inference-Response", "loadModel", "setMaxTokens",
               "setSystemPrompt"},
}
TITLES = {"token": "### Token", "pool": "### Pool", "dataset": "### Data set", "router": "### Router and workers"}


def section(title: str) -> str:
    depth = title.split(" ")[0]
    found = re.split(rf"^{depth}#? |^## ", PAGE.partition(f"\n{title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    assert found, title
    return found


def rows(text: str) -> dict[str, list[str]]:
    found = re.findall(r"^\| `([^`]+)` \| (.*) \|$", text, re.MULTILINE)
    assert len({word for word, _ in found}) == len(found), "a row is there twice"
    return {word: rest.split(" | ") for word, rest in found}


@pytest.mark.parametrize("kind", SPEC)
def test_every_handler_is_on_the_page_with_its_function(kind: str) -> None:
    told = {action: cells[0].strip("`") for action, cells in rows(section(TITLES[kind])).items()}
    real = {action: f"{function.__module__.removeprefix('automate.pools.')}.{function.__qualname__}"
            for action, function in handlers_of(kind).items()}
    assert told == real


@pytest.mark.parametrize("kind", SPEC)
def test_every_handler_that_the_spec_names_is_there(kind: str) -> None:
    assert SPEC[kind] <= set(handlers_of(kind))


def test_every_table_and_column_is_on_the_page() -> None:
    with sqlite3.connect(":memory:") as db:
        db.executescript(TABLES)
        tables = [name for (name,) in db.execute(
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'")]
        real = {table: [f"{table}.{row[1]}" for row in db.execute(f"PRAGMA table_info({table})")] for table in tables}
    told = {table: list(rows(section(f"### `{table}`"))) for table in real}
    assert told == real
    assert set(re.findall(r"^### `(\w+)`$", section_of_tables(), re.MULTILINE)) == set(real)


def section_of_tables() -> str:
    return re.split(r"^## ", PAGE.partition("\n## Tables\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def test_the_clock_of_the_page_is_the_settings() -> None:
    told = {job: (cells[1], cells[2]) for job, cells in rows(section("## Clock")).items()}
    default = Pools()
    assert told == {
        "Evaluate": ("`pools.evaluate_every`", f"`{default.evaluate_every}`"),
        "Update-Leaderboard": ("`pools.leaderboard_every`", f"`{default.leaderboard_every}`"),
        "Allocate-Rewards": ("`pools.rewards_every`", f"`{default.rewards_every}`"),
    }
    assert default.evaluate_limit == 1000 and default.evaluate_every == 3600 and default.leaderboard_every == 86400
    assert default.rewards_every == 86400


def test_functions_that_the_page_names_are_there() -> None:
    outside = PAGE.replace(section_of_tables(), "")
    named = {name for text in re.findall(r"^\| .* \|$", outside, re.MULTILINE)
             for name in re.findall(r"`((?:kinds\.|web\.)?[a-z_]+\.[A-Za-z_]+)`", text)}
    known = {path.relative_to(ROOT / "automate" / "pools").with_suffix("").as_posix().replace("/", ".")
             for path in (ROOT / "automate" / "pools").rglob("*.py")}
    checked = 0
    for name in sorted(named):
        module, _, function = name.rpartition(".")
        if module in known:
            assert hasattr(importlib.import_module(f"automate.pools.{module}"), function), name
            checked += 1
    assert checked > 30


def test_paths_that_the_page_names_are_there() -> None:
    paths = re.findall(r"`((?:scripts|automate|templates|docs)/[\w./-]+\.(?:py|md|j2))`", PAGE)
    assert {"scripts/wrapped_ar.py", "scripts/spawn.py", "scripts/siqa.py"} <= set(paths)
    assert [path for path in paths if not (ROOT / path).is_file()] == []


def test_words_that_the_page_for_funders_quotes_are_in_the_source() -> None:
    """Line breaks and quotes between two parts of a text in the source are left out."""
    page = (ROOT / "docs" / "pools.md").read_text(encoding="utf-8").partition("\n## What the words mean\n")[2]
    quoted = rows(page)
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "automate" / "pools").rglob("*.py"))
    joined = re.sub(r'"\s*\n\s*f?"', "", source)
    assert len(quoted) > 20
    assert [words for words in quoted if words not in joined] == []
