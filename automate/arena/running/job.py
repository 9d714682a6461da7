"""One batch inside its job, whatever its work: begin, be told to stop, end, go on.

Never ends with a record in memory only. What is played, and by which server, says judging.py or the answers' job."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from automate.arena.batches import needs_gpu
from automate.arena.judge import Engine, Item, Playing, Render, Tally
from automate.arena.referee import Serving
from automate.arena.running.ending import NODE_FAULT, SIGNALS, STALLED, TIME_LIMIT, GoOn, Next, never_played, why_ended
from automate.arena.running.holdings import Holdings, L
from automate.arena.running.job_config import JobConfig
from automate.arena.running.pulse import Pulse
from automate.arena.running.runlog import RunLog
from automate.arena.running.telemetry import Telemetry, deaths_of
from automate.arena.running.timelimit import TimeLimit
from automate.cluster import own_job
from automate.durations import in_words, seconds_of
from automate.errors import ConfigError, FlockError, ServerError
from automate.processes import PR_SET_CHILD_SUBREAPER, prctl
from automate.serving.server import JudgeServer

Say = Callable[[str], None]
STOP_GRACE = 20.0
"""Seconds that games in flight have after SIGTERM; Slurm's own KillWait is 30 by default."""
OK, FAILED, INCOMPLETE, STOPPED = 0, 1, 3, 143


