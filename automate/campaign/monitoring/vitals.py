"""What started jobs say of themselves, read from their records: phase, rates, server, GPUs, what comes after.

Takes nothing for granted: a record may lack any key, or hold anything under it. Never writes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automate.errors import StorageError
from automate.journal import read_json

Run = Mapping[str, Any]
PLAYING = ("playing", "draining")
OLD = 60.0
"""Seconds after which what a job said of its server counts as old."""


def number(data: object, key: str) -> float | None:
    """A finite number of a mapping; None where there is none."""
    value = data.get(key) if isinstance(data, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def whole(data: object, key: str) -> int | None:
    """A whole number of a mapping; None where there is none."""
    value = number(data, key)
    return None if value is None else int(value)


def text(data: object, key: str) -> str:
    """A text of a mapping; empty where there is none."""
    value = data.get(key) if isinstance(data, Mapping) else None
    return value if isinstance(value, str) else ""


def items(data: object, key: str) -> list[Mapping[str, Any]]:
    """The mappings of a list of a mapping."""
    value = data.get(key) if isinstance(data, Mapping) else None
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


@dataclass(frozen=True)
class ServerLine:
    """A judge server's word on itself: requests, shares between 0 and 1, tokens a second, seconds since it said so."""

    running: float | None
    waiting: float | None
    kv_usage: float | None
    kv_tokens: float | None
    prompt_rate: float | None
    output_rate: float | None
    prefix_hits: float | None
    age: float | None


@dataclass(frozen=True)
class GpuLine:
    """A GPU of a job: memory in MiB, use in percent."""

    index: int | None
    name: str
    memory_used_mb: float | None
    memory_total_mb: float | None
    utilization: float | None


@dataclass(frozen=True)
class Vitals:
    """One start of a job, as far as it said: seconds, games, games/s. `age`: seconds since its last word."""

    phase: str = ""
    phase_seconds: float | None = None
    node: str = ""
    rate: float | None = None
    played: int | None = None
    due: int | None = None
    in_flight: int | None = None
    unanswered: int | None = None
    server: ServerLine | None = None
    gpu_use: tuple[GpuLine, ...] = ()
    deaths: tuple[str, ...] = ()
    age: float | None = None
    kind: str = "judge"

    @property
    def old(self) -> bool:
        return self.age is not None and self.age > OLD


def _server(run: Run, now: float) -> ServerLine | None:
    said = run.get("server")
    if not isinstance(said, Mapping):
        return None
    when = number(said, "time")
    return ServerLine(number(said, "running"), number(said, "waiting"), number(said, "kv_usage"),
                      number(said, "kv_tokens"), number(said, "prompt_rate"), number(said, "output_rate"),
                      number(said, "prefix_hits"), None if when is None else max(0.0, now - when))


def vitals(run: Run | None, now: float) -> Vitals:
    """A run record as numbers and texts; `now` in seconds since 1970."""
    if run is None:
        return Vitals()
    phase, started = text(run, "phase"), number(run, "started")
    updated = number(run, "updated") or started
    seconds = None if started is None else max(0.0, now - started)
    if phase in PLAYING and (played := number(run, "play_seconds")) is not None:
        seconds = played + max(0.0, now - (updated or now))
    gpus = tuple(GpuLine(whole(gpu, "index"), text(gpu, "name"), number(gpu, "memory_used_mb"),
                         number(gpu, "memory_total_mb"), number(gpu, "utilization")) for gpu in items(run, "gpu_use"))
    return Vitals(
        phase=phase, phase_seconds=seconds, node=text(run, "node"), rate=number(run, "rate"),
        played=whole(run, "played"), due=whole(run, "due"), in_flight=whole(run, "in_flight"),
        unanswered=whole(run, "unanswered"), server=_server(run, now), gpu_use=gpus,
        deaths=tuple(text(death, "cause") or "unknown" for death in items(run, "deaths")),
        age=None if updated is None else max(0.0, now - updated),
        kind="generate" if run.get("kind") == "generate" else "judge")


@dataclass(frozen=True)
class Rates:
    """Sums over the running jobs whose last word is at most a minute old; `silent` counts the others.

    Games are of judging jobs, answers of generation jobs, all else of both.
    """

    games_per_second: float | None = None
    prompt_tokens_per_second: float | None = None
    output_tokens_per_second: float | None = None
    requests_running: float | None = None
    requests_waiting: float | None = None
    kv_usage: float | None = None
    prefix_hits: float | None = None
    gpu_memory_used_mb: float | None = None
    gpu_memory_total_mb: float | None = None
    gpu_utilization: float | None = None
    jobs: int = 0
    silent: int = 0
    answers_per_second: float | None = None


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def rates(running: Sequence[Vitals]) -> Rates:
    """The campaign's speed now, from what its running jobs said; shares are means over servers and GPUs."""
    spoke = [one for one in running if one.age is not None]
    fresh = [one for one in spoke if not one.old]
    servers = [one.server for one in fresh if one.server is not None and (one.server.age or 0.0) <= OLD]
    gpus = [gpu for one in fresh for gpu in one.gpu_use]
    return Rates(
        games_per_second=_sum(one.rate for one in fresh if one.phase in PLAYING and one.kind == "judge"),
        answers_per_second=_sum(one.rate for one in fresh if one.phase in PLAYING and one.kind == "generate"),
        prompt_tokens_per_second=_sum(one.prompt_rate for one in servers),
        output_tokens_per_second=_sum(one.output_rate for one in servers),
        requests_running=_sum(one.running for one in servers), requests_waiting=_sum(one.waiting for one in servers),
        kv_usage=_mean(one.kv_usage for one in servers), prefix_hits=_mean(one.prefix_hits for one in servers),
        gpu_memory_used_mb=_sum(gpu.memory_used_mb for gpu in gpus),
        gpu_memory_total_mb=_sum(gpu.memory_total_mb for gpu in gpus),
        gpu_utilization=_mean(gpu.utilization for gpu in gpus), jobs=len(fresh), silent=len(spoke) - len(fresh))


def usual_load(runs: Iterable[Run], judge: str) -> float | None:
    """Seconds that this judge's server usually takes to load: the median of all loads that were recorded."""
    found = [seconds for run in runs if text(run, "judge") in ("", judge)
             for load in items(run, "load") if (seconds := number(load, "seconds")) is not None]
    return statistics.median(found) if found else None


class RunFiles:
    """The run records of a folder; a file is read again only where it changed, and forgotten where it is gone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._kept: dict[Path, tuple[tuple[int, int, int], dict[str, Any] | None]] = {}

    def read(self) -> list[dict[str, Any]]:
        """All records that can be read, oldest first."""
        kept: dict[Path, tuple[tuple[int, int, int], dict[str, Any] | None]] = {}
        for path in sorted(self.folder.glob("*.json")):
            try:
                stat = path.stat()
                mark = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
                before = self._kept.get(path)
                kept[path] = before if before and before[0] == mark else (mark, read_json(path))
            except (OSError, StorageError):
                continue  # replaced or removed while it was looked at
        self._kept = kept
        return [record for _, record in kept.values() if record is not None]
