"""The pure parts of a fleet's worker: where it listens, what its time went into, when it ends and goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from automate.claims import myself
from automate.cluster.own_job import OwnJob
from automate.errors import ConfigError, StorageError
from automate.fleet_places import FleetPlaces
from automate.fleets.account import Meter, own_age, read_worker_runs, spent_of
from automate.fleets.address import Machine, choose, interfaces, is_own
from automate.fleets.background import Background, steadily
from automate.fleets.ending import (
    CANCELLED,
    IDLE,
    LOST,
    NODE_FAILED,
    PREEMPTED,
    RETIRED,
    STARTS,
    STOPPED,
    TIME_LIMIT,
    UNUSED,
    Next,
    go_on,
    grace_of,
    lead_of,
    needless,
    status_of,
    why_signalled,
)
from automate.fleets.gate import Gate
from automate.fleets.presence import Presence
from automate.fleets.timing import TimeLeft
from automate.fleets.worker import Worker
from automate.journal import write_json
from automate.serving.fleet import registry
from automate.serving.fleet.records import FleetSpec, Group, Spent, WorkerRecord
from automate.serving.relay.relay import Answer, Asked, Target

GROUP = Group(1, "judge", "worker_1.sh", 1, 4, also=("adapter",))
SPEC = FleetSpec("house", "id", "1", 0.0, "me", "local", (GROUP,), "print", idle=100.0)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def record(name: str, since: float, **values: Any) -> WorkerRecord:
    made = WorkerRecord(name, "id", 1, "judge", "127.0.0.1", 4000, "n" * 32, "1", myself({}), None, "n1", since=since)
    return replace(made, **values)


# --- where it listens ---------------------------------------------------------------------------------
def machine(names: Mapping[str, Sequence[str]] | None = None, own: Sequence[str] = ("127.0.0.1", "10.0.0.5", "fd00::5"),
            cards: Mapping[str, Sequence[str]] | None = None) -> Machine:
    there = cards or {"lo": ["127.0.0.1"], "ib0": ["10.0.0.5", "fd00::5"], "idle0": []}
    return Machine(lambda name: (names or {}).get(name, []), lambda: there, lambda address: address in own,
                   lambda: "host")


@pytest.mark.parametrize(("environ", "names", "expected"), [
    ({"SLURMD_NODENAME": "n7"}, {"n7": ["10.0.0.5"], "host": ["192.0.2.1"]}, "10.0.0.5"),
    ({"SLURMD_NODENAME": "n7"}, {"host": ["10.0.0.5"]}, "10.0.0.5"),
    ({}, {"host": ["10.0.0.5"]}, "10.0.0.5"),
    ({}, {"host": ["127.0.1.1"]}, "10.0.0.5"),  # /etc/hosts names a loopback address: the interface is found
    ({}, {"host": ["192.0.2.1"]}, "10.0.0.5"),  # what the name stands for is not here
    ({}, {}, "10.0.0.5"),
])
def test_auto_takes_the_nodes_name_and_loopback_last(environ: dict[str, str], names: dict[str, list[str]],
                                                     expected: str) -> None:
    place = choose("auto", environ, machine(names))
    assert (place.host, place.bind) == (expected, expected)


def test_auto_takes_the_interface_that_leads_out_before_others() -> None:
    cards = {"docker0": ["172.17.0.1"], "eth0": ["fd00::5", "10.0.0.5"]}
    names, own = {"host": ["127.0.1.1"]}, ["127.0.1.1", "172.17.0.1", "fd00::5", "10.0.0.5"]
    assert choose("auto", {}, replace(machine(names, own, cards), routed=lambda: "10.0.0.5")).bind == "10.0.0.5"
    assert choose("auto", {}, machine(names, own, {"eth0": ["fd00::5", "10.0.0.5"]})).bind == "10.0.0.5"


def test_auto_takes_loopback_where_nothing_else_is_there() -> None:
    lone = machine({"host": ["127.0.0.1"]}, ["127.0.0.1"], {"lo": ["127.0.0.1"], "eth0": ["169.254.1.1", "fe80::1"]})
    assert choose("auto", {}, lone).bind == "127.0.0.1"


def test_a_name_stays_the_host_and_its_address_is_bound() -> None:
    place = choose("node7.cluster", {}, machine({"node7.cluster": ["192.0.2.1", "10.0.0.5"]}))
    assert (place.host, place.bind) == ("node7.cluster", "10.0.0.5")


@pytest.mark.parametrize(("given", "expected"), [("ib0", "10.0.0.5"), ("10.0.0.5", "10.0.0.5"), ("FD00::5", "fd00::5"),
                                                 ("lo", "127.0.0.1")])
def test_an_interface_or_an_ip_address_is_taken_as_it_is(given: str, expected: str) -> None:
    place = choose(given, {}, machine())
    assert (place.host, place.bind) == (expected, expected)


@pytest.mark.parametrize("given", ["0.0.0.0", "::", "224.0.0.1", "192.0.2.1", "nowhere", "idle0", "not a name",
                                   "::1%lo"])
def test_what_is_no_address_of_this_machine_is_refused_and_its_own_are_named(given: str) -> None:
    with pytest.raises(ConfigError) as found:
        choose(given, {}, machine())
    assert found.value.where == "fleet.address"
    assert "ib0 (10.0.0.5, fd00::5)" in str(found.value.todo)


def test_this_machine_has_a_loopback_interface_of_its_own() -> None:
    assert "127.0.0.1" in interfaces()["lo"]
    assert is_own("127.0.0.1") and not is_own("192.0.2.1")
    assert choose("localhost", {}).host == "localhost"


# --- what its time went into --------------------------------------------------------------------------
def test_seconds_are_load_then_work_while_a_request_is_in_flight_and_idle_else() -> None:
    clock = Clock()
    meter = Meter(clock, age=2.0)
    clock.now = 10.0
    meter.began()  # the worker's own check
    meter.ended()
    meter.serving(True)
    clock.now = 15.0
    meter.began()
    clock.now = 17.0
    meter.began()
    clock.now = 20.0
    meter.ended()
    clock.now = 21.0
    meter.ended()
    clock.now = 25.0
    assert meter.spent() == Spent(load=12.0, work=6.0, idle=9.0)
    assert (meter.served, meter.in_flight, meter.quiet()) == (2, 0, 4.0)
    meter.serving(False)  # its server died
    clock.now = 30.0
    assert (meter.spent().load, meter.quiet()) == (17.0, 0.0)
    meter.finish()
    clock.now = 31.0
    assert meter.spent() == Spent(load=17.0, work=6.0, idle=10.0)
    assert meter.spent().total == 33.0


def test_a_server_that_never_was_ready_only_loaded() -> None:
    clock = Clock()
    meter = Meter(clock)
    meter.finish()
    clock.now = 7.0
    assert meter.spent() == Spent(load=7.0)


def test_sums_of_all_starts_take_a_broken_record_for_what_it_says(tmp_path: Path) -> None:
    places = FleetPlaces(tmp_path, "house")
    assert read_worker_runs(places) == []
    write_json(places.runs / "a.json", {"id": "a", "spent": {"load": 10, "work": 5.5, "idle": 1}, "ended": 1.0})
    write_json(places.runs / "b.json", {"id": "b", "spent": {"load": "?", "work": -3, "idle": 4}})
    write_json(places.runs / "c.json", {"id": "c", "started": 100.0, "updated": 130.0})
    write_json(places.runs / "d.json", {"id": "d", "started": 100.0, "updated": 9e9})
    (places.runs / "e.json").write_text("{")
    runs = read_worker_runs(places)
    assert [run["id"] for run in runs] == ["a", "b", "c", "d"]
    assert spent_of(runs, 140.0) == Spent(load=10 + 30 + 40, work=5.5, idle=5)


def test_a_process_knows_how_long_it_has_run() -> None:
    first = own_age()
    assert 0 < first <= own_age()


# --- when it ends -------------------------------------------------------------------------------------
def test_the_oldest_of_a_group_stay_as_long_as_the_fleet_is_used() -> None:
    old, middle, young = record("a", 1.0), record("b", 2.0), record("c", 3.0)
    every = [old, middle, young]
    two = replace(GROUP, least=2)
    assert [needless(one, 200.0, every, SPEC, two.least, used=True) for one in every] == [None, None, IDLE]
    assert [needless(one, 99.0, every, SPEC, two.least, used=True) for one in every] == [None] * 3
    assert [needless(one, 200.0, every, SPEC, two.least, used=False) for one in every] == [UNUSED] * 3
    assert [needless(one, 200.0, every, SPEC, 0, used=True) for one in every] == [IDLE] * 3


def test_servers_of_another_model_or_on_their_way_out_are_not_counted() -> None:
    me = record("c", 3.0)
    others = [record("a", 1.0, group=2), record("b", 2.0, state="draining")]
    assert needless(me, 200.0, others, SPEC, GROUP.least, used=True) is None
    same = [record("b", 3.0)]  # registered in the same moment: the name decides, for both of them
    assert needless(me, 200.0, same, SPEC, GROUP.least, used=True) == IDLE
    assert needless(same[0], 200.0, [me], SPEC, GROUP.least, used=True) is None


@pytest.mark.parametrize(("own", "expected"), [
    (None, "SIGTERM"), (OwnJob(state="RUNNING"), "SIGTERM"), (OwnJob(state="COMPLETING"), CANCELLED),
    (OwnJob(state="COMPLETING", run_time=60, time_limit=60), TIME_LIMIT), (OwnJob(preempted=True), PREEMPTED),
    (OwnJob(requeued=True, notice="PREEMPTION"), PREEMPTED),
    (OwnJob(requeued=True, notice="NODE FAILURE"), NODE_FAILED),
    (OwnJob(requeued=True), "requeued"),
])
def test_why_a_signal_came_is_asked_of_slurm(own: OwnJob | None, expected: str) -> None:
    assert why_signalled(own, "SIGTERM") == expected


@pytest.mark.parametrize(("why", "own", "values", "kind"), [
    (TIME_LIMIT, None, {}, "requeue"), (PREEMPTED, OwnJob(), {}, "requeue"),
    (PREEMPTED, OwnJob(requeued=True), {}, "slurm"), (TIME_LIMIT, OwnJob(requeue=False), {}, "none"),
    (TIME_LIMIT, None, {"starts": STARTS}, "none"), (TIME_LIMIT, None, {"starts": STARTS - 1}, "requeue"),
    (TIME_LIMIT, None, {"ever_ready": False}, "none"), (TIME_LIMIT, None, {"unwanted": True}, "none"),
    (PREEMPTED, OwnJob(requeued=True), {"unwanted": True}, "none"),
    (CANCELLED, None, {}, "none"), ("SIGTERM", None, {}, "none"), (RETIRED, None, {"unwanted": True}, "none"),
])
def test_only_a_time_limit_or_preemption_lets_its_job_go_on(why: str, own: OwnJob | None, values: dict[str, Any],
                                                            kind: str) -> None:
    step = go_on(why, own, **{"starts": 1, "ever_ready": True, "unwanted": False, **values})
    assert step.kind == kind
    assert step.record == {"kind": kind, "why": step.why, "job": None}


@pytest.mark.parametrize(("why", "step", "stopped", "expected"), [
    (RETIRED, None, False, 0), (STOPPED, None, False, 0), (UNUSED, None, False, 0), (TIME_LIMIT, None, False, 0),
    ("SIGTERM", Next("none", ""), False, 143), ("SIGTERM", Next("none", ""), True, 0),
    (PREEMPTED, Next("slurm", ""), False, 0), (LOST, Next("none", ""), True, 1), (None, None, False, 1),
])
def test_the_exit_status_is_0_where_it_ended_as_asked(why: str | None, step: Next | None, stopped: bool,
                                                      expected: int) -> None:
    assert status_of(why, step, stopped) == expected


def test_requests_have_as_long_as_the_end_leaves_them() -> None:
    assert grace_of("SIGTERM", GROUP, 1000.0) == 20.0
    assert grace_of(RETIRED, GROUP, float("inf")) == GROUP.request_timeout
    assert grace_of(TIME_LIMIT, GROUP, 140.0) == 140.0 - GROUP.stop_timeout - 15.0
    assert grace_of(TIME_LIMIT, GROUP, 5.0) == 1.0


def test_the_lead_before_the_time_limit_leaves_time_to_do_something() -> None:
    assert lead_of(GROUP) == 140.0
    assert lead_of(replace(GROUP, time_limit=100.0)) == 50.0
    assert lead_of(replace(GROUP, stop_timeout=600.0, time_limit=36000.0)) == 720.0


# --- the time limit -----------------------------------------------------------------------------------
def test_the_time_limit_is_slurms_and_asked_again_before_it_ends_anything() -> None:
    clock, answers = Clock(), [OwnJob(run_time=10, time_limit=1000), OwnJob(run_time=900, time_limit=5000)]
    limit = TimeLeft(GROUP, {"SLURM_JOB_ID": "1"}, ask=lambda _: answers.pop(0), clock=clock)

    async def through() -> None:
        await limit.ask()
        assert limit.left() == 990.0
        assert limit.early() == 990.0 - 140.0
        clock.now = 800.0
        assert not await limit.is_over() and len(answers) == 1
        clock.now = 890.0
        assert not await limit.is_over() and not answers  # somebody has given it more time
        assert limit.left() == 4100.0
        assert limit.until(1000.0) == 5100.0

    asyncio.run(through())


def test_where_slurm_says_nothing_the_fleets_own_limit_holds() -> None:
    clock = Clock()
    limit = TimeLeft(replace(GROUP, time_limit=1000.0), {"SLURM_JOB_ID": "1"}, ask=lambda _: None, clock=clock)
    clock.now = 900.0
    assert (limit.left(), limit.early()) == (100.0, 0.0)
    assert asyncio.run(limit.is_over())


def test_outside_slurm_nobody_enforces_a_limit() -> None:
    limit = TimeLeft(GROUP, {"SLURM_JOB_ID": "1", "FLOCK_HPC_JOB": "local-1"})
    assert limit.left() == float("inf") and limit.until(5.0) is None and not asyncio.run(limit.is_over())


# --- what the relay does with a request ---------------------------------------------------------------
def asked(path: str, model: str | None = None, method: str = "POST") -> Asked:
    return Asked(method, path, model, b"")


def test_a_request_goes_to_the_server_only_where_it_is_ready_and_has_the_model() -> None:
    gate, up = Gate(GROUP), [True]
    assert isinstance(closed := gate.choose(asked("/v1/models", method="GET")), Answer) and closed.status == 503

    async def metrics() -> str:
        return "numbers"

    gate.open("/run/judge.sock", {"id": "w"}, lambda: up[0], metrics)
    for model in ("judge", "adapter", None):
        assert gate.choose(asked("/v1/chat/completions?x=1", model)) == Target(uds="/run/judge.sock")
    other = gate.choose(asked("/v1/chat/completions", "other"))
    assert isinstance(other, Answer) and other.status == 404 and b"judge, adapter" in other.body
    assert gate.choose(asked("/flock-hpc/worker", method="GET")) == Answer(200, b'{"id":"w"}')
    assert gate.choose(asked("/metrics", method="GET")) is None
    looked = asyncio.run(gate.pick(asked("/metrics", method="GET")))
    assert isinstance(looked, Answer) and looked.body == b"numbers"
    up[0] = False
    assert isinstance(down := gate.choose(asked("/v1/chat/completions", "judge")), Answer)
    assert (down.status, down.retry_after) == (503, 1.0)
    up[0] = True
    gate.close()
    assert isinstance(gate.choose(asked("/health", method="GET")), Answer)


# --- beside serving -----------------------------------------------------------------------------------
def test_a_late_turn_is_left_out_and_the_next_is_in_step_again() -> None:
    clock, done = Clock(), list[float]()

    async def sleep(seconds: float) -> None:
        clock.now += seconds
        if clock.now > 40:
            raise asyncio.CancelledError

    async def act() -> None:
        done.append(clock.now)
        clock.now += 12.0 if len(done) == 2 else 0.5

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(steadily(5.0, act, clock=clock, sleep=sleep))
    assert done == [5.0, 10.0, 22.0, 27.0, 32.0, 37.0]


def test_a_fault_in_the_background_is_told() -> None:
    told, heard = list[BaseException](), asyncio.Event()

    def failed(error: BaseException) -> None:
        told.append(error)
        heard.set()

    async def broken() -> None:
        raise RuntimeError("a fault")

    async def through() -> None:
        async with Background({broken: 0.001}, failed):
            await heard.wait()

    asyncio.run(through())
    assert [str(error) for error in told] == ["a fault"]


class SlowRegistry:
    """A registry whose writes wait until they are let through, or fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.let, self.wrote, self.fails = threading.Event(), list[str](), False
        monkeypatch.setattr(registry, "register", lambda _, one: self._write(f"beat {one.beat}"))
        monkeypatch.setattr(registry, "unregister", lambda _, one, why: self._write(f"gone: {why}"))

    def _write(self, what: str) -> None:
        self.let.wait(10)
        if self.fails:
            raise StorageError("no space", where="there")
        self.wrote.append(what)


