"""One HTTP connection: uvicorn's, with what it lacks: time for headers, their size, and how many there may be.

Never reads a body; that is for the application, which knows how much it wants."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections import Counter
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from automate.pools.web import sockets

HEADER_SECONDS = 10.0
"""How long a client may take for the headers of a request, from the connection or from their first byte."""
HEADER_BYTES = 32 * 1024
CONNECTIONS = 512
CONNECTIONS_EACH = 256
"""Connections over HTTP at once: all together, and from one address. The private socket has no limit."""


Network = IPv4Network | IPv6Network


def lies_in(address: str, networks: Sequence[Network]) -> bool:
    """Whether an address belongs to one of these networks."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    return any(found in network for network in networks)


def early(status: str, error: str, todo: str) -> bytes:
    """An answer for a client that never reaches the application; the connection ends with it."""
    body = json.dumps({"error": error, "where": None, "todo": todo}).encode()
    return (f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\nx-content-type-options: nosniff\r\n"
            f"connection: close\r\ncontent-length: {len(body)}\r\n\r\n").encode() + body


class Guarded(HttpToolsProtocol):
    """`scope["state"]["private"]` is true for the private socket, where the kernel names this user as the peer."""

    open_from: ClassVar[Counter[str]] = Counter()
    proxies: ClassVar[Sequence[Network]] = ()
    private = False
    counted: str | None = None
    in_headers = True
    header_bytes = 0
    unread = 1 << 62
    header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        peer = transport.get_extra_info("socket")
        if peer is not None and peer.family == socket.AF_UNIX:
            self.private = sockets.peer_uid(peer) == os.getuid()
            if not self.private:
                transport.abort()
            return
        self._count(self.client[0] if self.client else "?")
        self._start_timer()

    def _count(self, address: str) -> None:
        self.counted = address
        self.open_from[address] += 1
        most = CONNECTIONS if lies_in(address, self.proxies) else CONNECTIONS_EACH
        if self.open_from.total() > CONNECTIONS or self.open_from[address] > most:
            self._refuse("503 Service Unavailable", "too many connections", "use fewer at once, or come back later")

    def _refuse(self, status: str, error: str, todo: str) -> None:
        self.transport.write(early(status, error, todo))
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.counted is not None:
            self.open_from[self.counted] -= 1
            if not self.open_from[self.counted]:
                del self.open_from[self.counted]
            self.counted = None
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.transport.is_closing() or not self.in_headers:
            return
        self.header_bytes += len(data)
        if self.header_bytes > HEADER_BYTES:
            self._refuse("431 Request Header Fields Too Large", f"headers are over {HEADER_BYTES} bytes",
                         "send fewer")
        elif self.header_timer is None and not self.private:
            self._start_timer()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.in_headers, self.header_bytes = True, 0
        self.scope["state"]["private"] = self.private

    def on_headers_complete(self) -> None:
        self.in_headers = False
        self._stop_timer()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.in_headers = self.in_headers or self.cycle.response_complete
        self.header_bytes, self.unread = 0, 1 << 62

    def send_400_response(self, msg: str) -> None:
        self._refuse("400 Bad Request", "that is not HTTP", "send a request as the OpenAPI document at "
                     "/openapi.json says")

    def timeout_keep_alive_handler(self) -> None:
        """Nothing more was asked for: end, unless the client still reads an answer."""
        left = self.transport.get_write_buffer_size()
        if 0 < left < self.unread:
            self.unread = left
            self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive,
                                                                self.timeout_keep_alive_handler)
        elif not self.transport.is_closing() or left:
            self.transport.abort()

    def _start_timer(self) -> None:
        self.header_timer = self.loop.call_later(HEADER_SECONDS, self._too_slow)

    def _stop_timer(self) -> None:
        if self.header_timer is not None:
            self.header_timer.cancel()
            self.header_timer = None

    def _too_slow(self) -> None:
        self.header_timer = None
        if not self.transport.is_closing():
            self._refuse("408 Request Timeout", "the headers took too long", "send them at once")
        self.loop.call_later(1.0, self.transport.abort)


def protocol(proxies: Sequence[str] = ()) -> type[Guarded]:
    """A protocol class with counts of its own, one for each server. `proxies`: addresses and networks that may have all
    connections: whom they come for is counted by the application."""
    return type("Counted", (Guarded,), {"open_from": Counter(), "proxies": tuple(map(ip_network, proxies))})
