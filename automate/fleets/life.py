"""What a worker knows of itself while it lives, and what it does every few seconds: beat, look out, control.

Never ends the worker by itself: it says why it has to end, and the worker does it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from automate import __version__
from automate.claims import myself
from automate.durations import in_words
from automate.errors import FlockError
from automate.fleet_places import FleetPlaces
from automate.fleets.account import Meter
from automate.fleets.background import Act, Background
from automate.fleets.ending import LOST, SIGNALS, TIME_LIMIT, grace_of, needless
from automate.fleets.gate import Gate
from automate.fleets.lookout import Lookout
from automate.fleets.presence import Presence
from automate.fleets.runlog import WorkerLog, deaths_of
from automate.fleets.timing import TimeLeft
from automate.serving.client import JudgeClient
from automate.serving.fleet.records import FleetSpec, Group
from automate.serving.metrics import ServerMetrics, parse_metrics
from automate.serving.server import JudgeServer

Say = Callable[[str], None]
CONTROL_EVERY = 15.0
LOOK_EVERY = 2.0
FAULT = "a fault in the worker"


@dataclass
class Life:
    """The state of one start of one worker."""

    places: FleetPlaces
    spec: FleetSpec
    group: Group
    script: Path
    say: Say
    environ: Mapping[str, str]
    prepare: Callable[[], Mapping[str, str]] | None = None
    control: Callable[[], Awaitable[None]] | None = None
    age: float = 0.0
    may_go_on: Callable[[], bool] | None = None

    def __post_init__(self) -> None:
        self.holder = myself(self.environ)
        self.meter = Meter(age=self.age)
        self.log = WorkerLog(self.places, self.group, self.environ, self.holder, self.say, self.age)
        self.presence = Presence(self.places, self.say)
        self.lookout = Lookout(self.places, self.spec)
        self.time = TimeLeft(self.group, self.environ)
        self.gate = Gate(self.group)
        self.server: JudgeServer | None = None
        self.client: JudgeClient | None = None
        self.stopped = asyncio.Event()
        self.why: str | None = None
        self.signalled: str | None = None
        self.unwanted = self.over = False
        self.deadline = float("inf")
        self.fault: BaseException | None = None
        self._metrics = ServerMetrics()

    def stop(self, why: str) -> None:
        """Take no more requests, and end when those in flight have ended or their time is over."""
        if self.over or (self.why is not None and why not in SIGNALS):
            return
        grace = grace_of(why, self.group, self.time.left_at_end())
        self.deadline = min(self.deadline, time.monotonic() + grace)
        self.say(f"{why}: no more requests are taken; those in flight have "
                 f"{in_words(max(0.0, self.deadline - time.monotonic()))} to finish")
        self.why = self.why or why
        if why in SIGNALS:
            self.signalled = why
        if self.server is not None:
            self.server.stop_restarting(hurry=why in SIGNALS)
        self.stopped.set()

    async def pause(self, seconds: float) -> None:
        """Wait some seconds, but no longer than until the worker is told to end."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stopped.wait(), seconds)

    def facts(self) -> dict[str, object]:
        """What the record says of the time and of the servers so far."""
        spent, found = self.meter.spent(), {}
        if self.server is not None:
            found = {"loads": [round(seconds, 3) for seconds in self.server.loads],
                     "deaths": deaths_of(self.server.deaths, self.log.node)}
        return {"seconds": round(spent.total, 3), "spent": asdict(spent), "served": self.meter.served, **found}

    # --- every few seconds ------------------------------------------------------------------------
    def background(self) -> Background:
        """All of it, as long as it is open."""
        beat = self.spec.heartbeat
        acts: dict[Act, float] = {self._beat: beat, self._say_on: beat, self._measure: beat, self._look_idle: beat,
                                  self._look: min(LOOK_EVERY, beat)}
        if self.control is not None:
            acts[self._control] = min(CONTROL_EVERY, 3 * beat)
        return Background(acts, self._failed)

    def _failed(self, error: BaseException) -> None:
        self.fault = self.fault or error
        self.stop(FAULT)

    async def _beat(self) -> None:
        told, now = self._metrics, time.time()
        await self.presence.beat(
            in_flight=self.meter.in_flight, running=told.running, waiting=told.waiting, kv_usage=told.kv_usage,
            prefix_hits=told.prefix_hits, prefix_queries=told.prefix_queries, served=self.meter.served,
            spent=self.meter.spent(), until=self.time.until(now))

    async def _say_on(self) -> None:
        await self.log.update(**self.facts())

    async def _measure(self) -> None:
        """Ask the server for its numbers; what it doesn't say now is as it was."""
        if self.presence.record is None or self.client is None:
            return
        try:
            self._metrics = parse_metrics(await self.client.metrics(timeout=10))
        except (FlockError, RuntimeError):  # closed: the server has just ended
            return

    async def _look(self) -> None:
        if self.why is not None:
            return
        why = await asyncio.to_thread(self.lookout.look, list(self.presence.known) or [self.log.id])
        if why is None and await self.time.is_over():
            why = TIME_LIMIT
        if why == LOST:
            self.say(f"{self.places.home}: the fleet's folder was moved or removed")
        if why is not None:
            self.stop(why)

    async def _look_idle(self) -> None:
        """Whether this worker is needed; looked at when it has had nothing to do for half of the time."""
        quiet, record = self.meter.quiet(), self.presence.record
        if self.why is not None or record is None or quiet < self.spec.idle / 2:
            return
        used = await asyncio.to_thread(self.lookout.used)
        alive = await asyncio.to_thread(self.lookout.alive, __version__)
        why = needless(record, self.meter.quiet(), alive, self.spec, self.lookout.least(self.group), used=used)
        if why is not None:
            self.stop(why)

    async def _control(self) -> None:
        if self.why is not None or self.control is None:
            return
        try:
            await self.control()
        except Exception as error:
            what = error.what if isinstance(error, FlockError) else repr(error)
            self.say(f"the fleet can't be looked after now; that is tried again: {what}")
