"""What a worker looks for in its fleet's folder: that it is asked to end, that the folder is lost, that nobody uses it.

Only reads; trusts no clock of other machines, as it counts by its own since something changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from automate.claims import no_jobs
from automate.errors import DataError, StorageError
from automate.fleet_places import FleetPlaces
from automate.fleets.ending import LOST, REPLACED, RETIRED, STOPPED
from automate.serving.fleet import registry
from automate.serving.fleet.records import FleetSpec, Group, WorkerRecord
from automate.serving.fleet.registry import Watch
from automate.serving.fleet.users import users

Clock = Callable[[], float]


class Lookout:
    """Looks at one fleet's folder for one worker. Call its methods in a thread: the file system may be slow."""

    def __init__(self, places: FleetPlaces, spec: FleetSpec, clock: Clock = time.monotonic) -> None:
        self._places, self._spec, self._clock = places, spec, clock
        self._seen = clock()
        self._used: float | None = None
        self._watch: Watch | None = None

    def look(self, workers: Iterable[str]) -> str | None:
        """Why the worker, known by these ids, has to end; None as long as it need not."""
        try:
            spec = registry.read_spec(self._places)
        except (StorageError, DataError):
            spec = None
        if spec is None or not self._places.workers.is_dir():
            return LOST if self._clock() - self._seen >= self._spec.stale else None
        self._seen = self._clock()
        if spec.id != self._spec.id:
            return REPLACED
        try:
            if registry.read_wish(self._places).stop:
                return STOPPED
            return RETIRED if any(registry.is_retired(self._places, worker) for worker in workers) else None
        except (StorageError, DataError):
            return None  # asked again in a moment

    def least(self, group: Group) -> int:
        """How many workers of a group stay when there is nothing to do, by the wish."""
        try:
            return registry.read_wish(self._places).bounds_of(group)[0]
        except (StorageError, DataError):
            return group.least

    def used(self) -> bool:
        """Whether an engine or a router has used the fleet within `idle` seconds.

        Asked from when the worker has been idle for half of that; if nobody uses it then, that counts as well.
        """
        now, idle = self._clock(), self._spec.idle
        try:
            using = bool(users(self._places, stale=self._spec.stale))
        except StorageError:
            return True  # nobody can tell: `look` says when the folder is lost
        if using or self._used is None:
            self._used = now if using else now - idle / 2
        return now - self._used < idle

    def alive(self, version: str) -> list[WorkerRecord]:
        """The workers that are registered and beat; none where that can't be read."""
        if self._watch is None:
            self._watch = Watch(self._places, self._spec, no_jobs, version=version, clock=self._clock)
        try:
            return [seen.record for seen in self._watch.look().values() if seen.life == "alive" and not seen.why]
        except StorageError:
            return []

