"""Fleets on the screen: fits any terminal, says what the records say, obeys nothing that they hold; the monitor's
section reads the fleet's folder alone."""

from __future__ import annotations

import io
import json
import os
import time
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from rich.cells import cell_len
from rich.console import Console

from automate.campaign.demo import make_demo
from automate.campaign.monitoring.monitor import Watch, snapshot
from automate.cli.views.cells import clean
from automate.cli.views.dashboard import view
from automate.cli.views.fleets import fleet_lines, fleet_table
from automate.cli.views.marks import ASCII, UNICODE, Marks
from automate.cli.views.monitor_text import lines, short_line
from automate.cluster.local.executor import LocalQueue
from automate.cluster.submit import Submission, SubmissionBook
from automate.fleet_places import FleetPlaces
from automate.fleets.status import FleetStatus, status_of
from automate.serving.fleet.records import FleetSpec, Wish
from automate.workspace import Workspace, open_workspace
from tests.unit.fleet_support import JUDGE, NOW, group, job, record, run, seen, spec
from tests.unit.monitor_support import HOSTILE, picture


def busy() -> FleetStatus:
    """Two models, and workers in every state."""
    two = spec(group(least=2, most=8), group(2, "llama-8b", also=("a", "b"), least=1, most=1))
    jobs = [job(1), job(2), job(3), job(4, "PENDING", reason="Priority"), job(5, group=2), job(6), job(7, "FAILED")]
    workers = {**seen(record(1)), **seen(record(2), "silent", 42.0), **seen(record(3, state="draining"))}
    runs = [run(1), run(2), run(3), run(5, phase="loading", started=NOW - 100, spent={"load": 100}),
            run(7, phase="ended", error="the judge server died: CUDA out of memory")]
    return status_of(two, jobs, workers, runs, NOW, wish=Wish({1: 5}), router="http://127.0.0.1:8100",
                     users={"engine": 1})


def hostile() -> FleetStatus:
    """Names and causes that a terminal would obey."""
    bad = HOSTILE[0]
    jobs = [job(task, reason=text) for task, text in enumerate(HOSTILE, 1)]
    workers = {worker: one for task, text in enumerate(HOSTILE[:-2], 1)
               for worker, one in seen(record(task, model=text, node=text), why=text).items()}
    runs = [run(9, phase="ended", error=text, node=text) for text in HOSTILE]
    return status_of(spec(group(model=bad, also=HOSTILE), name=bad), jobs, workers, runs, NOW, router=HOSTILE[1],
                     problems=HOSTILE)


@pytest.mark.parametrize("width", [20, 40, 60, 80, 140, 250])
@pytest.mark.parametrize("marks", [UNICODE, ASCII], ids=["unicode", "ascii"])
@pytest.mark.parametrize("status", [busy(), hostile(), status_of(spec(), [], {}, [], NOW)],
                         ids=["busy", "hostile", "empty"])
def test_no_line_is_wider_than_the_terminal_or_obeyed_by_it(status: FleetStatus, marks: Marks, width: int) -> None:
    for line in fleet_lines(status, width, marks):
        assert cell_len(line.plain) <= width
        assert clean(line.plain) == line.plain and "\x1b" not in line.plain


def test_the_table_says_what_the_records_say() -> None:
    console = Console(file=io.StringIO(), width=140)
    console.print(fleet_table(busy()))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    first = text.split("\n")[0]
    for word in ("Fleet main: up", "1 of 6 servers ready", "used by 1 engine", "http://127.0.0.1:8100"):
        assert word in first, word
    for word in ("waiting", "loading", "ready", "draining", "silent", "ended", "44%", "2:00:02", "Priority",
                 "no heartbeat for 42 s", "work 83%", "CUDA out of memory", "GPU-hours"):
        assert word in text, word
    assert "judge-70b: 1 of 5 ready, 1 waiting, 1 loading, 1 draining, 1 silent (between 2 and 8)" in text


def test_a_narrow_terminal_keeps_job_state_requests_and_time_left() -> None:
    text = "\n".join(line.plain for line in fleet_lines(busy(), 60))
    assert all(word in text for word in ("job", "state", "running", "left", "2:00:02")) and "node  " not in text


