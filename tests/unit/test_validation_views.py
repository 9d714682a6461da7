"""What the commands of validation show: rows, reasons, spans of time, progress."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from automate.cli.validation.options import TaskIds
from automate.cli.validation.status import _left, _span, print_lines
from automate.validation.status import Line


def shown(*lines: Line, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    print_lines(console, lines)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_row_has_its_metrics_and_the_reasons_stand_below() -> None:
    text = shown(Line("17", "3", "lora", "submitted", 7300.0, metrics={"loss": 1.25}, unconfirmed=True),
                 Line("18", "3", "lora", "given_up", 60.0, cause="config", problem="configs/lora.json: fp17 [/bold]"))
    assert "submitted (unconfirmed)" in text
    assert "loss 1.25" in text
    assert "2h 1m" in text
    assert "18 given_up: configs/lora.json: fp17 [/bold]" in text
    assert "1 submitted, 1 given_up" in text
    assert "deadline" not in text


def test_a_deadline_has_a_column_where_one_is_known() -> None:
    text = shown(Line("17", "3", "lora", "fetched", 1.0, deadline=-90.0), Line("18", "3", "lora", "fetched", 1.0))
    assert "over by 1m" in text


def test_a_lost_reply_is_told_by_its_task() -> None:
    text = shown(Line("?", "3", "lora", "lost reply", 5.0, cause="lost-reply", problem="1 lookup without a reply"))
    assert "task 3 lost reply: 1 lookup" in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    text = shown(Line("1" * 12, "3", "llm_judge", "given_up", 9e5, metrics={"score": -999.0}, problem="x " * 200),
                 width=width)
    assert max(len(line) for line in text.splitlines()) <= width


@pytest.mark.parametrize(("seconds", "text"), [(0, "0s"), (59, "59s"), (60, "1m"), (3600, "1h 0m"), (90000, "1d 1h")])
def test_spans(seconds: float, text: str) -> None:
    assert _span(seconds) == text
    assert _left(seconds) == f"in {text}"


@pytest.mark.parametrize(("typed", "ids"), [("123,456", ("123", "456")), (" 1 , 2,1,02 ", ("1", "2"))])
def test_task_ids(typed: str, ids: tuple[str, ...]) -> None:
    assert TaskIds().convert(typed, None, None) == ids
