"""A worker's place in the registry: registered, beaten for, taken out; its writes never overtake each other.

Never blocks the event loop: a slow file system delays a heartbeat, and no request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from automate.errors import StorageError
from automate.fleet_places import FleetPlaces
from automate.serving.fleet import registry
from automate.serving.fleet.records import WorkerRecord


class Presence:
    """One worker in the registry of its fleet. `record` is None as long as it is not registered."""

    def __init__(self, places: FleetPlaces, say: Callable[[str], None],
                 clock: Callable[[], float] = time.time) -> None:
        self.record: WorkerRecord | None = None
        self.known: list[str] = []
        self._places, self._say, self._clock = places, say, clock
        self._writer = ThreadPoolExecutor(1, "registry")  # one thread: what is asked last is written last
        self._failing = False

    async def register(self, record: WorkerRecord) -> None:
        """Register-Worker. Where it can't be written now, the next heartbeat tries again."""
        self.record = record
        self.known.append(record.id)
        await self._write(record)

    async def beat(self, **values: object) -> None:
        """The next heartbeat, with these values of the record changed; nothing where it is not registered."""
        if self.record is not None:
            self.record = self.record.beaten(self._clock(), **values)
            await self._write(self.record)

    async def leave(self, why: str) -> None:
        """Unregister-Worker; harmless where it is not registered."""
        record, self.record = self.record, None
        if record is not None:
            await self._call(lambda: registry.unregister(self._places, record, why))

    async def _write(self, record: WorkerRecord) -> None:
        await self._call(lambda: registry.register(self._places, record))

    async def _call(self, write: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._writer, self._try, write)

    def _try(self, write: Callable[[], None]) -> None:
        try:
            write()
            self._failing = False
        except StorageError as error:
            if not self._failing:
                self._say(f"the registry can't be written, and is tried again: {error}")
            self._failing = True
