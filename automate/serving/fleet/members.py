"""The workers that are known, each with its client: met before use, set aside while in doubt, let go at the end.

Never chooses between them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from automate.errors import FlockError
from automate.serving.client import JudgeClient, TransportFailed
from automate.serving.fleet.limits import Lengths
from automate.serving.fleet.meeting import Met, NotOurs, meet
from automate.serving.fleet.pool import Pool, Slot
from automate.serving.fleet.records import WorkerRecord
from automate.serving.fleet.registry import Seen
from automate.serving.limiter import Limiter
from automate.serving.metrics import parse_metrics

Connect = Callable[[WorkerRecord], JudgeClient]
"""Makes the client of a worker; it is opened and closed here."""
LEAST_PAUSE, GROWTH, MOST_PAUSE = 0.25, 1.7, 15.0
"""Seconds between two attempts to meet a worker that doesn't answer."""


@dataclass(frozen=True)
class Pace:
    """Seconds between looks at: the registry, workers' metrics, what is to be expected where no worker is.

    `again`: between two checks of a worker whose heartbeats are missing. `abandon`: so long may such a worker not
    answer before its requests are given up. `lost`, `refused`: so long is waited without any worker while the registry
    can't be read, or while all that are there can't be used.
    """

    look: float = 1.0
    metrics: float = 2.0
    outlook: float = 15.0
    again: float = 10.0
    abandon: float = 30.0
    lost: float = 120.0
    refused: float = 120.0
    timeout: float = 10.0


@dataclass(eq=False)
class Member:
    """A worker that is registered. `aside`: not met yet, or in doubt, and why. `refused`: why it is never used.

    `fit`: by the registry's last word while it had heartbeats. `metrics`: the last that it said, `counters` those of
    them that only rise.
    """

    seen: Seen
    client: JudgeClient
    slot: Slot
    context: int | None = None
    metrics: str = ""
    counters: str = ""
    aside: bool = True
    fit: bool = False
    unfit: str = ""
    doubt: str = ""
    said: bool = False
    met: bool = False
    refused: str = ""
    left: bool = False
    sized: bool = False
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def record(self) -> WorkerRecord:
        return self.seen.record

    @property
    def usable(self) -> bool:
        """Whether requests may be sent to it. Where its heartbeats are missing it must answer when asked."""
        return (self.met and self.fit and not self.aside and not self.refused and not self.left
                and self.record.state == "ready")

    @property
    def problem(self) -> str:
        """Why it is not used by its own fault; empty where that isn't so."""
        return self.refused or self.unfit

    @property
    def silent(self) -> bool:
        return self.seen.life == "silent"

    def __str__(self) -> str:
        return f"worker {self.record.id} on {self.record.node}"


