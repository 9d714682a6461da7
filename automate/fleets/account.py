"""What the seconds of a fleet's servers went into: measured in a worker, added up from the records of all starts.

Never asks a clock of another machine: each start measures itself by one that never jumps."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from automate.fleet_places import FleetPlaces
from automate.processes import process_start
from automate.serving.fleet.files import read_or_none
from automate.serving.fleet.records import Spent

Clock = Callable[[], float]


class Meter:
    """Seconds of one job: load until its server is ready, then work while a request is in flight, else idle.

    Fits the relay's `Counting`. `age`: seconds that the job had run before this was made; they were load. What is
    passed on while the server isn't `serving` (the worker's own check) is neither counted as served nor as work.
    """

    def __init__(self, clock: Clock = time.monotonic, age: float = 0.0) -> None:
        self._clock = clock
        self._seconds = {"load": max(0.0, age), "work": 0.0, "idle": 0.0}
        self._since = clock()
        self._quiet_since = self._since
        self._serving = False
        self.in_flight = 0
        self.served = 0

    def began(self) -> None:
        """A request was passed on."""
        self._settle()
        self.in_flight += 1

    def ended(self) -> None:
        """A request ended, however it ended."""
        self._settle()
        self.in_flight = max(0, self.in_flight - 1)
        self.served += self._serving
        self._quiet_since = self._clock()

    def serving(self, ready: bool) -> None:
        """The server became ready, or it is not (any more)."""
        self._settle()
        if ready and not self._serving:
            self._quiet_since = self._clock()
        self._serving = ready

    def finish(self) -> None:
        """The job ends: what is left of it is not load, whatever its server does."""
        self.serving(self._serving or self._seconds["work"] + self._seconds["idle"] > 0)

    def spent(self) -> Spent:
        """What the seconds so far went into."""
        self._settle()
        return Spent(**self._seconds)

    def quiet(self) -> float:
        """Seconds without any request, while the server was ready; 0 while it isn't."""
        return self._clock() - self._quiet_since if self._serving and not self.in_flight else 0.0

    def _settle(self) -> None:
        now = self._clock()
        kind = "load" if not self._serving else "work" if self.in_flight else "idle"
        self._seconds[kind] += max(0.0, now - self._since)
        self._since = now


def own_age() -> float:
    """Seconds since this process started: since its job did, as the job's script becomes this process."""
    ticks = process_start(os.getpid())
    try:
        up = float(Path("/proc/uptime").read_text().split()[0])
        return max(0.0, up - int(ticks or 0) / os.sysconf("SC_CLK_TCK")) if ticks else 0.0
    except (OSError, ValueError, IndexError):
        return 0.0


def read_worker_runs(places: FleetPlaces) -> list[dict[str, Any]]:
    """The records of all starts of a fleet's workers, oldest first; empty where there are none."""
    if not places.runs.is_dir():
        return []
    found = []
    for path in sorted(places.runs.glob("*.json")):
        try:
            record = read_or_none(path)
        except OSError:
            continue  # one that can't be read takes nothing from the others
        found += [record] if record is not None else []
    return found


def spent_of(runs: Iterable[Mapping[str, Any]], now: float) -> Spent:
    """All seconds of these starts. One that died without a last word counts until its last update.

    A record without sums counts as load by its own times (epoch seconds), at most until `now`.
    """
    total = Spent()
    for run in runs:
        told = run.get("spent")
        total += _spent(told) if isinstance(told, Mapping) else Spent(load=_lasted(run, now))
    return total


def _spent(told: Mapping[str, object]) -> Spent:
    return Spent(**{name: _number(told.get(name)) for name in ("load", "work", "idle")})


def _lasted(run: Mapping[str, object], now: float) -> float:
    began = _number(run.get("started"))
    return max(0.0, min(now, _number(run.get("ended") or run.get("updated"))) - began) if began else 0.0


def _number(value: object) -> float:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf")
    return float(value) if good else 0.0  # type: ignore[arg-type]
