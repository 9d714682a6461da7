"""FH507: a time limit that is over before the first game."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from automate.arena.preflight.findings import Level
from automate.arena.preflight.time_limit import load_seconds, time_findings
from tests.unit.support import make_settings

JUDGE = "big"


def found(time: str, *loads: Any, root: Path = Path("/nowhere"), **judge: Any) -> list[tuple[str, Level, str, str]]:
    settings = make_settings(slurm={"time": time}, judge={"name": JUDGE, **judge})
    runs = [{"judge": JUDGE, "load": [{"seconds": seconds}]} for seconds in loads]
    return [(one.code, one.level, one.what, one.todo) for one in time_findings(settings, root, runs)]


@pytest.mark.parametrize("time", ["02:00:00", "UNLIMITED", "1-00:00:00", "00:20:00"])
def test_time_enough_is_no_finding(time: str) -> None:
    assert found(time, 900.0) == []


def test_a_measured_load_that_takes_the_whole_limit_is_an_error_with_a_limit_that_would_do() -> None:
    [(code, level, what, todo)] = found("00:15:00", 900.0, 950.0, 700.0)
    assert (code, level) == ("FH507", Level.ERROR)
    assert what == ("00:15:00 is too short: loading the judge takes about 15 min (median of 3 load(s)), and in the "
                    "last 2 min no game is started")
    assert todo.startswith("give it 00:32:00 or more")
    assert found("00:32:00", 900.0) == []


def test_draining_counts_besides_loading() -> None:
    assert found("00:12:01", 600.0) == []
    assert [level for _, level, _, _ in found("00:12:00", 600.0)] == [Level.ERROR]


def test_what_is_only_assumed_warns_unless_it_can_never_do(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    header = json.dumps({}).encode()
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(struct.pack("<Q", len(header)) + header)
    with weights.open("r+b") as file:
        file.truncate(240_000_000_000)  # a sparse file: 300 s by the assumed disk
    assert [level for _, level, _, _ in found("6", root=tmp_path, path=str(tmp_path))] == [Level.WARNING]
    assert [level for _, level, _, _ in found("4", root=tmp_path, path=str(tmp_path))] == [Level.ERROR]
    assert found("9", root=tmp_path, path=str(tmp_path)) == []


def test_a_rehearsal_judge_says_itself_how_long_it_loads() -> None:
    assert [level for _, level, _, _ in found("1", kind="rehearsal", rehearsal={"load_seconds": 40})] == [Level.ERROR]
    assert found("1", kind="rehearsal") == []


def test_a_paid_judge_has_nothing_to_load() -> None:
    assert found("1", kind="openai", base_url="https://host/v1") == []


@pytest.mark.parametrize("run", [{}, {"judge": JUDGE}, {"judge": JUDGE, "load": 3},
                                 {"judge": JUDGE, "load": [None, {}]}, {"judge": "other", "load": [{"seconds": 9e8}]},
                                 {"judge": JUDGE, "load": [{"seconds": float("nan")}]}])
def test_records_that_say_nothing_are_passed_over(run: dict[str, Any]) -> None:
    settings = make_settings(judge={"name": JUDGE})
    assert load_seconds(settings, Path("/nowhere"), [run])[0] == 60.0
