"""What a running batch writes down of itself: games, tokens, rates, its server and its GPUs.

Numbers only, for the run's record; never decides anything and never fails a job."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from automate.journal import Record
from automate.serving.gpus import Gpu
from automate.serving.metrics import ServerMetrics
from automate.serving.server import Death

WINDOW = 60.0
KEPT = 2000
Clock = Callable[[], float]


def quantile(values: list[float], share: float) -> float:
    """The value below which `share` of the sorted values lie."""
    return values[min(len(values) - 1, int(share * len(values)))]


class Telemetry:
    """Sums of one start of a batch. `clock` gives seconds and never jumps."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._play_began: float | None = None
        self._outcomes: Counter[str] = Counter()
        self._usage = [0, 0, 0]
        self._seconds: deque[float] = deque(maxlen=KEPT)
        self._marks: deque[tuple[float, int]] = deque([(self._began, 0)])
        self._server: dict[str, Any] | None = None
        self._heard: deque[tuple[float, ServerMetrics]] = deque()
        self._gpus: list[Gpu] = []
        self.games = 0

    def add(self, record: Record) -> None:
        """Count a game that was just finished."""
        self._play_began = self._play_began or self._clock()
        self.games += 1
        self._outcomes[str(record.get("outcome"))] += 1
        for place, tokens in enumerate(record.get("usage") or ()):
            self._usage[place] += tokens
        if record.get("seconds") is not None:
            self._seconds.append(float(record["seconds"]))

    def playing(self) -> None:
        """The judge is ready: play begins now, unless it has begun."""
        self._play_began = self._play_began or self._clock()

    def take_server(self, metrics: ServerMetrics) -> None:
        """Take in what the server said; token rates are over the last minute."""
        now = self._clock()
        if self._heard and now - self._heard[-1][0] < 1.0:
            return
        if self._heard and _fell(self._heard[-1][1], metrics):
            self._heard.clear()  # a new server counts from 0
        self._heard.append((now, metrics))
        while len(self._heard) > 2 and now - self._heard[1][0] >= WINDOW:
            self._heard.popleft()
        rates: dict[str, float | None] = {"prompt_rate": None, "output_rate": None}
        if len(self._heard) > 1:
            seconds, before = now - self._heard[0][0], self._heard[0][1]
            rates = {"prompt_rate": _per_second(before.prompt_tokens, metrics.prompt_tokens, seconds),
                     "output_rate": _per_second(before.output_tokens, metrics.output_tokens, seconds)}
        hits = metrics.prefix_hits / metrics.prefix_queries if metrics.prefix_hits and metrics.prefix_queries else None
        self._server = {"running": metrics.running, "waiting": metrics.waiting, "kv_usage": metrics.kv_usage,
                        "kv_tokens": metrics.kv_tokens, "prefix_hits": hits, **rates, "time": time.time()}

    def take_gpus(self, gpus: list[Gpu]) -> None:
        """Take in what nvidia-smi said."""
        self._gpus = gpus or self._gpus

    def longest(self) -> float:
        """Seconds of the longest game of late; 0 before the first."""
        return max(self._seconds, default=0.0)

    def values(self) -> dict[str, Any]:
        """The keys of the run's record that are known now."""
        now = self._clock()
        found: dict[str, Any] = {"seconds": round(now - self._began, 3), "played": self.games,
                                 "outcomes": dict(self._outcomes), "usage": list(self._usage),
                                 "rate": round(self._rate(now), 4)}
        if self._play_began is not None:
            found["play_seconds"] = round(now - self._play_began, 3)
        if self._seconds:
            ordered = sorted(self._seconds)
            found["game_seconds"] = {"median": quantile(ordered, 0.5), "p95": quantile(ordered, 0.95),
                                     "max": ordered[-1]}
        if self._server is not None:
            found["server"] = self._server
        if self._gpus:
            found["gpu_use"] = [asdict(gpu) for gpu in self._gpus]
            found["gpu"] = self._gpus[0].name
        return found

    def _rate(self, now: float) -> float:
        """Games a second over the last minute."""
        self._marks.append((now, self.games))
        while len(self._marks) > 2 and now - self._marks[1][0] >= WINDOW:
            self._marks.popleft()
        then, games = self._marks[0]
        return (self.games - games) / max(now - then, 1e-9)


def _fell(before: ServerMetrics, after: ServerMetrics) -> bool:
    """Whether a counter went back."""
    return (after.prompt_tokens or 0.0) < (before.prompt_tokens or 0.0)


def _per_second(before: float | None, after: float | None, seconds: float) -> float | None:
    if before is None or after is None or after < before:
        return None
    return round((after - before) / seconds, 1)


def deaths_of(deaths: list[Death], node: str) -> list[dict[str, Any]]:
    """Deaths of servers as the run's record holds them."""
    return [{**asdict(death), "node": node} for death in deaths]
