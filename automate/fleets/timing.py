"""How much time a worker's job has left, and when it takes no more requests.

Asks Slurm seldom: at the start, and once more before it acts on what was said then."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from automate.cluster import own_job
from automate.cluster.own_job import OwnJob
from automate.fleets.ending import lead_of
from automate.serving.fleet.records import Group

Ask = Callable[[Mapping[str, str]], OwnJob | None]


class TimeLeft:
    """A job's time limit. Outside Slurm nobody enforces one here: the local runner sends its signal by itself."""

    def __init__(self, group: Group, environ: Mapping[str, str], *, ask: Ask = own_job.ask,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self.lead = lead_of(group)
        self._environ, self._ask, self._clock = environ, ask, clock
        self._enforced = bool(environ.get("SLURM_JOB_ID")) and not environ.get("FLOCK_HPC_JOB")
        self._limit = group.time_limit or float("inf")
        self._began = clock()
        self._asked: tuple[float, float] | None = None

    async def ask(self) -> None:
        """Ask Slurm when this job ends."""
        own = await asyncio.to_thread(self._ask, self._environ) if self._enforced else None
        if own is not None and own.run_time is not None and own.time_limit is not None:
            self._asked = self._clock(), own.time_limit - own.run_time

    def left(self) -> float:
        """Seconds until the time limit, by Slurm's word, else by the fleet's; infinite without one."""
        if not self._enforced:
            return float("inf")
        if self._asked is not None:
            when, left = self._asked
            return left - (self._clock() - when)
        return self._limit - (self._clock() - self._began)

    def until(self, now: float) -> float | None:
        """When the limit is, in epoch seconds of the clock that says `now`; None without one."""
        left = self.left()
        return None if left == float("inf") else now + left

    def early(self) -> float:
        """Seconds by which Slurm's signal has come too early; Slurm may send it a minute before it is due."""
        return max(0.0, self.left() - self.lead) if self._asked is not None else 0.0

    async def is_over(self) -> bool:
        """Whether no more requests may be taken. Slurm's signal says so too; this holds where it doesn't come."""
        if self.left() > self.lead:
            return False
        await self.ask()  # somebody may have given the job more time
        return self.left() <= self.lead

    def left_at_end(self) -> float:
        """Seconds until the limit, for the last requests: outside Slurm what the signal's lead leaves of it."""
        left = self.left()
        return left if self._enforced else self.lead
