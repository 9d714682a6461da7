"""GPU-hours of a fleet's servers: each start counted once, and no start that limits.max_gpu_hours forbids."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from automate.arena.running.gpu_hours import Usage, by_files, of_fleets, server_may_go_on, usage_of_servers
from automate.campaign.budget import gpu_hours
from automate.campaign.fleets import working
from automate.campaign.fleets.playing import use_of
from automate.campaign.fleets.working import campaign_of, open_worker, room_for
from automate.campaign.handing import Request, hand_in
from automate.campaign.planned import plan_anew
from automate.campaign.state import CampaignState
from automate.cluster.queue import JobState
from automate.errors import StorageError
from automate.fleet_places import FleetPlaces
from automate.fleets.account import read_worker_runs
from automate.fleets.acting import Scaled, act
from automate.fleets.ending import NO_ROOM, PREEMPTED, TIME_LIMIT
from automate.fleets.handing import control
from automate.fleets.jobs import submit_workers
from automate.fleets.scaling import Decision
from automate.fleets.worker import Worker
from automate.journal import write_json
from automate.serving.fleet.records import FleetSpec, Wish
from automate.serving.fleet.registry import read_spec, write_wish
from automate.serving.server import JudgeServer
from automate.workspace import Workspace
from tests.unit.fleet_control_support import FakeCluster, make, make_spec, run_record
from tests.unit.support import make_prompts, make_settings, make_workspace

NOW = 10_000.0
AGAIN = {"kind": "requeue", "why": "time limit", "job": None}
GPU: dict[str, Any] = {"judge": {"kind": "vllm", "name": "judge"},
                       "slurm": {"time": "01:00:00", "gpus": 1, "partition": "gpu"}}
NOBODY = CampaignState((), ())


def start(job: str, minutes: float, **values: object) -> dict[str, object]:
    """A start of a server with one GPU that has lived for so long, and lives."""
    return {"job": job, "gpus": 1, "started": NOW - 60 * minutes, "updated": NOW, "seconds": 60.0 * minutes,
            "phase": "ready", **values}


def ended(job: str, minutes: float, **values: object) -> dict[str, object]:
    return start(job, minutes, phase="ended", ended=NOW, **values)


# --- one job after the other ------------------------------------------------------------------------
@pytest.mark.parametrize(("runs", "asked", "used", "reserved"), [
    ([], ["1_0", "1_1"], 0.0, 2.0),
    ([start("1_0", 15)], ["1_0"], 0.25, 0.75),
    ([start("1_0", 15, updated=NOW - 901, seconds=0)], ["1_0"], (15 * 60 - 901 + 60) / 3600, 0.0),
    ([ended("1_0", 60)], ["1_0"], 1.0, 0.0),
    ([ended("1_0", 60, next=AGAIN)], ["1_0"], 1.0, 1.0),
    ([ended("1_0", 30, next={**AGAIN, "kind": "slurm"})], ["1_0"], 0.5, 1.0),
    ([ended("1_0", 60, next={**AGAIN, "kind": "none"})], ["1_0"], 1.0, 0.0),
    ([ended("1_0", 60, next=AGAIN)], [], 1.0, 0.0),
    ([ended("1_0", 60, next=AGAIN), start("1_0", 15, restart=1)], ["1_0"], 1.25, 0.75),
    ([start("1_0", 15, restart=1), ended("1_0", 60, next=AGAIN)], ["1_0"], 1.25, 0.75),
    ([ended("1_0", 60, next=AGAIN), ended("1_0", 60, restart=1)], ["1_0"], 2.0, 0.0),
    ([start("1_0", 60, phase="draining", next=AGAIN)], ["1_0"], 1.0, 1.0),
    ([start("1_0", 30, seconds=0), start("1_0", 6, restart=1)], ["1_0"], (30 + 1 + 6) / 60, 0.9),
], ids=["waiting", "running", "silent", "over", "in the queue again", "by Slurm", "not again", "cancelled since",
        "started again", "of a node whose clock is wrong", "ended again", "about to go on", "killed and again"])
def test_every_start_is_used_up_once_and_the_newest_says_what_is_set_aside(
        runs: list[dict[str, object]], asked: list[str], used: float, reserved: float) -> None:
    found = usage_of_servers(runs, frozenset(asked), 1.0, NOW)
    assert found.used == pytest.approx(used)
    assert found.reserved == pytest.approx(reserved)


def test_nothing_is_set_aside_for_the_job_that_asks() -> None:
    asks, other = start("1_0", 60, phase="draining", next=AGAIN), start("1_1", 45)
    asked = frozenset({"1_0", "1_1"})
    assert usage_of_servers([asks, other], asked, 1.0, NOW, own="1_0") == Usage(1.75, 0.25)
    assert usage_of_servers([asks, other], asked, 1.0, NOW, own="1_1") == Usage(1.75, 1.0)
    assert usage_of_servers([], asked, 1.0, NOW, own="1_1") == Usage(0.0, 1.0)


# --- a fleet on disk --------------------------------------------------------------------------------
def fleet(root: Path, count: int = 4, **values: Any) -> tuple[FleetPlaces, FleetSpec, FakeCluster]:
    """A fleet of servers with one GPU for an hour each, handed in."""
    spec = make_spec(FleetPlaces(root, "main"), count, count, **values)
    spec = replace(spec, groups=tuple(replace(one, gpus=1, time_limit=3600.0) for one in spec.groups))
    cluster = FakeCluster()
    places, _ = make(root, cluster, spec)
    return places, spec, cluster


def test_servers_that_were_given_back_in_the_queue_hold_nothing(tmp_path: Path) -> None:
    places, spec, cluster = fleet(tmp_path)
    assert of_fleets(tmp_path, "judge", NOW) == Usage(0.0, 4.0)
    act(places, spec, cluster, spec.groups[0], Decision(1, cancel=("1_1", "1_2", "1_3")), by="user", done=Scaled())
    assert of_fleets(tmp_path, "judge", NOW) == Usage(0.0, 1.0)
    run_record(places, "1_0", gpus=1, started=NOW - 900, updated=NOW, phase="ready")
    assert of_fleets(tmp_path, "judge", NOW) == Usage(0.25, 0.75)
    with control(places, cluster):
        submit_workers(places, spec, cluster, spec.groups[0], 1, by="engine")
    assert of_fleets(tmp_path, "judge", NOW) == Usage(0.25, 1.75)
    write_wish(places, Wish(stop=True))
    assert of_fleets(tmp_path, "judge", NOW) == Usage(0.25, 0.75)


def test_a_server_cancelled_while_it_waits_for_another_start_holds_nothing(tmp_path: Path) -> None:
    places, _, _ = fleet(tmp_path, 1)
    run_record(places, "1_0", gpus=1, started=NOW - 3600, updated=NOW, ended=NOW, next=AGAIN)
    assert of_fleets(tmp_path, "judge", NOW) == Usage(1.0, 1.0)
    write_wish(places, Wish({1: 0}, dropped=("1_0",)))
    assert of_fleets(tmp_path, "judge", NOW) == Usage(1.0, 0.0)


def test_what_a_fleet_was_before_it_was_made_anew_is_used_and_holds_nothing(tmp_path: Path) -> None:
    places, _, cluster = fleet(tmp_path, 1)
    run_record(places, "1_0", gpus=1, started=NOW - 900, updated=NOW, seconds=900, phase="ready")  # killed just now
    cluster.set_all(JobState.FAILED)
    spec = make_spec(places, 1, 1, fleet_id="two")
    spec = replace(spec, groups=tuple(replace(one, gpus=1, time_limit=3600.0) for one in spec.groups))
    make(tmp_path, cluster, spec)
    usage = of_fleets(tmp_path, "judge", NOW)
    assert usage.used == pytest.approx(0.25)
    assert usage.reserved == pytest.approx(1.0)


def test_a_job_that_died_before_its_first_word_holds_nothing_after_a_while(tmp_path: Path) -> None:
    places, _, _ = fleet(tmp_path, 2)
    log = places.logs / "worker-1_1_0.out"
    log.touch()
    os.utime(log, (NOW, NOW))
    assert of_fleets(tmp_path, "judge", NOW + 60) == Usage(0.0, 2.0)
    assert of_fleets(tmp_path, "judge", NOW + 1000) == Usage(0.0, 1.0)


# --- one more start ---------------------------------------------------------------------------------
def capped(root: Path, cap: float | None) -> Workspace:
    return make_workspace(root, **GPU, limits={"max_gpu_hours": cap})


@pytest.mark.parametrize(("cap", "may"), [(None, True), (2.0, True), (1.99, False), (1.0, False)])
def test_a_server_goes_on_only_where_a_whole_start_fits(tmp_path: Path, cap: float | None, may: bool) -> None:
    places, spec, _ = fleet(tmp_path, 1)
    run_record(places, "1_0", gpus=1, started=NOW - 3600, updated=NOW, phase="draining", next=AGAIN)
    assert server_may_go_on(capped(tmp_path, cap), spec.groups[0], own="1_0", now=NOW) is may


def test_of_two_servers_for_the_last_place_not_both_go_on(tmp_path: Path) -> None:
    places, spec, _ = fleet(tmp_path, 2)
    for job in ("1_0", "1_1"):
        run_record(places, job, gpus=1, started=NOW - 3600, updated=NOW, phase="draining", next=AGAIN)
    for job in ("1_0", "1_1"):
        assert not server_may_go_on(capped(tmp_path, 3), spec.groups[0], own=job, now=NOW)
        assert server_may_go_on(capped(tmp_path, 4), spec.groups[0], own=job, now=NOW)


def test_one_without_a_gpu_always_goes_on(tmp_path: Path) -> None:
    _, spec, _ = fleet(tmp_path, 1)
    assert server_may_go_on(capped(tmp_path, 0.1), replace(spec.groups[0], gpus=0), own="1_0", now=NOW)


# --- in the server's job ----------------------------------------------------------------------------
class Loaded:
    """A server that was ready once."""

    loads = (1.0,)
    deaths = ()


def finished(root: Path, may_go_on: Callable[[], bool] | None, why: str = TIME_LIMIT) -> tuple[Worker, list[str]]:
    """A worker that came to its end for this reason, and whether its job was put into the queue again."""
    places, spec, _ = fleet(root, 1)
    queue = make_workspace(root).local_queue
    queue.mkdir(parents=True, exist_ok=True)

    async def through() -> Worker:
        one = Worker(places, spec, spec.groups[0], root / "s.sh", lambda text: None, {"FLOCK_HPC_JOB": "local-1"},
                     may_go_on=may_go_on)
        one.why, one.server = why, cast(JudgeServer, Loaded())
        assert await one._finish(None) == (0 if why == TIME_LIMIT or list(queue.iterdir()) else 143)
        return one

    return asyncio.run(through()), [path.name for path in queue.iterdir()]


@pytest.mark.parametrize("may", [None, lambda: True])
def test_a_server_that_may_go_on_is_put_into_the_queue_again(tmp_path: Path, may: Callable[[], bool] | None) -> None:
    one, queue = finished(tmp_path, may)
    assert (one.log.data["next"]["kind"], queue) == ("requeue", ["local-1.requeue"])


@pytest.mark.parametrize("why", [TIME_LIMIT, PREEMPTED])
def test_a_server_that_may_not_go_on_ends_with_the_reason(tmp_path: Path, why: str) -> None:
    one, queue = finished(tmp_path, lambda: False, why)
    assert (one.log.data["next"]["kind"], queue) == ("none", [])
    assert one.log.data["next"]["why"] == f"{why}; not put into the queue again: {NO_ROOM}"


def test_where_the_limit_can_not_be_found_out_a_server_does_not_go_on(tmp_path: Path) -> None:
    def unknown() -> bool:
        raise StorageError("no such disk")

    one, queue = finished(tmp_path, unknown)
    assert queue == []
    assert "can't be found out: no such disk" in one.log.data["next"]["why"]


def test_that_it_would_go_on_is_written_before_the_question(tmp_path: Path) -> None:
    seen: list[object] = []

    def look() -> bool:
        seen.extend(run.get("next") for run in read_worker_runs(FleetPlaces(tmp_path, "main")))
        return False

    finished(tmp_path, look)
    assert [cast(dict[str, str], one)["kind"] for one in seen] == ["requeue"]


# --- put together for a campaign --------------------------------------------------------------------
def campaign(root: Path, cap: float | None, *, handed: bool = True) -> tuple[FleetPlaces, FleetSpec]:
    """A campaign on a fleet of two, handed in with this limit on its command line."""
    workspace, cluster = capped(root, cap), FakeCluster()
    stored = plan_anew(workspace, cluster, Request(("m1",), fleet=use_of(2, 2)), {"m1": 2}, NOBODY, [],
                       prompts=make_prompts(), use=use_of(2, 2))
    if handed:
        hand_in(workspace, cluster, stored, Request(("m1",), fleet=stored.plan.use), NOBODY)
    places = FleetPlaces(root, "judge")
    spec = read_spec(places)
    assert spec is not None
    return places, spec


def test_a_worker_of_a_campaign_asks_for_its_limit_and_one_of_serve_does_not(tmp_path: Path) -> None:
    places, spec = campaign(tmp_path, 2.5)
    environ = {"FLOCK_HPC_JOB": "local-1_0"}
    one = open_worker(tmp_path, "judge", spec.groups[0].number, spec.version, tmp_path / "s.sh", print, environ)
    assert one.may_go_on is not None
    now = time.time()
    run_record(places, "local-1_0", gpus=1, started=now - 3600, updated=now, phase="draining", next=AGAIN)
    assert not one.may_go_on()  # two in the queue and an hour used
    write_json(places.spec, replace(spec, campaign=None).as_json())
    one = open_worker(tmp_path, "judge", spec.groups[0].number, spec.version, tmp_path / "s.sh", print, environ)
    assert one.may_go_on is None


def test_the_limit_is_that_of_the_campaign_handed_in_last(tmp_path: Path) -> None:
    places, spec = campaign(tmp_path, 2.5)
    assert campaign_of(places, spec).settings.limits.max_gpu_hours == 2.5
    campaign(tmp_path, 7.5, handed=False)  # only looked at
    assert campaign_of(places, spec).settings.limits.max_gpu_hours == 2.5
    campaign(tmp_path, 5.5)
    assert campaign_of(places, spec).settings.limits.max_gpu_hours == 5.5


@pytest.mark.parametrize(("cap", "room"), [(None, None), (2.0, 0), (3.5, 1), (5.0, 3)])
def test_a_worker_in_control_asks_for_no_server_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                                 cap: float | None, room: int | None) -> None:
    places, spec = campaign(tmp_path, cap)
    found: list[Callable[[], int | None]] = []

    class Noted:
        def __init__(self, *given: object, room: Callable[[], int | None], **named: object) -> None:
            found.append(room)

        async def turn(self) -> None:
            pass

    monkeypatch.setattr(working, "Controller", Noted)
    one = open_worker(tmp_path, "judge", spec.groups[0].number, spec.version, tmp_path / "s.sh", print, {})
    assert one.control is not None
    asyncio.run(cast(Any, one.control)())
    assert [ask() for ask in found] == [room]
    assert room_for(places, replace(spec, campaign=None), spec.groups[0]) is None


def test_an_engine_that_waits_is_set_aside_for_as_what_it_asks_for(tmp_path: Path) -> None:
    campaign(tmp_path, 9.0)
    assert by_files(capped(tmp_path, 9.0), None, time.time()) == Usage(0.0, 2.0)
    assert gpu_hours(capped(tmp_path, 9.0), NOBODY) == Usage(0.0, 2.0)
    settings = make_settings(**GPU, fleet={"engine": "beside"})
    beside = replace(capped(tmp_path, 9.0), settings=settings)
    assert by_files(beside, None, time.time()) == Usage(0.0, 3.0)
