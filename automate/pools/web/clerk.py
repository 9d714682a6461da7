"""The one thread that works on the database while it is served: messages that wait together share one commit.

Never lets a caller touch the database from another thread, and never takes more work than it may hold."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Generic, TypeVar

from automate.errors import PoolError
from automate.pools import deeds
from automate.pools.deeds import Office
from automate.pools.messages import Message, Receipt

T = TypeVar("T")

BATCH = 256
"""Messages of one commit, at most."""
WAITING = 4096
"""Pieces of work that may wait; more are turned away."""


class BusyError(PoolError):
    """Too much waits already, or the server is about to end: nothing was taken in."""


@dataclass(frozen=True)
class _Work(Generic[T]):
    """A message, or a piece of work (then `message` is None); `done` belongs to the loop. `changes`: not only reads."""

    message: Message | None
    call: Callable[[Office], T] | None
    done: asyncio.Future[T]
    changes: bool = True


class Clerk:
    """Opens the database in its thread, and closes it there. `opened`: how it is opened (desk.open_office)."""

    def __init__(self, opened: Callable[[], AbstractContextManager[Office]]) -> None:
        self._opened = opened
        self._loop = asyncio.get_running_loop()
        self._queue: queue.Queue[_Work[object] | None] = queue.Queue()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="pools", daemon=True)
        self._ending = False
        self._fault: BaseException | None = None
        self.changes = 0
        """Messages and deeds so far: what was read before the last one may be out of date."""

    async def start(self) -> None:
        """Raises as opening the database does."""
        self._thread.start()
        await self._ready

    async def end(self) -> None:
        """Finish what waits, close the database. Raises what went wrong with that."""
        self._ending = True
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        if self._fault is not None:
            raise self._fault

    async def send(self, message: Message) -> Receipt:
        """Take a proven message in. Raises BusyError."""
        found = await self._put(message, None, True)
        assert isinstance(found, Receipt)
        return found

    async def call(self, work: Callable[[Office], T], *, changes: bool = False) -> T:
        """Do something with the open database. Raises BusyError, and what the work raises."""
        return await self._put(None, work, changes)  # type: ignore[return-value]

    async def _put(self, message: Message | None, call: Callable[[Office], T] | None, changes: bool) -> object:
        if self._ending or self._queue.qsize() >= WAITING:
            raise BusyError("the server is about to end" if self._ending else "the server has too much to do",
                            todo="send it again later: the same message has effect once")
        done: asyncio.Future[object] = self._loop.create_future()
        self._queue.put(_Work(message, call, done, changes))
        return await done

    # --- in the thread ------------------------------------------------------------------------------
    def _run(self) -> None:
        try:
            with self._opened() as office:
                self._tell(lambda: self._ready.set_result(None))
                self._serve(office)
        except BaseException as error:
            self._fault = error
            self._tell(self._broken)

    def _broken(self) -> None:
        """The thread has ended by a fault: nobody may wait for it."""
        assert self._fault is not None
        self._ending = True
        if not self._ready.done():
            self._ready.set_exception(self._fault)
        while not self._queue.empty():
            one = self._queue.get()
            if one is not None:
                _fail([one], self._fault)

    def _tell(self, what: Callable[[], object]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(what)

    def _serve(self, office: Office) -> None:
        ended = False
        while not ended:
            group = [self._queue.get()]
            while len(group) < BATCH and not self._queue.empty():
                group.append(self._queue.get())
            ended = None in group
            self._work(office, [one for one in group if one is not None])

    def _work(self, office: Office, group: Sequence[_Work[object]]) -> None:
        """A group in order: messages that follow each other in one commit, other work by itself, also an Evaluate: what
        rounds have answered is handed in before."""
        run: list[_Work[object]] = []
        for one in group:
            if one.message is not None and not deeds.needs_answers(one.message):
                run.append(one)
                continue
            self._receive(office, run)
            run = []
            self._answer([one], lambda one=one: [_alone(office, one)])  # type: ignore[misc]
        self._receive(office, run)

    def _receive(self, office: Office, run: Sequence[_Work[object]]) -> None:
        if run:
            messages = [one.message for one in run if one.message is not None]
            self._answer(run, lambda: office.exchange.receive(messages))

    def _answer(self, run: Sequence[_Work[object]], work: Callable[[], Sequence[object]]) -> None:
        try:
            found: Sequence[object] = work()
        except Exception as error:
            failed = error
            self._tell(lambda: _fail(run, failed))
        else:
            self._tell(lambda: self._settle(run, found))

    def _settle(self, run: Sequence[_Work[object]], found: Sequence[object]) -> None:
        self.changes += sum(one.changes for one in run)
        for one, answer in zip(run, found, strict=True):
            if not one.done.done():
                one.done.set_result(answer)


def _alone(office: Office, one: _Work[object]) -> object:
    if one.message is not None:
        return deeds.receive(office, one.message)
    return one.call(office) if one.call else None


def _fail(run: Sequence[_Work[object]], error: BaseException) -> None:
    for one in run:
        if not one.done.done():
            one.done.set_exception(error)
