"""Fleets for tests and benchmarks: model servers, each behind a relay with TLS, in a registry on disk.

A worker's judge is a rehearsal in this process, or whatever serves at a Unix socket; its relay is in this process."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from automate.claims import myself
from automate.fleet_places import FleetPlaces
from automate.journal import write_json
from automate.serving.fleet.keys import make_secrets, read_secrets, server_context
from automate.serving.fleet.members import Pace
from automate.serving.fleet.records import FleetSpec, Group, WorkerRecord
from automate.serving.fleet.registry import register, unregister
from automate.serving.fleet.serving import FleetServing
from automate.serving.rehearsal import make_app
from automate.serving.rehearsal_behaviour import Behaviour
from automate.serving.relay.relay import Answer, Asked, Relay, Target

JUDGE, VERSION, HOST = "judge", "1.0", "127.0.0.1"
QUICK = Pace(look=0.02, metrics=0.05, outlook=0.05, again=0.05, abandon=0.2, lost=0.3, refused=0.3, timeout=5)


def make_spec(**more: Any) -> FleetSpec:
    """A fleet of one model, with the quick times of a test."""
    values: dict[str, Any] = {
        "name": "main", "id": "f1", "version": VERSION, "created": time.time(), "user": "ada", "executor": "local",
        "groups": (Group(1, JUDGE, "worker_1.sh", 1, 4),), "print": "p", "stale": 3600.0, **more}
    return FleetSpec(**values)


class Worker:
    """A judge behind a relay, registered when started. `asked`: what chats it was given, by content.

    `behaviour`: of a rehearsal in this process; None: another process serves at `socket`.
    """

    def __init__(self, places: FleetPlaces, socket: Path, name: str, behaviour: Behaviour | None,
                 **record: Any) -> None:
        self.places, self.behaviour, self.socket = places, behaviour, str(socket)
        self.asked: list[str] = []
        self.said: dict[str, Any] = {}
        self.down = self.mute = False
        self.port = 0
        self.record = WorkerRecord(**{
            "id": name, "fleet": "f1", "group": 1, "model": JUDGE, "host": HOST, "port": 0, "nonce": f"nonce-{name}",
            "version": VERSION, "holder": myself(), "job": None, "node": f"node-{name}", **record})
        self._runner: web.AppRunner | None = None
        self._relay: Relay | None = None

    async def start(self, *, key: str | None = None) -> None:
        """Serve, and register."""
        if self.behaviour is not None:
            self._runner = web.AppRunner(make_app(self.record.model, self.behaviour), handler_cancellation=True)
            await self._runner.setup()
            await web.UnixSite(self._runner, self.socket).start()
        await self.listen(key=key)
        self.record = replace(self.record, port=self.port)
        register(self.places, self.record)

    async def listen(self, *, key: str | None = None, port: int = 0) -> None:
        """Put the relay before it."""
        self._relay = Relay(key or read_secrets(self.places).key, self._pick, tls=server_context(self.places, HOST))
        self.port = await self._relay.start(HOST, port)

    async def _pick(self, asked: Asked) -> Target | Answer:
        if self.mute:
            await asyncio.Event().wait()
        if asked.path == "/flock-hpc/worker":
            names = ("id", "nonce", "fleet", "model", "version")
            return Answer(200, orjson.dumps({**{n: getattr(self.record, n) for n in names}, **self.said}))
        if self.down:
            return Answer(502, b'{"error": {"message": "the model server is not there"}}')
        if asked.path == "/v1/chat/completions":
            self.asked.append(orjson.loads(asked.body)["messages"][-1]["content"])
        return Target(uds=self.socket)

    @property
    def in_flight(self) -> int:
        return self._relay.in_flight if self._relay else 0

    def register(self, **values: Any) -> None:
        """A heartbeat, with what has changed."""
        self.record = self.record.beaten(time.time(), **values)
        register(self.places, self.record)

    async def die(self) -> None:
        """Close every connection, and answer no more; the record stays."""
        if self._relay is not None:
            await self._relay.close()
            self._relay = None

    async def end(self, *, word: bool = True) -> None:
        """End; with a last word to the registry."""
        if word:
            unregister(self.places, self.record, "the test says so")
        await self.die()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None


class Rig:
    """A fleet's folder, its workers, and what was said."""

    def __init__(self, folder: Path, **spec: Any) -> None:
        self.folder = folder
        self.places = FleetPlaces(folder, "main")
        self.spec = make_spec(**spec)
        self.said: list[str] = []
        self.why: str | None = None
        self.asked = 0
        self.workers: dict[str, Worker] = {}
        make_secrets(self.places)
        self.places.workers.mkdir(parents=True, exist_ok=True)
        write_json(self.places.spec, self.spec.as_json())

    async def worker(self, name: str, behaviour: Behaviour | None = None, *, key: str | None = None,
                     **record: Any) -> Worker:
        """A worker that is started and registered."""
        socket = self.folder / f"{name}.sock"
        worker = self.workers[name] = Worker(self.places, socket, name, behaviour or Behaviour(), **record)
        await worker.start(key=key)
        return worker

    async def front(self, name: str, socket: Path, **record: Any) -> Worker:
        """A worker before a server that is there already."""
        worker = self.workers[name] = Worker(self.places, socket, name, None, **record)
        await worker.start()
        return worker

    async def outlook(self) -> str | None:
        self.asked += 1
        return self.why

    def serving(self, **options: Any) -> FleetServing:
        """The fleet as an engine sees it."""
        values: dict[str, Any] = {"job_alive": lambda job: None, "outlook": self.outlook, "version": VERSION,
                                  "say": self.said.append, "concurrency": 4, "pace": QUICK, **options}
        return FleetServing(self.places, self.spec, self.spec.groups[0].model, **values)

    def told(self, text: str) -> int:
        """How many lines say this."""
        return sum(text in line for line in self.said)


@contextlib.asynccontextmanager
async def rig_of(folder: Path, *names: str, behaviour: Behaviour | None = None, **spec: Any) -> AsyncIterator[Rig]:
    """A fleet with these workers, for as long as the block lasts."""
    rig = Rig(folder, **spec)
    try:
        for name in names:
            await rig.worker(name, behaviour)
        yield rig
    finally:
        for worker in rig.workers.values():
            await worker.end(word=False)


async def until(true: Callable[[], bool], what: str = "it", seconds: float = 20) -> None:
    """Wait until something is so, with a deadline."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"{what} did not come about"
        await asyncio.sleep(0.005)


async def usable(serving: FleetServing, count: int) -> None:
    """Wait until so many workers are usable."""
    await until(lambda: sum(load.usable for load in serving.loads()) == count, f"{count} usable workers")
