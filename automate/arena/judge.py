"""The engine: games in order, many in flight, until all are played or it is told to stop.

Never keeps a finished game in memory only: each record is handed to the sink before the next is taken."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from automate.arena.games import Game
from automate.arena.prompts import Message
from automate.arena.referee import Serving
from automate.errors import FlockError
from automate.journal import Record
from automate.serving.client import TransportFailed
from automate.serving.limiter import Limiter
from automate.serving.messages import Encoded
from automate.serving.metrics import ServerMetrics, parse_metrics

Item = TypeVar("Item")
"""What is played: a game, or a question to a model."""
Contra = TypeVar("Contra", contravariant=True)

Render = Callable[[], list[Message] | Encoded]
Task = tuple[Game, Render]
"""A game and how to render its messages when its turn comes."""

Admit = Callable[[Game], Awaitable[bool]]
"""Waited for before a game is asked; False means that no more games may be asked."""


class Player(Protocol[Contra]):
    """Asks a server one thing at a time: a judge's referee, or a model's author."""

    @property
    def serving(self) -> Serving:
        """Where its requests go."""

    async def play(self, item: Contra, messages: list[Message] | Encoded, /) -> Record:
        """Play one to a record. Raises TransportFailed (it stays due) or ServerError (stop)."""

METRICS_EVERY = 2.0
COLLECT_EVERY = 50_000
"""How many more objects made than freed start a search for cyclic garbage."""


@dataclass
class Tally:
    """What an engine has done so far."""

    played: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    unanswered: int = 0
    last_unanswered: str | None = None

    def add(self, record: Record) -> None:
        self.played += 1
        outcome = record["outcome"]
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1


def question_major(by_model: Sequence[Sequence[Game]], uids: Iterable[str]) -> list[Game]:
    """Order games question by question: game 1 of all models, then game 2 of all.

    So the judge's prefix cache serves what they share: question and baseline's answer in game 1, the question
    in game 2.
    """
    slots: dict[tuple[str, int], list[Game]] = {}
    for games in by_model:
        for game in games:
            slots.setdefault(game.slot, []).append(game)
    return [game for uid in uids for order in (1, 2) for game in slots.get((uid, order), ())]


@contextlib.contextmanager
def _rare_collections() -> Iterator[None]:
    """Look for cyclic garbage rarely: games make none, and looking takes a fifth of the time of many small games."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(COLLECT_EVERY, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


class Playing(Protocol):
    """What is seen of an engine from outside, whatever it plays."""

    tally: Tally
    limiter: Limiter
    metrics: ServerMetrics | None

    def stop(self, grace: float = 20.0) -> None:
        """Start no more; what is in flight has `grace` seconds."""


class Engine(Generic[Item]):
    """Plays tasks through a referee; `stop()` lets the games in flight finish and starts no more."""

    def __init__(self, referee: Player[Item], limiter: Limiter, sink: Callable[[Item, Record], None],
                 admit: Callable[[Item], Awaitable[bool]] | None = None) -> None:
        self.referee = referee
        self.limiter = limiter
        self.sink = sink
        self.admit = admit
        self.tally = Tally()
        self.metrics: ServerMetrics | None = None
        self._stopped = asyncio.Event()
        self._changed = asyncio.Event()
        self._deadline = float("inf")
        self._fatal: Exception | None = None
        self._exhausted = False

    @property
    def exhausted(self) -> bool:
        """Whether no more will be started: all that there was to play is in flight, or done."""
        return self._exhausted or self._over

    @property
    def _over(self) -> bool:
        return self._stopped.is_set() or self._fatal is not None

    def stop(self, grace: float = 20.0) -> None:
        """Start no more games; those in flight have `grace` seconds to finish, then they stay due."""
        self._deadline = min(self._deadline, time.monotonic() + grace)
        self._stopped.set()

    def _next(self, tasks: Iterator[tuple[Item, Render]]) -> tuple[Item, Render] | None:
        task = next(tasks, None)
        self._exhausted = task is None
        return task

    async def play(self, tasks: Iterable[tuple[Item, Render]]) -> Tally:
        """Play all tasks. Raises the first error that makes going on useless (server, storage)."""
        running: set[asyncio.Task[None]] = set()
        watcher = asyncio.create_task(self._follow_metrics())
        feeder = asyncio.create_task(self._feed(iter(tasks), running))
        feeder.add_done_callback(lambda _: self._changed.set())
        try:
            with _rare_collections():
                await self._ended(feeder, running)
            if feeder.done() and not feeder.cancelled():
                feeder.result()
        finally:
            for task in (watcher, feeder, *running):
                task.cancel()
            await asyncio.gather(watcher, feeder, *running, return_exceptions=True)
        if self._fatal is not None:
            raise self._fatal
        return self.tally

    async def _ended(self, feeder: asyncio.Task[None], running: set[asyncio.Task[None]]) -> None:
        """Return when all is played, an error makes going on useless, or the deadline is over.

        Woken by an event: waiting for the tasks themselves would cost a callback on each of them for each game.
        """
        while running or not feeder.done():
            if self._fatal is not None or time.monotonic() > self._deadline:
                return
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), 1.0)

    async def _feed(self, tasks: Iterator[tuple[Item, Render]], running: set[asyncio.Task[None]]) -> None:
        """Start a player for each place that the limiter gives, as long as there are games."""
        def done(player: asyncio.Task[None]) -> None:
            running.discard(player)
            self._changed.set()

        while True:
            await self.limiter.acquire()
            first = None if self._over else self._next(tasks)
            if first is None:
                self.limiter.release()
                return
            player = asyncio.create_task(self._play_on(first, tasks))
            running.add(player)
            player.add_done_callback(done)
            await asyncio.sleep(0)  # so that its request leaves before the next game is rendered

    async def _play_on(self, task: tuple[Item, Render] | None, tasks: Iterator[tuple[Item, Render]]) -> None:
        """Play one game after another in one place, until there are none or the place is to be given up."""
        try:
            while task is not None:
                await self._one(*task)
                task = None if self._over or self.limiter.crowded else self._next(tasks)
        except Exception as error:  # the first one ends the play, and is raised by it
            self._fatal = self._fatal or error
        finally:
            self.limiter.release()

    async def _one(self, game: Item, render: Render) -> None:
        if self.admit is not None and not await self.admit(game):
            self.stop(grace=float("inf"))  # what is in flight is paid for: it may finish
            return
        try:
            record = await self.referee.play(game, render())
        except TransportFailed as error:
            self.tally.unanswered += 1
            self.tally.last_unanswered = error.what
            return
        self.tally.add(record)
        self.sink(game, record)

    async def _follow_metrics(self) -> None:
        sized = False
        while True:
            with contextlib.suppress(FlockError):
                client = await self.referee.serving.client()
                metrics = self.metrics = parse_metrics(await client.metrics())
                if not sized and metrics.kv_tokens:
                    self.limiter.size_for(metrics.kv_tokens, self._mean_tokens(metrics.prompt_tokens))
                    sized = True
                self.limiter.observe(metrics)
            await asyncio.sleep(METRICS_EVERY)

    def _mean_tokens(self, prompt_tokens: float | None) -> float:
        """Tokens of a mean game: what was seen so far, else a game of Arena-Hard v2.0 (2,450 in, 700 out)."""
        if prompt_tokens and self.tally.played >= 20:
            return prompt_tokens / self.tally.played + 700
        return 3150.0
