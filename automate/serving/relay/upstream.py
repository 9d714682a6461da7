"""Connections to model servers, kept alive and used again.

Never reads a reply: what comes goes to the exchange that has the connection."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from automate.serving.relay.own import check_own
from automate.serving.relay.terms import Target

CONNECT_PATIENCE = 10.0
IDLE = 4.0
"""Seconds that a connection is kept unused: less than the 5 after which uvicorn closes it."""

Place = tuple[str, int, bool]
"""A Unix socket's path, or a host; the port, or 0; and whether the process there must be this user's."""


class Taker(Protocol):
    """Who has a connection for now."""

    def received(self, data: bytes) -> None:
        """The upstream sent this."""

    def lost(self, error: Exception | None) -> None:
        """The connection is gone; None: closed in order."""


class Connection(asyncio.Protocol):
    """One connection to an upstream. `used`: it has had a request before."""

    def __init__(self) -> None:
        self.taker: Taker | None = None
        self.used = False
        self.idle_since = 0.0
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.taker is None:
            self.transport.abort()  # nobody asked it anything
        else:
            self.taker.received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        taker, self.taker = self.taker, None
        if taker is not None:
            taker.lost(exc)

    def end(self) -> None:
        """Let it go at once: an upstream that is at work stops."""
        self.taker = None
        self.transport.abort()


class Pool:
    """Connections by place, the latest used first."""

    def __init__(self, patience: float = CONNECT_PATIENCE) -> None:
        self._idle: dict[Place, list[Connection]] = {}
        self._patience = patience

    def take(self, place: Place) -> Connection | None:
        """A connection that is there already."""
        idle = self._idle.get(place)
        while idle:
            connection = idle.pop()
            if not connection.transport.is_closing():
                return connection
        return None

    def put(self, place: Place, connection: Connection, now: float) -> None:
        """Keep it for another request."""
        connection.taker, connection.used, connection.idle_since = None, True, now
        self._idle.setdefault(place, []).append(connection)

    async def connect(self, place: Place) -> Connection:
        """A new connection. Raises OSError (TimeoutError, NotOwnError)."""
        connection = Connection()
        async with asyncio.timeout(self._patience):
            await _open(place, connection)
            try:
                if place[2]:
                    await check_own(connection.transport)
            except BaseException:
                connection.end()
                raise
        return connection

    def sweep(self, now: float) -> None:
        """Close what has been idle for long."""
        for place in list(self._idle):
            idle, kept = self._idle.pop(place), []
            for one in idle:
                if now - one.idle_since < IDLE and not one.transport.is_closing():
                    kept.append(one)
                else:
                    one.end()
            if kept:
                self._idle[place] = kept

    def close(self) -> None:
        """Close all that are idle."""
        self.sweep(float("inf"))


def place_of(target: Target) -> Place:
    """Under which its connections are kept."""
    return (target.uds, 0, False) if target.uds is not None else (target.host, target.port, target.own)


async def _open(place: Place, connection: Connection) -> None:
    loop, (name, port, _) = asyncio.get_running_loop(), place
    if port:
        await loop.create_connection(lambda: connection, name, port)
    else:
        await loop.create_unix_connection(lambda: connection, name)
