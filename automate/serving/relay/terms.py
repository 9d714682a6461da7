"""What the relay and those who use it say to each other: a request, where it goes, an answer of one's own.

Never touches a socket; plain values only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec


@dataclass(frozen=True, slots=True)
class Asked:
    """A whole request that came with the key: method, path with query, its model (of the JSON body), body."""

    method: str
    path: str
    model: str | None
    body: bytes


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request goes: a Unix socket, or host and port without TLS. `own`: its process must be this user's.

    `mend`: its small plain-text errors are shown to the relay's `mend` instead of the client;
    `forward_key`: the client's Authorization header goes with it; `headers`: names and values that are added (another
    Authorization, say), never shown.
    """

    uds: str | None = None
    host: str = "127.0.0.1"
    port: int = 0
    own: bool = False
    forward_key: bool = False
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    mend: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the relay's own. `retry_after`: seconds."""

    status: int
    body: bytes
    content_type: str = "application/json"
    retry_after: float | None = None


Pick = Callable[[Asked], Awaitable["Target | Answer"]]
"""Chooses for each request; may wait."""

Quick = Callable[[Asked], "Target | Answer | None"]
"""Chooses at once, or leaves it to `Pick` by None."""


Mend = Callable[[Asked, int, bytes, float], Awaitable["Target | Answer"]]
"""What becomes of a request that got a plain-text error: status, text, seconds since its first one. May wait."""


class Counting(Protocol):
    """Told of each request that is passed on."""

    def began(self) -> None:
        """A request was passed on."""

    def ended(self) -> None:
        """It ended, however it ended."""


_KINDS = {401: "AuthenticationError", 404: "NotFoundError", 429: "RateLimitError", 500: "InternalServerError",
          502: "BadGatewayError", 503: "ServiceUnavailableError", 504: "GatewayTimeoutError"}


def error_answer(status: int, message: str, *, retry_after: float | None = None, param: str | None = None,
                 code: str | int | None = None) -> Answer:
    """An error in OpenAI's form, as an answer of the relay's own."""
    error = {"message": message, "type": _KINDS.get(status, "BadRequestError"), "param": param,
             "code": status if code is None else code}
    return Answer(status, msgspec.json.encode({"error": error}), retry_after=retry_after)
