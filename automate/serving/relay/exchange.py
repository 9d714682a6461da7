"""One request on its way: chosen where it goes, written there, and the reply handed back piece by piece.

Never tries again once a byte of a reply has come."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Protocol

from automate.serving.relay.own import NotOwnError
from automate.serving.relay.replies import BrokenReplyError, ReplyReader
from automate.serving.relay.requests import Request, model_of
from automate.serving.relay.terms import Answer, Asked, Counting, Mend, Pick, Quick, Target, error_answer
from automate.serving.relay.upstream import Connection, Place, Pool, place_of

_ONE_WRITE = 64 << 10
"""Bytes of a body that are worth a copy, to spare a system call."""


class Asker(Protocol):
    """The client's side of an exchange."""

    def reply(self, data: bytes) -> None:
        """More of the reply."""

    def answered(self, answer: Answer) -> None:
        """The exchange is over with an answer of the relay's own."""

    def finished(self, *, close: bool) -> None:
        """The exchange is over, the reply is whole."""

    def broken(self) -> None:
        """The exchange is over in the middle of the reply."""


@dataclass
class Trade:
    """What all exchanges of a relay share. `passed`: requests that are passed on and not answered yet."""

    pick: Pick
    quick: Quick | None
    counting: Counting | None
    pool: Pool
    passed: int = 0
    mend: Mend | None = None


