"""One start of an assignment: what its end makes of it, and that nothing of another start is taken for it."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from automate import claims
from automate.validation.assignments import Assignment, Handed, State
from automate.validation.inner import files
from automate.validation.inner.files import Outcome
from automate.validation.jobs import outcomes
from automate.validation.jobs.one import Place, Stop, inner_call_of, run_one
from automate.validation.jobs.process import CappedLog
from automate.validation.jobs.task import do_all
from automate.validation.spool import Spool
from automate.workspace import Workspace
from tests.unit.validation_jobs_support import JOB, make, place, put, python

Made = tuple[Workspace, Spool]
SECRET = "flk-planted-0123456789abcdef"  # a key that must be seen nowhere


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return make(tmp_path / "space", api_key_env="FLOCK_API_KEY")


def start(made: Made, tmp_path: Path, code: str, one: Assignment | None = None, **more: Any) -> Assignment:
    workspace, spool = made
    found = one or put(spool, "a1")
    return run_one(found, spool, place(workspace, tmp_path / "scratch", python(code), **more))


def state(spool: Spool, assignment_id: str = "a1") -> State:
    found = spool.find(assignment_id)
    assert found is not None
    return found.state


def test_the_example_module_is_done_and_leaves_nothing_behind(made: Made, tmp_path: Path) -> None:
    workspace, spool = made
    at = place(workspace, tmp_path / "scratch", inner_call_of(workspace.validation))
    done = run_one(put(spool, "a1"), spool, at)
    result = files.read_result(done.folder)
    assert done.state is State.DONE and done.folder.parent.name == "done"
    assert result is not None and result.outcome is Outcome.COMPLETED and result.payload == {"score": 3.0}
    assert [event.what for event in done.history] == ["started", "validated"]
    assert done.handed == JOB and done.history[0].job == "7_0"
    assert (done.folder / "logs" / "attempt-1.log").exists()
    assert list((tmp_path / "scratch").iterdir()) == []
    assert claims.holder_of(spool.places.assignment_claim("a1")) is None


@pytest.mark.parametrize(("outcome", "where"), [
    ("completed", State.DONE), ("partial", State.DONE), ("failed", State.DONE),
    ("recoverable", State.FETCHED), ("unusable", State.GIVEN_UP)])
def test_each_outcome_has_its_state(made: Made, tmp_path: Path, outcome: str, where: State) -> None:
    moved = start(made, tmp_path, f"result({outcome!r}, cause='data', reason='row 3')")
    assert moved.state is where is state(made[1])
    assert moved.attempts == (1 if outcome == "recoverable" else 0)
    if outcome != "completed":
        assert moved.cause == "data"


def test_recoverable_ends_are_counted_and_then_left_to_a_person(made: Made, tmp_path: Path) -> None:
    one = put(made[1], "a1")
    for attempt in (1, 2):
        one = start(made, tmp_path, "result('recoverable', cause='network', reason='no')", one)
        assert (one.state, one.attempts, one.ready, one.handed) == (State.FETCHED, attempt, True, None)
    one = start(made, tmp_path, "result('recoverable', cause='network', reason='no')", one)
    assert (one.state, one.attempts, one.problem, one.cause) == (State.GIVEN_UP, 3, "no", "network")
    assert sorted(path.name for path in (one.folder / "logs").iterdir()) == [
        "attempt-1.log", "attempt-2.log", "attempt-3.log"]


@pytest.mark.parametrize(("code", "cause", "reason"), [
    ("sys.exit(3)", "crashed", "status 3"),
    ("os.kill(os.getpid(), signal.SIGKILL)", "killed", "SIGKILL"),
    ("os.kill(os.getpid(), signal.SIGSEGV)", "crashed", "signal 11"),
    ("raise MemoryError()", "out-of-memory", "memory"),
    ("print('OSError: [Errno 28] No space left on device'); sys.exit(1)", "disk", "full"),
    ("", "crashed", "no result"),
    ("result(); sys.exit(1)", "crashed", "status 1"),
    ("(FOLDER / 'result.json').write_text('{\"assignment_id\": ')", "crashed", "no result"),
    ("result(); os.rename(FOLDER / 'result.json', FOLDER / '.result.json.12.tmp')", "crashed", "no result"),
])
def test_an_end_without_a_result_is_never_the_submissions_fault(made: Made, tmp_path: Path, code: str, cause: str,
                                                               reason: str) -> None:
    moved = start(made, tmp_path, code)
    assert (moved.state, moved.attempts, moved.cause) == (State.FETCHED, 1, cause)
    assert reason in moved.history[-1].what
    assert files.read_result(moved.folder) is None and not list(moved.folder.glob(".result*"))


def test_an_earlier_starts_result_is_never_taken(made: Made, tmp_path: Path) -> None:
    one = put(made[1], "a1")
    for name in ("result.json", "partial.json"):
        (one.folder / name).write_text(json.dumps({"assignment_id": "a1", "outcome": "failed", "module": "example"}))
    code = "(FOLDER / 'seen.txt').write_text(' '.join(path.name for path in FOLDER.iterdir()))"
    moved = start(made, tmp_path, code, one)
    assert moved.state is State.FETCHED and moved.cause == "crashed"
    assert "partial.json" not in (moved.folder / "seen.txt").read_text()


@pytest.mark.parametrize("code", ["(FOLDER / 'result.json').symlink_to(FOLDER / 'other.json')",
                                  "(FOLDER / 'result.json').write_text(json.dumps(whole) + ' ' * 20_000_000)"])
def test_a_result_that_is_a_link_or_far_too_large_is_not_read(made: Made, tmp_path: Path, code: str) -> None:
    whole = "whole = {'assignment_id': ID, 'outcome': 'completed', 'module': 'example', 'payload': {'score': 1.0}}"
    moved = start(made, tmp_path, f"{whole}; (FOLDER / 'other.json').write_text(json.dumps(whole)); {code}")
    assert moved.state is State.FETCHED and not (moved.folder / "result.json").exists()


@pytest.mark.parametrize("more", ["assignment_id='other'", "module='lora'"])
def test_a_result_of_another_assignment_or_module_is_not_taken(made: Made, tmp_path: Path, more: str) -> None:
    code = f"result()\nwhole = json.loads((FOLDER / 'result.json').read_text()) | dict({more})\n" \
           "(FOLDER / 'result.json').write_text(json.dumps(whole))"
    assert start(made, tmp_path, code).state is State.FETCHED


def test_what_the_module_finds_around_it(made: Made, tmp_path: Path) -> None:
    keys = {"PATH": os.environ["PATH"], "FLOCK_API_KEY": SECRET, "HF_TOKEN": "hf_" + SECRET, "COPY": f"x{SECRET}",
            "OPENAI_API_KEY": "sk-" + SECRET, "HF_HOME": "/home/me/hf", "HF_HUB_CACHE": "/home/me/hub", "KEPT": "1"}
    code = "(FOLDER / 'around.json').write_text(json.dumps([dict(os.environ), os.getcwd()])); result()"
    done = start(made, tmp_path, code, environ=keys)
    text = (done.folder / "around.json").read_text()
    around, cwd = json.loads(text)
    assert SECRET not in text and around["KEPT"] == "1"
    assert around["HF_HUB_OFFLINE"] == around["TRANSFORMERS_OFFLINE"] == "1"
    assert around["HF_HUB_DISABLE_IMPLICIT_TOKEN"] == "1" and "HF_HUB_CACHE" not in around
    for name in ("HF_HOME", "TMPDIR", "FLOCK_HPC_SCRATCH", "HF_TOKEN_PATH"):
        assert around[name].startswith(f"{tmp_path}/scratch/flock-validation-")
    assert cwd.startswith(f"{tmp_path}/scratch/") and not Path(around["HF_TOKEN_PATH"]).exists()
    searched = [path for path in made[0].root.rglob("*") if path.is_file()]
    assert searched and not [path for path in searched if SECRET.encode() in path.read_bytes()]


def test_a_scratch_folder_is_kept_where_that_is_asked_for(made: Made, tmp_path: Path) -> None:
    lines: list[str] = []
    start(made, tmp_path, "Path('left').touch(); result()", say=lines.append,
          environ={"PATH": os.environ["PATH"], "FLOCK_HPC_KEEP_SCRATCH": "1"})
    (kept,) = (tmp_path / "scratch").iterdir()
    assert (kept / "left").exists() and str(kept) in lines[0]


def test_the_time_of_one_assignment_is_limited_and_its_children_end_too(tmp_path: Path) -> None:
    made = make(tmp_path / "space", assignment_timeout=1.0)
    code = ("import subprocess\nchild = subprocess.Popen(['sleep', '600'])\n"
            "(FOLDER / 'pid').write_text(str(child.pid))\ntime.sleep(600)")
    moved = start(made, tmp_path, code)
    assert (moved.state, moved.cause) == (State.FETCHED, outcomes.TIMEOUT)
    assert not Path(f"/proc/{(moved.folder / 'pid').read_text()}").exists()


class AtStop(Stop):
    """A stop that comes when a file is there."""

    def __init__(self, file: Path, why: str, evidence: Any = None) -> None:
        super().__init__("", evidence)
        self._file, self._why = file, why

    def __getattribute__(self, name: str) -> Any:
        if name == "why" and object.__getattribute__(self, "_file").exists():
            return object.__getattribute__(self, "_why")
        return object.__getattribute__(self, name)


@pytest.mark.parametrize(("said", "cause"), [("", "stopped"), ("preempted", "preempted")])
def test_told_to_end_it_puts_the_assignment_back_at_once(made: Made, tmp_path: Path, said: str, cause: str) -> None:
    one = put(made[1], "a1")
    stop = AtStop(tmp_path / "go", "stopped", lambda: said)
    code = f"Path({str(tmp_path / 'go')!r}).touch(); time.sleep(600)"
    moved = start(made, tmp_path, code, one, stop=stop)
    assert (moved.state, moved.cause, moved.attempts) == (State.FETCHED, cause, 1)


@pytest.mark.parametrize(("outcome", "where"), [("completed", State.DONE), ("failed", State.FETCHED)])
def test_a_failure_found_while_the_job_is_being_ended_is_not_believed(made: Made, tmp_path: Path, outcome: str,
                                                                     where: State) -> None:
    stop = AtStop(tmp_path / "go", "stopped")
    code = f"result({outcome!r}); Path({str(tmp_path / 'go')!r}).touch(); time.sleep(600)"
    assert start(made, tmp_path, code, stop=stop).state is where


def test_nothing_more_is_started_once_told_to_end(made: Made, tmp_path: Path) -> None:
    workspace, spool = made
    for name in ("a1", "a2"):
        put(spool, name)
    stop = AtStop(tmp_path / "go", "time-limit")
    lines: list[str] = []
    at = place(workspace, tmp_path / "scratch", python(f"result(); Path({str(tmp_path / 'go')!r}).touch()"),
               stop=stop, say=lines.append)
    assert do_all(["a1", "a2", "nothere"], spool, at) == {"a1": "done"}
    second = spool.find("a2")
    assert second is not None and second.state is State.FETCHED and second.attempts == 0
    assert any("a2: not started" in line for line in lines)


def test_one_that_somebody_else_holds_is_left_alone_and_he_is_named(made: Made, tmp_path: Path) -> None:
    _workspace, spool = made
    one = put(spool, "a1")
    lines: list[str] = []
    with spool.held("a1"):
        left = start(made, tmp_path, "result()", one, say=lines.append, sleep=lambda seconds: None)
    assert left.state is State.FETCHED and state(spool) is State.FETCHED
    assert f"process {os.getpid()}" in lines[0] and "left alone" in lines[0]


def test_a_command_that_holds_it_for_a_moment_is_waited_for(made: Made, tmp_path: Path) -> None:
    spool = made[1]
    one = put(spool, "a1")
    claim = claims.take(spool.places.assignment_claim("a1"), stale=90)
    moved = start(made, tmp_path, "result()", one, sleep=lambda seconds: claim.release())
    assert moved.state is State.DONE


def test_one_that_another_job_has_started_is_not_waited_for(made: Made, tmp_path: Path) -> None:
    spool = made[1]
    one = spool.move(put(spool, "a1"), State.RUNNING, "started")

    def sleep(seconds: float) -> None:
        raise AssertionError("it waits")

    with spool.held("a1"):
        assert start(made, tmp_path, "result()", one, sleep=sleep).state is State.RUNNING


@pytest.mark.parametrize("where", [State.DONE, State.SUBMITTED, State.GIVEN_UP])
def test_one_that_is_no_longer_to_be_done_is_left_alone(made: Made, tmp_path: Path, where: State) -> None:
    one = put(made[1], "a1")
    lines: list[str] = []
    made[1].move(one, where)
    start(made, tmp_path, "raise SystemExit", one, say=lines.append)
    assert state(made[1]) is where and str(where) in lines[0]


def dead_holder(spool: Spool, assignment_id: str, age: float) -> None:
    """A claim whose holder's process is gone."""
    me = replace(claims.myself({}), pid=2**22 - 3, started="1")
    claim = claims.take(spool.places.assignment_claim(assignment_id), stale=1, me=me)
    os.utime(claim.path, (time.time() - age, time.time() - age))


