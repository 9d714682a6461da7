"""A round inside its job: what has no record yet is asked of the fleet, until done or told to stop.

Never opens the database: what it finds is in record files, which others hand in."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from automate import __version__, claims
from automate.cluster import own_job
from automate.errors import ClaimedError, ConfigError, FlockError
from automate.fleets.jobs import alive_of, cluster_of
from automate.pool_places import PoolPlaces
from automate.pools.answering.asking import Asker
from automate.pools.answering.engine import Engine, Part
from automate.pools.answering.fleet import AGAIN, Revive, RoundFleet
from automate.pools.answering.journal import Journal, due, recorded
from automate.pools.answering.requests import Told
from automate.pools.answering.workers import Roster
from automate.pools.round_records import RoundSpec, Work, read_spec, read_work
from automate.serving.fleet.members import Pace
from automate.workspace import Workspace

OK, FAILED, INCOMPLETE, STOPPED = 0, 1, 3, 143
STOP_GRACE = 20.0
"""Seconds that requests in flight have after SIGTERM; Slurm's own KillWait is 30 by default."""
LEAD = 60
"""Seconds before its time limit at which Slurm tells the job."""
TIME_GRACE = 40.0
LOOK = 1.0
"""Seconds between two looks at who is there, with what was written flushed."""
CLAIM_STALE = 15.0
TIME_LIMIT = "the time limit is near"


