"""One batch inside its job: claim its models, start the judge, play what is due, end the judge.

Never plays a model that another live job holds, and never ends with a record in memory only."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from automate.arena.batches import needs_gpu
from automate.arena.context import load_match
from automate.arena.games import Game, Match
from automate.arena.judge import Engine, Tally, Task
from automate.arena.referee import Ask, Referee, Serving
from automate.arena.running.ending import NEVER_PLAYED, NODE_FAULT, SIGNALS, STALLED, TIME_LIMIT, GoOn, Next, why_ended
from automate.arena.running.holdings import Holdings
from automate.arena.running.job_config import JobConfig
from automate.arena.running.loading import Prepared, prepare_weights
from automate.arena.running.pulse import SYNC_EVERY, Pulse, heartbeat
from automate.arena.running.runlog import RunLog
from automate.arena.running.serve import Budget, Remote, admission, launch_of, pace_of
from automate.arena.running.telemetry import Telemetry, deaths_of
from automate.arena.running.timelimit import TimeLimit
from automate.cluster import own_job
from automate.durations import in_words, seconds_of
from automate.errors import ConfigError, FlockError, ServerError
from automate.journal import Record
from automate.processes import PR_SET_CHILD_SUBREAPER, prctl
from automate.serving.limiter import Limiter
from automate.serving.server import JudgeServer

Say = Callable[[str], None]
STOP_GRACE = 20.0
"""Seconds that games in flight have after SIGTERM; Slurm's own KillWait is 30 by default."""
OK, FAILED, INCOMPLETE, STOPPED = 0, 1, 3, 143


