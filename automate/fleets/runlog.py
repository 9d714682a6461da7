"""What one start of a worker says of itself: one small file, replaced by rename, with a heartbeat.

Never fails its worker: what can't be written now is written with the next change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from automate.claims import Holder
from automate.cluster.own_job import own_job_id, own_node, own_restart
from automate.errors import StorageError
from automate.fleet_places import FleetPlaces
from automate.journal import fresh_name, write_json
from automate.serving.fleet.records import Group
from automate.serving.launch import Death


class WorkerLog:
    """The record of one start. Its keys, each absent where it is not known (yet):

    id (the worker's in the registry; new when its server was started again), group, model, job, node, restart, holder,
    gpus; phase (loading, ready, draining, ended); started, updated, ended (epoch seconds); seconds (of this start, by a
    clock that never jumps); spent (load, work, idle: seconds); loads (list of seconds), deaths (list: cause, what,
    node, node_fault, time), served; why (why it ended), status, next (kind: requeue, slurm or none; why), error,
    hopeless.
    """

    def __init__(self, places: FleetPlaces, group: Group, environ: Mapping[str, str], holder: Holder,
                 say: Callable[[str], None], age: float = 0.0) -> None:
        self.id = fresh_name(f"g{group.number}")
        self.node = own_node(environ)
        self.data: dict[str, Any] = {
            "id": self.id, "group": group.number, "model": group.model, "job": own_job_id(environ), "node": self.node,
            "restart": own_restart(environ), "holder": asdict(holder), "gpus": group.gpus,
            "started": time.time() - age, "phase": "loading",
        }
        self._places, self._say = places, say
        self._path = places.runs / f"{self.id}.json"
        self._writer = ThreadPoolExecutor(1, "record")  # one thread: what is said last is written last
        self._failing = False

    async def update(self, **values: object) -> None:
        """Change some values and write the record, in a thread."""
        self.data.update(values, updated=time.time())
        await asyncio.get_running_loop().run_in_executor(self._writer, self._write, dict(self.data))

    def _write(self, data: Mapping[str, Any]) -> None:
        """Not where the fleet's folder has gone, which would make a ghost of it."""
        try:
            if self._places.home.is_dir():
                write_json(self._path, data)
                self._failing = False
        except StorageError as error:
            if not self._failing:
                self._say(f"its record can't be written, and is tried again: {error.what}")
            self._failing = True


def deaths_of(deaths: Iterable[Death], node: str) -> list[dict[str, Any]]:
    """Deaths of servers as the record holds them."""
    return [{**asdict(death), "node": node} for death in deaths]
