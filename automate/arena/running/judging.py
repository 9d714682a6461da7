"""A batch of games inside its job: start the judge, play what is due, end the judge.

Never plays a model that another live job holds; how a job ends is the same for all kinds of work (job.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from automate.arena.context import load_answers, load_match
from automate.arena.engine_job import FleetUse
from automate.arena.games import Game, Match
from automate.arena.judge import Engine, Task, question_major
from automate.arena.ledger import ModelLedger
from automate.arena.referee import Ask, Referee, Serving
from automate.arena.running.holdings import Holdings
from automate.arena.running.job import INCOMPLETE, OK, STOPPED, Job
from automate.arena.running.loading import Prepared, prepare_weights
from automate.arena.running.pulse import SYNC_EVERY, heartbeat
from automate.arena.running.serve import Budget, Remote, admission, launch_of, pace_of
from automate.errors import ServerError
from automate.journal import Record
from automate.serving.limiter import Limiter
from automate.serving.server import JudgeServer

if TYPE_CHECKING:
    from automate.arena.running.fleet_play import FleetPlay, Work


@dataclass
class BatchJob(Job):
    """One start of one batch of games. `script` serves the judge when called as `bash script serve ADDRESS...`.

    `fleet`: whose servers are asked, where the batch is played on one; the job starts no server of its own then.
    `exclude`: nodes that new servers of it are kept away from, as sbatch takes them.
    """

    weights: Prepared = field(default_factory=Prepared)
    fleet: FleetPlay | None = None
    exclude: Callable[[], str | None] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.match: Match | None = None
        self.holdings: Holdings[ModelLedger] = self.hold(self.config.workspace.claim, self._ledger)
        self.games: list[Game] = []

    def facts_of(self) -> dict[str, object]:
        """Of the run's record: whose games are played."""
        return {"judge": self.config.settings.judge.name}

    def load_facts(self) -> dict[str, object]:
        """Of each load in the run's record: the weights' place."""
        return dict(self.weights.facts)

    def _ledger(self, model: str) -> ModelLedger | str:
        answers = load_answers(self.config.workspace, model)
        if answers is None or self.match is None:
            return "no answers"
        if answers.rehearsed and self.config.settings.judge.kind != "rehearsal":
            return f"{answers.rehearsed} of its answers are a rehearsal's and mean nothing"
        return ModelLedger(self.config.workspace, model, self.match, answers, self.config.settings.limits.attempts)

    async def prepare(self) -> int:
        """Take the models and count the games that are due, question by question over all models."""
        match = self.match = load_match(self.config.workspace)
        await self.holdings.take_all(self.log.name)
        uids = [question.uid for question in match.questions[: self.config.limit_questions]]
        chosen = set(uids)
        self.games = question_major([ledger.due(chosen) for ledger in self.holdings.ledgers.values()], uids)
        return len(self.games)

    async def work(self) -> int:
        """Start the judge and play."""
        judge = self.config.settings.judge
        if self.config.fleet is not None:
            return await self._on_fleet(self.config.fleet)
        if judge.engine == "upstream":
            return await self._upstream()
        if judge.kind == "openai":
            async with Remote(self.config.workspace) as remote:
                return await self._play(remote)
        self.weights = await self._prepare_weights()
        if self.stopped_by:
            return STOPPED
        launch = launch_of(self.config, self.script, self.weights.environment)
        async with JudgeServer(launch, self.say) as server:
            self.servers.append(server)
            return await self._play(server)

    # --- on a fleet -----------------------------------------------------------------------------
    async def _on_fleet(self, use: FleetUse) -> int:
        """Play on a fleet's servers, which come and go."""
        from automate.arena.running.fleet_play import FleetPlay

        self.fleet = FleetPlay(self.config, use, self.say, self._work_left, self.exclude)
        try:
            async with self.fleet as serving:
                return await self._play(serving, serving.limiter)
        except ServerError as error:  # it would end like this again
            error.hopeless = error.hopeless or self.fleet.ended_for is not None
            raise

    def _work_left(self) -> Work:
        """What is still to be started, and in flight; a job that has to end leaves the rest to its next start."""
        from automate.arena.running.fleet_play import Work

        engine, total = self.engine, len(self.games)
        if engine is None:
            return Work(total, 0)
        tally, flying = engine.tally, engine.limiter.in_flight
        left = max(0, total - tally.played - tally.unanswered - flying)
        return Work(max(left, int(self.stopped_by is not None)), flying)

    def is_up(self) -> bool:
        """Whether there is a server that could answer."""
        return super().is_up() if self.fleet is None else self.fleet.up

    def hindered(self) -> bool:
        """Whether servers died, or a fleet had none ready in this start: waiting for GPUs is no failure."""
        return super().hindered() if self.fleet is None else not self.fleet.was_up

    def facts(self) -> dict[str, object]:
        """What the run's record says of servers so far."""
        return super().facts() if self.fleet is None else self.fleet.facts()

    async def clear_away(self, going_on: bool) -> None:
        """Stop the campaign's fleet where nobody needs it any more."""
        if self.fleet is not None and not going_on:
            await self.fleet.stop()

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
                self.must_stop(reason)
            self.log.update()
        return work.result()

    async def _play(self, serving: Serving, limiter: Limiter | None = None) -> int:
        judge, match, total = self.config.settings.judge, self.match, len(self.games)
        limiter = limiter or Limiter(None if judge.concurrency == "auto" else judge.concurrency)
        ask = Ask(judge.max_tokens, judge.min_output_tokens, judge.temperature, judge.transport_retries,
                  structured=judge.kind != "openai", tokenize=judge.kind != "openai")
        budget = Budget.of(self.config.workspace)
        referee = Referee(serving, ask, limiter, pace_of(judge.requests_per_minute))
        admit = admission(budget, match, self.holdings.ledgers) if match is not None else None
        engine = Engine(referee, limiter, lambda game, record: self._keep(game, record, budget), admit)
        tally = await self.play_with(engine, serving, self._tasks(), total)
        status = self.told(tally, total)
        if budget.exhausted and tally.played < total:
            left = total - tally.played
            what = f"judge.max_cost is spent ({budget.spent:.2f} of {budget.cap}); {left} games stay due"
            self.say(what)
            self.log.update(error=f"{what}\n  -> raise judge.max_cost to go on", hopeless=True)
        return status

    def _keep(self, game: Game, record: Record, budget: Budget) -> None:
        self.holdings.ledgers[game.model].add(game, record)
        self.telemetry.add(record)
        budget.spend(record)

    def _tasks(self) -> Iterator[Task]:
        for game in self.games:
            ledger = self.holdings.ledgers[game.model]
            yield game, lambda ledger=ledger, game=game: ledger.render(game.uid, game.order)  # type: ignore[misc]
