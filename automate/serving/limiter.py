"""How many requests may be in flight: a fixed number, or one that follows the server's back-pressure.

Never sends anything; it is told what the server says and what came back."""

from __future__ import annotations

import asyncio

from automate.serving.metrics import ServerMetrics

FIRST, LOWEST, HIGHEST = 32, 2, 1024


class Limiter:
    """Counts requests in flight against a limit that can move.

    Rises by an eighth while the server lets nothing wait and the limit is in use; falls on waiting requests,
    preemptions and 429.
    """

    def __init__(self, fixed: int | None = None, *, first: int = FIRST) -> None:
        self.limit = fixed or max(LOWEST, min(first, HIGHEST))
        self.in_flight = 0
        self.peak = 0
        self._fixed = fixed is not None
        self._preemptions: float | None = None
        self._told = False
        self._free = asyncio.Event()
        self._free.set()

    @property
    def crowded(self) -> bool:
        """Whether more places are taken than the limit now allows: who is done with one gives it back."""
        return self.in_flight > self.limit

    async def acquire(self) -> None:
        """Wait for a place; take it."""
        while self.in_flight >= self.limit:
            self._free.clear()
            await self._free.wait()
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)

    def release(self) -> None:
        """Give a place back, however the request ended."""
        self.in_flight -= 1
        if self.in_flight < self.limit:
            self._free.set()

    def _move(self, limit: float) -> None:
        if not self._fixed:
            self.limit = max(LOWEST, min(int(limit), HIGHEST))
            if self.in_flight < self.limit:
                self._free.set()

    def size_for(self, kv_tokens: int, game_tokens: float) -> None:
        """Start from the server's KV capacity over the mean game's length, both in tokens."""
        self._move(kv_tokens / max(game_tokens, 1.0))

    def told_to_wait(self) -> None:
        """The server answered 429 or 503; a burst of them counts once until the next look at the server."""
        if self._told:
            return
        self._told = True
        self._move(min(self.limit, max(self.in_flight, LOWEST)) * 0.7)

    def observe(self, metrics: ServerMetrics) -> None:
        """Follow the server's own counters."""
        self._told = False
        before, self._preemptions = self._preemptions, metrics.preemptions
        preempted = before is not None and metrics.preemptions is not None and metrics.preemptions > before
        if preempted:
            self._move(self.limit * 0.8)
        elif metrics.waiting:
            self._move(max(self.limit - max(1.0, metrics.waiting / 2), self.limit * 0.75))
        elif metrics.waiting == 0 and self.in_flight >= self.limit:
            self._move(self.limit + max(1, self.limit // 8))
