"""What the tests of a fleet's registry share: a fleet on disk, workers' records, a clock that is set by hand."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from automate.claims import Holder, myself
from automate.fleet_places import FleetPlaces
from automate.serving.fleet.records import FleetSpec, Group, WorkerRecord
from automate.serving.fleet.registry import Seen, Watch, register

VERSION = "1.2.3"
GROUP = Group(0, "judge", "worker_0.sh", 1, 4, also=("adapter",))
STALE = 30.0


def make_spec(**changes: Any) -> FleetSpec:
    """A fleet of one group."""
    spec = FleetSpec("f", "fleet-id", VERSION, 1.0, "me", "slurm", (GROUP,), "print", stale=STALE)
    return replace(spec, **changes)


def elsewhere(job: str | None = "7", **changes: Any) -> Holder:
    """A process of another machine."""
    values = {"host": "elsewhere", "boot": "other", "pid_space": "other", "job": job, **changes}
    return replace(myself({}), **values)


def dead(job: str | None = None) -> Holder:
    """A process of this machine that is gone."""
    return replace(myself({}), started="1", job=job)


def make_record(worker: str = "w1", **changes: Any) -> WorkerRecord:
    """A worker's record as it registers."""
    record = WorkerRecord(worker, "fleet-id", 0, "judge", "node-1", 4321, f"nonce-{worker}", VERSION, elsewhere(), "7",
                          "node-1", also=("adapter",), since=100.0)
    return replace(record, **changes)


class Clock:
    """A steady clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Jobs:
    """Slurm's word: `says` by job, and what was asked."""

    def __init__(self, **says: bool | None) -> None:
        self.says: dict[str, bool | None] = {name.removeprefix("j"): word for name, word in says.items()}
        self.asked: list[str] = []

    def __call__(self, job: str) -> bool | None:
        self.asked.append(job)
        return self.says.get(job)


class Fleet:
    """A fleet on disk with a reader of its registry."""

    def __init__(self, places: FleetPlaces, **changes: Any) -> None:
        self.places, self.clock, self.jobs = places, Clock(), Jobs(j7=True)
        self.spec = make_spec(**changes)
        self.watch = self.reader()

    def reader(self, version: str = VERSION) -> Watch:
        """Another reader, who has seen nothing yet."""
        return Watch(self.places, self.spec, self.jobs, version=version, clock=self.clock, me=myself({}))

    def put(self, record: WorkerRecord, *, age: float = 0.0) -> None:
        """A record that was written `age` seconds ago."""
        register(self.places, record)
        then = time.time() - age
        os.utime(self.places.worker(record.id), (then, then))

    def look(self) -> Mapping[str, Seen]:
        return self.watch.look()
