"""Pools as tables and files: within the terminal's width, whole where there is none, and nothing that it would obey."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from automate.campaign.pools.evaluating import Evaluated, RoundView
from automate.cli.views import pools, pools_audit, pools_files, pools_rounds

NOW = 1_720_656_000_000
HOSTILE = "m\x1b[31m\x9b31m\u202e[bold]red[/bold]\nnext 世界"
LONG = "tulu3-8b-rank64-alpha1e5-001-step" + "0" * 40
WHO = {"A" * 43: "me"}


def place(rank: int, model: str, **given: Any) -> dict[str, Any]:
    return {"rank": rank, "model": model, "process": "P" * 43, "participant": "B" * 43, "score": 0.5, "progress": 1.0,
            "value": 0.5, "low": 0.401, "high": 0.599, "correct": 50, "answered": 100, "failed": 0, "total": 100,
            "joined": NOW, "updated": NOW, "reward": None, **given}


def board(*places: dict[str, Any], **given: Any) -> dict[str, Any]:
    return {"pool": "Q" * 43, "dataset": "D" * 43, "dataset_name": "siqa", "funder": "A" * 43, "funds": 10**18,
            "allocation": "ArithmeticDecrease", "start_time": NOW, "end_time": NOW + 86_400_000, "state": "open",
            "updated": NOW, "places": list(places), **given}


def pool(**given: Any) -> dict[str, Any]:
    return {"id": "Q" * 43, "dataset": "D" * 43, "dataset_name": LONG, "funder": "A" * 43, "funds": 10**18,
            "allocation": "ArithmeticDecrease", "startTime": NOW, "endTime": NOW + 86_400_000, "state": "open",
            "settled": None, "updated": None, "models": 12_345, "paid": 0, "returned": 0, **given}


def model(name: str) -> dict[str, Any]:
    return {"number": 1, "name": name, "process": "P" * 43, "owner": "B" * 43, "pools": 1, "data_tx": "/data/" + name,
            "rows": 100_000, "pending": 100_000, "started": 0, "answered": 0, "correct": None, "failed": 0}


def dataset(name: str) -> dict[str, Any]:
    return {"id": "D" * 43, "name": name, "kind": "multiple-choice", "owner": "A" * 43, "questions": 100_000,
            "ready": True, "models": 12, "open_pools": 3, "balance": 10**18, "created": NOW,
            "settings": {"SystemPrompt": name * 9},
            "options": {"3": 99_999, "0": 1}, "evaluations": {"pending": 5, "answered": 0}, "pools": [pool()]}


def shown(width: int | None, show: Any, *given: Any) -> list[str]:
    """Lines that a terminal of this width gets; None: no terminal."""
    out = io.StringIO()
    terminal = width is not None
    show(Console(file=out, width=width or 120, force_terminal=terminal, color_system=None, highlight=False), *given)
    return out.getvalue().splitlines()


VIEWS: dict[str, Callable[[str], tuple[Any, ...]]] = {
    "pools": lambda name: (pools.print_pools, [pool(dataset_name=name)], NOW),
    "board": lambda name: (pools.print_board, board(place(1, name, reward=10**17), place(2, "b")), WHO, NOW),
    "joined": lambda name: (pools.print_joined, [{**place(1, name)}], WHO),
    "models": lambda name: (pools.print_models, [model(name)], WHO),
    "evaluated": lambda name: (pools.print_evaluated, [model(name)]),
    "datasets": lambda name: (pools.print_datasets, [dataset(name)], WHO),
    "dataset": lambda name: (pools.print_dataset, dataset(name), WHO, NOW),
    "processes": lambda name: (pools.print_processes, [{"name": name, "id": "P" * 43, "kind": "dataset",
                                                        "module": name, "owner": "A" * 43}], WHO),
    "balance": lambda name: (pools.print_balance, {"account": "A" * 43, "balance": 10**18, "entries": [
        {"amount": -10**18, "other": "B" * 43, "action": name[:9], "time": NOW, "message": "M" * 43}]}, WHO, NOW),
}


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", [LONG, "世界" * 30, "short"])
@pytest.mark.parametrize("view", VIEWS)
def test_no_line_is_wider_than_the_terminal(view: str, name: str, width: int) -> None:
    show, *given = VIEWS[view](name)
    lines = shown(width, show, *given)
    assert [line for line in lines if cell_len(line) > width] == []
    assert lines


@pytest.mark.parametrize("view", VIEWS)
def test_nothing_is_obeyed(view: str) -> None:
    show, *given = VIEWS[view](HOSTILE)
    for width in (80, None):
        text = "\n".join(shown(width, show, *given))
        assert not {"\x1b", "\x9b", "\u202e"} & set(text), text


@pytest.mark.parametrize("view", ["pools", "board", "joined", "models", "evaluated", "datasets", "processes"])
def test_names_are_whole_where_there_is_no_terminal(view: str) -> None:
    show, *given = VIEWS[view](LONG)
    assert any(LONG in line for line in shown(None, show, *given))


def test_markup_in_a_name_is_text() -> None:
    assert any("[bold]red[/bold]" in line for line in shown(None, *VIEWS["models"]("[bold]red[/bold]")))


def test_names_that_differ_stay_apart() -> None:
    lines = shown(60, pools.print_evaluated, [model(LONG + "1"), model(LONG + "2")])
    assert len(lines) == 4
    assert lines[2] != lines[3]


def test_a_leaderboard_says_what_counts() -> None:
    lines = shown(None, pools.print_board, board(place(1, "a", failed=3), place(2, "b", answered=0)), WHO, NOW + 60_000)
    assert "1,000,000,000,000,000,000 by ArithmeticDecrease" in lines[0]
    assert lines[3].split() == ["1", "a", "B" * 10, "50.0%", "50.0%", "40.1-59.9", "100.0%"]
    assert "40.1" not in lines[4]
    assert "updated 1m ago" in lines[5]
    assert "3 questions without an answer" in lines[5]


def test_a_row_that_was_never_updated_says_so() -> None:
    rows = board(place(1, "a"), place(2, "b", answered=0, progress=0.0, updated=None))
    lines = shown(None, pools.print_board, rows, WHO, NOW + 60_000)
    assert (lines[3].endswith("1m ago"), lines[4].split()[-1]) == (True, "never")


def test_a_round_that_was_given_up_says_why() -> None:
    one = RoundView("r1", NOW, 4, ("m",), 1, done=True, fleet="round-r1", given_up="config.json is\x1b[2J missing")
    text = "\n".join(shown(None, pools_rounds.print_evaluated, Evaluated(rounds=(one,))))
    assert "given up" in text and "config.json is" in text and "\x1b" not in text


@pytest.mark.parametrize(("part", "text"), [(0.0, "0.0%"), (0.99999, "99.9%"), (1.0, "100.0%"), (None, "")])
def test_a_hundred_percent_is_all_of_it(part: float | None, text: str) -> None:
    assert pools.percent(part) == text


@pytest.mark.parametrize(("ms", "text"), [(0, "0s"), (59_999, "59s"), (60_000, "1m"), (3_600_000, "1h 0m"),
                                          (90_000_000, "1d 1h")])
def test_spans(ms: int, text: str) -> None:
    assert pools.span(ms) == text


def test_an_audit_says_what_does_not_hold() -> None:
    found = {"pool": {"id": "Q" * 43, "dataset_name": "siqa", "state": "open", "end_time": NOW - 1}, "money": {
        "funds": 10, "paid": 0, "dust": 0, "refund": 0, "minted": 10, "ledger": 0, "entries": [], "payouts": []},
        "answers": {"models": [], "evaluations": [], "strays": [{"reason": "late\x1b"}, {"reason": "late\x1b"}]},
        "problems": ["money \x1b[31mis gone"]}
    text = "\n".join(shown(80, pools_audit.print_audit, found, WHO, NOW))
    assert "Not sound: 1 finding" in text
    assert "money ?[31mis gone" in text
    assert "2 answers not taken: late?" in text
    assert "to be settled" in text
    assert "Sound" in "\n".join(shown(80, pools_audit.print_audit, {**found, "problems": []}, WHO, NOW))


def test_json_is_the_same_value_without_what_a_terminal_obeys() -> None:
    text = pools_files.as_json({"name": HOSTILE, "lone": "\ud800"})
    assert json.loads(text) == {"name": HOSTILE, "lone": "\ud800"}
    assert not {"\x1b", "\x9b", "\u202e", "\ud800"} & set(text)
    assert "世界" in text


def test_csv_has_every_field_whole() -> None:
    text = pools_files.as_csv(board(place(1, "@sum", low=1 / 3)))
    assert text.splitlines()[1].startswith(f"1,'@sum,{'P' * 43},{'B' * 43},0.5,1.0,0.5,{1 / 3},")
