"""How much time a job has left, and when it has to start no more games.

Asks Slurm seldom: at the start, and once more before it acts on what was said then."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from automate.arena.batches import MARGIN, drain_lead
from automate.arena.running.job_config import JobConfig
from automate.arena.running.telemetry import Telemetry
from automate.cluster import own_job
from automate.cluster.own_job import OwnJob
from automate.durations import seconds_of


class TimeLimit:
    """A job's time limit. Outside Slurm nobody enforces one here: the local runner sends its signal by itself."""

    def __init__(self, config: JobConfig, environ: Mapping[str, str], telemetry: Telemetry) -> None:
        settings = config.settings
        self._drain = settings.limits.drain
        self._stop_timeout = settings.judge.server.stop_timeout
        self._limit = seconds_of(settings.slurm.time)
        self._environ = environ
        self._telemetry = telemetry
        self._began = time.monotonic()
        self._asked: tuple[float, float] | None = None
        self._enforced = bool(environ.get("SLURM_JOB_ID")) and not environ.get("FLOCK_HPC_JOB")

    async def ask(self) -> None:
        """Ask Slurm when this job ends."""
        own: OwnJob | None = None
        if self._enforced:
            own = await asyncio.to_thread(own_job.ask, self._environ)
        if own is not None and own.run_time is not None and own.time_limit is not None:
            self._asked = time.monotonic(), own.time_limit - own.run_time

    def left(self) -> float:
        """Seconds until the time limit, by Slurm's word, else by the settings; infinite without one."""
        if not self._enforced:
            return float("inf")
        if self._asked is not None:  # not Slurm's end time: clocks of nodes differ, and jump
            when, left = self._asked
            return left - (time.monotonic() - when)
        return self._limit - (time.monotonic() - self._began)

    def early(self) -> float:
        """Seconds by which a signal has come too early, by Slurm's own word on the time that is left; 0 if it hasn't.

        Slurm may send it a minute before it is due.
        """
        return max(0.0, self.left() - self.lead()) if self._asked is not None else 0.0

    def lead(self) -> float:
        """Seconds before the limit in which no more games are started, by the games of this very job."""
        return drain_lead(self._drain, self._limit, self._telemetry.longest(), self._stop_timeout)

    async def is_over(self) -> bool:
        """Whether no more games may be started. Slurm's signal says so too; this holds where it doesn't come."""
        if self.left() > self.lead():
            return False
        await self.ask()  # somebody may have given the job more time
        return self.left() <= self.lead()

    def grace(self) -> float:
        """Seconds that games in flight have to finish once the drain has begun."""
        left = self.left()
        if left == float("inf"):
            return max(1.0, 0.75 * self.lead())
        return max(1.0, left - self._stop_timeout - MARGIN)