def test_a_heartbeat_on_its_way_never_overtakes_the_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    slow = SlowRegistry(monkeypatch)

    async def through() -> None:
        presence = Presence(FleetPlaces(tmp_path, "house"), print)
        slow.let.set()
        await presence.register(record("w", 1.0))
        slow.let.clear()
        beat = asyncio.create_task(presence.beat(served=1))
        await asyncio.sleep(0.01)
        beat.cancel()  # as at the end of the background
        leaving = asyncio.create_task(presence.leave("the end"))
        await asyncio.sleep(0.01)
        slow.let.set()
        await leaving
        await presence.beat()
        await presence.leave("again")

    asyncio.run(through())
    assert slow.wrote == ["beat 0", "beat 1", "gone: the end"]


def test_a_heartbeat_that_can_not_be_written_is_said_once_and_tried_again(monkeypatch: pytest.MonkeyPatch,
                                                                          tmp_path: Path) -> None:
    slow, said = SlowRegistry(monkeypatch), list[str]()
    slow.let.set()

    async def through() -> None:
        presence = Presence(FleetPlaces(tmp_path, "house"), said.append)
        await presence.register(record("w", 1.0))
        slow.fails = True
        await presence.beat()
        await presence.beat()
        slow.fails = False
        await presence.beat()

    asyncio.run(through())
    assert slow.wrote == ["beat 0", "beat 3"]
    assert len(said) == 1 and "no space" in said[0]