@dataclass
class Job(ABC):
    """One start of one batch. `script` starts its servers when called as `bash script serve ADDRESS...`."""

    config: JobConfig
    script: Path
    say: Say
    engine: Playing | None = None
    servers: list[JudgeServer] = field(default_factory=list)
    stopped_by: str | None = None
    broke: bool = False
    over: bool = False
    total: int | None = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    telemetry: Telemetry = field(default_factory=Telemetry)

    def __post_init__(self) -> None:
        self.log = self._open_log()
        self.time = TimeLimit(self.config, os.environ, self.telemetry)
        self._held: Holdings[Any] | None = None

    def hold(self, claim_of: Callable[[str], Path], ledger_of: Callable[[str], L | str]) -> Holdings[L]:
        """The holdings of this start; they are beaten for, and given up at its end."""
        holdings = Holdings(self.config, self.say, self.stopping.is_set, claim_of, ledger_of)
        self._held = holdings
        return holdings

    @property
    def held(self) -> Holdings[Any]:
        """What this start holds."""
        if self._held is None:
            raise RuntimeError("the job holds nothing")
        return self._held

    @property
    def server(self) -> JudgeServer | None:
        """The server that was started last."""
        return self.servers[-1] if self.servers else None

    @abstractmethod
    def facts_of(self) -> dict[str, object]:
        """Of the run's record: what kind of work it is."""

    @abstractmethod
    def load_facts(self) -> dict[str, object]:
        """Of each load in the run's record: what else is known."""

    @abstractmethod
    async def prepare(self) -> int:
        """Take the models; how much is due. Raises FlockError for what a user must mend."""

    @abstractmethod
    async def work(self) -> int:
        """Start what is needed and play all that is due; the exit status."""

    async def run(self) -> int:
        """Run the batch to its end, and go on where there is something left; the exit status.

        Raises FlockError for what a user must mend.
        """
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.log.update()
        self._listen()
        failure: BaseException | None = None
        status = FAILED
        try:
            status = await self._run()
        except BaseException as error:
            failure = error
            self._note(error)
        finally:
            self._close()
        status = await self._go_on(status, failure)
        if failure is not None:
            raise failure
        return status

    def _open_log(self) -> RunLog:
        settings = self.config.settings
        cards = settings.slurm.gpus if needs_gpu(settings) else 0
        limit = seconds_of(settings.slurm.time)
        return RunLog(self.config.workspace.runs, self.config.plan, self.config.batch, kind=self.config.kind,
                      gpus=cards, gpu=settings.gpu.name, time_limit=limit if limit < float("inf") else None,
                      **self.facts_of())

    async def _run(self) -> int:
        await self.time.ask()
        due = self.total = await self.prepare()
        held = self.held
        self.say(f"batch {self.config.batch}: {due} {self.config.words.things} due of {len(held.ledgers)} models")
        self.log.update(phase="loading", due=due, models=list(held.ledgers), skipped=held.skipped)
        status = await self._work_or_stop() if due and not self.stopped_by else OK
        return FAILED if self.broke or held.broken else STOPPED if self.stopped_by else status

    def _note(self, error: BaseException) -> None:
        """Keep an error for the record; a broken node is a reason to go on elsewhere."""
        if isinstance(error, ServerError) and error.node_fault and not self.stopped_by:
            self.stopped_by = NODE_FAULT
        with contextlib.suppress(FlockError):
            hopeless = isinstance(error, ConfigError) or (isinstance(error, ServerError) and error.hopeless)
            self.log.update(error=str(error), hopeless=hopeless)

    async def _go_on(self, status: int, failure: BaseException | None) -> int:
        """Write down how it ended, and go on by a requeue or a successor where games are left."""
        with contextlib.suppress(FlockError):
            self.over, going_on = True, False
            self.log.update(**self.facts(), **self.telemetry.values(), in_flight=0)
            if self.stopped_by is not None:
                step = await asyncio.to_thread(self._next)
                going_on = step.kind != "none"
                if going_on or (status == STOPPED and self.total == self.telemetry.games):
                    status = OK
            await self.clear_away(going_on)
            self.log.update(phase="ended", status=status if failure is None else FAILED, ended=time.time())
        return status

    def _next(self) -> Next:
        go_on, own = GoOn(self.config, self.say, os.environ), own_job.ask(os.environ)
        why = why_ended(own, self.stopped_by) if self.stopped_by in SIGNALS else str(self.stopped_by)
        played = self.telemetry.games
        left = None if self.total is None else self.total - played
        end = go_on.end_of(why, left, played, self.hindered())
        if end.never_played:
            self.log.update(hopeless=True, error=never_played(self.config.words))
        self.log.update(stopped_by=why)
        return go_on.finish(self.log, end, own)

    # --- signals --------------------------------------------------------------------------------
    def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, signal.Signals(number).name)
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            loop.add_signal_handler(number, self._time_is_near)

    def _time_is_near(self) -> None:
        """Slurm's signal came; where it came early, what is left of the time is still used."""
        early = self.time.early()
        if early > 1.0:
            self.say(f"told of the time limit {in_words(early)} early: {self.config.words.things} are started "
                     "until then")
        asyncio.get_running_loop().call_later(early if early > 1.0 else 0.0, self._stop, TIME_LIMIT)

    def _stop(self, why: str) -> None:
        """Start no more games. Those in flight have as long as the time limit leaves, or some seconds."""
        if self.over or (why == TIME_LIMIT and self.stopped_by == TIME_LIMIT):
            return
        grace = self.time.grace() if why == TIME_LIMIT else 0.0 if why.startswith(STALLED) else STOP_GRACE
        self.say(f"{why}: no more {self.config.words.things} are started; those in flight have {in_words(grace)} to "
                 "finish")
        self.stopped_by = self.stopped_by or why
        self.stopping.set()
        if self.server is not None:
            self.server.stop_restarting(hurry=why in SIGNALS)
        if self.engine is not None:
            self.engine.stop(grace)
        with contextlib.suppress(FlockError):
            self.log.update(phase="draining", stopped_by=self.stopped_by)

    # --- the play -------------------------------------------------------------------------------
    async def _work_or_stop(self) -> int:
        """Work; a server that ends after the job was told to stop is no failure."""
        try:
            return await self.work()
        except ServerError as error:
            if not self.stopped_by:
                raise
            self.say(f"the {self.config.words.server}'s server ended with the job: {error.what}")
            return STOPPED

    async def play_with(self, engine: Engine[Item], serving: Serving, tasks: Iterable[tuple[Item, Render]],
                        total: int) -> Tally:
        """Play through an engine while the pulse beats; raises what makes going on useless."""
        self.engine = engine
        if self.stopped_by:
            engine.stop()
        ticker = asyncio.create_task(self._pulse(engine, total).run())
        try:
            await self._wait_ready(serving)
            self.telemetry.playing()
            if not self.stopped_by:
                self.log.update(phase="playing")
            return await engine.play(tasks)
        finally:
            ticker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ticker

    def _pulse(self, engine: Playing, total: int) -> Pulse:
        limits, held = self.config.settings.limits, self.held
        return Pulse(engine, total, self.log, self.telemetry, held.held, held.ledgers, limits.stall,
                     limits.claim_stale, self.is_up, self.say, self.must_stop, self.facts, self.time,
                     self.config.words.thing)

    def is_up(self) -> bool:
        """Whether there is a server that could answer."""
        return self.server is None or self.server.up

    def hindered(self) -> bool:
        """Whether servers died, or never came, so that this start's load time says nothing."""
        return any(server.deaths for server in self.servers)

    async def clear_away(self, going_on: bool) -> None:  # noqa: B027 - most jobs have nothing to clear away
        """Called at the very end: end what others than this job's servers did for it, unless the batch goes on."""

    def must_stop(self, why: str) -> None:
        if self.stopped_by is None:
            self._stop(why)
        if why.startswith(STALLED):
            self.broke = True
            self.log.update(error=f"{why}\n  -> see what the {self.config.words.server}'s server says ('flock-hpc "
                            f"logs'), then '{self.config.words.submit}'")

    def facts(self) -> dict[str, object]:
        """What the run's record says of the judge's servers so far."""
        if not self.servers:
            return {}
        return {"load": [{"seconds": round(seconds, 3), **self.load_facts()}
                         for server in self.servers for seconds in server.loads],
                "deaths": [death for server in self.servers
                           for death in deaths_of(server.deaths, str(self.log.data["node"]))]}

    async def _wait_ready(self, serving: Serving) -> None:
        """Wait for a ready server, but no longer than until the job is told to stop."""
        ready, stopping = asyncio.ensure_future(serving.client()), asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait({ready, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                ready.result()
        finally:
            ready.cancel()
            stopping.cancel()

    def told(self, tally: Tally, total: int) -> int:
        """Say what was played; whether that is all, as an exit status."""
        things = self.config.words.things
        parts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(tally.outcomes.items())) or "none"
        self.say(f"{self.config.words.past} {tally.played} of {total} {things}: {parts}")
        if tally.unanswered:
            self.say(f"{tally.unanswered} {things} got no answer and stay due; the last: {tally.last_unanswered}")
        return OK if tally.played == total else INCOMPLETE

    # --- after ----------------------------------------------------------------------------------
    def _close(self) -> None:
        for failed in self._held.close() if self._held else ():
            self.say(str(failed))
        cache = os.environ.get("FLOCK_HPC_CACHE")
        if cache and Path(cache).name.startswith("flock-hpc-"):
            shutil.rmtree(cache, ignore_errors=True)
