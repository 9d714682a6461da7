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

from automate import claims
from automate.arena.context import load_answers, load_match
from automate.arena.games import Game, Match
from automate.arena.job_config import JobConfig
from automate.arena.judge import Admit, Engine, Tally, Task, question_major
from automate.arena.ledger import ModelLedger
from automate.arena.referee import Ask, Referee, Serving
from automate.arena.runlog import RunLog
from automate.arena.serve import Budget, Remote, launch_of, pace_of
from automate.cluster.queue import job_alive
from automate.errors import ClaimedError, ConfigError, FlockError, ServerError, StorageError
from automate.journal import Record
from automate.processes import PR_SET_CHILD_SUBREAPER, prctl
from automate.serving.limiter import Limiter
from automate.serving.server import JudgeServer

Say = Callable[[str], None]
SYNC_EVERY = 5.0
SAY_EVERY = 30.0
OK, FAILED, INCOMPLETE, STOPPED = 0, 1, 3, 143


@dataclass
class BatchJob:
    """One start of one batch. `script` serves the judge when called as `bash script serve ADDRESS...`."""

    config: JobConfig
    script: Path
    say: Say
    ledgers: dict[str, ModelLedger] = field(default_factory=dict)
    held: list[claims.Claim] = field(default_factory=list)
    engine: Engine | None = None
    server: JudgeServer | None = None
    stopped_by: str | None = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    lost_claim: bool = False
    skipped: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    async def run(self) -> int:
        """Run the batch to its end; the exit status. Raises FlockError for what a user must mend."""
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        log = RunLog(self.config.workspace.runs, self.config.plan, self.config.batch)
        log.update()
        self._listen()
        try:
            match = load_match(self.config.workspace)
            await self._claim_all(match, log.name)
            games = self._due(match)
            self.say(f"batch {self.config.batch}: {len(games)} games due of {len(self.ledgers)} models")
            log.update(phase="playing", due=len(games), models=list(self.ledgers), skipped=self.skipped)
            status = await self._judge_or_stop(match, games, log) if games and not self.stopped_by else OK
            status = STOPPED if self.stopped_by else FAILED if self.broken else status
            log.update(phase="ended", status=status, ended=time.time())
            return status
        except BaseException as error:
            with contextlib.suppress(FlockError):
                hopeless = isinstance(error, ConfigError) or (isinstance(error, ServerError) and error.hopeless)
                log.update(phase="ended", status=FAILED, error=str(error), hopeless=hopeless, ended=time.time())
            raise
        finally:
            self._close()

    # --- before ---------------------------------------------------------------------------------
    def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, signal.Signals(number).name)

    def _stop(self, why: str) -> None:
        self.say(f"{why}: no more games are started; those in flight may finish")
        self.stopped_by = self.stopped_by or why
        self.stopping.set()
        if self.server is not None:
            self.server.stop_restarting()
        if self.engine is not None:
            self.engine.stop()

    async def _claim_all(self, match: Match, writer: str) -> None:
        for model in self.config.models:
            answers = load_answers(self.config.workspace, model)
            if answers is None:
                self.say(f"{model}: no answers; left out")
                self.skipped.append(model)
                continue
            claim = await self._claim(model)
            if claim is None:
                continue
            ledger = ModelLedger(self.config.workspace, model, match, answers, self.config.settings.limits.attempts)
            try:
                ledger.open(writer)
            except StorageError as error:
                self.say(f"{model}: left out: {error}")
                self.broken.append(model)
                claim.release()
                continue
            self.held.append(claim)
            self.ledgers[model] = ledger
            for note in ledger.notes:
                self.say(note)

    async def _claim(self, model: str) -> claims.Claim | None:
        """A model's claim; waits for a dead holder's heartbeat to grow old, and leaves a live holder alone."""
        folder = self.config.workspace.claim(model)
        stale = self.config.settings.limits.claim_stale
        deadline = time.monotonic() + stale + 10
        while True:
            try:
                return claims.take(folder, stale=stale, job_alive=job_alive)
            except ClaimedError as error:
                if not error.holder_gone or time.monotonic() > deadline or self.stopped_by:
                    self.say(f"{model}: left out: {error.what}")
                    self.skipped.append(model)
                    return None
            await asyncio.sleep(min(1.0, stale / 4))

    def _due(self, match: Match) -> list[Game]:
        questions = match.questions[: self.config.limit_questions]
        uids = [question.uid for question in questions]
        chosen = set(uids)
        return question_major([ledger.due(chosen) for ledger in self.ledgers.values()], uids)

    # --- the play -------------------------------------------------------------------------------
    async def _judge_or_stop(self, match: Match, games: list[Game], log: RunLog) -> int:
        """Judge; a server that ends after the job was told to stop is no failure."""
        try:
            return await self._judge(match, games, log)
        except ServerError as error:
            if not self.stopped_by:
                raise
            self.say(f"the judge's server ended with the job: {error.what}")
            return STOPPED

    async def _judge(self, match: Match, games: list[Game], log: RunLog) -> int:
        judge = self.config.settings.judge
        if judge.engine == "upstream":
            from automate.arena.upstream import play_upstream

            return await play_upstream(self.config, self.script, self.ledgers, self.say)
        if judge.kind == "openai":
            async with Remote(self.config.workspace) as remote:
                return await self._play(remote, match, games, log)
        launch = launch_of(self.config, self.script)
        async with JudgeServer(launch, self.say) as server:
            self.server = server
            return await self._play(server, match, games, log)

    async def _play(self, serving: Serving, match: Match, games: list[Game], log: RunLog) -> int:
        judge = self.config.settings.judge
        limiter = Limiter(None if judge.concurrency == "auto" else judge.concurrency)
        ask = Ask(judge.max_tokens, judge.min_output_tokens, judge.temperature, judge.transport_retries,
                  structured=judge.kind != "openai", tokenize=judge.kind != "openai")
        budget = Budget.of(self.config.workspace)
        referee = Referee(serving, ask, limiter, pace_of(judge.requests_per_minute))
        self.engine = Engine(referee, limiter, lambda game, record: self._keep(game, record, budget),
                             self._admission(match, budget))
        if self.stopped_by:
            self.engine.stop()
        ticker = asyncio.create_task(self._tick(self.engine, len(games), log))
        try:
            await self._wait_ready(serving)
            tally = await self.engine.play(self._tasks(games))
        finally:
            ticker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ticker
        return self._verdict(tally, len(games), budget, log)

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
        self.ledgers[game.model].add(game, record)
        budget.spend(record)

    def _admission(self, match: Match, budget: Budget) -> Admit | None:
        """The gate that keeps a paid judge under its cap; none where there is no cap."""
        if budget.cap is None:
            return None
        questions = {question.uid: question for question in match.questions}

        async def admit(game: Game) -> bool:
            texts = match.texts(self.ledgers[game.model].answers, questions[game.uid])
            fixed = len(match.prompts.template) + len(match.prompts.system.get(game.category, ""))
            return await budget.admit(game.key, fixed + sum(len(text.encode()) for text in texts))

        return admit

    def _tasks(self, games: list[Game]) -> Iterator[Task]:
        for game in games:
            ledger = self.ledgers[game.model]
            yield game, lambda ledger=ledger, game=game: ledger.render(game.uid, game.order)  # type: ignore[misc]

    async def _tick(self, engine: Engine, total: int, log: RunLog) -> None:
        """Heartbeats, flushes and progress lines, as long as the engine plays."""
        began = said = time.monotonic()
        every = min(SYNC_EVERY, self.config.settings.limits.claim_stale / 4)
        while True:
            await asyncio.sleep(every)
            if not all(claim.beat() for claim in self.held):
                self.lost_claim = True
                self._stop("another job has taken over a model of this batch")
            for ledger in self.ledgers.values():
                await asyncio.to_thread(ledger.sync)
            tally, now = engine.tally, time.monotonic()
            log.update(played=tally.played, in_flight=engine.limiter.in_flight, unanswered=tally.unanswered)
            if now - said >= SAY_EVERY:
                said = now
                rate = tally.played / max(now - began, 1e-9)
                self.say(f"{tally.played} of {total} games, {rate:.1f} a second, {engine.limiter.in_flight} in flight")

    def _verdict(self, tally: Tally, total: int, budget: Budget, log: RunLog) -> int:
        parts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(tally.outcomes.items())) or "none"
        self.say(f"played {tally.played} of {total} games: {parts}")
        if tally.unanswered:
            self.say(f"{tally.unanswered} games got no answer and stay due; the last: {tally.last_unanswered}")
        if budget.exhausted and tally.played < total:
            left = total - tally.played
            what = f"judge.max_cost is spent ({budget.spent:.2f} of {budget.cap}); {left} games stay due"
            self.say(what)
            log.update(error=f"{what}\n  -> raise judge.max_cost to go on", hopeless=True)
        return OK if tally.played == total else INCOMPLETE

    # --- after ----------------------------------------------------------------------------------
    def _close(self) -> None:
        errors = []
        for ledger in self.ledgers.values():
            try:
                ledger.close()
            except FlockError as error:
                errors.append(error)
        for claim in self.held:
            claim.release()
        cache = os.environ.get("FLOCK_HPC_CACHE")
        if cache and Path(cache).name.startswith("flock-hpc-"):
            shutil.rmtree(cache, ignore_errors=True)
        for failed in errors:
            self.say(str(failed))
