"""What a controller remembers between its turns: how fast servers come, how long they are quiet, when to ask again.

Counts by one clock that never jumps; forgets all when its process ends, which costs only time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from automate.fleets.jobs import WorkerJob
from automate.serving.fleet.registry import Seen

AGAIN = 60.0
"""Seconds after a refused submission before it is tried again."""
FIRST, LONGEST = 15.0, 600.0
"""Seconds after the first failed start before the next one is asked for; twice as many after each further one."""


@dataclass
class _Activity:
    served: int
    since: float


@dataclass
class Pace:
    """`patience`: within how many seconds a job has to start, so that its kind is said to come fast."""

    patience: float
    _busy: dict[str, _Activity] = field(default_factory=dict)
    _waits: dict[str, float] = field(default_factory=dict)
    _late: dict[int, float] = field(default_factory=dict)
    _asked: dict[int, float] = field(default_factory=dict)
    _refused: dict[int, float] = field(default_factory=dict)

    def quiet(self, seen: Mapping[str, Seen], now: float) -> dict[str, float]:
        """Seconds without a request of each worker, since this process has looked."""
        self._busy = {worker: old for worker, old in self._busy.items() if worker in seen}
        for worker, one in seen.items():
            record, old = one.record, self._busy.get(worker)
            if old is None or record.in_flight or record.running or record.served != old.served:
                self._busy[worker] = _Activity(record.served, now)
        return {worker: now - old.since for worker, old in self._busy.items()}

    def watch(self, jobs: Iterable[WorkerJob], now: float) -> None:
        """Remember since when jobs wait, and which group's came late."""
        waits = {}
        for one in jobs:
            if one.status.state.queued:
                waits[one.job] = self._waits.get(one.job, now)
            elif one.job in self._waits and one.status.state.active:
                if now - self._waits[one.job] > self.patience:
                    self._late[one.group] = now
                else:
                    self._late.pop(one.group, None)
        self._waits = waits

    def slow(self, group: int, now: float) -> bool:
        """Whether the last servers of a group came later than `patience`; so long ago at most."""
        return now - self._late.get(group, float("-inf")) < self.patience

    def asked(self, group: int, now: float) -> None:
        """More were asked for just now."""
        self._asked[group] = now

    def refused(self, group: int, now: float) -> None:
        """The cluster refused some just now."""
        self._refused[group] = now

    def may_ask(self, group: int, failed: int, now: float) -> bool:
        """Whether to ask (again) now: not right after a refusal, and later each time after `failed` starts in a row."""
        if now - self._refused.get(group, float("-inf")) < AGAIN:
            return False
        pause = min(LONGEST, FIRST * 2 ** (failed - 1)) if failed else 0.0
        return now - self._asked.get(group, float("-inf")) >= pause
