"""The fleet that a round asks: opened for each of its models, used, kept up, and stopped at the end.

Never stops a fleet that another still uses."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from automate import __version__
from automate.claims import myself
from automate.cluster.base import Cluster
from automate.errors import ConfigError, FlockError
from automate.fleet_places import FleetPlaces
from automate.fleets.aside import aside
from automate.fleets.controller import Controller
from automate.fleets.handing import stop, wish_stop
from automate.fleets.jobs import alive_of, cluster_of
from automate.fleets.outlook import outlook_of
from automate.fleets.scaling import Demand
from automate.serving.fleet.members import Pace
from automate.serving.fleet.records import FleetSpec
from automate.serving.fleet.registry import User, read_spec, read_wish, use, users
from automate.serving.fleet.serving import FleetServing
from automate.workspace import Workspace

Say = Callable[[str], None]
ENGINE = "engine"
TURN_EVERY = 2.0
"""Seconds between two turns of the controller, which asks Slurm less often by itself."""
PATIENCE = 5.0
"""Seconds that a Slurm which doesn't answer is waited for at the end."""
AGAIN = "flock-hpc pool evaluate"

Revive = Callable[[FleetSpec, Cluster, Callable[[], int], Callable[[], bool]], Callable[[bool], None]]
"""Makes what has the fleet's servers again where they ended while nobody used them: given the fleet, its cluster, how
much is left, and whether another uses it; called with whether this process controls the fleet."""


@dataclass
class RoundFleet:
    """A fleet for the time of a round. Async context manager. `left` and `in_flight` say what there is to do.

    `servings`: by model, of those that the fleet serves.
    """

    workspace: Workspace
    name: str
    models: Sequence[str]
    say: Say
    left: Callable[[], int]
    in_flight: Callable[[], int]
    environ: Mapping[str, str]
    revive: Revive | None = None
    exclude: Callable[[], str | None] | None = None
    pace: Pace | None = None
    servings: dict[str, FleetServing] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.places = FleetPlaces(self.workspace.root, self.name)
        self._me = myself(self.environ)
        self._spec: FleetSpec | None = None
        self._user: User | None = None
        self._controller: Controller | None = None
        self._turn: Callable[[bool], None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._told: set[str] = set()

    # --- while it is open -----------------------------------------------------------------------
    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def _open(self) -> None:
        spec = await asyncio.to_thread(read_spec, self.places)
        if spec is None:
            raise ConfigError(f"there is no fleet '{self.name}' any more", where=str(self.places.home),
                              todo=f"run '{AGAIN}' again: it makes the fleet anew")
        self._spec, cluster = spec, cluster_of(self.places.root, spec.executor)
        self._user = await asyncio.to_thread(use, self.places, ENGINE, me=self._me)
        self._tasks.append(asyncio.create_task(self._every(min(TURN_EVERY, spec.heartbeat), self._beat)))
        if self.revive is not None:
            self._turn = self.revive(spec, cluster, self.left, lambda: bool(self._others(spec)))
            await self._try(lambda: aside(lambda: self._revived(False)))
        for model in self.models:
            if spec.group_of(model) is not None:
                serving = self.servings[model] = self._serving(spec, cluster, model)
                await serving.__aenter__()
        self._controller = Controller(self.places, spec, cluster, demand=self._demand, say=self.say,
                                      exclude=self.exclude, alone=lambda: not self._others(spec))
        self._tasks.append(asyncio.create_task(self._every(min(TURN_EVERY, spec.heartbeat), self._keep_up)))

    def _serving(self, spec: FleetSpec, cluster: Cluster, model: str) -> FleetServing:
        concurrency = self.workspace.settings.generate.concurrency
        return FleetServing(
            self.places, spec, model, say=self.say, job_alive=alive_of(cluster),
            outlook=self._outlook(spec, cluster, model), version=__version__, routing="least",
            concurrency=None if concurrency == "auto" else concurrency, pace=self.pace, again=AGAIN)

    def _outlook(self, spec: FleetSpec, cluster: Cluster, model: str) -> Callable[[], Awaitable[str | None]]:
        of_jobs = outlook_of(self.places, spec, cluster, model, say=self.say)

        async def ask() -> str | None:
            with contextlib.suppress(FlockError):
                wish = await asyncio.to_thread(read_wish, self.places)
                if self._turn is not None and wish.stop and wish.stopped_by == ENGINE:
                    return None  # that is taken back
            return await of_jobs()

        return ask

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self._let_go()
        for serving in self.servings.values():
            await serving.__aexit__(kind, error, trace)
        if self._user is not None:
            await asyncio.to_thread(self._user.release)

    async def _let_go(self) -> None:
        """Keep the fleet up no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._controller is not None:
            await asyncio.to_thread(self._controller.close)

    # --- every few seconds ----------------------------------------------------------------------
    async def _every(self, pause: float, act: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._try(act)
            await asyncio.sleep(pause)

    async def _try(self, act: Callable[[], Awaitable[None]]) -> None:
        """Do it; what goes wrong with it is said once, and tried again."""
        try:
            await act()
        except FlockError as error:
            if error.what not in self._told:
                self._told.add(error.what)
                self.say(f"fleet '{self.name}': {error}")

    async def _beat(self) -> None:
        user, left, in_flight = self._user, self.left(), self.in_flight()
        if user is not None:
            await aside(lambda: user.beat(left=left, in_flight=in_flight))

    async def _keep_up(self) -> None:
        controller = self._controller
        if controller is not None:
            await aside(lambda: self._revived(controller.controls))
            await controller.turn()

    def _revived(self, controls: bool) -> None:
        if self._turn is not None:
            self._turn(controls)

    def _demand(self) -> Demand:
        return Demand(self.left(), self.in_flight())

    def _others(self, spec: FleetSpec) -> bool:
        """Whether another uses the fleet."""
        known = users(self.places, job_alive=alive_of(cluster_of(self.places.root, spec.executor)), stale=spec.stale)
        return any(one.holder.nonce != self._me.nonce for one in known)

    # --- at the end -----------------------------------------------------------------------------
    async def stop(self) -> None:
        """End the fleet, unless another uses it: by files, which its servers follow, then by the cluster."""
        await self._let_go()
        spec = self._spec
        if spec is None:
            return
        with contextlib.suppress(FlockError, TimeoutError):
            now = await asyncio.to_thread(read_spec, self.places)
            if now is None or now.id != spec.id or await aside(lambda: self._others(spec), patience=PATIENCE):
                return
            await asyncio.to_thread(wish_stop, self.places, ENGINE)
            cluster = cluster_of(self.places.root, spec.executor)
            await aside(lambda: stop(self.places, spec, cluster, by=ENGINE), patience=PATIENCE)
            self.say(f"fleet '{self.name}': stopped")
