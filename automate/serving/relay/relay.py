"""An HTTP/1.1 relay: asks for the key, chooses where a request goes, passes it on and the reply back as it comes.

Never passes a request without the key on, and never keeps more than one request of a connection."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Asked:
    """A whole request that came with the key: method, path with query, its model (of the JSON body), body."""

    method: str
    path: str
    model: str | None
    body: bytes


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request goes: a Unix socket, or host and port without TLS. `own`: its process must be this user's."""

    uds: str | None = None
    host: str = "127.0.0.1"
    port: int = 0
    own: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the relay's own."""

    status: int
    body: bytes
    content_type: str = "application/json"
    retry_after: float | None = None


Pick = Callable[[Asked], Awaitable["Target | Answer"]]
"""Chooses for each request; may wait."""


class Counting(Protocol):
    """Told of each request that is passed on."""

    def began(self) -> None:
        """A request was passed on."""

    def ended(self) -> None:
        """It ended, however it ended."""


class Relay:
    """Listens at one address. `start()`, later `drain()` and `close()`.

    `open_paths`: GET paths that need no key (/health). A request without the key is answered with 401 in OpenAI's
    shape; one whose upstream can't be reached with 502.
    """

    def __init__(self, key: str, pick: Pick, *, tls: ssl.SSLContext | None = None, counting: Counting | None = None,
                 open_paths: frozenset[str] = frozenset({"/health"}), largest: int = 64 << 20) -> None:
        raise NotImplementedError

    async def start(self, host: str, port: int = 0) -> int:
        """Listen; the port. Raises ConfigError where the address is taken or is not this machine's."""
        raise NotImplementedError

    @property
    def in_flight(self) -> int:
        """Requests that are passed on and not answered yet."""
        raise NotImplementedError

    async def drain(self, grace: float) -> None:
        """Take no new requests (503, Retry-After), and wait until those in flight have ended, at most `grace` s."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close every connection."""
        raise NotImplementedError
