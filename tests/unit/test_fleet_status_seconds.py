"""Every second of a fleet's servers counts once, by its start's own record, whatever the registry holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from automate.arena.running.gpu_hours import usage_of_servers
from automate.claims import no_jobs
from automate.fleets.eye import Eye
from automate.fleets.status import fleet_status, status_of
from automate.serving.fleet.records import Spent
from tests.unit.fleet_support import NOW, folder_of, job, lay, record, run, seen, spec


def test_seconds_are_those_of_the_starts_own_records() -> None:
    """Whatever a registration claims: a worker's start counts once, and one that wrote nothing down not at all."""
    told = status_of(spec(), [job(1)], seen(record(1, spent=Spent(1e6, 1e6, 1e6))), [run(1)], NOW)
    assert told.spent.total == 3590.0 and told.workers[0].age == 3598.0
    assert status_of(spec(), [job(1)], seen(record(1)), [], NOW).spent == Spent()


def test_the_last_start_of_a_server_that_waits_again_is_shown_and_counted() -> None:
    ended = run(1, phase="ended", why="time limit", ended=NOW - 60)
    found = status_of(spec(), [job(1, "PENDING", reason="Priority")], {}, [ended], NOW)
    assert [(row.state, row.note, row.spent.total) for row in found.workers] == [
        ("waiting", "Priority", 0.0), ("ended", "time limit", 3590.0)]
    assert found.spent.total == found.gpu_seconds == 3590.0 and found.failures == ()
    again = run(1, id="w2", started=NOW - 50, spent={"load": 50.0})
    found = status_of(spec(), [job(1)], {}, [ended, again], NOW)
    assert found.spent.total == 3640.0 and [row.state for row in found.workers] == ["ready", "ended"]


def test_a_campaigns_fleet_that_was_made_anew_keeps_its_past() -> None:
    old = run(9, phase="ended", gpus=2, spent={"load": 60.0, "work": 40.0})
    found = status_of(spec(campaign="20240101_000000"), [job(1)], seen(record(1)), [old, run(1)], NOW)
    assert [row.job for row in found.workers] == ["700_1"]
    assert (found.earlier, found.spent.total) == (Spent(60.0, 40.0), 3690.0)
    assert found.gpu_seconds == 3590.0 + 2 * 100.0 and found.models[0].spent.total == 3590.0
    assert sum(found.shares.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("more", [{"version": "0.9"}, {"model": "x"}, {"fleet": "f0"}, {"time": NOW + 500}])
def test_copies_of_a_record_are_no_workers(tmp_path: Path, more: dict[str, Any]) -> None:
    """Whatever they say: not ready, without seconds, and nobody is told to end the good worker's job."""
    places = folder_of(tmp_path)
    lay(places, record(1, beat=701))
    for number in (2, 3):
        lay(places, record(1, id=f"copy{number}", spent=Spent(1e6), **more))
    found = fleet_status(places, spec(), [job(1)], None, NOW, job_alive=no_jobs)
    assert (found.ready, found.spent.total, found.models[0].states) == (1, 3590.0, {"ready": 1, "refused": 2})
    assert [row.spent.total for row in found.workers] == [3590.0, 0.0, 0.0]
    assert [one.kind for one in found.failures] == ["refused", "refused"]
    assert all("scancel" not in one.todo and "workers/copy" in one.todo for one in found.failures)


def test_a_copy_is_seen_whichever_way_round(tmp_path: Path) -> None:
    """The record that beats is the worker's, also where it is read after its copy."""
    places = folder_of(tmp_path)
    lay(places, record(1, beat=701))
    lay(places, record(1, id="a-copy"))
    now = [1000.0]
    eye = Eye(places, clock=lambda: now[0])
    for beat in (702, 703):
        found = fleet_status(places, spec(), [job(1)], None, NOW, eye, no_jobs)
        assert {row.worker: row.state for row in found.workers} == {"w1": "ready", "a-copy": "refused"}
        now[0] += 100.0
        lay(places, record(1, beat=beat))


def test_a_record_that_is_not_used_takes_no_start_by_naming_its_job() -> None:
    stray = seen(record(1, id="stray", nonce="own"), why="it runs flock-hpc 0.9")
    loading = run(1, phase="loading", spent={"load": 60.0})
    found = status_of(spec(), [job(1)], stray, [loading], NOW)
    assert {row.state: row.spent.total for row in found.workers} == {"loading": 60.0, "refused": 0.0}
    assert "scancel" not in found.failures[0].todo


def test_a_worker_of_another_version_keeps_its_own_seconds() -> None:
    found = status_of(spec(), [job(1)], seen(record(1), why="it runs flock-hpc 0.9"), [run(1)], NOW)
    row, = found.workers
    assert (row.state, row.spent.total, found.ready, found.spent.total) == ("refused", 3590.0, 0, 3590.0)
    assert "scancel 700_1" in found.failures[0].todo


def test_the_monitor_and_the_gpu_hours_count_the_same() -> None:
    """A start of an earlier fleet, one whose server waits again, one that lives, copies in the registry."""
    def told(task: int, seconds: float, **more: Any) -> dict[str, Any]:
        spent = {"load": 10.0, "work": seconds - 10.0}
        return run(task, seconds=seconds, spent=spent, started=NOW - 5 - seconds, **more)

    runs = [told(9, 500.0, phase="ended", gpus=4), told(1, 400.0, phase="ended", why="time limit"), told(2, 300.0)]
    workers = {**seen(record(2)), **seen(record(2, id="copy", spent=Spent(1e6)), why="it runs flock-hpc 0.9")}
    found = status_of(spec(campaign="20240101_000000"), [job(1, "PENDING"), job(2)], workers, runs, NOW)
    assert found.gpu_seconds == pytest.approx(4 * 500.0 + 400.0 + 300.0)
    assert usage_of_servers(runs, frozenset(), 0.0, NOW).used * 3600 == pytest.approx(found.gpu_seconds)
