"""A fleet in the place of one server: the engine asks it, and each request goes to a worker.

Never starts or stops a worker; it knows those that are registered, and how much each has to do."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from automate.claims import JobAlive
from automate.errors import FlockError, ServerError
from automate.fleet_places import FleetPlaces
from automate.serving.client import Address, JudgeClient, Messages, Reply, TransportFailed
from automate.serving.fleet.keys import Secrets, client_context, read_secrets
from automate.serving.fleet.limits import FleetLimiter
from automate.serving.fleet.members import Member, Members, Pace
from automate.serving.fleet.pool import Pool, Slot
from automate.serving.fleet.records import FleetSpec, WorkerRecord
from automate.serving.fleet.registry import Watch
from automate.settings_fleet import Routing

T = TypeVar("T")

Outlook = Callable[[], Awaitable[str | None]]
"""Asked while there is no worker: why there will be none, or None while one may still come."""

_BUSY = (429, 503)
"""Statuses by which a worker says that it has too much to do; 503 also that it ends."""
_ELSEWHERE = (502, 503, 504)
"""Statuses after which there is nothing to wait for: another worker is asked at once."""
_WORKERS_A_SECOND = 4
"""How many workers are asked for their metrics in a second, at most."""


@dataclass(frozen=True)
class Load:
    """A worker as the pool sees it: requests that were sent to it and not answered, and how many it may have."""

    worker: str
    in_flight: int
    limit: int
    usable: bool
    done: int


class FleetClient:
    """Looks like a JudgeClient of one server; each call goes to the worker that the pool chooses."""

    def __init__(self, fleet: FleetServing) -> None:
        self._fleet = fleet

    async def chat(self, messages: Messages, *, max_tokens: int, temperature: float,
                   extra: Mapping[str, object] | None = None, timeout: float | None = None,
                   affinity: str | None = None) -> Reply:
        """One chat completion by one worker. Raises as JudgeClient.chat; the next try goes to another worker."""
        reply = await self._fleet.ask(lambda client: client.chat(
            messages, max_tokens=max_tokens, temperature=temperature, extra=extra, timeout=timeout), affinity)
        self._fleet.members.lengths.add(reply.prompt_tokens, reply.output_tokens)
        return reply

    async def count_tokens(self, messages: Messages) -> tuple[int, int | None]:
        """As JudgeClient.count_tokens, by any worker."""
        return await self._fleet.ask(lambda client: client.count_tokens(messages))

    async def metrics(self, timeout: float = 10) -> str:
        """The metrics of all workers as last seen, one after the other, as text that can be summed.

        What workers counted that have left stays in it, so that no sum falls.
        """
        members = self._fleet.members
        return members.past + "".join(member.metrics for member in members.known.values())


class FleetServing:
    """Fits the engine's `Serving`. Async context manager: it watches the registry while it is open.

    `context`: tokens, the least of the workers'; None as long as none is known. `limiter`: how many requests may be in
    flight over all workers; give it to the engine and the referee. `concurrency`: a fixed number for each worker.
    `again`: the command that makes the fleet anew and goes on, for advice.
    """

    limiter: FleetLimiter

    def __init__(self, places: FleetPlaces, spec: FleetSpec, model: str, *, say: Callable[[str], None],
                 job_alive: JobAlive, outlook: Outlook, version: str, routing: Routing = "affinity",
                 overload: float = 1.5, concurrency: int | None = None, pace: Pace | None = None,
                 again: str | None = None) -> None:
        self.places = places
        self.spec = spec
        self.model = model
        self.limiter = FleetLimiter()
        self._pace = pace or Pace()
        self._again = again
        self._say = say
        self._outlook = outlook
        self._watch = Watch(places, spec, job_alive, version=version)
        self._pool = Pool(routing, overload)
        self.members = Members(model, self._pool, self._connect, say=say, changed=self._changed,
                               concurrency=concurrency, pace=self._pace)
        self._client = FleetClient(self)
        self._secrets: Secrets | None = None
        self._news = asyncio.Event()
        self._error: Exception | None = None
        self._lost: float | None = None
        self._refused: float | None = None
        self._tasks: list[asyncio.Task[None]] = []

    # --- the engine's side --------------------------------------------------------------------------
    @property
    def context(self) -> int | None:
        return min((member.context for member in self.members.known.values()
                    if member.met and not member.refused and member.context is not None), default=None)

    @property
    def up(self) -> bool:
        """Whether any worker is usable."""
        return any(member.usable for member in self.members.known.values())

    async def client(self) -> FleetClient:
        """The client, as soon as there is a usable worker. Raises ServerError when there will be none."""
        await self._news.wait()
        if self._error is not None:
            raise self._error
        return self._client

    def suspect(self) -> None:
        """Nothing to do: the worker that failed is known already."""

    def loads(self) -> Sequence[Load]:
        """Every worker that is known now."""
        return [Load(member.record.id, member.slot.in_flight, member.slot.limit, member.usable, member.slot.done)
                for member in self.members.known.values()]

    async def ask(self, call: Callable[[JudgeClient], Awaitable[T]], question: str | None = None) -> T:
        """One request to the worker that the pool chooses. Raises as `call` does, but no ServerError of one worker."""
        return await self.ask_worker(lambda client, _: call(client), question)

    async def ask_worker(self, call: Callable[[JudgeClient, str], Awaitable[T]], question: str | None = None) -> T:
        """As `ask`; `call` is told the id of the worker that was chosen, so that it can ask as that one is to be asked.
        """
        slot = await self._pool.take(question)
        try:
            return await self._ask(slot, call)
        finally:
            self._pool.give(slot)

    async def _ask(self, slot: Slot, call: Callable[[JudgeClient, str], Awaitable[T]]) -> T:
        member = self.members.of(slot)
        if member is None:
            raise TransportFailed(f"worker {slot.worker} has just left")
        try:
            return await call(member.client, slot.worker)
        except TransportFailed as error:
            self._failed(member, error)
            if error.status in _ELSEWHERE:
                raise TransportFailed(error.what, status=error.status) from error
            raise
        except ServerError as error:
            self.members.refuse(member, error.what)
            raise TransportFailed(f"{member}: {error.what}") from error

    def _failed(self, member: Member, error: TransportFailed) -> None:
        if error.status in _BUSY:
            member.slot.limiter.told_to_wait()
        if error.status is None or (error.status >= 500):
            self.members.in_doubt(member, error.what)

    # --- while it is open -----------------------------------------------------------------------------
    async def __aenter__(self) -> FleetServing:
        self._secrets = await asyncio.to_thread(read_secrets, self.places)
        self._tls = client_context(self._secrets)
        self._tasks = [asyncio.create_task(self._run(turn, pause)) for turn, pause in (
            (self._look, self._pace.look), (self._look_out, self._pace.outlook), (self._measure, self._pace.metrics))]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.members.close()

    def _connect(self, record: WorkerRecord) -> JudgeClient:
        if self._secrets is None:
            raise RuntimeError("the fleet is not open")
        group = self.spec.group_of(self.model)
        return JudgeClient(Address(record.url), self.model, key=self._secrets.key, tls=self._tls,
                           timeout=group.request_timeout if group else 1800.0)

    def _changed(self) -> None:
        self.limiter.follow(self._pool.places)
        self._pool.changed()
        if self.up and self._error is not None:
            self._end(None)
        (self._news.set if self.up or self._error is not None else self._news.clear)()

    def _end(self, error: Exception | None) -> None:
        self._error = error
        self._pool.fail(error)
        if error is not None:
            self._news.set()

    async def _run(self, turn: Callable[[], Awaitable[None]], pause: float) -> None:
        """One turn after another; what nobody foresaw reaches the engine instead of ending the turns in silence."""
        try:
            while True:
                await turn()
                await asyncio.sleep(pause)
        except Exception as error:
            self._end(error)

    async def _look(self) -> None:
        try:
            seen = await asyncio.to_thread(self._watch.look)
        except FlockError as error:
            self._registry_lost(error)
            return
        if self._lost is not None:
            self._say(f"fleet {self.spec.name}: its registry can be read again")
            self._lost = None
        await self.members.update(seen)

    def _registry_lost(self, error: FlockError) -> None:
        now = time.monotonic()
        if self._lost is None:
            self._lost = now
            self._say(f"fleet {self.spec.name}: its registry can't be read; the workers that are known are used on: "
                      f"{error}")
        if not self.up and now - self._lost > self._pace.lost:
            again = f"'{self._again}'" if self._again else "the same command"
            self._end(ServerError(
                f"the registry of the fleet {self.spec.name} can't be read, and none of its workers answers",
                where=str(self.places.workers), todo="see whether the workspace's file system is there; then run "
                f"{again} again: what was played is kept"))

    async def _look_out(self) -> None:
        if self.up or self._error is not None:
            return
        why = await self._outlook() or self._all_refused()
        if why and not self.up:
            shows = f"'flock-hpc serve --status --name {self.spec.name}' shows its workers"
            todo = f"'{self._again}' makes the fleet anew and goes on; {shows}" if self._again else shows
            self._end(ServerError(f"the fleet {self.spec.name} has no worker for {self.model}: {why}",
                                  where=str(self.places.home), todo=todo))

    def _all_refused(self) -> str | None:
        """Why none of the workers that are there can be used, where that has been so for long."""
        whys = [member.problem for member in self.members.known.values()]
        if not whys or not all(whys):
            self._refused = None
            return None
        self._refused = self._refused or time.monotonic()
        return f"none that is there can be used ({whys[-1]})" \
            if time.monotonic() - self._refused >= self._pace.refused else None

    async def _measure(self) -> None:
        """Ask the workers for their metrics, at once but not too many a second; their limits follow."""
        usable = self.members.usable
        await asyncio.gather(*(self._measure_one(member) for member in usable))
        self._changed()
        await asyncio.sleep(max(0.0, len(usable) / _WORKERS_A_SECOND - self._pace.metrics))

    async def _measure_one(self, member: Member) -> None:
        with contextlib.suppress(FlockError):
            self.members.measured(member, await member.client.metrics(self._pace.timeout))