def test_many_ended_starts_are_counted_not_listed() -> None:
    jobs = [job(task, "COMPLETED") for task in range(1, 31)]
    status = status_of(spec(), jobs, {}, [run(task, phase="ended", why="idle") for task in range(1, 31)], NOW)
    text = "\n".join(line.plain for line in fleet_lines(status, 100))
    assert "and 25 more that ended" in text and text.count("  idle") == 5


def test_many_failures_are_counted_not_listed() -> None:
    jobs = [job(task, "FAILED") for task in range(1, 31)]
    status = status_of(spec(), jobs, {}, [run(task) for task in range(1, 31)], NOW)
    text = "\n".join(line.plain for line in fleet_lines(status, 100))
    assert len(status.failures) == 30 and "and 24 more failures" in text


def test_a_fleet_that_stops_wants_no_servers() -> None:
    status = status_of(spec(), [job(1)], seen(record(1)), [], NOW, wish=Wish(stop=True))
    assert "judge-70b: 1 ready" in "\n".join(line.plain for line in fleet_lines(status, 100))


def test_the_past_of_a_campaigns_fleet_is_told_apart() -> None:
    old = run(9, phase="ended", spent={"load": 60.0, "work": 60.0})
    status = status_of(spec(campaign="20240101_000000"), [job(1)], seen(record(1)), [old, run(1)], NOW)
    assert "(2 min of it before the fleet was made anew)" in "\n".join(line.plain for line in fleet_lines(status, 140))


def test_a_fleet_that_is_over_is_used_by_nobody() -> None:
    status = status_of(spec(), [job(1, "COMPLETED")], {}, [run(1, phase="ended")], NOW, users={"engine": 2})
    assert status.state == "over" and "used by" not in "\n".join(line.plain for line in fleet_lines(status, 140))


def test_a_worker_that_is_not_used_is_not_ready() -> None:
    status = status_of(spec(), [job(1)], seen(record(1), why="it runs flock-hpc 0.9"), [run(1)], NOW)
    text = "\n".join(line.plain for line in fleet_lines(status, 100))
    assert "0 of 4 servers ready" in text and "1 refused" in text and "worker w1 on c1: not used" in text


# --- in the monitor -----------------------------------------------------------------------------------
def test_the_live_view_has_a_block_for_each_fleet() -> None:
    snap = picture(fleets=(busy(), replace(busy(), name="other", state="over")))
    for width, height in ((80, 24), (140, 50), (200, 60)):
        shown = [line.plain for line in view(snap, width, height, UNICODE)]
        assert len(shown) <= height and all(cell_len(line) <= width for line in shown)
        text = "\n".join(shown)
        assert "Fleet main: up" in text and "Fleet other: over" in text and "work 83%" in text
    assert "fleet main: 1 of 6 ready" in short_line(snap) and "fleet other" not in short_line(snap)


@pytest.mark.parametrize(("width", "height"), [(40, 10), (80, 24), (149, 40), (200, 50)])
def test_hostile_fleets_keep_to_the_screen(width: int, height: int) -> None:
    snap = picture(fleets=(hostile(), hostile()))
    shown = [line.plain for line in view(snap, width, height, ASCII)]
    assert len(shown) <= height
    for line in [*shown, *lines(snap, width), short_line(snap)]:
        assert clean(line) == line
    assert all(cell_len(line) <= width for line in [*shown, *lines(snap, width)])


def test_the_text_shows_workers_of_a_fleet_that_lives_and_totals_of_one_that_is_over() -> None:
    text = "\n".join(lines(picture(fleets=(busy(),)), 100))
    assert "700_4" in text and "work 83%" in text
    text = "\n".join(lines(picture(fleets=(replace(busy(), state="over"),)), 100))
    assert "700_4" not in text and "work 83%" in text


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    make_demo(tmp_path / "ws")
    return open_workspace(tmp_path / "ws")


