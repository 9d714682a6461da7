"""An engine on its fleet: beside another engine, after a stop, while its folder is lost or the cluster hangs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest

from automate import __version__, claims
from automate.arena.running import fleet_play, fleet_revival
from automate.arena.running.fleet_play import FleetPlay, Work
from automate.arena.running.fleet_revival import Revival
from automate.arena.running.job_config import JobConfig
from automate.campaign.fleets.playing import use_of
from automate.cluster.queue import JobState, JobStatus
from automate.errors import ServerError, StorageError
from automate.fleet_places import FleetPlaces
from automate.fleets import handing
from automate.fleets.acting import wish_for
from automate.fleets.handing import stop, wish_stop
from automate.journal import read_json, write_json
from automate.serving.fleet.records import FleetSpec
from automate.serving.fleet.registry import read_wish, use, users
from automate.serving.fleet.serving import FleetServing
from tests.unit.fleet_control_support import FakeCluster, make, make_spec
from tests.unit.support import make_workspace


@dataclass
class HangingCluster(FakeCluster):
    """One whose answers wait until `answers` is set; `asked_now`: somebody waits for one."""

    answers: threading.Event = field(default_factory=threading.Event)
    asked_now: threading.Event = field(default_factory=threading.Event)

    def look(self, jobs: Sequence[str], names: Sequence[str] = ()) -> dict[str, JobStatus]:
        if not self.answers.is_set():
            self.asked_now.set()
        self.answers.wait()
        return super().look(jobs, names)


@dataclass
class Rig:
    """A campaign's fleet of 2..4 with two servers in the queue, and an engine of it."""

    cluster: HangingCluster
    places: FleetPlaces
    spec: FleetSpec
    play: FleetPlay
    said: list[str]

    def revival(self, *, others: bool = False) -> Revival:
        ticks = iter(range(0, 10_000, 60))
        return Revival(self.places, self.spec, self.spec.groups[0], self.cluster, left=lambda: 50,
                       others=lambda: others, say=self.said.append, clock=lambda: float(next(ticks)))


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    cluster, said = HangingCluster(), list[str]()
    cluster.answers.set()
    workspace = make_workspace(tmp_path)
    places = FleetPlaces(workspace.root, "judge")
    spec = replace(make_spec(places, 2, 4, models=(workspace.settings.judge.name,), campaign="plan"), heartbeat=0.05)
    made, _ = make(workspace.root, cluster, spec)
    made.home.rename(places.home)
    config = JobConfig(workspace, "plan", 1, ("m1",), None, "", tmp_path / "x.yaml", fleet=use_of(2, 4))
    monkeypatch.setattr(fleet_play, "cluster_of", lambda root, executor: cluster)
    play = FleetPlay(config, use_of(2, 4), said.append, lambda: Work(50, 4), environ={})
    found = Rig(cluster, places, spec, play, said)
    yield found
    cluster.answers.set()


def another(places: FleetPlaces, **values: int | str) -> Path:
    """Another engine that uses the fleet."""
    me = claims.myself({})
    holder = replace(me, nonce="f" * 16)
    user = use(places, "engine", me=holder)
    write_json(user.path, {"who": "engine", "holder": asdict(holder), **values})
    return user.path