class Exchange:
    """One request, from `start` until one of the asker's last three calls, or `abandon`."""

    __slots__ = ("_asked", "_asker", "_connection", "_counted", "_head", "_mend", "_mended", "_place", "_reply",
                 "_request", "_route", "_trade", "over")

    def __init__(self, trade: Trade, asker: Asker, request: Request) -> None:
        self._trade, self._asker, self._request = trade, asker, request
        self._connection: Connection | None = None
        self._place: Place = ("", 0, False)
        self._head = b""
        self._reply: ReplyReader | None = None
        self._route: asyncio.Task[None] | None = None
        self._counted = self._mend = self.over = False
        self._mended: float | None = None
        self._asked: Asked

    def start(self) -> None:
        """Choose a target, and go there."""
        request = self._request
        asked = Asked(request.method.decode("ascii"), request.path.decode("latin-1"), model_of(request.body),
                      request.body)
        self._asked = asked
        try:
            chosen = None if self._trade.quick is None else self._trade.quick(asked)
        except Exception as error:
            chosen = _at_a_loss(error)
        if chosen is None:
            self._run(self._choose(asked))
        else:
            self._go(chosen)

    @property
    def began(self) -> bool:
        """Whether any of the reply went to the asker."""
        return self._reply is not None and self._reply.began and self._reply.held is None

    def abandon(self) -> None:
        """The client went away: the upstream's work ends too."""
        if not self.over:
            self._end()

    def hold(self, *, hold: bool) -> None:
        """Read no more of the reply for now, or again."""
        if self._connection is not None and not self._connection.transport.is_closing():
            if hold:
                self._connection.transport.pause_reading()
            else:
                self._connection.transport.resume_reading()

    # --- the way there --------------------------------------------------------------------------
    def _run(self, coroutine: Coroutine[None, None, None]) -> None:
        self._route = asyncio.get_running_loop().create_task(coroutine)

    async def _choose(self, asked: Asked) -> None:
        try:
            chosen = await self._trade.pick(asked)
        except Exception as error:
            chosen = _at_a_loss(error)
        self._go(chosen)

    def _go(self, chosen: Target | Answer) -> None:
        if self.over:
            return
        if isinstance(chosen, Target):
            try:
                self._place, self._head = place_of(chosen), self._request.upstream_head(chosen)
                self._mend = chosen.mend and self._trade.mend is not None
            except ValueError as error:  # a header that can't be one
                chosen = _at_a_loss(error)
        if isinstance(chosen, Answer):
            self._end()
            self._asker.answered(chosen)
            return
        self._count()
        connection = self._trade.pool.take(self._place)
        if connection is None:
            self._run(self._connect())
        else:
            self._send(connection)

    async def _connect(self) -> None:
        try:
            connection = await self._trade.pool.connect(self._place)
        except NotOwnError as error:
            self._unreachable(f"what listens where the model server should be is not its: {error}")
        except OSError as error:
            self._unreachable(f"the model server can't be reached: {error.strerror or type(error).__name__}")
        else:
            self._send(connection)

    def _unreachable(self, what: str) -> None:
        if not self.over:
            self._end()
            self._asker.answered(error_answer(502, what))

    def _send(self, connection: Connection) -> None:
        if self.over:
            connection.end()
            return
        request = self._request
        self._connection, connection.taker = connection, self
        self._reply = ReplyReader(head_only=request.head_only, old=request.old, keep_alive=request.keep_alive,
                                  mend=self._mend)
        if connection.transport.is_closing():
            self.lost(None)
            return
        if len(request.body) < _ONE_WRITE:
            connection.transport.write(self._head + request.body)
        else:
            connection.transport.write(self._head)
            connection.transport.write(request.body)

    # --- the way back: called by the connection -------------------------------------------------
    def received(self, data: bytes) -> None:
        """The upstream sent this."""
        reply = self._reply
        assert reply is not None
        try:
            passed = reply.feed(data)
        except BrokenReplyError as error:
            self._break(str(error))
            return
        if passed:
            self._asker.reply(passed)
        if reply.complete:
            self._finish(reply)

    def lost(self, error: Exception | None) -> None:
        """The upstream's connection is gone."""
        reply, connection = self._reply, self._connection
        assert reply is not None
        assert connection is not None
        self._connection = None
        if error is None and reply.end():
            self._finish(reply)
        elif connection.used and reply.untouched:
            self._run(self._connect())
        else:
            self._break("the model server closed the connection without a reply")

    def _break(self, what: str) -> None:
        began = self.began
        self._end()
        if began:
            self._asker.broken()
        else:
            self._asker.answered(error_answer(502, what))

    def _finish(self, reply: ReplyReader) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            transport = connection.transport
            if reply.reusable and not transport.is_closing() and not transport.get_write_buffer_size():
                transport.resume_reading()
                self._trade.pool.put(self._place, connection, asyncio.get_running_loop().time())
            else:
                connection.end()
        if reply.held is not None:
            self._run(self._ask_again(reply.held, reply.text))
            return
        self._end()
        self._asker.finished(close=reply.closes)

    async def _ask_again(self, status: int, text: bytes) -> None:
        """The upstream gave an error of its own: elsewhere, or an answer."""
        now, mend = asyncio.get_running_loop().time(), self._trade.mend
        assert mend is not None
        waited = 0.0 if self._mended is None else max(0.001, now - self._mended)  # a clock may tick slowly
        self._mended = now if self._mended is None else self._mended
        try:
            chosen = await mend(self._asked, status, text, waited)
        except Exception as error:
            chosen = _at_a_loss(error)
        self._go(chosen)

    # --- the count ------------------------------------------------------------------------------
    def _count(self) -> None:
        if self._counted:
            return
        self._counted = True
        self._trade.passed += 1
        if self._trade.counting is not None:
            self._trade.counting.began()

    def _end(self) -> None:
        self.over = True
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.end()
        if self._route is not None and self._route is not asyncio.current_task():
            self._route.cancel()
        if self._counted:
            self._counted = False
            self._trade.passed -= 1
            if self._trade.counting is not None:
                self._trade.counting.ended()


def _at_a_loss(error: Exception) -> Answer:
    """A mistake of the program's: said to its log, and to the client without a detail."""
    asyncio.get_running_loop().call_exception_handler(
        {"message": "a relay could not choose where a request goes", "exception": error})
    return error_answer(500, "the relay could not choose where the request goes")