def make(workspace: Workspace, *, state: str = "RUNNING", **more: object) -> tuple[FleetPlaces, FleetSpec]:
    """A fleet on disk with one worker, in the local queue."""
    made = replace(spec(executor="local", created=time.time()), **more)  # type: ignore[arg-type]
    places = FleetPlaces(workspace.root, made.name)
    for folder in (places.workers, places.runs, places.users):
        folder.mkdir(parents=True)
    places.spec.write_bytes(orjson.dumps(made.as_json()))
    places.wish.write_bytes(orjson.dumps(Wish({1: 2}).as_json()))
    SubmissionBook(places.submissions).save(Submission("s1", made.id, "name", "script", "local", {0: 1}, True,
                                                       job="local-9"))
    queue = LocalQueue(workspace.local_queue)
    queue.save({"job": "local-9_0", "name": "name", "script": "s", "state": state, "submitted": time.time(), "pid": 1,
                "started": time.time(), "host": os.uname().nodename, "after": None, "restarts": 0, "workdir": "/"})
    beat(places, 1)
    (places.runs / "r1.json").write_bytes(orjson.dumps(run(1, id="r1", job="local-9_0")))
    return places, made


def beat(places: FleetPlaces, number: int) -> None:
    worker = record(1, job="local-9_0", beat=number)
    (places.workers / "w1.json").write_bytes(orjson.dumps(worker.as_json()))


def test_the_monitor_reads_the_fleets_folder(workspace: Workspace) -> None:
    make(workspace)
    data = json.loads(json.dumps(snapshot(workspace).as_json()))
    fleet, = data["fleets"]
    assert (fleet["name"], fleet["models"][0]["model"], fleet["models"][0]["wanted"]) == ("main", JUDGE, 2)
    worker, = fleet["workers"]
    assert (worker["worker"], worker["job"], worker["running"]) == ("w1", "local-9_0", 28.0)
    assert fleet["spent"] == {"load": 300.0, "work": 2990.0, "idle": 300.0} and fleet["shares"]["load"] > 0


def test_a_worker_whose_heartbeat_does_not_rise_is_silent_by_the_readers_clock(workspace: Workspace,
                                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the file's time says: its clock may be another's."""
    from automate.fleets import eye

    now = [1000.0]
    places, made = make(workspace)
    one = eye.Eye(places, clock=lambda: now[0])
    assert one.workers(made, [])["w1"].life == "alive"
    now[0] += made.stale + 1
    assert one.workers(made, [])["w1"].life == "silent"
    beat(places, 2)
    os.utime(places.workers / "w1.json", (5, 5))
    assert one.workers(made, [])["w1"].life == "alive"


def test_a_worker_of_another_version_or_fleet_is_said(workspace: Workspace) -> None:
    places, _ = make(workspace)
    for more, word in (({"version": "0.9"}, "0.9"), ({"fleet": "f0"}, "another fleet"), ({"model": "x"}, "serves x")):
        worker = record(1, job="local-9_0", **more)
        (places.workers / "w1.json").write_bytes(orjson.dumps(worker.as_json()))
        failures = snapshot(workspace).fleets[0].failures
        assert [one.kind for one in failures] == ["refused"] and word in failures[0].cause


def test_what_cant_be_read_is_a_problem_and_nothing_is_changed(workspace: Workspace) -> None:
    places, _ = make(workspace)
    (places.workers / "w2.json").write_bytes(b"{ torn")
    (places.home.parent / "odd").mkdir()
    (places.home.parent / "odd" / "fleet.json").write_bytes(b'{"name": "odd"}')
    before = {path: path.stat().st_mtime_ns for path in places.home.rglob("*") if path.is_file()}
    snap = snapshot(workspace)
    assert any("w2.json" in problem for problem in snap.fleets[0].problems)
    assert any("odd" in problem for problem in snap.problems)
    assert before == {path: path.stat().st_mtime_ns for path in places.home.rglob("*") if path.is_file()}


def test_a_fleet_that_is_over_is_shown_only_where_it_was_a_campaigns(workspace: Workspace) -> None:
    places, made = make(workspace, state="COMPLETED")
    (places.workers / "w1.json").unlink()
    assert snapshot(workspace).fleets == ()
    places.spec.write_bytes(orjson.dumps(replace(made, campaign="20240101_000000").as_json()))
    watch = Watch(lambda: workspace, strict=True)
    fleet, = watch.look().fleets
    assert fleet.state == "over" and fleet.spent.total > 0
    assert watch.look().fleets == (fleet,)
    SubmissionBook(places.submissions).save(Submission("s2", made.id, "name", "script", "local", {0: 1}, True,
                                                       job="local-10"))
    assert len(watch.look().fleets[0].workers) == 2, "a fleet that goes on is looked at again"
