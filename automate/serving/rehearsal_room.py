"""The rehearsal judge's room for tokens: what does not fit waits for what is there to end.

Never lets anybody in before one who came earlier."""

from __future__ import annotations

import asyncio
from collections import deque


class TokenPool:
    """Room for tokens, given first come, first served."""

    def __init__(self, size: int) -> None:
        self.size = self._free = size
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def used(self) -> float:
        """The share of the room that is taken."""
        return 1 - self._free / self.size

    @property
    def waiting(self) -> int:
        """How many wait for room."""
        return len(self._queue)

    async def take(self, wanted: int) -> int:
        """Wait for room; what is larger than the pool gets all of it. Returns what to give back."""
        cost = min(wanted, self.size)
        if not self._queue and cost <= self._free:
            self._free -= cost
            return cost
        place = (cost, asyncio.get_running_loop().create_future())
        self._queue.append(place)
        try:
            await place[1]
        except asyncio.CancelledError:
            if place in self._queue:
                self._queue.remove(place)
            self.give(0 if place[1].cancelled() else cost)
            raise
        return cost

    def give(self, cost: int) -> None:
        """Return room, and let in whoever now fits."""
        self._free += cost
        while self._queue and self._queue[0][0] <= self._free:
            admitted, place = self._queue.popleft()
            if not place.cancelled():
                self._free -= admitted
                place.set_result(None)