def test_a_dead_holder_is_waited_for_and_what_he_left_is_settled_first(made: Made, tmp_path: Path) -> None:
    _workspace, spool = made
    one = spool.move(replace(put(spool, "a1"), handed=Handed("6_0", "x", "slurm", 1.0)), State.RUNNING, "started")
    dead_holder(spool, "a1", age=0.0)
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        time.sleep(seconds)

    moved = start(made, tmp_path, "result()", one, sleep=sleep)
    assert moved.state is State.DONE and moved.attempts == 1 and waits
    assert [event.cause for event in moved.history] == ["", "killed", "", ""]


def test_a_result_that_a_dead_holder_had_finished_is_not_lost(made: Made, tmp_path: Path) -> None:
    spool = made[1]
    one = spool.move(put(spool, "a1"), State.RUNNING, "started")
    (one.folder / "result.json").write_text(json.dumps(
        {"assignment_id": "a1", "outcome": "completed", "module": "example", "payload": {"score": 9.0}}))
    dead_holder(spool, "a1", age=60.0)
    moved = start(made, tmp_path, "raise SystemExit(1)", one)
    assert moved.state is State.DONE and moved.attempts == 0


def test_who_loses_the_claim_writes_nothing_more(made: Made, tmp_path: Path) -> None:
    _workspace, spool = made
    one = put(spool, "a1")
    folder = spool.places.assignment_claim("a1")

    def take_over() -> None:
        while not (tmp_path / "go").exists():
            time.sleep(0.02)
        latest = max(folder.glob("g*.json"))
        (folder / "g000099.json").write_bytes(latest.read_bytes())

    thread = threading.Thread(target=take_over)
    thread.start()
    left = start(made, tmp_path, f"Path({str(tmp_path / 'go')!r}).touch(); time.sleep(600)", one)
    thread.join()
    assert left.state is State.RUNNING is state(spool) and len(left.history) == 1