class Members:
    """The known workers of one model, by id. `changed` is called after every change."""

    def __init__(self, model: str, pool: Pool, connect: Connect, *, say: Callable[[str], None],
                 changed: Callable[[], None], concurrency: int | None, pace: Pace) -> None:
        self.model = model
        self.pool = pool
        self.lengths = Lengths()
        self.known: dict[str, Member] = {}
        self.past = ""
        self._connect = connect
        self._say = say
        self._changed = changed
        self._concurrency = concurrency
        self._pace = pace
        self._leaving: set[asyncio.Task[None]] = set()

    @property
    def usable(self) -> list[Member]:
        return [member for member in self.known.values() if member.usable]

    def of(self, slot: Slot) -> Member | None:
        """The member of a slot, if it is still known."""
        return self.known.get(slot.worker)

    # --- what the registry says ---------------------------------------------------------------------
    async def update(self, seen: Mapping[str, Seen]) -> None:
        """Take the registry's word: who is new, who has changed, who has left."""
        mine = {worker: one for worker, one in seen.items() if self.model in one.record.names and one.life != "gone"}
        for worker in [worker for worker in self.known if worker not in mine]:
            self._let_go(self.known.pop(worker), gone=worker in seen)
        for worker, one in mine.items():
            member = self.known.get(worker)
            if member is not None and (member.record.nonce, member.record.url) != (one.record.nonce, one.record.url):
                self._let_go(self.known.pop(worker), gone=True)
                member = None
            self._follow(member or await self._welcome(one), one)
        self._apply()

    async def _welcome(self, seen: Seen) -> Member:
        client = await self._connect(seen.record).__aenter__()
        member = Member(seen, client, Slot(seen.record.id, Limiter(self._concurrency), usable=False))
        self.known[seen.record.id] = member
        self.pool.join(member.slot)
        return member

    def _follow(self, member: Member, seen: Seen) -> None:
        before, member.seen = member.seen, seen
        if seen.life == "silent":
            if before.life == "alive":
                self.in_doubt(member, seen.why)
            return
        member.fit = not seen.why
        if seen.why and seen.why != member.unfit:
            self._say(f"{member} is not used: {seen.why}")
        member.unfit = seen.why
        if member.fit and member.aside and not member.refused:
            self._start_check(member)

    def _let_go(self, member: Member, *, gone: bool) -> None:
        member.left = True
        self.past += member.counters
        self.pool.leave(member.record.id)
        if member.met:
            self._say(f"{member} left; {len(self.usable)} in use")
        for task in member.tasks:
            task.cancel()
        task = asyncio.create_task(self._farewell(member, gone=gone))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _farewell(self, member: Member, *, gone: bool) -> None:
        """Close its client: at once where it is gone, else after its requests have ended or it answers no more."""
        try:
            while not gone and member.slot.in_flight:
                await member.client.worker(self._pace.timeout)
                await asyncio.sleep(self._pace.look)
        except (FlockError, ValueError):
            pass  # it answers no more, or not as itself
        finally:
            await member.client.close()

    # --- doubt ----------------------------------------------------------------------------------------
    def in_doubt(self, member: Member, why: str) -> None:
        """It failed: nobody is sent to it before it has shown that it lives and is itself."""
        if member.aside or member.left or member.refused:
            return
        member.aside, member.doubt = True, why
        self._apply()
        self._start_check(member)

    def refuse(self, member: Member, why: str) -> None:
        """It is not this fleet's worker, or can't serve the model: never used again."""
        if not member.refused:
            member.refused = why
            self._say(f"{member} ({member.record.url}) is not used: {why}")
            self._apply()

    def _start_check(self, member: Member) -> None:
        if any(not task.done() for task in member.tasks):
            return
        task = asyncio.create_task(self._check(member))
        member.tasks.add(task)
        task.add_done_callback(member.tasks.discard)

    async def _check(self, member: Member) -> None:
        """Meet it, again and again until it answers; and on, as long as its heartbeats are missing."""
        pause, since = LEAST_PAUSE, time.monotonic()
        while not member.refused:
            try:
                self._accept(member, await meet(member.client, member.record, timeout=self._pace.timeout))
            except NotOurs as error:
                self.refuse(member, error.what)
            except TransportFailed as error:
                self._fail(member, error)
                if member.silent and time.monotonic() - since > self._pace.abandon:
                    await self._abandon(member)
                await asyncio.sleep(pause)
                pause = min(pause * GROWTH, MOST_PAUSE)
                continue
            if not member.silent:
                return
            await asyncio.sleep(self._pace.again)
            pause, since = LEAST_PAUSE, time.monotonic()

    def _accept(self, member: Member, met: Met) -> None:
        first, again = not member.met, member.said
        member.context, member.met, member.aside, member.said, member.doubt = met.context, True, False, False, ""
        self.measured(member, met.metrics)
        self._apply()
        if first:
            self._say(f"{member} joined; {len(self.usable)} in use")
        elif again:
            self._say(f"{member} answers again; {len(self.usable)} in use")

    def _fail(self, member: Member, error: TransportFailed) -> None:
        """It didn't answer: said once, until it answers again."""
        if not member.aside:
            member.aside = True
            self._apply()
        if not member.said:
            member.said = True
            what = member.doubt or error.what
            self._say(f"{member} {'is set aside until it answers' if member.met else 'does not answer yet'}: {what}")

    async def _abandon(self, member: Member) -> None:
        """Give its requests up: neither heartbeat nor answer for long. They fail, and are sent to others."""
        if member.slot.in_flight:
            self._say(f"{member} neither beats nor answers: its {member.slot.in_flight} requests go to others")
            old, member.client = member.client, await self._connect(member.record).__aenter__()
            await old.close()

    # --- limits ---------------------------------------------------------------------------------------
    def measured(self, member: Member, text: str) -> None:
        """Take a worker's metrics: its limit follows them."""
        member.metrics, member.counters = trimmed(text)
        metrics = parse_metrics(member.metrics)
        if metrics.kv_tokens and not member.sized:
            member.slot.limiter.size_for(metrics.kv_tokens, self.lengths.mean)
            member.sized = True
        member.slot.limiter.observe(metrics)

    def _apply(self) -> None:
        for member in self.known.values():
            member.slot.usable = member.usable
        self._changed()

    async def close(self) -> None:
        """Close every client, at once."""
        tasks = [*self._leaving, *(task for member in self.known.values() for task in member.tasks)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for member in self.known.values():
            await member.client.close()


def trimmed(text: str) -> tuple[str, str]:
    """Of a server's metrics the lines of single values, and of those the counters: a server that left did count."""
    lines = [line for line in text.split("\n") if line.startswith("vllm:") and "_bucket{" not in line]
    counters = [line for line in lines if line.partition("{")[0].partition(" ")[0].endswith("_total")]
    return "".join(f"{line}\n" for line in lines), "".join(f"{line}\n" for line in counters)