# --- being told to end --------------------------------------------------------------------------------
def worker(tmp_path: Path, said: list[str], control: Callable[[], Awaitable[None]] | None = None) -> Worker:
    return Worker(FleetPlaces(tmp_path, "house"), SPEC, GROUP, tmp_path / "s.sh", said.append, {}, control=control)


def test_a_signal_in_the_middle_of_a_drain_leaves_less_time_and_the_reason_as_it_was(tmp_path: Path) -> None:
    one = worker(tmp_path, [])
    one.stop(RETIRED)
    long = one.deadline
    one.stop(TIME_LIMIT)
    assert (one.why, one.signalled, one.deadline) == (RETIRED, None, long)
    one.stop("SIGTERM")
    assert (one.why, one.signalled) == (RETIRED, "SIGTERM")
    assert one.deadline < long
    short = one.deadline
    one.stop("SIGINT")
    assert one.deadline == short
    one.over = True
    one.stop("SIGTERM")
    assert one.signalled == "SIGINT"


def test_a_controller_that_fails_is_said_and_costs_the_worker_nothing(tmp_path: Path) -> None:
    turns = iter([RuntimeError("a fault"), StorageError("no space"), None])
    said: list[str] = []

    async def control() -> None:
        error = next(turns)
        if error is not None:
            raise error

    one = worker(tmp_path, said, control)
    for _ in range(3):
        asyncio.run(one._control())
    assert [line.partition(": ")[2] for line in said] == ["RuntimeError('a fault')", "no space"]
    assert one.why is None
