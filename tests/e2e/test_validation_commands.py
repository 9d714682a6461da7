"""Flock validation by its commands, against the stand-in of the API: the round trip, bad input, and no key anywhere."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from automate.validation.standin import StandIn
from automate.validation.standin.plan import Content, Fault, Plan, TaskPlan
from tests.rigs.leaks import search_for

PROJECT = Path(__file__).resolve().parents[2]
KEY, TOKEN = "key-0f5c9b7d31e84f62", "hf_0123456789abcdefTOKEN"
SETTINGS = {"manager": "current", "lookup_interval": 0, "time_sleep": 1, "min_free_gb": 0, "local_parallel": 2,
            "read_timeout": 5, "retries": 1}


@pytest.fixture
def api() -> Iterator[StandIn]:
    """A stand-in without faults: two tasks, five submissions."""
    plan = Plan(tasks=(TaskPlan(123, submissions=3, metrics=("score",)), TaskPlan(456, submissions=2)), key=KEY)
    with StandIn(plan) as standin:
        yield standin


def workspace(root: Path, standin: StandIn, **settings: object) -> Path:
    """A folder with a flock-hpc.yaml for the stand-in."""
    root.mkdir(parents=True, exist_ok=True)
    own = {**SETTINGS, "base_url": standin.base_url, **settings}
    (root / "flock-hpc.yaml").write_text(json.dumps({"cluster": "local", "validation": own}), encoding="utf-8")
    return root


def environ(**more: str) -> dict[str, str]:
    """This environment without Flock's own variables, and with `more`."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("FLOCK_", "HF_TOKEN")) or name == "FLOCK_HPC_REQUIRE_REAL"}
    return {**kept, **more}


def call(root: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """`flock-hpc validation ...` in a folder, with the key in its environment."""
    return subprocess.run([sys.executable, "-m", "automate", "validation", *words], cwd=root, text=True,
                          capture_output=True, timeout=240, env=environ(**{"FLOCK_API_KEY": KEY, **env}), check=False)


def accepted(standin: StandIn) -> list[int]:
    """How often a report of each assignment was accepted."""
    return [record.accepted for record in standin.assignments.values()]


def states(root: Path) -> dict[str, str]:
    """The state of each assignment, by the folders."""
    spool = root / ".flock-hpc" / "validation" / "spool"
    return {path.name: path.parent.name for path in spool.glob("*/*") if path.name.isdigit()}


def test_round_trip(tmp_path: Path, api: StandIn) -> None:
    root = workspace(tmp_path / "w", api)
    fetched = call(root, "fetch", "example", "--task_ids", "123,456", "--max", "4")
    assert fetched.returncode == 0, fetched.stderr
    assert "4 outstanding" in fetched.stdout
    assert set(states(root).values()) == {"fetched"}
    assert "4 assignments would be handed to this machine" in call(root, "run").stdout
    ran = call(root, "run", "--submit")
    assert ran.returncode == 0, ran.stderr
    assert set(states(root).values()) == {"done"}
    assert accepted(api) == [0, 0, 0, 0], "a job must not report"
    sent = call(root, "submit")
    assert sent.returncode == 0, sent.stdout + sent.stderr
    assert accepted(api) == [1, 1, 1, 1]
    assert set(states(root).values()) == {"submitted"}
    assert "nothing to report" in call(root, "submit").stdout
    lines = json.loads(call(root, "status", "--json").stdout)
    assert {line["state"] for line in lines} == {"submitted"}
    assert all("score" in line["metrics"] for line in lines)
    assert api.violations == []


def test_loop_once_goes_on_where_it_stopped(tmp_path: Path, api: StandIn) -> None:
    root = workspace(tmp_path / "w", api)
    for _ in range(12):
        done = call(root, "loop", "example", "--task_ids", "123,456", "--once")
        assert done.returncode == 0, done.stdout + done.stderr
        if accepted(api) == [1] * 5:
            break
        time.sleep(1)
    assert accepted(api) == [1] * 5
    assert set(states(root).values()) == {"submitted"}


def test_loop_stops_on_sigterm_and_a_second_one_says_who_runs(tmp_path: Path, api: StandIn) -> None:
    root = workspace(tmp_path / "w", api, time_sleep=600, lookup_interval=600)
    command = [sys.executable, "-m", "automate", "validation", "loop", "example", "--task_ids", "123,456"]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env=environ(FLOCK_API_KEY=KEY)) as first:
        until = time.monotonic() + 60
        while not states(root) and time.monotonic() < until:
            time.sleep(0.2)
        second = call(root, "loop", "example", "--task_ids", "123,456", "--once")
        assert second.returncode == 1
        assert re.search(rf"process {first.pid} on ", second.stderr)
        first.send_signal(signal.SIGTERM)
        out, _ = first.communicate(timeout=60)
    assert first.returncode == 0, out
    assert "stopped" in out
    assert "Traceback" not in out + second.stderr


