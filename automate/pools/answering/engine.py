"""All lines of a round, of several models at once: as many in flight as the servers take, until done or told to stop.

Never keeps an answer in memory only: each is handed to the sink as it comes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from automate.errors import FlockError
from automate.pools.answering.asking import Asker
from automate.pools.round_records import Answer, Work
from automate.serving.limiter import Limiter


@dataclass
class Part:
    """One model's lines: who asks them, and how many may be in flight. `failed`: why no more of them are asked.

    `loaded`: waits for a server of the model, which is all that is wished where there are no lines.
    """

    model: str
    asker: Asker
    limiter: Limiter
    work: Sequence[Work]
    loaded: Callable[[], Awaitable[object]] | None = None
    started: int = 0
    done: int = 0
    errors: int = 0
    failed: FlockError | None = None

    @property
    def left(self) -> int:
        """Lines that were not started; none where no more will be."""
        return 0 if self.failed is not None else len(self.work) - self.started

    @property
    def in_flight(self) -> int:
        return self.limiter.in_flight


@dataclass
class Engine:
    """Answers parts side by side. `sink` gets every answer; what it raises ends the whole."""

    parts: Sequence[Part]
    sink: Callable[[Answer], None]
    _stopped: asyncio.Event = field(default_factory=asyncio.Event)
    _deadline: float = float("inf")
    _fault: BaseException | None = None

    def stop(self, grace: float) -> None:
        """Start no more; what is in flight has `grace` seconds, then it stays without an answer."""
        self._deadline = min(self._deadline, time.monotonic() + grace)
        self._stopped.set()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    async def play(self) -> None:
        """Answer all. A model whose servers will not come keeps its error in its part, and the others go on.

        Raises what the sink raises.
        """
        playing = asyncio.create_task(self._all())
        stopping = asyncio.create_task(self._out_of_time())
        try:
            await asyncio.wait({playing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            playing.cancel()
            stopping.cancel()
            ended = await asyncio.gather(playing, stopping, return_exceptions=True)
        if self._fault is not None:
            raise self._fault
        if isinstance(ended[0], BaseException) and not isinstance(ended[0], asyncio.CancelledError):
            raise ended[0]

    async def _all(self) -> None:
        await asyncio.gather(*(self._part(part) for part in self.parts))

    async def _out_of_time(self) -> None:
        await self._stopped.wait()
        await asyncio.sleep(max(0.0, self._deadline - time.monotonic()))

    async def _part(self, part: Part) -> None:
        """One model's lines; the first error that is no line's own ends it."""
        lines = iter(part.work)
        try:
            if not part.work and part.loaded is not None:
                await part.loaded()
            async with asyncio.TaskGroup() as players:
                while await self._place(part.limiter):
                    line = self._next(part, lines)
                    if line is None:
                        part.limiter.release()
                        return
                    players.create_task(self._play_on(part, line, lines))
        except* FlockError as errors:
            part.failed = _first(errors)

    async def _place(self, limiter: Limiter) -> bool:
        """Wait for a place, or until told to stop: False then."""
        if self.stopped:
            return False
        if limiter.in_flight < limiter.limit:
            await asyncio.sleep(0)  # so that the last request leaves before the next is made
            await limiter.acquire()
            return True
        waiting, stopped = asyncio.create_task(limiter.acquire()), asyncio.create_task(self._stopped.wait())
        try:
            await asyncio.wait({waiting, stopped}, return_when=asyncio.FIRST_COMPLETED)
            return waiting.done()
        finally:
            waiting.cancel()
            stopped.cancel()

    def _next(self, part: Part, lines: Iterator[Work]) -> Work | None:
        line = None if self.stopped else next(lines, None)
        part.started += line is not None
        return line

    async def _play_on(self, part: Part, line: Work | None, lines: Iterator[Work]) -> None:
        """Ask one line after another in one place, until there are none or the place is to be given up."""
        try:
            while line is not None:
                self._take(part, await part.asker.answer(line))
                line = None if part.limiter.crowded else self._next(part, lines)
        finally:
            part.limiter.release()

    def _take(self, part: Part, answer: Answer) -> None:
        """Hand an answer on. An error after the word to stop may be the end's own: that line is asked again."""
        if self._fault is not None or (answer.error is not None and self.stopped):
            return
        try:
            self.sink(answer)
        except Exception as error:
            self._fault = error
            self.stop(0.0)
            return
        part.done += 1
        part.errors += answer.error is not None


def _first(errors: BaseExceptionGroup[FlockError]) -> FlockError:
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first if isinstance(first, FlockError) else FlockError(str(first))
