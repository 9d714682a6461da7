"""The models that a job holds: their claims and their open ledgers.

Never takes a model that another live job holds; everything that was taken is given back by `close()`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from automate import claims
from automate.arena.context import load_answers
from automate.arena.games import Game, Match
from automate.arena.judge import question_major
from automate.arena.ledger import ModelLedger
from automate.arena.running.job_config import JobConfig
from automate.cluster.queue import job_alive
from automate.errors import ClaimedError, FlockError, StorageError


@dataclass
class Holdings:
    """Claims and ledgers of one start of one batch. `stopped` says that the job must end."""

    config: JobConfig
    say: Callable[[str], None]
    stopped: Callable[[], bool]
    ledgers: dict[str, ModelLedger] = field(default_factory=dict)
    held: list[claims.Claim] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    async def take_all(self, match: Match, writer: str) -> None:
        """Claim the batch's models and open their ledgers; what can't be had is left out, and said so."""
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
                if not error.holder_gone or time.monotonic() > deadline or self.stopped():
                    self.say(f"{model}: left out: {error.what}")
                    self.skipped.append(model)
                    return None
            await asyncio.sleep(min(1.0, stale / 4))

    def due(self, match: Match) -> list[Game]:
        """The games to play, question by question over all models."""
        questions = match.questions[: self.config.limit_questions]
        uids = [question.uid for question in questions]
        chosen = set(uids)
        return question_major([ledger.due(chosen) for ledger in self.ledgers.values()], uids)

    def close(self) -> list[FlockError]:
        """Flush and close everything and give the claims up; what failed."""
        errors = []
        for ledger in self.ledgers.values():
            try:
                ledger.close()
            except FlockError as error:
                errors.append(error)
            except OSError as error:  # the folder has gone: the workspace was moved
                errors.append(StorageError.of(error, ledger.rows_path, "close the model's files"))
        for claim in self.held:
            claim.release()
        return errors
