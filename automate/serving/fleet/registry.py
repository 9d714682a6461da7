"""The registry of a fleet: a file for each worker, by rename; who lives, who is silent, who is gone.

Never takes silence alone for death: a worker is dropped when its heartbeat is missed and Slurm (or the process table)
says that it is gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from automate.claims import JobAlive
from automate.fleet_places import FleetPlaces
from automate.serving.fleet.records import FleetSpec, Wish, WorkerRecord

Life = Literal["alive", "silent", "gone"]


@dataclass(frozen=True)
class Seen:
    """A worker as a reader sees it. `why`: why it is not used, where it isn't; `silence`: seconds without a beat."""

    record: WorkerRecord
    life: Life
    silence: float = 0.0
    why: str = ""

    @property
    def usable(self) -> bool:
        """Whether requests may be sent to it."""
        return self.life == "alive" and self.record.state == "ready" and not self.why


# --- the worker's side --------------------------------------------------------------------------------
def register(places: FleetPlaces, record: WorkerRecord) -> None:
    """Register-Worker, and each heartbeat: put the record in its place. Raises StorageError (the folder is lost)."""
    raise NotImplementedError


def unregister(places: FleetPlaces, record: WorkerRecord, why: str) -> None:
    """Unregister-Worker: the record leaves the registry for the folder of those gone, with the reason. Idempotent."""
    raise NotImplementedError


# --- everybody's side ---------------------------------------------------------------------------------
def read_spec(places: FleetPlaces) -> FleetSpec | None:
    """What the fleet is; None where there is none. Raises DataError."""
    raise NotImplementedError


def read_wish(places: FleetPlaces) -> Wish:
    """What is wished of it now; nothing where nobody said."""
    raise NotImplementedError


def write_wish(places: FleetPlaces, wish: Wish) -> None:
    """Replace the wish. Hold the control claim."""
    raise NotImplementedError


def retire(places: FleetPlaces, worker: str) -> None:
    """Ask a worker to finish what it has, and to end."""
    raise NotImplementedError


def is_retired(places: FleetPlaces, worker: str) -> bool:
    """Whether it was asked to end."""
    raise NotImplementedError


class Watch:
    """Reads the registry again and again; remembers beats by its own steady clock, so that no clock of others counts.

    `job_alive`: Slurm's word on a job (asked seldom, and only of silent workers).
    """

    def __init__(self, places: FleetPlaces, spec: FleetSpec, job_alive: JobAlive, *, version: str,
                 clock: Callable[[], float] = time.monotonic) -> None:
        raise NotImplementedError

    def look(self) -> Mapping[str, Seen]:
        """Every worker of the registry now, by id; those found gone are dropped from it. Raises StorageError (lost)."""
        raise NotImplementedError
