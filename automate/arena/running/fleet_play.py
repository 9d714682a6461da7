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
from automate.arena.running.fleet_revival import ENGINE, Revival, stopped_by_engine
from automate.arena.running.gpu_hours import Usage, by_files, servers_that_fit
from automate.arena.running.job_config import JobConfig
from automate.claims import JobAlive, myself, no_jobs
from automate.cluster.base import Cluster
from automate.errors import ConfigError, FlockError
from automate.fleet_places import FleetPlaces
from automate.fleets.aside import aside
from automate.fleets.controller import Controller
from automate.fleets.handing import stop, wish_stop
from automate.fleets.jobs import alive_of, cluster_of
from automate.fleets.outlook import outlook_of
from automate.fleets.scaling import Demand
from automate.serving.fleet.records import FleetSpec, Group
from automate.serving.fleet.registry import User, read_spec, use, users
from automate.serving.fleet.serving import FleetServing, Load
from automate.serving.fleet.users import Using

Say = Callable[[str], None]
TURN_EVERY = 2.0
"""Seconds between two turns of the controller, which asks Slurm less often by itself."""
PATIENCE = 5.0
"""Seconds that a Slurm which doesn't answer is waited for at the engine's end."""


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
        self._tasks: list[asyncio.Task[None]] = []
        self._told: dict[str, str] = {}

    # --- while it is open -----------------------------------------------------------------------
    async def __aenter__(self) -> FleetServing:
        try:
            return await self._open()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise

    async def _open(self) -> FleetServing:
        spec, group = await asyncio.to_thread(self._find)
        self._user = await asyncio.to_thread(use, self.places, ENGINE, me=self._me)
        self._tasks.append(asyncio.create_task(self._live(self._user, spec)))
        revival = Revival(self.places, spec, group, self._cluster(spec), left=lambda: self._work().left, say=self._say,
                          others=lambda: any(one.who == ENGINE for one in self._others(spec)))
        await self._try("revival", lambda: aside(revival.turn))
        settings = self.config.settings
        concurrency = settings.judge.concurrency
        self._serving = FleetServing(
            self.places, spec, settings.judge.name, say=self._say, job_alive=alive_of(self._cluster(spec)),
            outlook=self._outlook(spec), version=__version__, routing=settings.fleet.routing,
            overload=settings.fleet.overload, concurrency=None if concurrency == "auto" else concurrency,
            again=self.config.words.submit)
        await self._serving.__aenter__()
        if settings.fleet.engine == "beside":
            self._beside = Beside(self.places, group, self._say, self._environ)
            await self._beside.start()
        self._controller = Controller(self.places, spec, self._cluster(spec), demand=self._demand, say=self._say,
                                      exclude=self._exclude, alone=self._alone, room=lambda: self.room_for(group))
        self._tasks.append(asyncio.create_task(self._keep_up(
            self._controller, revival, min(TURN_EVERY, spec.heartbeat))))
        return self._serving

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
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

    # --- every few seconds ----------------------------------------------------------------------
    async def _live(self, user: User, spec: FleetSpec) -> None:
        """Show that this engine uses the fleet, and what it has to do; waits for no Slurm."""
        while True:
            self.was_up = self.was_up or self.up
            await self._try("heartbeat", lambda: aside(self._beat(user)))
            if self._beside is not None:
                await self._beside.look()
            await asyncio.sleep(min(TURN_EVERY, spec.heartbeat))

    def _beat(self, user: User) -> Callable[[], None]:
        work, model = self._work(), self.config.settings.judge.name
        return lambda: user.beat(left=work.left, in_flight=work.in_flight, model=model)

    async def _keep_up(self, controller: Controller, revival: Revival, pause: float) -> None:
        """Keep the number of servers; may hang as long as Slurm does."""
        while True:
            await self._try("revival", lambda: aside(lambda: revival.turn(controls=controller.controls)))
            await self._try("controller", controller.turn)
            await asyncio.sleep(pause)

    async def _try(self, what: str, act: Callable[[], Awaitable[None]]) -> None:
        """Do it; what goes wrong with it is said once until it goes right, and tried again."""
        try:
            await act()
            self._told.pop(what, None)
        except FlockError as error:
            if error.what not in self._told.values():
                self._say(f"fleet '{self.fleet.name}': {error}")
            self._told[what] = error.what

    def _demand(self) -> Demand:
        """What is to be done by this engine, and by others who ask the same servers but are not in control."""
        work, model, spec = self._work(), self.config.settings.judge.name, self._spec
        known = [] if spec is None else [one for one in self._others(spec) if (one.who, one.model) == (ENGINE, model)]
        return Demand(work.left + sum(one.left for one in known),
                      work.in_flight + sum(one.in_flight for one in known), model)

    def _alone(self) -> bool:
        """Whether nobody but this engine uses the fleet."""
        return self._spec is None or not self._others(self._spec)

    def _others(self, spec: FleetSpec, job_alive: JobAlive | None = None) -> list[Using]:
        """Who else uses the fleet."""
        known = users(self.places, job_alive=job_alive or alive_of(self._cluster(spec)), stale=spec.stale)
        return [one for one in known if one.holder.nonce != self._me.nonce]

    def room_for(self, group: Group) -> int | None:
        """How many more servers limits.max_gpu_hours leaves room for."""
        workspace, cap = self.config.workspace, self.config.settings.limits.max_gpu_hours
        if cap is None:
            return None
        workspace = replace(workspace, settings=self.config.servers or workspace.settings)
        return servers_that_fit(cap, by_files(workspace, None, time.time()), group)

    def _barred(self, group: Group) -> str | None:
        """That what was used leaves no room for a server; hours that are only set aside may come free."""
        cap, workspace = self.config.settings.limits.max_gpu_hours, self.config.workspace
        workspace = replace(workspace, settings=self.config.servers or workspace.settings)
        if cap is None or servers_that_fit(cap, Usage(by_files(workspace, None, time.time()).used, 0.0), group) != 0:
            return None
        return f"limits.max_gpu_hours={cap:g} leaves no room for another server: raise it to go on"

    def _outlook(self, spec: FleetSpec) -> Callable[[], Awaitable[str | None]]:
        """Why there will be no server, or None as long as one may come: waiting for GPUs is normal."""
        of_jobs = outlook_of(self.places, spec, self._cluster(spec), self.config.settings.judge.name, say=self._say,
                             barred=self._barred)

        async def ask() -> str | None:
            with contextlib.suppress(FlockError):
                if await asyncio.to_thread(stopped_by_engine, self.places):
                    return None  # this engine takes that back
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
            await self._stop(spec)

    async def _stop(self, spec: FleetSpec) -> None:
        """First by files, which its servers follow, then by the cluster, if that answers soon.

        One who comes to use it meanwhile takes the stop back.
        """
        now = await asyncio.to_thread(read_spec, self.places)
        if now is None or now.id != spec.id:
            return
        try:
            others = await aside(lambda: self._others(spec), patience=PATIENCE)
        except TimeoutError:
            others = self._others(spec, no_jobs)
        if others:
            self._say(f"fleet '{spec.name}': left as it is, {others[0].who} of {others[0].holder} uses it")
            return
        await asyncio.to_thread(wish_stop, self.places, ENGINE)
        try:
            done = await aside(lambda: stop(self.places, spec, self._cluster(spec), by=ENGINE), patience=PATIENCE)
        except TimeoutError:
            self._say(f"fleet '{spec.name}': stopped; its servers end by themselves, those that wait as soon as they "
                      f"start: the cluster did not answer within {PATIENCE:g} s")
            return
        self._say(f"fleet '{spec.name}': stopped; {len(done.ending)} servers end by themselves, {len(done.cancelled)} "
                  "that waited were cancelled")