async def eventually(true: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + 30
    while not true():
        assert time.monotonic() < until, f"never: {what}"
        await asyncio.sleep(0.02)


# --- two engines ----------------------------------------------------------------------------------
def test_the_second_engine_joins_quietly_and_at_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(seconds: float) -> None:
        raise AssertionError("it waits for control")

    monkeypatch.setattr(fleet_revival, "control", partial(handing.control, sleep=never))
    held = claims.take(rig.places.control_claim, stale=5)
    before, revival = read_wish(rig.places), rig.revival(others=True)
    for _ in range(3):
        revival.turn()
    [line] = rig.said
    assert "another engine uses it" in line
    assert "again" not in line
    assert read_wish(rig.places) == before
    wish_for(rig.places, {1: 1})  # the first one's tail
    held.release()
    revival.turn()
    assert read_wish(rig.places).wanted == {1: 2}, "it needs the least number, now that it is left alone"


def test_what_another_engine_has_to_do_makes_the_fleet_grow(rig: Rig) -> None:
    model = rig.spec.groups[0].model
    rig.play._find()
    assert (rig.play._demand().left, rig.play._demand().in_flight) == (50, 4)
    path = another(rig.places, left=30, in_flight=2, model=model)
    assert (rig.play._demand().left, rig.play._demand().in_flight) == (80, 6)
    write_json(path, {**(read_json(path) or {}), "model": "another"})
    assert rig.play._demand().left == 50


def test_an_engine_says_what_it_has_to_do(rig: Rig) -> None:
    async def play() -> None:
        async with rig.play:
            await eventually(lambda: [one.left for one in users(rig.places)] == [50], "it says so")

    asyncio.run(play())
    assert users(rig.places) == []


def test_a_stop_by_an_engine_that_did_not_see_this_one_is_taken_back(rig: Rig) -> None:
    async def play() -> None:
        async with rig.play as serving:
            wish_stop(rig.places, "engine")
            await eventually(lambda: not read_wish(rig.places).stop, "it is taken back")
            assert serving._error is None

    asyncio.run(play())
    assert read_wish(rig.places).stopped_by is None
    assert sum("its servers are asked for again" in line for line in rig.said) == 1


def test_jobs_that_such_a_stop_cancelled_do_not_lower_what_is_wanted(rig: Rig) -> None:
    revival = rig.revival()
    revival.turn()
    stop(rig.places, rig.spec, rig.cluster, by="engine")
    assert rig.cluster.of(JobState.CANCELLED) == ["1_0", "1_1"]
    revival.turn()
    wish = read_wish(rig.places)
    assert (wish.stop, wish.wanted, wish.dropped) == (False, {1: 2}, ("1_0", "1_1"))


def test_a_users_stop_is_not_taken_back(rig: Rig) -> None:
    revival = rig.revival()
    revival.turn()
    stop(rig.places, rig.spec, rig.cluster, by="engine")
    stop(rig.places, rig.spec, rig.cluster)
    stop(rig.places, rig.spec, rig.cluster, by="engine")
    revival.turn()
    assert (read_wish(rig.places).stop, read_wish(rig.places).stopped_by) == (True, "user")


# --- what goes wrong ------------------------------------------------------------------------------
def test_a_lost_folder_is_said_once_though_other_things_go_well(rig: Rig) -> None:
    async def fail() -> None:
        raise StorageError("the folder is lost")

    async def succeed() -> None:
        return

    async def turns() -> None:
        acts: list[tuple[str, Callable[[], Awaitable[None]]]] = [("heartbeat", fail), ("controller", succeed)]
        for what, act in acts * 5:
            await rig.play._try(what, act)

    asyncio.run(turns())
    assert len(rig.said) == 1


def test_after_a_stop_the_advice_is_the_command_that_goes_on(rig: Rig) -> None:
    async def why() -> str | None:
        return "the fleet 'judge' was stopped"

    async def ask() -> str | None:
        fleet = FleetServing(rig.places, rig.spec, rig.spec.groups[0].model, say=rig.said.append,
                             job_alive=claims.no_jobs, outlook=why, version=__version__,
                             again=rig.play.config.words.submit)
        async with fleet:
            with pytest.raises(ServerError) as ended:
                await fleet.client()
        return ended.value.todo

    assert str(asyncio.run(ask())).startswith("'flock-hpc judge --fleet 2..4 --submit' makes the fleet anew")


def test_while_the_cluster_hangs_the_engine_beats_and_ends(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_play, "PATIENCE", 0.2)
    watchdog = threading.Timer(60, rig.cluster.answers.set)
    watchdog.daemon = True
    watchdog.start()

    async def play() -> None:
        async with rig.play:
            rig.cluster.answers.clear()
            await eventually(rig.cluster.asked_now.is_set, "the cluster is asked")
            for path in rig.places.users.glob("*.json"):
                path.unlink()
            await eventually(lambda: bool(users(rig.places)), "it beats")
        await rig.play.stop()

    asyncio.run(play())
    assert not rig.cluster.answers.is_set(), "somebody waited for the cluster"
    watchdog.cancel()
    assert (read_wish(rig.places).stop, read_wish(rig.places).stopped_by) == (True, "engine")
    assert "did not answer within" in rig.said[-1]


def test_an_engine_that_cannot_begin_leaves_nothing(rig: Rig) -> None:
    rig.places.key.unlink()

    async def play() -> None:
        async with rig.play:
            pass

    with pytest.raises(Exception, match="key"):
        asyncio.run(play())
    assert users(rig.places) == []