def fleet_of(round_name: str) -> str:
    """The name of a round's fleet."""
    return f"pool-{round_name}"


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@dataclass
class RoundJob:
    """One start of a round's job. `revive`, `exclude`: see RoundFleet; `fleet`: its name, the round's own unless given.
    """

    workspace: Workspace
    name: str
    say: Callable[[str], None]
    environ: Mapping[str, str]
    revive: Revive | None = None
    exclude: Callable[[], str | None] | None = None
    pace: Pace | None = None
    fleet: str | None = None
    now: Callable[[], int] = now_ms
    why: str | None = None
    engine: Engine | None = None
    answered: int = 0
    rosters: dict[str, Roster] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.places = PoolPlaces(self.workspace.root, self.workspace.settings.pools)

    async def run(self) -> int:
        """Answer what is left; the exit status. Raises FlockError for what a user must mend."""
        self._listen()
        claim = await self._claimed()
        try:
            status = await self._run(claim)
        finally:
            await asyncio.to_thread(claim.release)
        if status == STOPPED and self.why == TIME_LIMIT and self.answered and await self._requeued():
            return OK
        return status

    async def _run(self, claim: claims.Claim) -> int:
        spec = await asyncio.to_thread(read_spec, self.places, self.name)
        left = await asyncio.to_thread(self._due)
        if self.places.done(self.name).exists():
            self.say(f"round {self.name}: it was given up, or is done")
            return OK
        self.say(f"round {self.name}: {len(left)} of {spec.count} questions to ask, of {len(spec.models)} models")
        return await self._answer(spec, left, claim)

    async def _claimed(self) -> claims.Claim:
        """The round's claim; one whose holder is gone is waited for. Raises ClaimedError where another is at it."""
        until = time.monotonic() + 2 * CLAIM_STALE
        while True:
            try:
                return await asyncio.to_thread(self._claim)
            except ClaimedError as error:
                if not error.holder_gone or time.monotonic() > until:
                    raise
            await asyncio.sleep(LOOK)

    def _claim(self) -> claims.Claim:
        on_slurm = bool(self.environ.get("SLURM_JOB_ID")) and not self.environ.get("FLOCK_HPC_JOB")
        alive = alive_of(cluster_of(self.workspace.root, "slurm")) if on_slurm else claims.no_jobs
        return claims.take(self.places.round_claim(self.name), stale=CLAIM_STALE, job_alive=alive)

    def _due(self) -> list[Work]:
        return due(read_work(self.places, self.name), recorded(self.places, self.name))

    # --- the work -------------------------------------------------------------------------------
    async def _answer(self, spec: RoundSpec, left: Sequence[Work], claim: claims.Claim) -> int:
        by_model: dict[str, list[Work]] = {model: [] for model in spec.models}
        for line in left:
            by_model.setdefault(line.model, []).append(line)
        parts: list[Part] = []
        fleet = RoundFleet(self.workspace, self.fleet or fleet_of(self.name), list(spec.models), self.say,
                           lambda: sum(part.left for part in parts), lambda: sum(part.in_flight for part in parts),
                           self.environ, self.revive, self.exclude, self.pace)
        async with fleet:
            if left or not spec.count:
                await self._play(spec, parts, by_model, fleet, claim)
            done = sum(part.done for part in parts) == len(left)
            if done or self.places.done(self.name).exists():
                await fleet.stop()
        return self._ended(parts, done)

    def _parts(self, spec: RoundSpec, fleet: RoundFleet, by_model: Mapping[str, Sequence[Work]],
               journal: Journal) -> list[Part]:
        settings, found = self.workspace.settings, []
        told = {address: Told.of(said) for address, said in spec.workers.items()}
        for model, work in by_model.items():
            serving = fleet.servings.get(model)
            if serving is None:
                self.say(f"fleet '{fleet.name}': it has no servers of {model!r}; run '{AGAIN}' again")
                continue
            self.rosters[model] = Roster(model, journal.worker)
            asker = Asker(serving, self.rosters[model], self.now, told, settings.pools.max_tokens,
                          settings.judge.transport_retries)
            found.append(Part(model, asker, serving.limiter, work, serving.client))
        return found

    async def _play(self, spec: RoundSpec, parts: list[Part], by_model: Mapping[str, Sequence[Work]],
                    fleet: RoundFleet, claim: claims.Claim) -> None:
        journal = await asyncio.to_thread(Journal, self.places, self.name)
        try:
            parts += self._parts(spec, fleet, by_model, journal)
            self.engine = Engine(parts, journal.answer)
            if self.why is not None:
                self.engine.stop(0.0)
            ticker = asyncio.create_task(self._tick(fleet, journal, claim))
            try:
                await self.engine.play()
            finally:
                ticker.cancel()
                await asyncio.gather(ticker, return_exceptions=True)
            await self._look(fleet, journal, claim)
            for roster in self.rosters.values():
                roster.close()
        finally:
            self.answered = journal.answers
            await asyncio.to_thread(journal.close)

    async def _tick(self, fleet: RoundFleet, journal: Journal, claim: claims.Claim) -> None:
        """Show that the job lives, who is there, and keep what was written."""
        while True:
            try:
                await self._look(fleet, journal, claim)
            except FlockError as error:
                self._stop(str(error), 0.0)
            await asyncio.sleep(LOOK)

    async def _look(self, fleet: RoundFleet, journal: Journal, claim: claims.Claim) -> None:
        for model, roster in self.rosters.items():
            loads = fleet.servings[model].loads()
            roster.look([one.worker for one in loads if one.usable], [one.worker for one in loads])
        await asyncio.to_thread(journal.sync)
        if not await asyncio.to_thread(claim.beat):
            self._stop("another job has taken over", 0.0)
        if await asyncio.to_thread(self.places.done(self.name).exists):
            self._stop("the round was given up", 0.0)

    # --- the end --------------------------------------------------------------------------------
    def _ended(self, parts: Sequence[Part], done: bool) -> int:
        answered, errors = sum(part.done for part in parts), sum(part.errors for part in parts)
        self.say(f"round {self.name}: {answered} answered, {errors} of them without an answer; "
                 + ("done" if done else "not done"))
        for part in parts:
            if part.failed is not None and not self.why:
                self.say(f"{part.model}: {part.failed}")
        if done:
            return OK
        if self.why is not None:
            return STOPPED
        return FAILED if any(part.failed is not None for part in parts) else INCOMPLETE

    async def _requeued(self) -> bool:
        """Be put into the queue again, for the rest."""
        try:
            await asyncio.to_thread(own_job.requeue, self.environ, self.workspace.local_queue)
        except FlockError as error:
            self.say(f"not put into the queue again: {error.what}")
            return False
        return True

    def _stop(self, why: str, grace: float) -> None:
        """Start no more requests; those in flight have `grace` seconds."""
        if self.why is None:
            self.say(f"{why}: no more questions are asked")
            self.why = why
        if self.engine is not None:
            self.engine.stop(grace)

    def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
                loop.add_signal_handler(number, self._stop, signal.Signals(number).name, STOP_GRACE)
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
                loop.add_signal_handler(number, self._stop, TIME_LIMIT, TIME_GRACE)


def check_version(version: str, where: str) -> None:
    """Raise ConfigError where a round's script was written by another version of flock-hpc."""
    if version != __version__:
        raise ConfigError(f"this round's job was written by flock-hpc {version}, but {__version__} is installed now",
                          where=where, todo=f"run '{AGAIN}' again")
