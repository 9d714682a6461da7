"""Where connections come in: counted as they are accepted, the TLS handshake only afterwards, in bounded time.

Never lets strangers take what the process needs for itself: with too many, the oldest of them goes."""

from __future__ import annotations

import asyncio
import socket
import ssl

from automate.serving.relay.client import Client, House

_BACKLOG = 4096
_AT_ONCE = 64
"""Connections accepted before others get a turn."""
_FULL = 0.05
"""Seconds of rest where the process can open no more."""


class Arrival:
    """A connection that is accepted, until its handshake is over."""

    def __init__(self, house: House, sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        self._house, self._sock, self._begun = house, sock, False
        self._task = asyncio.get_running_loop().create_task(self._enter(tls))
        self._task.add_done_callback(lambda _: self._house.arriving.discard(self))

    async def _enter(self, tls: ssl.SSLContext | None) -> None:
        loop, patience = asyncio.get_running_loop(), self._house.patience.handshake
        self._begun = True
        try:  # from here on its transport closes the socket
            await loop.connect_accepted_socket(lambda: Client(self._house, self), self._sock, ssl=tls,
                                               ssl_handshake_timeout=patience if tls else None)
        except OSError:  # whatever came, it was no handshake
            pass
        finally:
            self._house.forget(self)

    def cut(self) -> None:
        """Close at once."""
        self._task.cancel()
        if not self._begun:
            self._sock.close()


class Door:
    """Accepts at a bound socket, until `close()`."""

    def __init__(self, house: House, bound: socket.socket, tls: ssl.SSLContext | None) -> None:
        self._house, self._bound, self._tls = house, bound, tls
        self._rest: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Listen."""
        self._bound.listen(_BACKLOG)
        self._watch()

    def _watch(self) -> None:
        asyncio.get_running_loop().add_reader(self._bound.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                sock, _address = self._bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # the process, or the machine, can open no more
                self._house.make_room()
                asyncio.get_running_loop().remove_reader(self._bound.fileno())
                self._rest = asyncio.get_running_loop().call_later(_FULL, self._watch)
                return
            sock.setblocking(False)
            arrival = Arrival(self._house, sock, self._tls)
            self._house.arriving.add(arrival)
            self._house.admit(arrival)

    def close(self) -> None:
        """Accept nothing more, and let go who has not come in yet."""
        if self._bound.fileno() < 0:
            return
        if self._rest is not None:
            self._rest.cancel()
        asyncio.get_running_loop().remove_reader(self._bound.fileno())
        self._bound.close()
        for arrival in list(self._house.arriving):
            arrival.cut()
