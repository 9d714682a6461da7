"""A fleet's servers in the place of a job's own: opens the fleet, keeps its number of servers, stops it at the end.

Never stops a fleet that another still uses, or that was not made for a campaign."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, replace
from types import TracebackType

from automate import __version__
from automate.arena.engine_job import FleetUse
from automate.arena.running.fleet_beside import Beside
from automate.arena.running.gpu_hours import by_files, servers_that_fit
from automate.arena.running.job_config import JobConfig
from automate.claims import myself
from automate.cluster.base import Cluster
from automate.cluster.submit import SubmissionBook, settle_open
from automate.errors import ConfigError, FlockError
from automate.fleet_places import FleetPlaces
from automate.fleets.controller import Controller
from automate.fleets.handing import control, stop
from automate.fleets.jobs import alive_of, cluster_of
from automate.fleets.looking import given_up, look
from automate.fleets.outlook import outlook_of
from automate.fleets.scaling import Demand
from automate.serving.fleet.records import FleetSpec, Group
from automate.serving.fleet.registry import User, Watch, read_spec, read_wish, use, users, write_wish
from automate.serving.fleet.serving import FleetServing, Load

Say = Callable[[str], None]
TURN_EVERY = 2.0
"""Seconds between two turns of the controller, which asks Slurm less often by itself."""


@dataclass(frozen=True)
class Work:
    """What the engine has still to do: games that it has not started, and those in flight."""

    left: int
    in_flight: int


class FleetPlay:
    """A batch's play on a fleet. Async context manager; gives the `FleetServing` to play with.

    `work` says what is left. `was_up`: whether any server was usable in this start; `ended_for`: why there will be no
    more.
    """

    def __init__(self, config: JobConfig, fleet: FleetUse, say: Say, work: Callable[[], Work],
                 exclude: Callable[[], str | None] | None = None, environ: Mapping[str, str] | None = None) -> None:
        self.config = config
        self.fleet = fleet
        self.places = FleetPlaces(config.workspace.root, fleet.name)
        self.was_up = False
        self.ended_for: str | None = None
        self._say = say
        self._work = work
        self._exclude = exclude
        self._environ = os.environ if environ is None else environ
        self._me = myself(self._environ)
        self._serving: FleetServing | None = None
        self._spec: FleetSpec | None = None
        self._loads: tuple[Load, ...] = ()
        self._user: User | None = None
        self._beside: Beside | None = None
        self._controller: Controller | None = None
        self._task: asyncio.Task[None] | None = None
        self._told = ""

    # --- while it is open -----------------------------------------------------------------------
    async def __aenter__(self) -> FleetServing:
        spec, group = await asyncio.to_thread(self._find)
        self._user = await asyncio.to_thread(use, self.places, "engine", me=self._me)
        await self._try(asyncio.to_thread, self._revive, spec, group)
        settings = self.config.settings
        concurrency = settings.judge.concurrency
        self._serving = FleetServing(
            self.places, spec, settings.judge.name, say=self._say, job_alive=alive_of(self._cluster(spec)),
            outlook=self._outlook(spec), version=__version__, routing=settings.fleet.routing,
            overload=settings.fleet.overload, concurrency=None if concurrency == "auto" else concurrency)
        await self._serving.__aenter__()
        if settings.fleet.engine == "beside":
            self._beside = Beside(self.places, group, self._say, self._environ)
            await self._beside.start()
        self._controller = Controller(self.places, spec, self._cluster(spec), demand=self._demand, say=self._say,
                                      exclude=self._exclude, alone=self._alone, room=lambda: self.room_for(group))
        self._task = asyncio.create_task(self._follow(self._controller, spec))
        return self._serving

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._controller is not None:
            await asyncio.to_thread(self._controller.close)
        if self._serving is not None:
            self._loads = tuple(replace(load, usable=False) for load in self._serving.loads())
            await self._serving.__aexit__(kind, error, trace)
            self._serving = None
        if self._beside is not None:
            await self._beside.stop()
        if self._user is not None:
            await asyncio.to_thread(self._user.release)

    def _cluster(self, spec: FleetSpec) -> Cluster:
        return cluster_of(self.places.root, spec.executor)

    def _find(self) -> tuple[FleetSpec, Group]:
        """The fleet and the judge's group. Raises ConfigError where there is none."""
        spec, judge = read_spec(self.places), self.config.settings.judge.name
        again = f"run '{self.config.words.submit}' again: it makes the fleet anew"
        if spec is None:
            raise ConfigError(f"there is no fleet '{self.fleet.name}' any more", where=str(self.places.home),
                              todo=again)
        group = spec.group_of(judge)
        if group is None:
            raise ConfigError(f"the fleet '{spec.name}' has no servers of the judge '{judge}' any more",
                              where=str(self.places.spec), todo=again)
        self._spec = spec
        return spec, group

    def _revive(self, spec: FleetSpec, group: Group) -> None:
        """Have its servers again: they may have ended while nobody used them, or with the campaign before this one."""
        cluster = self._cluster(spec)
        with control(self.places, cluster):
            settle_open(SubmissionBook(self.places.submissions), cluster)
            watch = Watch(self.places, spec, alive_of(cluster), version=spec.version)
            wish, ended = read_wish(self.places), given_up(look(self.places, spec, cluster, watch))
            wanted = max(wish.wanted.get(group.number, 0), min(wish.bounds_of(group)[0], self._work().left))
            write_wish(self.places, replace(
                wish, stop=False, wanted={**wish.wanted, group.number: wanted},
                dropped=(*wish.dropped, *(job for job in ended if job not in wish.dropped))))
        if wish.stop:
            self._say(f"fleet '{spec.name}': it was stopped while this engine waited; its servers are asked for again")

    # --- every few seconds ----------------------------------------------------------------------
    async def _follow(self, controller: Controller, spec: FleetSpec) -> None:
        while True:
            self.was_up = self.was_up or self.up
            if self._user is not None:
                await self._try(asyncio.to_thread, self._user.beat)
            await self._try(controller.turn)
            if self._beside is not None:
                await self._beside.look()
            await asyncio.sleep(min(TURN_EVERY, spec.heartbeat))

    async def _try(self, act: Callable[..., Awaitable[None]], *arguments: object) -> None:
        """Do it; what goes wrong is said once, and tried again."""
        try:
            await act(*arguments)
            self._told = ""
        except FlockError as error:
            if error.what != self._told:
                self._told = error.what
                self._say(f"fleet '{self.fleet.name}': {error}")

    def _demand(self) -> Demand:
        work = self._work()
        return Demand(work.left, work.in_flight, self.config.settings.judge.name)

    def _alone(self) -> bool:
        """Whether nobody but this engine uses the fleet."""
        spec = self._spec
        known = users(self.places, job_alive=alive_of(self._cluster(spec))) if spec is not None else []
        return all(one.holder.nonce == self._me.nonce for one in known)

    def room_for(self, group: Group) -> int | None:
        """How many more servers limits.max_gpu_hours leaves room for."""
        workspace, cap = self.config.workspace, self.config.settings.limits.max_gpu_hours
        if cap is None:
            return None
        workspace = replace(workspace, settings=self.config.servers or workspace.settings)
        return servers_that_fit(cap, by_files(workspace, None, time.time()), group)

    def _outlook(self, spec: FleetSpec) -> Callable[[], Awaitable[str | None]]:
        """Why there will be no server, or None as long as one may come: waiting for GPUs is normal."""
        of_jobs = outlook_of(self.places, spec, self._cluster(spec), self.config.settings.judge.name, say=self._say)

        async def ask() -> str | None:
            gone = self._beside is None or self._beside.gave_up is not None
            jobs = await of_jobs() if gone else None
            least = self.fleet.most == 1 and self._beside is not None
            self.ended_for = jobs or (self._beside.gave_up if least and self._beside is not None else None)
            return self.ended_for

        return ask

    # --- what others see ------------------------------------------------------------------------
    @property
    def up(self) -> bool:
        """Whether any server is usable."""
        return self._serving is not None and self._serving.up

    def facts(self) -> dict[str, object]:
        """Of the run's record: the fleet, how many of its servers are ready, and what each has to do."""
        if self._serving is not None:
            self._loads = tuple(self._serving.loads())
            self.was_up = self.was_up or self.up
        loads = self._loads
        return {"fleet": {"name": self.fleet.name, "least": self.fleet.least, "most": self.fleet.most,
                          "ready": sum(load.usable for load in loads), "workers": [asdict(load) for load in loads]}}

    # --- at the end -----------------------------------------------------------------------------
    async def stop(self) -> None:
        """Stop the fleet, if it was made for a campaign and nobody else uses it."""
        spec = self._spec
        if spec is None or spec.campaign is None:
            return
        with contextlib.suppress(FlockError):
            await asyncio.to_thread(self._stop, spec)

    def _stop(self, spec: FleetSpec) -> None:
        cluster = self._cluster(spec)
        now = read_spec(self.places)
        if now is None or now.id != spec.id:
            return
        others = users(self.places, job_alive=alive_of(cluster))
        if others:
            self._say(f"fleet '{spec.name}': left as it is, {others[0].who} of {others[0].holder} uses it")
            return
        done = stop(self.places, spec, cluster)
        self._say(f"fleet '{spec.name}': stopped; {len(done.ending)} servers end by themselves, {len(done.cancelled)} "
                  "that waited were cancelled")
