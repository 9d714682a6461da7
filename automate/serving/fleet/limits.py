"""How many requests may be in flight over a whole fleet: the sum of what its usable workers may have.

Never moves a worker's limit: each follows its own server."""

from __future__ import annotations

from automate.serving.limiter import Limiter
from automate.serving.metrics import ServerMetrics

GAME_TOKENS = 3150.0
"""A game of Arena-Hard v2.0: 2,450 tokens in, 700 out."""
SEEN = 20
"""Replies after which their own mean is taken."""


class Lengths:
    """The mean length of a game, prompt and reply, in tokens."""

    def __init__(self) -> None:
        self._tokens = 0
        self._replies = 0

    def add(self, prompt: int, output: int) -> None:
        self._tokens += prompt + output
        self._replies += 1

    @property
    def mean(self) -> float:
        return self._tokens / self._replies if self._replies >= SEEN and self._tokens else GAME_TOKENS


class FleetLimiter(Limiter):
    """The engine's limit over a fleet. `follow()` the workers' joins, deaths and limits; those who wait are woken.

    What one server said (429, its metrics) moves that worker's limit, so it moves nothing here.
    """

    def __init__(self) -> None:
        super().__init__(1)

    def follow(self, places: int) -> None:
        """So many requests may be in flight from now on; one where there is no worker, so that somebody asks for it."""
        self.limit = max(1, places)
        if self.in_flight < self.limit:
            self._free.set()

    def told_to_wait(self) -> None:
        """Counted for the worker that said so."""

    def size_for(self, kv_tokens: int, game_tokens: float) -> None:
        """Each worker's limit is sized by its own KV cache."""

    def observe(self, metrics: ServerMetrics) -> None:
        """Each worker's limit follows its own metrics."""
