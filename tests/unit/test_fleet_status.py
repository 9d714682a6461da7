"""How a fleet stands: a state for each worker, times that add up, failures with their causes."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from automate.claims import no_jobs
from automate.fleets.eye import Eye
from automate.fleets.status import FleetStatus, fleet_status, status_of
from automate.fleets.trouble import KINDS
from automate.serving.fleet.records import Spent, Wish
from automate.serving.fleet.registry import use
from tests.unit.fleet_registry_support import Jobs, dead, elsewhere
from tests.unit.fleet_support import JUDGE, NOW, Job, folder_of, group, job, lay, record, run, seen, spec


def states(status: FleetStatus) -> dict[str | None, str]:
    return {row.job: row.state for row in status.workers}


def test_every_worker_has_the_state_that_it_is_in() -> None:
    jobs = [job(1), job(2), job(3), job(4, "PENDING", reason="Priority"), job(5), job(6), job(7, "UNKNOWN"),
            job(8, "COMPLETED")]
    workers = {**seen(record(1)), **seen(record(2, state="draining")), **seen(record(3), "silent", 42.0)}
    runs = [run(1), run(5, phase="loading", spent={}), run(8, phase="ended", why="idle", ended=NOW - 60)]
    found = status_of(spec(), jobs, workers, runs, NOW)
    assert states(found) == {"700_1": "ready", "700_2": "draining", "700_3": "silent", "700_4": "waiting",
                             "700_5": "loading", "700_6": "loading", "700_7": "unknown", "700_8": "ended"}
    assert [row.state for row in found.workers][-1] == "ended"
    notes = {row.job: row.note for row in found.workers}
    assert notes["700_3"] == "no heartbeat for 42 s" and notes["700_4"] == "Priority" and notes["700_8"] == "idle"


def test_the_time_of_all_servers_is_told_apart() -> None:
    ended = run(2, phase="ended", ended=NOW - 60, spent={"load": 100.0, "work": 50.0, "idle": 250.0})
    one = run(1, spent={"load": 300.0, "work": 3000.0, "idle": 300.0})
    found = status_of(spec(), [job(1), job(2, "COMPLETED")], seen(record(1)), [one, ended], NOW)
    assert found.spent == Spent(load=400.0, work=3050.0, idle=550.0)
    assert found.shares == pytest.approx({"load": 0.1, "work": 0.7625, "idle": 0.1375})
    assert sum(found.shares.values()) == pytest.approx(1.0)
    assert found.gpu_seconds == found.spent.total == found.models[0].spent.total


def test_a_server_on_four_gpus_counts_four_times() -> None:
    """As its start says, else as its group: somebody may have changed that since."""
    found = status_of(spec(group(gpus=1)), [job(1)], {}, [run(1, gpus=4)], NOW)
    assert found.gpu_seconds == 4 * found.spent.total == 4 * 3590.0
    found = status_of(spec(group(gpus=4)), [job(1)], {}, [run(1, gpus=None)], NOW)
    assert found.gpu_seconds == 4 * found.spent.total == 4 * 3590.0


def test_files_that_are_no_workers_records_are_said(tmp_path: Path) -> None:
    places = folder_of(tmp_path)
    lay(places, record(1))
    (places.workers / "other.json").write_bytes((places.workers / "w1.json").read_bytes())
    (places.workers / "notes.txt").write_text("remember")
    (places.workers / "link.json").symlink_to(places.workers / "w1.json")
    found = fleet_status(places, spec(), [job(1)], None, NOW, job_alive=no_jobs)
    assert (found.ready, len(found.workers), len(found.problems)) == (1, 1, 3)
    for word in ("other.json: holds the record of a worker of another name (w1)", "notes.txt", "link.json"):
        assert any(word in problem for problem in found.problems), word


def test_silent_workers_on_a_full_file_system_are_not_taken_for_dead_nodes(tmp_path: Path,
                                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    places, now = folder_of(tmp_path), [1000.0]
    lay(places, record(1))
    eye = Eye(places, clock=lambda: now[0])
    fleet_status(places, spec(), [job(1)], None, NOW, eye, no_jobs)
    now[0] += 100
    plain, = fleet_status(places, spec(), [job(1)], None, NOW, eye, no_jobs).failures
    assert plain.kind == "silent" and "write" in plain.todo and "node may come back" not in plain.todo

    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("automate.fleets.eye.os.write", full)
    failure, = fleet_status(places, spec(), [job(1)], None, NOW, eye, no_jobs).failures
    assert "No space left on device" in failure.cause and "make room" in failure.todo
    assert sorted(path.name for path in places.home.iterdir()) == ["runs", "users", "workers"]


@pytest.mark.parametrize(("who", "job_id", "words"), [
    ("SIGINT", None, "ended with the engine that it stood beside"), ("SIGTERM", "700_1", "told to end (SIGTERM)")])
def test_the_name_of_a_signal_is_put_into_words(who: str, job_id: str | None, words: str) -> None:
    ended = run(1, job=job_id, phase="ended", why=who)
    row = status_of(spec(), [job(1, "CANCELLED")] if job_id else [], {}, [ended], NOW).workers[0]
    assert (row.state, row.note, row.why) == ("ended", words, words)


def test_a_job_that_was_just_cancelled_is_no_riddle_and_no_failure() -> None:
    """Neither in the queue any more nor in accounting yet; one of which nobody could be asked stays unknown."""
    found = status_of(spec(), [job(1, "UNKNOWN", evidence="neither squeue nor sacct knows it", gone=True)], {}, [], NOW)
    row, = found.workers
    assert (row.state, row.note) == ("ended", "cancelled, or lost by Slurm, before its server was started")
    assert found.failures == () and found.state == "over"
    row, = status_of(spec(), [job(1, "UNKNOWN", evidence="squeue failed")], {}, [], NOW).workers
    assert (row.state, row.note) == ("unknown", "squeue failed")


def test_ages_take_no_clock_of_another_machine() -> None:
    """A worker whose clock is a day ahead is as old, and has as much time left, as any other."""
    ahead = record(1, since=NOW - 3600 + 86_400, time=NOW + 86_400, until=NOW + 7200 + 86_400)
    row, = status_of(spec(), [job(1)], seen(ahead, silence=5.0), [], NOW).workers
    assert row.age == pytest.approx(3605.0) and row.left == pytest.approx(7195.0)


def test_cache_hits_are_a_share() -> None:
    one, = status_of(spec(), [], seen(record(1)), [], NOW).workers
    none, = status_of(spec(), [], seen(record(1, prefix_queries=0.0)), [], NOW).workers
    assert one.prefix_hits == pytest.approx(0.44) and none.prefix_hits is None


def test_models_say_what_is_wanted_and_what_is_there() -> None:
    two = spec(group(least=2, most=8), group(2, "llama-8b", also=("a", "b"), least=1, most=1))
    jobs = [job(1), job(2, "PENDING"), job(3, group=2)]
    found = status_of(two, jobs, seen(record(1)), [], NOW, wish=Wish({1: 3}))
    judge, other = found.models
    assert (judge.wanted, judge.ready, judge.states) == (3, 1, {"waiting": 1, "ready": 1})
    assert (other.wanted, other.ready, other.states, other.also) == (1, 0, {"loading": 1}, ("a", "b"))
    assert (found.wanted, found.ready, found.state) == (4, 1, "up")


def test_a_fleet_stops_and_is_over() -> None:
    stop = Wish(stop=True)
    assert status_of(spec(), [job(1)], seen(record(1, state="draining")), [], NOW, wish=stop).state == "stopping"
    over = status_of(spec(), [job(1, "COMPLETED")], {}, [run(1, phase="ended", why="stopped")], NOW, wish=stop)
    assert over.state == "over" and over.wanted == 0 and over.failures == ()
    assert status_of(spec(), [], {}, [], NOW).state == "up"


@pytest.mark.parametrize(("kind", "jobs", "workers", "runs"), [
    ("refused", [job(1)], seen(record(1), why="its server is of version 0.9"), []),
    ("silent", [job(1)], seen(record(1), "silent", 90.0), []),
    ("not_registered", [job(1)], {}, [run(1)]),
    ("server", [job(1, "FAILED")], {}, [run(1, phase="ended", error="CUDA out of memory\n  -> less", why="error")]),
    ("node", [job(1, "NODE_FAIL")], {}, [run(1)]),
    ("killed", [job(1, "FAILED")], {}, [run(1)]),
    ("host_memory", [job(1, "OUT_OF_MEMORY")], {}, [run(1)]),
    ("script", [job(1, "FAILED")], {}, []),
])
def test_a_failure_has_its_class_and_a_next_step(kind: str, jobs: list[Job], workers: Any, runs: Any) -> None:
    failure, = status_of(spec(), jobs, workers, runs, NOW).failures
    assert failure.kind == kind and kind in KINDS
    assert failure.cause and failure.todo and failure.job == "700_1" and "\n" not in failure.cause


@pytest.mark.parametrize("state", ["CANCELLED", "TIMEOUT", "PREEMPTED"])
def test_what_was_asked_for_is_no_failure(state: str) -> None:
    assert status_of(spec(), [job(1, state)], {}, [run(1)], NOW).failures == ()
    assert status_of(spec(), [job(1, "PENDING"), job(2)], {}, [run(2, phase="loading")], NOW).failures == ()


def test_starts_of_an_earlier_fleet_of_this_name_are_left_out() -> None:
    found = status_of(spec(), [job(1)], seen(record(1)), [run(1), run(9, phase="ended", error="CUDA")], NOW)
    assert [row.job for row in found.workers] == ["700_1"] and found.failures == ()


def test_a_server_beside_the_engine_has_no_job_and_counts() -> None:
    """Its start carries no job: it is told by its name, as it loads, serves and ends."""
    loading = run(1, job=None, phase="loading", spent={"load": 60.0}, started=NOW - 60, updated=NOW - 2)
    row, = status_of(spec(), [], {}, [loading], NOW).workers
    assert (row.state, row.job, row.spent.load) == ("loading", None, 60.0)
    status = status_of(spec(), [], seen(record(1, job=None)), [run(1, job=None)], NOW, wish=Wish({1: 3}))
    row, = status.workers
    assert (row.state, row.spent.total, status.ready, status.wanted) == ("ready", 3590.0, 1, 4)
    ended = run(1, job=None, phase="ended", why="idle")
    row, = status_of(spec(), [], {}, [ended], NOW).workers
    assert (row.state, row.spent.total) == ("ended", 3590.0)
    old = run(1, job=None, phase="ended", started=NOW - 90_000)
    assert status_of(spec(), [], {}, [old], NOW).workers == ()


def test_bounds_that_were_changed_since_are_shown() -> None:
    model, = status_of(spec(), [], {}, [], NOW, wish=Wish(bounds={1: (1, 9)})).models
    assert (model.least, model.most, model.wanted) == (1, 9, 1)


def test_a_worker_that_was_killed_is_no_worker_though_its_record_lies_there() -> None:
    for life in ("alive", "silent"):
        row, = status_of(spec(), [job(1, "FAILED")], seen(record(1), life, 5.0), [run(1)], NOW).workers
        assert row.state == "ended" and row.note == "ended without a last word (failed)"


def test_a_start_that_was_followed_by_another_is_history() -> None:
    first = run(1, id="w1a", phase="ended", error="CUDA", started=NOW - 5000, ended=NOW - 4000)
    assert status_of(spec(), [job(1)], seen(record(1)), [first, run(1)], NOW).failures == ()
    second = run(1, phase="ended", why="time limit", started=NOW - 3000)
    assert status_of(spec(), [job(1, "COMPLETED")], {}, [first, second], NOW).failures == ()


@pytest.mark.parametrize("junk", [
    {}, {"id": 3, "job": [], "spent": "much", "deaths": "many", "started": "now", "phase": None, "group": "x"},
    {"id": "w1", "job": "700_1", "spent": {"load": -5, "work": float("nan"), "idle": None}, "deaths": [1, {}]}])
def test_a_record_may_lack_anything(junk: dict[str, Any]) -> None:
    found = status_of(spec(), [job(1)], {}, [junk], NOW)
    assert found.spent == Spent() and json.dumps(asdict(found))


def test_the_folder_is_read(tmp_path: Path) -> None:
    places = folder_of(tmp_path)
    (places.runs / "w2.json").write_bytes(b"{ torn")
    places.router.write_bytes(orjson.dumps({"url": "http://127.0.0.1:8100"}))
    places.wish.write_bytes(orjson.dumps(Wish({1: 6}).as_json()))
    use(places, "engine")
    use(places, "router")
    os.utime(use(places, "engine", me=elsewhere("7")).path, (5, 5))
    found = fleet_status(places, spec(), [job(1)], seen(record(1)), NOW, job_alive=no_jobs)
    assert (found.wanted, found.router, len(found.workers)) == (6, "http://127.0.0.1:8100", 1)
    assert found.users == {"engine": 1, "router": 1}
    assert len(found.problems) == 1 and "w2.json" in found.problems[0]
    assert found.models[0].model == JUDGE


def test_engines_and_routers_that_are_known_to_be_gone_use_nothing(tmp_path: Path) -> None:
    """However young their last word is; one that nobody can tell of counts for as long as a heartbeat may be missed."""
    places = folder_of(tmp_path)
    places.router.write_bytes(orjson.dumps({"url": "http://127.0.0.1:8100"}))
    use(places, "router", me=dead())
    use(places, "engine", me=elsewhere("7"))
    lost = use(places, "engine", me=replace(elsewhere("8"), nonce="other")).path

    def look(**says: bool | None) -> FleetStatus:
        return fleet_status(places, spec(), [], {}, NOW, job_alive=Jobs(**says))

    assert look().users == {"engine": 2} and look().router is None
    assert look(j7=False, j8=True).users == {"engine": 1} and look(j7=False, j8=False).users == {}
    silent = Jobs()
    assert fleet_status(places, spec(), [], {}, NOW, job_alive=silent).users == {"engine": 2}
    assert len(silent.asked) == 1, "a Slurm that can't say is asked once"
    os.utime(lost, (5, 5))
    assert look(j7=True).users == {"engine": 1} and look(j7=True, j8=True).users == {"engine": 2}
