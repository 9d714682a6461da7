"""A playing batch's pulse: heartbeats, flushes, its record, progress lines, and a watch for games that stand still.

Never plays and never ends the job by itself: it says why the job has to end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from automate import claims
from automate.arena.judge import Playing
from automate.arena.running.ending import STALLED, TIME_LIMIT
from automate.arena.running.holdings import Ledger
from automate.arena.running.runlog import RunLog
from automate.arena.running.telemetry import Telemetry
from automate.arena.running.timelimit import TimeLimit
from automate.durations import in_words
from automate.serving.gpus import read_gpus

SYNC_EVERY = 5.0
SAY_EVERY = 30.0
GPUS_EVERY = 15.0
MOVED_AWAY = "the workspace is not where it was when this job began: it was moved or removed"
TAKEN_OVER = "another job has taken over a model of this batch"


def heartbeat(held: Collection[claims.Claim]) -> str | None:
    """Show that this job lives; why it must stop where a claim is its own no more."""
    gone = [claim for claim in held if not claim.beat()]
    if not gone:
        return None
    return MOVED_AWAY if gone[0].lost else TAKEN_OVER


@dataclass
class Standstill:
    """Notices when no game has ended for `limit` seconds while the judge was up. Seconds of any steady clock."""

    limit: float
    _seen: int = -1
    _since: float = 0.0

    def look(self, now: float, ended: int, up: bool) -> float | None:
        """Seconds of standstill when they are too many, else None."""
        if not up or ended != self._seen:
            self._seen, self._since = ended, now
        waited = now - self._since
        return waited if waited >= self.limit else None


@dataclass
class Pulse:
    """What is done every few seconds as long as an engine plays. `stop` is told why the job must end."""

    engine: Playing
    total: int
    log: RunLog
    telemetry: Telemetry
    held: Collection[claims.Claim]
    ledgers: Mapping[str, Ledger]
    stall: float
    stale: float
    up: Callable[[], bool]
    say: Callable[[str], None]
    stop: Callable[[str], None]
    facts: Callable[[], Mapping[str, object]]
    time_limit: TimeLimit
    thing: str = "game"
    _began: float = field(default_factory=time.monotonic)
    _said: float = field(default_factory=time.monotonic)
    _asked: float = float("-inf")

    async def run(self) -> None:
        """Beat until cancelled."""
        standstill, told = Standstill(self.stall), False
        while True:
            await asyncio.sleep(min(SYNC_EVERY, self.stale / 4))
            reason = heartbeat(self.held)
            if reason is not None:
                self.stop(reason)
            for ledger in self.ledgers.values():
                await asyncio.to_thread(ledger.sync)
            await self._gpus()
            self.write()
            self._progress()
            if not told and await self.time_limit.is_over():
                told = True
                self.stop(TIME_LIMIT)
            tally = self.engine.tally
            waited = standstill.look(time.monotonic(), tally.played + tally.unanswered, self.up())
            if waited is not None:
                self.stop(f"{STALLED}: no {self.thing} has ended for {in_words(waited)} (limits.stall)")

    async def _gpus(self) -> None:
        if time.monotonic() - self._asked >= GPUS_EVERY:
            self._asked = time.monotonic()
            self.telemetry.take_gpus(await read_gpus())

    def write(self) -> None:
        """Write the run's record."""
        tally = self.engine.tally
        if self.engine.metrics is not None:
            self.telemetry.take_server(self.engine.metrics)
        self.log.update(in_flight=self.engine.limiter.in_flight, unanswered=tally.unanswered,
                        **self.telemetry.values(), **self.facts())

    def _progress(self) -> None:
        tally, now = self.engine.tally, time.monotonic()
        if now - self._said >= SAY_EVERY:
            self._said = now
            rate = tally.played / max(now - self._began, 1e-9)
            self.say(f"{tally.played} of {self.total} {self.thing}s, {rate:.1f} a second, "
                     f"{self.engine.limiter.in_flight} in flight")
