"""The models that a job holds: their claims and their open ledgers.

Never takes a model that another live job holds; everything that was taken is given back by `close()`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from automate import claims
from automate.arena.running.job_config import JobConfig
from automate.cluster.queue import job_alive
from automate.errors import ClaimedError, FlockError, StorageError


class Ledger(Protocol):
    """One model's records and the file that is made from them, of either kind of work."""

    notes: list[str]

    @property
    def rows_path(self) -> Path:
        """The file that is made from them."""

    def open(self, writer_name: str) -> None:
        """Mend, read, and begin a record file of this name."""

    def sync(self) -> None:
        """Flush to the file system."""

    def close(self) -> None:
        """Flush and close."""


L = TypeVar("L", bound=Ledger)


@dataclass
class Holdings(Generic[L]):
    """Claims and ledgers of one start of one batch. `stopped` says that the job must end.

    `claim_of` gives the folder of a model's claim, `ledger_of` its ledger, or why there is none.
    """

    config: JobConfig
    say: Callable[[str], None]
    stopped: Callable[[], bool]
    claim_of: Callable[[str], Path]
    ledger_of: Callable[[str], L | str]
    ledgers: dict[str, L] = field(default_factory=dict)
    held: list[claims.Claim] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    async def take_all(self, writer: str) -> None:
        """Claim the batch's models and open their ledgers; what can't be had is left out, and said so."""
        for model in self.config.models:
            ledger = self.ledger_of(model)
            if isinstance(ledger, str):
                self.say(f"{model}: {ledger}; left out")
                self.skipped.append(model)
                continue
            claim = await self._claim(model)
            if claim is None:
                continue
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
        folder = self.claim_of(model)
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
