"""The controller keeps a fleet as it is wished, one at a time, and does nothing where nothing changes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from automate import claims
from automate.cluster.queue import JobState, JobStatus
from automate.cluster.submit import SubmissionBook
from automate.fleet_places import FleetPlaces
from automate.fleets.controller import Controller, outlook, outlook_of
from automate.fleets.handing import make_fleet, scale, stop
from automate.fleets.jobs import jobs_of, submissions_of
from automate.fleets.scaling import Demand
from automate.journal import read_json, write_json
from automate.serving.fleet.records import FleetSpec, Group
from automate.serving.fleet.registry import is_retired, read_wish, unregister, use
from tests.unit.fleet_control_support import FakeCluster, bring_up, make, make_spec, run_record, worker


@dataclass
class Rig:
    """A fleet, its cluster, a clock that is set by hand, and what controllers say."""

    cluster: FakeCluster
    places: FleetPlaces
    spec: FleetSpec
    now: float = 0.0
    demand: Demand | None = None
    said: list[str] = field(default_factory=list)
    beats: int = 1

    @classmethod
    def of(cls, root: Path, **values: Any) -> Rig:
        cluster = FakeCluster()
        places, spec = make(root, cluster, **values)
        return cls(cluster, places, spec)

    def controller(self, **values: object) -> Controller:
        demand = (lambda: self.demand or Demand(0)) if self.demand is not None else None
        return Controller(self.places, self.spec, self.cluster, demand=demand, clock=lambda: self.now,
                          say=self.said.append, every=15.0, **values)  # type: ignore[arg-type]

    def turn(self, controller: Controller, seconds: float = 15.0) -> None:
        """Time goes on, every worker beats, and the controller has its turn."""
        self.now += seconds
        self.beats += 1
        for path in self.places.workers.glob("*.json"):
            write_json(path, {**(read_json(path) or {}), "beat": self.beats})
        controller.step()

    def up(self, **values: object) -> list[str]:
        return [one.id for one in bring_up(self.places, self.spec, self.cluster, **values)]

    def dies(self, job: str, state: JobState = JobState.NODE_FAIL) -> None:
        self.cluster.set(job, state)
        for path in self.places.workers.glob(f"w-{job}.json"):
            path.unlink()

    def files(self) -> dict[str, tuple[int, int]]:
        """Every file of the fleet's folder, but for workers' own and probes, with what changes when it is written."""
        return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in self.places.home.rglob("*")
                if path.is_file() and path.parent != self.places.workers}


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig.of(tmp_path)


def test_nothing_is_written_where_nothing_changes(rig: Rig) -> None:
    rig.up()
    controller = rig.controller()
    rig.turn(controller)
    before, submits = rig.files(), len(rig.cluster.submits)
    for _ in range(5):
        rig.turn(controller)
    assert rig.files() == before
    assert (len(rig.cluster.submits), rig.said) == (submits, [])


def test_the_cluster_is_asked_four_times_a_minute_at_most(rig: Rig) -> None:
    rig.up()
    controller = rig.controller()
    rig.turn(controller)
    before = rig.cluster.looks
    for _ in range(30):
        rig.turn(controller, 1.0)
    assert rig.cluster.looks - before == 2


@pytest.mark.parametrize("state", [JobState.NODE_FAIL, JobState.FAILED, JobState.PREEMPTED, JobState.TIMEOUT,
                                   JobState.OUT_OF_MEMORY])
def test_a_server_that_died_is_replaced_once(rig: Rig, state: JobState) -> None:
    rig.up()
    controller = rig.controller(exclude=lambda: "n1")
    rig.turn(controller)
    rig.dies("1_0", state)
    for _ in range(4):
        rig.turn(controller)
    assert [len(tasks) for _, tasks, _ in rig.cluster.submits] == [2, 1]
    assert rig.cluster.submits[-1][2] == "n1"
    assert submissions_of(rig.places, rig.spec)[-1].by == "worker"


def test_one_that_has_ended_is_not_asked_after_again(rig: Rig) -> None:
    rig.up()
    rig.dies("1_0", JobState.FAILED)
    controller = rig.controller()
    rig.turn(controller)
    rig.turn(controller)
    assert rig.cluster.asked == ["1_1", "2_0"]


def test_one_of_which_slurm_does_not_know_what_became_is_not_replaced(rig: Rig) -> None:
    rig.up()
    controller = rig.controller()
    rig.cluster.silent = True
    rig.turn(controller)
    assert len(rig.cluster.submits) == 1


def test_one_that_somebody_cancelled_by_hand_is_not_replaced(rig: Rig) -> None:
    rig.up()
    controller = rig.controller()
    rig.dies("1_0", JobState.CANCELLED)
    for _ in range(3):
        rig.turn(controller)
    assert len(rig.cluster.submits) == 1
    assert read_wish(rig.places).wanted == {1: 1}
    assert len(rig.said) == 1
    rig.dies("1_1")
    rig.turn(controller)
    assert [len(tasks) for _, tasks, _ in rig.cluster.submits] == [2, 1], "what is wanted still is kept up"


@pytest.mark.parametrize("why", ["idle", "nobody uses the fleet"])
def test_one_that_ended_without_need_is_not_replaced(rig: Rig, why: str) -> None:
    rig.up()
    run_record(rig.places, "1_0", why=why, loads=[1.0])
    rig.dies("1_0", JobState.COMPLETED)
    controller = rig.controller()
    for _ in range(3):
        rig.turn(controller)
    assert len(rig.cluster.submits) == 1
    assert read_wish(rig.places).wanted == {1: 1}


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.COMPLETING])
@pytest.mark.parametrize("why", ["idle", "nobody uses the fleet"])
def test_one_that_is_about_to_end_without_need_is_not_replaced(rig: Rig, why: str, state: JobState) -> None:
    rig.up()
    run_record(rig.places, "1_0", why=why, phase="draining", loads=[1.0])
    rig.dies("1_0", state)
    controller = rig.controller()
    rig.turn(controller)
    rig.turn(controller)
    assert (len(rig.cluster.submits), read_wish(rig.places).wanted) == (1, {1: 1})
    rig.cluster.set("1_0", JobState.COMPLETED)
    rig.turn(controller)
    assert (len(rig.cluster.submits), read_wish(rig.places).wanted) == (1, {1: 1}), "it lowers the wish once"


def test_one_that_ends_without_need_is_replaced_where_a_user_wants_as_many(rig: Rig) -> None:
    rig.up()
    run_record(rig.places, "1_0", why="idle", phase="draining", loads=[1.0])
    rig.dies("1_0", JobState.RUNNING)
    scale(rig.places, rig.spec, rig.cluster, {1: 2})
    rig.turn(rig.controller())
    assert [len(tasks) for _, tasks, _ in rig.cluster.submits] == [2, 1]
    assert read_wish(rig.places).wanted == {1: 2}


def test_one_cancelled_by_hand_is_not_replaced_while_it_ends(rig: Rig) -> None:
    rig.up()
    run_record(rig.places, "1_0", why="cancelled", phase="draining", loads=[1.0])
    rig.dies("1_0", JobState.COMPLETING)
    controller = rig.controller()
    rig.turn(controller)
    rig.cluster.set("1_0", JobState.CANCELLED)
    rig.turn(controller)
    assert (len(rig.cluster.submits), read_wish(rig.places).wanted) == (1, {1: 1})


def test_a_server_beside_the_engine_makes_the_fleet_grow(tmp_path: Path) -> None:
    rig = Rig.of(tmp_path, least=0, most=2)
    beside = worker(rig.places, rig.spec, "beside")
    write_json(rig.places.worker(beside.id), {**beside.as_json(), "job": None})
    rig.demand = Demand(1000, 4, "judge")
    controller = rig.controller()
    for _ in range(4):
        rig.up()
        rig.turn(controller)
    assert len(jobs_of(rig.places, rig.cluster)) == 2


def test_a_turn_that_hangs_changes_nothing_after_its_end(rig: Rig) -> None:
    rig.up()
    rig.dies("1_0")
    controller = rig.controller()
    look = rig.cluster.look

    def slow(jobs: Sequence[str], names: Sequence[str] = ()) -> dict[str, JobStatus]:
        controller.close()
        return look(jobs, names)

    rig.cluster.look = slow  # type: ignore[method-assign]
    rig.turn(controller)
    assert len(rig.cluster.submits) == 1


def test_while_one_that_was_given_back_ends_the_others_stay(rig: Rig) -> None:
    rig.up()
    scale(rig.places, rig.spec, rig.cluster, {1: 1})
    assert is_retired(rig.places, "w-1_1")
    controller = rig.controller()
    run_record(rig.places, "1_1", why="retired", phase="draining", loads=[1.0])
    for path in (rig.places.worker("w-1_1"), None):  # at first it is registered still, then only its job is there
        rig.turn(controller)
        if path:
            path.unlink()
    assert not is_retired(rig.places, "w-1_0")
    rig.cluster.set("1_1", JobState.COMPLETED)
    rig.turn(controller)
    assert (len(rig.cluster.submits), rig.said, read_wish(rig.places).wanted) == (1, [], {1: 1})


def test_one_that_goes_on_by_itself_is_not_replaced(rig: Rig) -> None:
    rig.up()
    run_record(rig.places, "1_0", why="time limit", phase="draining", next={"kind": "requeue"}, loads=[1.0])
    (rig.places.worker("w-1_0")).unlink()
    controller = rig.controller()
    rig.turn(controller)
    rig.cluster.set("1_0", JobState.PENDING)
    rig.turn(controller)
    assert len(rig.cluster.submits) == 1


def test_only_the_first_of_the_workers_looks(rig: Rig) -> None:
    rig.up()
    first, second = rig.controller(own_job="1_0"), rig.controller(own_job="1_1")
    rig.turn(first)
    looks = rig.cluster.looks
    assert looks
    rig.turn(second)
    assert rig.cluster.looks == looks
    rig.dies("1_0")
    rig.turn(second)
    assert [len(tasks) for _, tasks, _ in rig.cluster.submits] == [2, 1]


def test_one_that_is_ending_is_not_the_first(rig: Rig) -> None:
    rig.up()
    worker(rig.places, rig.spec, "1_0", state="draining")
    rig.turn(rig.controller(own_job="1_1"))
    assert rig.cluster.looks


def test_a_worker_leaves_it_to_an_engine(rig: Rig) -> None:
    rig.up()
    rig.demand = Demand(100, 2)
    engine = rig.controller()
    rig.demand = None
    first = rig.controller()
    rig.turn(engine)
    rig.dies("1_0")
    looks = rig.cluster.looks
    rig.turn(first)
    assert rig.cluster.looks == looks
    assert len(rig.cluster.submits) == 1
    engine.close()
    rig.turn(first)
    assert [len(tasks) for _, tasks, _ in rig.cluster.submits] == [2, 1]


def test_two_that_look_at_once_act_once(rig: Rig) -> None:
    rig.up()
    rig.dies("1_0")
    held = claims.take(rig.places.control_claim, stale=5)
    one = rig.controller()
    rig.turn(one)
    assert len(rig.cluster.submits) == 1, "somebody else holds control"
    held.release()
    other = rig.controller()
    rig.turn(one)
    rig.turn(other)
    assert [len(tasks) for _, tasks, _ in rig.cluster.submits] == [2, 1]


def test_what_a_killed_one_left_open_is_settled_and_not_asked_for_again(rig: Rig) -> None:
    rig.up()
    book = SubmissionBook(rig.places.submissions)
    [done] = book.all()
    book.save(replace(done, job=None))
    rig.turn(rig.controller())
    assert [one.job for one in book.all()] == ["1"]
    assert len(rig.cluster.submits) == 1


def test_a_refused_one_is_asked_for_again_after_a_while(rig: Rig) -> None:
    rig.up()
    rig.dies("1_0")
    rig.cluster.room = 0
    controller = rig.controller()
    for _ in range(4):
        rig.turn(controller)
    assert len(rig.cluster.submits) == 2
    assert sum("not accepted" in line for line in rig.said) == 1
    rig.cluster.room = 5
    for _ in range(4):
        rig.turn(controller)
    assert len(jobs_of(rig.places, rig.cluster)) == 3


def test_after_two_hopeless_starts_no_more_are_asked_for(rig: Rig) -> None:
    for job in ("1_0", "1_1"):
        rig.cluster.set(job, JobState.FAILED)
        run_record(rig.places, job, error="no such model: /m", hopeless=True)
    controller = rig.controller()
    for _ in range(50):
        rig.turn(controller)
    assert len(rig.cluster.submits) == 1
    [words] = [line for line in rig.said if "could not be started" in line]
    assert "no such model: /m" in words
    assert outlook(rig.places, rig.spec, rig.cluster, "judge") == words
    scale(rig.places, rig.spec, rig.cluster, {1: 3})
    assert len(rig.cluster.submits) == 2, "a user may try again"


def test_starts_that_fail_otherwise_are_tried_again_ever_later(rig: Rig) -> None:
    controller = rig.controller()
    asked: list[float] = []
    for _ in range(400):
        for job in rig.cluster.of(JobState.PENDING):
            rig.cluster.set(job, JobState.FAILED)
            run_record(rig.places, job, error="CUDA error")
        before = len(rig.cluster.submits)
        rig.turn(controller)
        asked += [rig.now] if len(rig.cluster.submits) > before else []
    assert 2 <= len(asked) <= 5
    gaps = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert gaps == sorted(gaps)
    assert "failed before they were ready" in str(outlook(rig.places, rig.spec, rig.cluster, "judge"))


def test_a_server_that_was_ready_gives_hope_again(rig: Rig) -> None:
    for number, job in enumerate(("1_0", "1_1")):
        rig.cluster.set(job, JobState.FAILED)
        run_record(rig.places, job, error="no such model", hopeless=True, loads=[3.0] * number, updated=2.0 + number)
    rig.turn(rig.controller())
    assert len(rig.cluster.submits) == 2


def test_more_while_the_queue_is_long_and_they_come(tmp_path: Path) -> None:
    rig = Rig.of(tmp_path, least=2, most=8)
    rig.demand = Demand(1000, 8, "judge")
    controller = rig.controller()
    counts = []
    for _ in range(8):
        rig.up()
        rig.turn(controller)
        counts.append(read_wish(rig.places).wanted[1])
    assert counts[-1] == 8
    assert sorted(set(counts)) == [2, 4, 8] or sorted(set(counts)) == [4, 8]
    assert len(jobs_of(rig.places, rig.cluster)) == 8


def test_no_more_while_they_come_late(tmp_path: Path) -> None:
    rig = Rig.of(tmp_path, least=1, most=8, patience=100.0)
    rig.demand = Demand(1000, 8)
    controller = rig.controller()
    for _ in range(10):
        rig.turn(controller)
    assert len(rig.cluster.submits) == 1
    rig.up()
    for _ in range(6):
        rig.turn(controller)
    assert len(rig.cluster.submits) == 1
    for _ in range(3):
        rig.turn(controller)
    assert len(rig.cluster.submits) == 2, "after a while it is tried once more"


def test_quiet_ones_are_given_back_down_to_the_least(tmp_path: Path) -> None:
    rig = Rig.of(tmp_path, least=1, most=4)
    scale(rig.places, rig.spec, rig.cluster, {1: 3}, bounds={1: (1, 4)})
    workers = rig.up()
    controller = rig.controller()
    for _ in range(6):
        rig.turn(controller)
    assert not any(is_retired(rig.places, one) for one in workers)
    for _ in range(4):
        rig.turn(controller)
    assert sum(is_retired(rig.places, one) for one in workers) == 2
    assert read_wish(rig.places).wanted == {1: 1}


def test_one_that_was_asked_meanwhile_is_not_quiet(tmp_path: Path) -> None:
    rig = Rig.of(tmp_path, least=1, most=4)
    scale(rig.places, rig.spec, rig.cluster, {1: 2}, bounds={1: (1, 4)})
    rig.up()
    controller = rig.controller()
    for number in range(12):
        worker(rig.places, rig.spec, "1_0", served=number)
        worker(rig.places, rig.spec, "2_0", in_flight=1)
        rig.turn(controller)
    assert not any(is_retired(rig.places, f"w-{job}") for job in ("1_0", "2_0"))


def test_at_the_tail_of_its_own_campaign_servers_go(tmp_path: Path) -> None:
    rig = Rig.of(tmp_path, least=3, most=3, campaign="plan")
    rig.up()
    worker(rig.places, rig.spec, "1_1", in_flight=2)
    rig.demand = Demand(0, 2, "judge")
    controller = rig.controller()
    rig.turn(controller)
    assert [is_retired(rig.places, f"w-1_{number}") for number in range(3)] == [True, False, True]
    rig.turn(controller)
    assert len(rig.cluster.submits) == 1


@pytest.mark.parametrize("why", ["another's campaign", "a user's own", "another uses it"])
def test_at_the_tail_of_others_they_stay(tmp_path: Path, why: str) -> None:
    rig = Rig.of(tmp_path, least=3, most=3, campaign=None if why == "a user's own" else "plan")
    rig.up()
    rig.demand = Demand(0, 0, "somebody's" if why == "another's campaign" else "judge")
    if why == "another uses it":
        me = claims.myself({})
        use(rig.places, "router", me=replace(me, pid=1, started="", nonce="f" * 16))
    controller = rig.controller()
    for _ in range(3):
        rig.turn(controller)
    assert not any(is_retired(rig.places, f"w-1_{number}") for number in range(3))


def test_a_stop_cancels_what_waits(rig: Rig) -> None:
    stop(rig.places, rig.spec, rig.cluster)
    rig.cluster.set("9_0", JobState.PENDING)
    for job in ("1_0", "1_1"):
        rig.cluster.set(job, JobState.PENDING)  # handed over while it was stopped
    rig.turn(rig.controller())
    assert rig.cluster.of(JobState.PENDING) == ["9_0"], "of other fleets nothing"


def test_a_limit_of_the_campaign_is_kept(rig: Rig) -> None:
    rig.up()
    for job in ("1_0", "1_1"):
        rig.dies(job)
    room = 1
    controller = rig.controller(room=lambda: room)
    rig.turn(controller)
    assert [len(tasks) for _, tasks, _ in rig.cluster.submits] == [2, 1]
    assert any("limits.max_gpu_hours" in line for line in rig.said)


def test_a_fleet_that_was_made_anew_is_left_alone(rig: Rig) -> None:
    rig.up()
    rig.cluster.set_all(JobState.FAILED)
    make_fleet(rig.places, make_spec(rig.places, fleet_id="two"), {1: "x"}, cluster=rig.cluster)
    rig.turn(rig.controller())
    assert len(rig.cluster.submits) == 1


def test_a_lost_folder_is_said_once_and_made_by_nobody(rig: Rig) -> None:
    rig.up()
    (rig.places.workers).rename(rig.places.home / "elsewhere")
    controller = rig.controller()
    for _ in range(3):
        rig.now += 15
        controller.step()
    assert len(rig.said) == 1
    assert not rig.places.workers.exists()


def test_a_turn_of_the_event_loop(rig: Rig) -> None:
    rig.up()
    rig.dies("1_0")
    asyncio.run(rig.controller().turn())
    assert len(rig.cluster.submits) == 2


# --- outlook ------------------------------------------------------------------------------------------
def test_there_is_hope_while_one_waits_or_may_be_asked_for(rig: Rig) -> None:
    said: list[str] = []
    for job in ("1_0", "1_1"):
        rig.cluster.set(job, JobState.PENDING, reason="Resources")
    assert outlook(rig.places, rig.spec, rig.cluster, "judge", say=said.append) is None
    assert said == ["2 server(s) wait in the queue (Resources)"]
    rig.cluster.set_all(JobState.NODE_FAIL)
    assert outlook(rig.places, rig.spec, rig.cluster, "judge") is None
    rig.cluster.silent = True
    assert outlook(rig.places, rig.spec, rig.cluster, "judge") is None


def test_why_there_will_be_none(rig: Rig) -> None:
    assert "serves no model 'x'" in str(outlook(rig.places, rig.spec, rig.cluster, "x"))
    assert "is no more" in str(outlook(rig.places, replace(rig.spec, id="0"), rig.cluster, "judge"))
    stop(rig.places, rig.spec, rig.cluster)
    assert "was stopped" in str(outlook(rig.places, rig.spec, rig.cluster, "judge"))


def test_one_that_was_never_accepted(tmp_path: Path) -> None:
    cluster = FakeCluster(refuses="sbatch: error: invalid partition specified: x")
    places, spec = make(tmp_path, cluster, submit=False)
    scale(places, spec, cluster, {1: 2})
    assert "invalid partition" in str(outlook(places, spec, cluster, "judge"))
    cluster.refuses = "QOSMaxSubmitJobPerUserLimit"
    scale(places, spec, cluster, {1: 2})
    assert outlook(places, spec, cluster, "judge") is None


def test_all_were_cancelled_by_hand(rig: Rig) -> None:
    rig.cluster.set_all(JobState.CANCELLED)
    rig.turn(rig.controller())
    assert "no more are wanted" in str(outlook(rig.places, rig.spec, rig.cluster, "judge"))


def test_what_bars_a_server_counts_only_where_none_acts(rig: Rig) -> None:
    def no_room(group: Group) -> str | None:
        return "no room"

    assert outlook(rig.places, rig.spec, rig.cluster, "judge", barred=no_room) is None
    rig.cluster.set_all(JobState.TIMEOUT)
    assert outlook(rig.places, rig.spec, rig.cluster, "judge") is None
    assert outlook(rig.places, rig.spec, rig.cluster, "judge", barred=no_room) == "no room"


def test_one_who_asks_often_asks_the_cluster_seldom(rig: Rig) -> None:
    said: list[str] = []
    ask = outlook_of(rig.places, rig.spec, rig.cluster, "judge", say=said.append, clock=lambda: rig.now, every=15)

    async def often() -> None:
        for _ in range(31):
            assert await ask() is None
            rig.now += 1

    asyncio.run(often())
    assert rig.cluster.looks == 3
    assert said == ["2 server(s) wait in the queue"]


def test_unregistering_is_no_reason_while_the_job_acts(rig: Rig) -> None:
    rig.up()
    unregister(rig.places, worker(rig.places, rig.spec, "1_0"), "restart")
    rig.turn(rig.controller())
    assert len(rig.cluster.submits) == 1