@dataclass
class BatchJob:
    """One start of one batch. `script` serves the judge when called as `bash script serve ADDRESS...`."""

    config: JobConfig
    script: Path
    say: Say
    engine: Engine | None = None
    server: JudgeServer | None = None
    stopped_by: str | None = None
    broke: bool = False
    over: bool = False
    total: int | None = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    telemetry: Telemetry = field(default_factory=Telemetry)
    weights: Prepared = field(default_factory=Prepared)

    def __post_init__(self) -> None:
        self.log = self._open_log()
        self.time = TimeLimit(self.config, os.environ, self.telemetry)
        self.holdings = Holdings(self.config, self.say, self.stopping.is_set)

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
        return RunLog(self.config.workspace.runs, self.config.plan, self.config.batch, judge=settings.judge.name,
                      gpus=cards, gpu=settings.gpu.name, time_limit=limit if limit < float("inf") else None)

    async def _run(self) -> int:
        await self.time.ask()
        match = load_match(self.config.workspace)
        holdings = self.holdings
        await holdings.take_all(match, self.log.name)
        games = holdings.due(match)
        self.total = len(games)
        self.say(f"batch {self.config.batch}: {len(games)} games due of {len(holdings.ledgers)} models")
        self.log.update(phase="loading", due=len(games), models=list(holdings.ledgers), skipped=holdings.skipped)
        status = await self._judge_or_stop(match, games) if games and not self.stopped_by else OK
        return FAILED if self.broke or holdings.broken else STOPPED if self.stopped_by else status

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
            self.over = True
            self.log.update(**self._facts(), **self.telemetry.values(), in_flight=0)
            if self.stopped_by is not None:
                step = await asyncio.to_thread(self._next)
                if step.kind != "none" or (status == STOPPED and self.total == self.telemetry.games):
                    status = OK
            self.log.update(phase="ended", status=status if failure is None else FAILED, ended=time.time())
        return status

    def _next(self) -> Next:
        go_on, own = GoOn(self.config, self.say, os.environ), own_job.ask(os.environ)
        why = why_ended(own, self.stopped_by) if self.stopped_by in SIGNALS else str(self.stopped_by)
        played = self.telemetry.games
        left = None if self.total is None else self.total - played
        end = go_on.end_of(why, left, played, bool(self.server and self.server.deaths))
        if end.never_played:
            self.log.update(hopeless=True, error=NEVER_PLAYED)
        self.log.update(stopped_by=why)
        return go_on.finish(self.log, end, own)

    # --- before ---------------------------------------------------------------------------------
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
            self.say(f"told of the time limit {in_words(early)} early: games are started until then")
        asyncio.get_running_loop().call_later(early if early > 1.0 else 0.0, self._stop, TIME_LIMIT)

    def _stop(self, why: str) -> None:
        """Start no more games. Those in flight have as long as the time limit leaves, or some seconds."""
        if self.over or (why == TIME_LIMIT and self.stopped_by == TIME_LIMIT):
            return
        grace = self.time.grace() if why == TIME_LIMIT else 0.0 if why.startswith(STALLED) else STOP_GRACE
        self.say(f"{why}: no more games are started; those in flight have {in_words(grace)} to finish")
        self.stopped_by = self.stopped_by or why
        self.stopping.set()
        if self.server is not None:
            self.server.stop_restarting(hurry=why in SIGNALS)
        if self.engine is not None:
            self.engine.stop(grace)
        with contextlib.suppress(FlockError):
            self.log.update(phase="draining", stopped_by=self.stopped_by)

    # --- the play -------------------------------------------------------------------------------
    async def _judge_or_stop(self, match: Match, games: list[Game]) -> int:
        """Judge; a server that ends after the job was told to stop is no failure."""
        try:
            return await self._judge(match, games)
        except ServerError as error:
            if not self.stopped_by:
                raise
            self.say(f"the judge's server ended with the job: {error.what}")
            return STOPPED

    async def _judge(self, match: Match, games: list[Game]) -> int:
        judge = self.config.settings.judge
        if judge.engine == "upstream":
            return await self._upstream()
        if judge.kind == "openai":
            async with Remote(self.config.workspace) as remote:
                return await self._play(remote, match, games)
        self.weights = await self._prepare_weights()
        if self.stopped_by:
            return STOPPED
        launch = launch_of(self.config, self.script, self.weights.environment)
        async with JudgeServer(launch, self.say) as server:
            self.server = server
            return await self._play(server, match, games)

    async def _upstream(self) -> int:
        """Have upstream's own program play; what it played is counted from its rows."""
        from automate.arena.running.upstream import play_upstream

        status, due = await play_upstream(self.config, self.script, self.holdings.ledgers, self.say,
                                          self.stopping.is_set)
        self.telemetry.games = (self.total or 0) - due
        return OK if status == 0 and not due else INCOMPLETE

    async def _prepare_weights(self) -> Prepared:
        """Measure and stage the weights, which may take long: the claims' hearts go on beating."""
        every = min(SYNC_EVERY, self.config.settings.limits.claim_stale / 4)
        work = asyncio.create_task(asyncio.to_thread(prepare_weights, self.config, self.say, self.stopping.is_set))
        while not work.done():
            await asyncio.wait({work}, timeout=every)
            if (reason := heartbeat(self.holdings.held)) is not None:
                self._must_stop(reason)
            self.log.update()
        return work.result()

    async def _play(self, serving: Serving, match: Match, games: list[Game]) -> int:
        judge = self.config.settings.judge
        limiter = Limiter(None if judge.concurrency == "auto" else judge.concurrency)
        ask = Ask(judge.max_tokens, judge.min_output_tokens, judge.temperature, judge.transport_retries,
                  structured=judge.kind != "openai", tokenize=judge.kind != "openai")
        budget = Budget.of(self.config.workspace)
        referee = Referee(serving, ask, limiter, pace_of(judge.requests_per_minute))
        self.engine = Engine(referee, limiter, lambda game, record: self._keep(game, record, budget),
                             admission(budget, match, self.holdings.ledgers))
        if self.stopped_by:
            self.engine.stop()
        ticker = asyncio.create_task(self._pulse(self.engine, len(games)).run())
        try:
            await self._wait_ready(serving)
            self.telemetry.playing()
            if not self.stopped_by:
                self.log.update(phase="playing")
            tally = await self.engine.play(self._tasks(games))
        finally:
            ticker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ticker
        return self._verdict(tally, len(games), budget)

    def _pulse(self, engine: Engine, total: int) -> Pulse:
        limits = self.config.settings.limits
        return Pulse(engine, total, self.log, self.telemetry, self.holdings.held, self.holdings.ledgers, limits.stall,
                     limits.claim_stale, lambda: self.server is None or self.server.up, self.say, self._must_stop,
                     self._facts, self.time)

    def _must_stop(self, why: str) -> None:
        if self.stopped_by is None:
            self._stop(why)
        if why.startswith(STALLED):
            self.broke = True
            self.log.update(error=f"{why}\n  -> see what the judge's server says ('flock-hpc logs'), then "
                            "'flock-hpc judge --submit'")

    def _facts(self) -> dict[str, object]:
        """What the run's record says of the judge's servers so far."""
        server = self.server
        if server is None:
            return {}
        return {"load": [{"seconds": round(seconds, 3), **self.weights.facts} for seconds in server.loads],
                "deaths": deaths_of(server.deaths, str(self.log.data["node"]))}

    async def _wait_ready(self, serving: Serving) -> None:
        """Wait for a ready judge, but no longer than until the job is told to stop."""
        ready, stopping = asyncio.ensure_future(serving.client()), asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait({ready, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                ready.result()
        finally:
            ready.cancel()
            stopping.cancel()

    def _keep(self, game: Game, record: Record, budget: Budget) -> None:
        self.holdings.ledgers[game.model].add(game, record)
        self.telemetry.add(record)
        budget.spend(record)

    def _tasks(self, games: list[Game]) -> Iterator[Task]:
        for game in games:
            ledger = self.holdings.ledgers[game.model]
            yield game, lambda ledger=ledger, game=game: ledger.render(game.uid, game.order)  # type: ignore[misc]

    def _verdict(self, tally: Tally, total: int, budget: Budget) -> int:
        parts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(tally.outcomes.items())) or "none"
        self.say(f"played {tally.played} of {total} games: {parts}")
        if tally.unanswered:
            self.say(f"{tally.unanswered} games got no answer and stay due; the last: {tally.last_unanswered}")
        if budget.exhausted and tally.played < total:
            left = total - tally.played
            what = f"judge.max_cost is spent ({budget.spent:.2f} of {budget.cap}); {left} games stay due"
            self.say(what)
            self.log.update(error=f"{what}\n  -> raise judge.max_cost to go on", hopeless=True)
        return OK if tally.played == total else INCOMPLETE

    # --- after ----------------------------------------------------------------------------------
    def _close(self) -> None:
        for failed in self.holdings.close():
            self.say(str(failed))
        cache = os.environ.get("FLOCK_HPC_CACHE")
        if cache and Path(cache).name.startswith("flock-hpc-"):
            shutil.rmtree(cache, ignore_errors=True)