def test_a_full_disk_leaves_it_to_be_settled(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace, spool = made
    one = put(spool, "a1")
    lines: list[str] = []

    def full(*_: object, **__: object) -> Assignment:
        from automate.errors import StorageError
        raise StorageError("can't move", where=str(one.folder))

    at = place(workspace, tmp_path / "scratch", python("result()"), say=lines.append)
    monkeypatch.setattr(outcomes, "conclude", full)
    assert do_all(["a1"], spool, at) == {} and state(spool) is State.RUNNING
    assert "can't move" in lines[0]
    assert claims.holder_of(spool.places.assignment_claim("a1")) is None


def test_an_environment_that_is_not_there_is_no_fault_of_the_submission(made: Made, tmp_path: Path) -> None:
    workspace, spool = made
    one = put(spool, "a1")

    def missing(*_: object) -> tuple[list[str], dict[str, str]]:
        from automate.errors import ModuleEnvironmentError
        raise ModuleEnvironmentError("the environment is missing", todo="build it")

    at: Place = place(workspace, tmp_path / "scratch", missing)
    moved = run_one(one, spool, at)
    assert (moved.state, moved.cause, moved.attempts) == (State.FETCHED, "environment", 1)
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_program_that_is_not_there_says_which(made: Made, tmp_path: Path) -> None:
    workspace, spool = made
    at = place(workspace, tmp_path / "scratch", lambda *_: (["/no/such/python"], {}))
    moved = run_one(put(spool, "a1"), spool, at)
    assert moved.state is State.FETCHED and "/no/such/python" in moved.history[-1].what


# --- logs --------------------------------------------------------------------------------------------
def test_a_log_is_capped_and_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    log = CappedLog(tmp_path / "logs" / "x.log", most=4000)
    for number in range(2000):
        log.write(f"line {number}\n".encode())
    log.close()
    text = (tmp_path / "logs" / "x.log").read_text()
    assert len(text) <= 4100 and text.startswith("line 0\n") and text.endswith("line 1999\n")
    assert text.count("left out") == 1


def test_a_log_is_cleaned_also_where_a_secret_comes_in_pieces(tmp_path: Path) -> None:
    log = CappedLog(tmp_path / "x.log", clean=lambda text: text.replace(SECRET, "[removed]"))
    for piece in (SECRET[:5], SECRET[5:] + "\nnext", " line"):
        log.write(piece.encode())
    log.close()
    assert (tmp_path / "x.log").read_text() == "[removed]\nnext line"


def test_the_signals_of_a_job_are_listened_to(monkeypatch: pytest.MonkeyPatch) -> None:
    from automate.validation.jobs import task

    handlers: dict[int, Any] = {}
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    stop = Stop()
    task.listen(stop)
    handlers[signal.SIGUSR2](signal.SIGUSR2, None)
    handlers[signal.SIGTERM](signal.SIGTERM, None)
    assert stop.why == outcomes.TIME_LIMIT
