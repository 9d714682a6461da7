"""A client's connection to the relay: its requests one after the other, and its patience.

Never has more than one request on its way; what comes meanwhile waits, and soon is not read."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, cast

from automate.serving.relay.exchange import Exchange, Trade
from automate.serving.relay.replies import answer_bytes
from automate.serving.relay.requests import RefusedError, Request, RequestReader
from automate.serving.relay.terms import Answer, error_answer

AHEAD = 64 << 10
"""Bytes that are read of a connection while its request is on its way."""
HIGH_WATER = 256 << 10
STRANGERS = 2048
"""Connections without the key at most, however many there may be: TLS takes a quarter of a MB for each."""
LINGER = 2.0
"""Seconds in which a client that is still sending can read why it is cut off."""
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass(frozen=True)
class Patience:
    """Seconds. `stranger`: for the first request with the key; `idle`: between requests; `head`: for a request's head;
    `body`: without a byte of its body; `stuck`: without the client reading its reply; `handshake`: for that of TLS."""

    stranger: float = 15.0
    idle: float = 75.0
    head: float = 20.0
    body: float = 30.0
    stuck: float = 300.0
    handshake: float = 5.0


class Stranger(Protocol):
    """A connection that has not shown the key."""

    def cut(self) -> None:
        """Close at once."""


@dataclass(eq=False)
class House:
    """What all clients of a relay share. `strangers`: who has not shown the key, oldest first; `arriving`: those of
    them whose handshake is not over; `most`: connections at once."""

    trade: Trade
    reader: Callable[[], RequestReader]
    most: int
    patience: Patience = Patience()
    clients: dict[Client, None] = field(default_factory=dict)
    strangers: dict[Stranger, None] = field(default_factory=dict)
    arriving: set[Stranger] = field(default_factory=set)
    busy: int = 0
    draining: float | None = None
    idle: asyncio.Event = field(default_factory=asyncio.Event)

    def admit(self, one: Stranger) -> None:
        """One more; the oldest stranger goes where that is too many."""
        self.strangers[one] = None
        if len(self.strangers) > STRANGERS or len(self.clients) + len(self.arriving) > self.most:
            self.make_room()

    def make_room(self) -> None:
        """Close the connection of the oldest stranger."""
        oldest = next(iter(self.strangers), None)
        if oldest is not None:
            self.forget(oldest)
            oldest.cut()

    def forget(self, one: Stranger) -> None:
        """It is gone, or has been cut."""
        self.strangers.pop(one, None)
        self.arriving.discard(one)
        self.clients.pop(one, None)  # type: ignore[call-overload]


class Client(asyncio.Protocol):
    """One connection; until it is made, `arrival` stands for it."""

    def __init__(self, house: House, arrival: Stranger) -> None:
        self._house, self._reader, self._arrival = house, house.reader(), arrival
        self._exchange: Exchange | None = None
        self._request: Request | None = None
        self._last: Answer | None = None
        self._ahead = 0
        self._known = self._deaf = self._choked = self._paused = self._turning = False
        self._since = 0.0
        self._transport: asyncio.Transport

    # --- what the transport calls ---------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER)
        self._since = self._now()
        self._house.forget(self._arrival)
        self._house.clients[self] = None
        self._house.admit(self)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        idle, in_body = self._reader.reading is None, self._reader.in_body
        if self._exchange is not None:
            self._ahead += len(data)
            if self._ahead > AHEAD:
                self._listen(on=False)
        try:
            self._reader.feed(data)
        except RefusedError as refused:
            self._last = refused.answer
        if idle or (in_body and self._reader.keyed):
            self._since = self._now()
        if self._exchange is None:
            self._next()

    def eof_received(self) -> None:
        """A client that will send no more is taken to be gone."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._deaf = True
        self._house.forget(self)
        exchange = self._exchange
        if exchange is not None:
            self._over()
            exchange.abandon()

    def pause_writing(self) -> None:
        self._choked, self._since = True, self._now()
        if self._exchange is not None:
            self._exchange.hold(hold=True)

    def resume_writing(self) -> None:
        self._choked, self._since = False, self._now()
        if self._exchange is not None:
            self._exchange.hold(hold=False)
        else:
            self._next()

    # --- one request after the other ------------------------------------------------------------
    def _next(self) -> None:
        if self._turning:
            return
        self._turning = True
        while self._reader.ready and self._exchange is None and not (self._choked or self._deaf):
            self._begin(self._reader.ready.popleft())
        self._turning = False
        if self._exchange is not None or self._choked or self._deaf:
            return
        if self._last is not None:
            self._part(self._last)
            return
        self._listen(on=True)
        self._welcome()

    def _welcome(self) -> None:
        reading = self._reader.reading
        if reading is not None and reading.expects and self._reader.in_body:
            reading.expects = False
            self._write(_CONTINUE)

    def _begin(self, request: Request) -> None:
        self._request = request
        if request.refusal is not None:
            self.answered(request.refusal)
            return
        if not self._known and self._reader.keyed:
            self._known = True
            self._house.strangers.pop(self, None)
        if self._house.draining is not None:
            request.keep_alive = False
            self.answered(error_answer(503, "this server takes no more requests", retry_after=self._house.draining))
            return
        self._ahead = 0
        self._house.busy += 1
        self._exchange = Exchange(self._house.trade, self, request)
        self._exchange.start()

    # --- what the exchange calls ----------------------------------------------------------------
    def reply(self, data: bytes) -> None:
        """More of the reply."""
        self._write(data)

    def answered(self, answer: Answer) -> None:
        """The exchange is over with an answer of the relay's own."""
        request = self._request
        assert request is not None
        self._write(answer_bytes(answer, head_only=request.head_only, close=not request.keep_alive))
        self.finished(close=not request.keep_alive)

    def finished(self, *, close: bool) -> None:
        """The exchange is over, the reply is whole."""
        self._over()
        if close:
            self._deaf = True
            self._transport.close()
        else:
            self._next()

    def broken(self) -> None:
        """The exchange is over in the middle of the reply: the client must not take it for whole."""
        self._over()
        self._reset()

    def _over(self) -> None:
        self._request, self._since = None, self._now()
        if self._exchange is not None:
            self._exchange = None
            self._house.busy -= 1
            if self._house.busy == 0:
                self._house.idle.set()

    # --- the end --------------------------------------------------------------------------------
    def _part(self, answer: Answer) -> None:
        """Say why, and close once it can have been read: a close while data still comes would destroy it."""
        self._deaf = True
        self._listen(on=True)
        self._write(answer_bytes(answer, close=True))
        if self._transport.can_write_eof() and not self._transport.is_closing():
            self._transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER, self._transport.close)

    def _reset(self) -> None:
        """Close so that what came before can't be taken for all there is."""
        with contextlib.suppress(OSError, AttributeError):
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                                                struct.pack("ii", 1, 0))
        self.cut()

    def cut(self) -> None:
        """Close at once."""
        self._deaf = True
        self._transport.abort()

    def close(self) -> None:
        """Close, in order where no reply is cut off by it."""
        exchange, request = self._exchange, self._request
        if exchange is None or request is None:
            self._deaf = True
            self._transport.close()
        elif exchange.began:
            self._reset()
        else:
            exchange.abandon()
            request.keep_alive = False
            self.answered(error_answer(503, "this server has ended", retry_after=self._house.draining))

    def check(self, now: float) -> None:
        """Look whether its patience with this client is over."""
        if self._deaf or self._transport.is_closing():
            return
        patience, waited, reading = self._house.patience, now - self._since, self._reader.reading
        if self._choked:
            if waited > patience.stuck:
                self._reset()
        elif self._exchange is not None:
            return
        elif reading is not None:
            if waited > (patience.body if self._reader.in_body else patience.head):
                self._part(error_answer(408, "the request did not come in time"))
        elif waited > (patience.idle if self._known else patience.stranger):
            self._deaf = True
            self._transport.close()

    def _listen(self, *, on: bool) -> None:
        if on == self._paused and not self._transport.is_closing():
            self._paused = not on
            if on:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _write(self, data: bytes) -> None:
        if not self._transport.is_closing():  # uvloop raises where asyncio throws it away
            self._transport.write(data)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
