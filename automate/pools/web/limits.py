"""What one client may take of the server: requests a second, and memory for bodies that are being read.

Never trusts what a header says of a body's size."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from starlette.requests import Request

ADDRESSES = 10_000
"""Addresses that are remembered; the one that was seen the longest ago is forgotten first."""
FREE = 64 * 1024
"""Bytes of a body that take nothing of the common memory."""


class Rates:
    """A bucket of tokens for each address: `rate` requests a second, and twice as many at once."""

    def __init__(self, rate: float, clock: Callable[[], float]) -> None:
        self.rate, self.burst, self._clock = rate, max(1.0, 2 * rate), clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, address: str) -> float:
        """0 where a request may pass; else the seconds until it may."""
        now, key = self._clock(), network_of(address)
        tokens, then = self._buckets.pop(key, (self.burst, now))
        tokens = min(self.burst, tokens + (now - then) * self.rate)
        passes = tokens >= 1
        self._buckets[key] = (tokens - 1 if passes else tokens, now)
        if len(self._buckets) > ADDRESSES:
            self._buckets.popitem(last=False)
        return 0.0 if passes else (1 - tokens) / self.rate


def network_of(address: str) -> str:
    """Whom an address belongs to: one of IPv4, or a network of 2^64 of IPv6."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return address
    return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))


class TooLargeError(Exception):
    """A body is over the limit."""


class NoMemoryError(Exception):
    """Too many large bodies are being read at once."""


class Memory:
    """Bytes that bodies may hold, all together."""

    def __init__(self, size: int) -> None:
        self.left = size

    @contextmanager
    def share(self) -> Iterator[Callable[[int], None]]:
        """A function that takes bytes (NoMemoryError where there are no more); all are given back at the end."""
        taken = 0

        def take(count: int) -> None:
            nonlocal taken
            if count > self.left:
                raise NoMemoryError
            self.left -= count
            taken += count

        try:
            yield take
        finally:
            self.left += taken


async def read_body(request: Request, limit: int, take: Callable[[int], None]) -> bytes:
    """The body, read up to `limit` bytes. Raises TooLargeError, NoMemoryError."""
    parts, size = list[bytes](), 0
    async for chunk in request.stream():
        before, size = size, size + len(chunk)
        if size > limit:
            raise TooLargeError
        if size > FREE:
            take(size - max(before, FREE))
        parts.append(chunk)
    return b"".join(parts)
