"""The pages say what is there: settings, commands, the monitor's keys, preflight's codes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from pydantic import BaseModel

from automate.arena.preflight.check import CODES
from automate.campaign.monitoring.failures import KINDS, Failure
from automate.campaign.monitoring.picture import (
    ICONS,
    SCHEMA,
    AnswerLine,
    BadNode,
    BatchLine,
    Finish,
    JobLine,
    ModelLine,
    Queue,
    Snapshot,
)
from automate.campaign.monitoring.vitals import GpuLine, Rates, ServerLine
from automate.cli.main import COMMANDS, HIDDEN
from automate.fleets.rows import WorkerRow
from automate.fleets.status import STATES, FleetStatus, ModelRow
from automate.fleets.trouble import KINDS as TROUBLE
from automate.fleets.trouble import FleetFailure
from automate.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
README, DOCS = ROOT / "README.md", ROOT / "docs"
PAGES = [README, *sorted(DOCS.glob("*.md"))]
START = "<!-- codes: from automate.arena.preflight.codes.CODES by `python -m tests.unit.test_docs` -->\n"
END = "<!-- end of codes -->\n"
ROW = re.compile(r"^\| `([^`]+)` \| (.*) \|$", re.MULTILINE)


def section(page: Path, title: str) -> str:
    """A section of a page, from its title to the next one of the same depth."""
    depth = title.split(" ")[0]
    return page.read_text(encoding="utf-8").partition(f"\n{title}\n")[2].partition(f"\n{depth} ")[0]


def rows(text: str) -> dict[str, list[str]]:
    """Rows of tables whose first cell is one word in backticks: that word, and the other cells."""
    return {word: [cell.strip() for cell in rest.split(" | ")] for word, rest in ROW.findall(text)}


def defaults(model: BaseModel, before: str = "") -> Iterator[tuple[str, str]]:
    """Every key of the settings with its default as the tables write it."""
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from defaults(value, f"{before}{name}.")
        else:
            yield before + name, f"`{value if isinstance(value, str) else json.dumps(value)}`"


def codes_table() -> str:
    """The table of preflight's codes."""
    lines = [f"| `{code}` | {text} |" for code, text in CODES.items()]
    return "\n".join(["| code | what it stands for |", "|---|---|", *lines])


def with_codes(page: str) -> str:
    """The page on preflight with its table made anew."""
    before, _, rest = page.partition(START)
    return f"{before}{START}\n{codes_table()}\n\n{END}{rest.partition(END)[2]}"


def test_the_readme_names_settings_that_are_there() -> None:
    table, known = rows(section(README, "## Settings")), dict(defaults(Settings()))
    assert len(table) > 20
    assert {key: cells[0] for key, cells in table.items()} == {key: known.get(key) for key in table}


def test_the_page_on_settings_has_them_all() -> None:
    table = rows((DOCS / "settings.md").read_text(encoding="utf-8"))
    assert {key: cells[0] for key, cells in table.items()} == dict(defaults(Settings()))


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in HIDDEN])
def test_the_readme_has_every_command(command: str) -> None:
    assert re.search(rf"^\| `flock-hpc {command}[ `]", section(README, "## Commands"), re.MULTILINE)


@pytest.mark.parametrize(("title", "kind"), [
    ("## `--json`", Snapshot), ("## A job", JobLine), ("## A judge server", ServerLine), ("## A GPU", GpuLine),
    ("## A model", ModelLine), ("## A failure", Failure), ("## A batch", BatchLine), ("## Rates", Rates),
    ("## The finish", Finish), ("## A bad node", BadNode), ("## The queue", Queue),
    ("## A model's answers", AnswerLine), ("## A fleet", FleetStatus), ("## A fleet's model", ModelRow),
    ("## A worker", WorkerRow), ("## A fleet's failure", FleetFailure)])
def test_the_page_on_the_monitor_has_every_key(title: str, kind: type) -> None:
    part = section(DOCS / "monitor.md", title).partition("\n| state |")[0].partition("\n| kind |")[0]
    part = part.partition("\n| worker's state |")[0].partition("\n| fleet's kind |")[0]
    table = rows(part)
    extra = {"schema", "nulls", "totals"} if kind is Snapshot else set()
    assert set(table) == {field.name for field in fields(kind)} | extra


def test_the_page_on_the_monitor_has_every_state_and_total() -> None:
    page = DOCS / "monitor.md"
    states = rows("| state |" + section(page, "## A model").partition("\n| state |")[2])
    assert {state: cells[0] for state, cells in states.items()} == ICONS
    empty = Snapshot(0.0, "", "", "", (), (), "", {}, (), (), (), (), (), (("log", 1, 2.0),)).as_json()
    assert set(rows(section(page, "## Totals"))) == set(empty["totals"])
    assert set(rows(section(page, "## A log"))) == set(empty["logs"][0])
    assert f"`schema` is {SCHEMA};" in page.read_text(encoding="utf-8")


def test_the_page_on_the_monitor_has_every_kind_of_failure() -> None:
    assert set(rows(section(DOCS / "monitor.md", "## A failure").partition("\n| kind |")[2])) == set(KINDS)


def test_the_page_on_the_monitor_has_every_state_of_a_worker_and_kind_of_a_fleets_failure() -> None:
    page = DOCS / "monitor.md"
    assert tuple(rows(section(page, "## A worker").partition("\n| worker's state |")[2])) == STATES
    assert set(rows(section(page, "## A fleet's failure").partition("\n| fleet's kind |")[2])) == set(TROUBLE)


def test_the_page_on_preflight_has_every_code() -> None:
    page = (DOCS / "preflight.md").read_text(encoding="utf-8")
    assert page == with_codes(page), "make the table anew: python -m tests.unit.test_docs"
    assert {key: cells[0] for key, cells in rows(section(DOCS / "preflight.md", "## Codes")).items()} == CODES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (page.parent / target).is_file(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_codes_that_are_named_are_there(page: Path) -> None:
    assert set(re.findall(r"FH\d{3}", page.read_text(encoding="utf-8"))) <= set(CODES)


if __name__ == "__main__":
    target = DOCS / "preflight.md"
    target.write_text(with_codes(target.read_text(encoding="utf-8")), encoding="utf-8")