def test_own_command_goes_round(tmp_path: Path, api: StandIn) -> None:
    (tmp_path / "w").mkdir()
    command = [sys.executable, str(PROJECT / "run.py"), "example", "--task_ids", "123,456", "--flock-api-key", KEY,
               "--hf-token", TOKEN, "--time-sleep", "1", "--assignment-lookup-interval", "1", "--debug", "--once"]
    env = environ(FLOCK_HPC_VALIDATION__BASE_URL=api.base_url, FLOCK_HPC_VALIDATION__MANAGER="current",
                  FLOCK_HPC_VALIDATION__MIN_FREE_GB="0")
    for _ in range(4):
        done = subprocess.run(command, cwd=tmp_path / "w", env=env, capture_output=True, text=True, timeout=240,
                              check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        if accepted(api) == [1] * 5:
            break
        time.sleep(1.1)
    assert accepted(api) == [1] * 5
    debug = list((tmp_path / "w" / ".flock-hpc" / "validation" / "debug").glob("*.jsonl"))
    assert any("request-validation-assignment" in path.read_text(encoding="utf-8") for path in debug)
    assert search_for(KEY, [tmp_path / "w"]) == []
    assert search_for(TOKEN, [tmp_path / "w"]) == []
    assert KEY not in done.stdout + done.stderr


@pytest.mark.parametrize(("words", "key", "told"), [
    (("fetch", "exmple", "--task_ids", "123"), KEY, "did you mean example?"),
    (("fetch", "example", "--task_ids", "124"), KEY, "no task 124"),
    (("fetch", "example", "--task_ids", "123"), "", "FLOCK_API_KEY"),
    (("fetch", "example", "--task_ids", "123"), "wrong", "key was refused"),
    (("fetch", "example", "--task_ids", "a b"), KEY, "not a task id"),
    (("retry", "999"), KEY, "not in the spool"),
    (("retry", "../x"), KEY, "is no assignment"),
    (("cancel", "999"), KEY, "no job has assignment 999"),
])
def test_bad_input_is_one_line(tmp_path: Path, api: StandIn, words: tuple[str, ...], key: str, told: str) -> None:
    root = workspace(tmp_path / "w", api)
    done = call(root, *words, FLOCK_API_KEY=key)
    assert done.returncode != 0
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert api.assignments == {}
    assert key == "" or key not in done.stderr + done.stdout


def test_wrong_config_is_named_before_anything_is_asked_for(tmp_path: Path, api: StandIn) -> None:
    root = workspace(tmp_path / "w", api)
    (root / "configs" / "tasks").mkdir(parents=True)
    wrong = root / "configs" / "tasks" / "123.json"
    for text, told in (('{"scale": "many"}', "scale"), ('{"sclae": 2}', "sclae"), ("[", "not JSON")):
        wrong.write_text(text, encoding="utf-8")
        done = call(root, "fetch", "example", "--task_ids", "123", "--max", "1")
        assert done.returncode == 1
        assert str(wrong) in done.stderr
        assert told in done.stderr
    assert api.assignments == {}


def test_config_broken_later_goes_to_a_person_and_can_be_taken_back(tmp_path: Path, api: StandIn) -> None:
    root = workspace(tmp_path / "w", api)
    call(root, "fetch", "example", "--task_ids", "123", "--max", "1")
    (root / "configs").mkdir()
    (root / "configs" / "example.json").write_text('{"scale": "many"}', encoding="utf-8")
    call(root, "run", "--submit")
    [line] = json.loads(call(root, "status", "--json").stdout)
    assert line["state"] == "given_up"
    assert "example.json" in line["problem"]
    (root / "configs" / "example.json").write_text('{"scale": 2}', encoding="utf-8")
    assert call(root, "retry", line["id"]).returncode == 0
    call(root, "run", "--submit")
    call(root, "submit")
    assert accepted(api) == [1]


def test_a_standing_trouble_does_not_use_a_task_up(tmp_path: Path) -> None:
    with StandIn(Plan(tasks=(TaskPlan(123, kind="example", submissions=30),), key=KEY)) as api:
        root = workspace(tmp_path / "w", api, manager="current", module_folders=["mods"])
        (root / "mods").mkdir()
        (root / "mods" / "other.py").write_text(OTHER, encoding="utf-8")
        done = call(root, "fetch", "other", "--task_ids", "123", "--max", "8")
        assert len(states(root)) == 3, done.stdout
        assert "no more are asked for" in done.stdout
        assert set(states(root).values()) == {"given_up"}
        again = call(root, "fetch", "other", "--task_ids", "123", "--max", "8")
        assert len(states(root)) == 3, again.stdout


def test_a_config_that_is_no_file_is_not_passed_over(tmp_path: Path, api: StandIn) -> None:
    root = workspace(tmp_path / "w", api)
    (root / "configs").mkdir()
    (root / "configs" / "example.json").symlink_to(tmp_path / "nowhere.json")
    done = call(root, "fetch", "example", "--task_ids", "123", "--max", "1", "--once")
    assert done.returncode == 1
    assert "example.json" in done.stderr
    assert api.assignments == {}


def test_odd_assignments_keep_nobody_back(tmp_path: Path) -> None:
    plan = Plan(tasks=(TaskPlan(7, submissions=8),), key=KEY, rate=0.9, most_faults=0, seed=5,
                contents=(Content.NO_DATA, Content.BROKEN_ROW, Content.EXTRA, Content.TEXT_ID))
    with StandIn(plan) as api:
        root = workspace(tmp_path / "w", api, attempts=1)
        call(root, "fetch", "example", "--task_ids", "7")
        call(root, "run", "--submit")
        call(root, "submit")
        for record in api.assignments.values():
            wanted = {"person": "given_up"}.get(record.trouble.expected, record.trouble.expected)
            assert states(root)[record.id] == wanted, record
        assert {record.trouble.expected for record in api.assignments.values()} >= {"person", "submitted"}
        assert api.violations == []
        broken = json.loads(call(root, "status", "--json").stdout)
    assert any("row" in line["problem"] for line in broken)


def test_accepted_without_a_reply_is_not_sent_twice(tmp_path: Path, api: StandIn) -> None:
    root = workspace(tmp_path / "w", api)
    call(root, "fetch", "example", "--task_ids", "456", "--max", "1", "--once")
    call(root, "run", "--submit")
    api.inject("update", Fault.DROP_AFTER)
    first = call(root, "submit")
    assert first.returncode == 1
    assert "kept" in first.stdout
    assert "the reply was lost" in call(root, "submit").stdout
    assert accepted(api) == [1]
    [line] = json.loads(call(root, "status", "--json").stdout)
    assert line["state"] == "submitted"
    assert line["unconfirmed"] is True


def test_module_on_local_files(tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text('{"value": 1}\n{"value": 2}\n', encoding="utf-8")
    done = call(tmp_path, "test", "example", "--data", str(data), "--json", FLOCK_API_KEY="",
                FLOCK_HPC_VALIDATION__MANAGER="current")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["payload"] == {"score": 1.5}
    data.write_text('{"value": 1}\nnonsense\n', encoding="utf-8")
    done = call(tmp_path, "test", "example", "--data", str(data), FLOCK_HPC_VALIDATION__MANAGER="current")
    assert done.returncode == 1
    assert "row 2" in done.stdout


OTHER = """
from automate.validation.modules.base import BaseInputData
from automate.validation.modules.example import ExampleModule
class Input(BaseInputData):
    something_else: int
class Other(ExampleModule):
    input_data_schema = Input
MODULE = Other
"""
SLOW = """
import time
from automate.validation.modules.example import ExampleModule
class Slow(ExampleModule):
    def validate(self, data, **kwargs):
        time.sleep(600)
MODULE = Slow
"""


def test_cancel_puts_assignments_back(tmp_path: Path, api: StandIn) -> None:
    root = workspace(tmp_path / "w", api, module_folders=["mods"])
    (root / "mods").mkdir()
    (root / "mods" / "slow.py").write_text(SLOW, encoding="utf-8")
    assert "no job has an assignment" in call(root, "cancel").stdout
    call(root, "fetch", "slow", "--task_ids", "456", "--max", "1", "--once")
    command = [sys.executable, "-m", "automate", "validation", "run", "--submit"]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env=environ()) as runner:
        until = time.monotonic() + 60
        while "running" not in states(root).values() and time.monotonic() < until:
            time.sleep(0.2)
        assert "would cancel job" in call(root, "cancel", "--dry-run").stdout
        done = call(root, "cancel", *states(root))
        assert done.returncode == 0, done.stderr
        until = time.monotonic() + 60
        while "running" in states(root).values() and time.monotonic() < until:
            time.sleep(0.2)
        assert "fetched" in states(root).values()
        runner.terminate()
        out, _ = runner.communicate(timeout=60)
    assert "Traceback" not in out
    call(root, "cancel")


def test_without_room_fetching_ends_and_says_so(tmp_path: Path, api: StandIn) -> None:
    root = workspace(tmp_path / "w", api, min_free_gb=10**9)
    done = call(root, "fetch", "example", "--task_ids", "123")
    assert done.returncode == 1
    assert "nothing is fetched" in done.stderr
    assert api.assignments == {}


def test_unknown_ids_to_run_are_named(tmp_path: Path, api: StandIn) -> None:
    root = workspace(tmp_path / "w", api)
    for words in (("run", "77"), ("run", "77", "--submit"), ("run", "../x")):
        done = call(root, *words)
        assert done.returncode == 1
        assert "not in the spool" in done.stdout + done.stderr


def test_own_command_writes_nothing_before_it_can_begin(tmp_path: Path, api: StandIn) -> None:
    for words in (("example", "--task_ids", "123"), ("exmple", "--task_ids", "123", "--flock-api-key", KEY)):
        done = subprocess.run([sys.executable, str(PROJECT / "scripts" / "run.py"), *words], cwd=tmp_path, text=True,
                              env=environ(FLOCK_HPC_VALIDATION__BASE_URL=api.base_url), capture_output=True,
                              timeout=120, check=False)
        assert done.returncode == 1
        assert list(tmp_path.iterdir()) == []


def test_rehearsal_with_faults(tmp_path: Path) -> None:
    done = call(tmp_path, "rehearse", "--assignments", "9", "--seed", "1", FLOCK_API_KEY="")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "none twice" in done.stdout
