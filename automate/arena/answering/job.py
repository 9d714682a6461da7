"""A batch of answers inside its job: for each server of the batch, start it, ask what is due of its models, end it.

Never lets one model's failure keep the others from their turn; how a job ends is the same for all kinds of work."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from automate.arena.answering.author import Author
from automate.arena.answering.candidates import Candidate, Problem, ServerGroup, candidates, server_group
from automate.arena.answering.ledger import AnswerLedger
from automate.arena.answering.recorded import Due
from automate.arena.answering.tokens import counter
from automate.arena.benchmark import Question, read_questions
from automate.arena.judge import Engine, Render
from automate.arena.running.ending import TIME_LIMIT
from automate.arena.running.holdings import Holdings
from automate.arena.running.job import INCOMPLETE, OK, STOPPED, Job
from automate.arena.running.serve import launch_of
from automate.errors import ServerError
from automate.journal import Record
from automate.serving.limiter import Limiter
from automate.serving.server import JudgeServer

GROUP_VARIABLE = "FLOCK_HPC_GROUP"
"""Tells a job's script which of its servers to start: their numbers begin at 1."""


@dataclass
class AnswerJob(Job):
    """One start of one batch of answers. `script` serves group N when called with GROUP_VARIABLE=N."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.holdings: Holdings[AnswerLedger] = self.hold(self.config.workspace.answer_claim, self._ledger)
        self.questions: list[Question] = []
        self.candidates: dict[str, Candidate] = {}
        self.problems: list[Problem] = []
        self.items: dict[str, list[Due]] = {}
        self.failures: list[tuple[ServerGroup, ServerError]] = []
        self.counter = counter(self.config.settings.generate.tokenizer, self.config.settings.generate.tokenizer_folder,
                               self.config.workspace.root)

    def facts_of(self) -> dict[str, object]:
        """Nothing: the kind of work stands in the record, and no judge has a part in it."""
        return {}

    def load_facts(self) -> dict[str, object]:
        """Nothing is measured of a load but its seconds."""
        return {}

    def _ledger(self, model: str) -> AnswerLedger | str:
        candidate = self.candidates.get(model)
        if candidate is None:
            why = [problem for problem in self.problems if problem.model == model]
            return "; ".join(f"{problem.where}: {problem.what}" for problem in why) or "it can't be served"
        return AnswerLedger(self.config.workspace, candidate, self.questions, self.config.settings.limits.attempts)

    async def prepare(self) -> int:
        """Take the models and count the questions that are due to each."""
        workspace = self.config.workspace
        self.questions = read_questions(workspace.questions, workspace.settings.bench)
        found, self.problems = await asyncio.to_thread(candidates, workspace, self.config.models)
        self.candidates = {candidate.model: candidate for candidate in found}
        await self.holdings.take_all(self.log.name)
        uids = {question.uid for question in self.questions[: self.config.limit_questions]}
        self.items = {model: ledger.due(uids) for model, ledger in self.holdings.ledgers.items()}
        if self.counter.notice and any(self.items.values()):
            self.say(f"token_len is the {self.counter.name}'s own count: {self.counter.notice}")
        return sum(map(len, self.items.values()))

    def groups(self) -> Iterator[tuple[int, ServerGroup]]:
        """The servers whose models have something due, by their numbers in the script."""
        for number, models in enumerate(self.config.groups, 1):
            members = [self.candidates[model] for model in models if model in self.candidates]
            if any(self.items.get(member.model) for member in members):
                yield number, server_group(members, list(models))

    async def work(self) -> int:
        """Serve and ask one group after another; the exit status."""
        asked = set[str]()
        statuses = []
        for number, group in self.groups():
            if not self.stopped_by and self._no_time_to_load():
                self.must_stop(TIME_LIMIT)
            if self.stopped_by:
                return STOPPED
            asked |= set(group.models)
            statuses.append(await self._attempt(number, group))
        left = [model for model, items in self.items.items() if items and model not in asked]
        for model in left:
            self.say(f"{model}: the batch's script has no server for it: run 'flock-hpc generate' again")
        self._note_failures()
        return OK if all(status == OK for status in statuses) and not left else INCOMPLETE

    def _no_time_to_load(self) -> bool:
        """Whether another server would not be ready before the job has to end, by how long those before it took."""
        loads = [seconds for server in self.servers for seconds in server.loads]
        return bool(loads) and self.time.left() - self.time.lead() < max(loads)

    async def _attempt(self, number: int, group: ServerGroup) -> int:
        """One group; a server that can't be had is kept for the record, and the next group has its turn."""
        self.say(f"server {number}: {', '.join(group.models)}")
        self.log.update(phase="loading")
        try:
            return await self._serve(number, group)
        except ServerError as error:
            if self.stopped_by or error.node_fault:
                raise
            self.say(f"server {number}: {error}")
            self.failures.append((group, error))
            self.holdings.skipped += [model for model in group.models if self.items.get(model)]
            self.log.update(skipped=self.holdings.skipped)
            return INCOMPLETE

    def _note_failures(self) -> None:
        """Say in the record which servers failed; hopeless where starting all of them again would fail again."""
        if self.failures:
            what = "\n".join(f"{', '.join(group.models)}: {error}" for group, error in self.failures)
            done = all(not items or model in {name for group, _ in self.failures for name in group.models}
                       for model, items in self._left().items())
            self.log.update(error=what, hopeless=done and all(error.hopeless for _, error in self.failures))

    def _left(self) -> dict[str, list[Due]]:
        """What is still due of the models that were held."""
        return {model: self.holdings.ledgers[model].due({item.uid for item in items})
                for model, items in self.items.items()}

    async def _serve(self, number: int, group: ServerGroup) -> int:
        judge = self.config.settings.judge
        launch = launch_of(self.config, self.script, {GROUP_VARIABLE: str(number)}, group.served)
        async with JudgeServer(launch, self.say) as server:
            self.servers.append(server)
            limiter = Limiter(None if judge.concurrency == "auto" else judge.concurrency)
            author = Author(server, limiter, {one.model: one for one in group.candidates}, group.served,
                            judge.transport_retries, self.counter)
            items = self.in_order(group)
            engine: Engine[Due] = Engine(author, limiter, self._keep)
            return self.told(await self.play_with(engine, server, self._tasks(items), len(items)), len(items))

    def in_order(self, group: ServerGroup) -> list[Due]:
        """What is due of a group, question by question over all its models, so that they share what is cached."""
        by_uid: dict[str, list[Due]] = {}
        for model in group.models:
            for item in self.items.get(model, ()):
                by_uid.setdefault(item.uid, []).append(item)
        return [item for question in self.questions for item in by_uid.get(question.uid, ())]

    def _keep(self, item: Due, record: Record) -> None:
        self.holdings.ledgers[item.model].add(item, record)
        self.telemetry.add(record)

    def _tasks(self, items: list[Due]) -> Iterator[tuple[Due, Render]]:
        for item in items:
            ledger = self.holdings.ledgers[item.model]
            yield item, lambda ledger=ledger, item=item: ledger.render(item.uid)  # type: ignore[misc]
