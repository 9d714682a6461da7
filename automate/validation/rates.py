"""How often each task may be asked for an assignment: what the API said of it, when it was asked, when it may be again.

Arithmetic and one small file; never asks and never sleeps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from automate.journal import read_json, write_json

LEAST = 1.0
"""Seconds that always lie between a lookup that brought nothing and the next one of the same task."""
MOST = 6 * 3600.0
"""Seconds that a task waits at most, whatever a reply says."""
UNTOLD = 60.0
"""Seconds to wait where a limit was reached and no figure was given."""
SLACK, MOST_SLACK = 0.02, 5.0
"""What is added to a learned limit, as a share and in seconds: clocks and the network are not exact."""
SKEW = 60.0
"""Seconds by which clocks of two machines may differ without one of them being wrong."""
OUTAGE, MOST_OUTAGE = 15.0, 900.0
"""The first wait after an outage (less where validation.time_sleep is), doubled with each, and its bound."""


@dataclass(frozen=True)
class Rate:
    """Of one task: the learned `limit` (seconds a lookup, None: not told), when it was last `looked` up with an answer
    other than a limit (0: never), when it may be asked `next`, how many `outages` came in a row."""

    limit: float | None = None
    looked: float = 0.0
    next: float = 0.0
    outages: int = 0

    def interval(self, wanted: float) -> float:
        """Seconds between two lookups: what the user wants, or what the API demands where that is more."""
        return max(wanted, _slack(self.limit or 0.0))


def _slack(seconds: float) -> float:
    return seconds + min(MOST_SLACK, seconds * SLACK)


def _bounded(seconds: float) -> float:
    return min(max(seconds, LEAST), MOST) if math.isfinite(seconds) else MOST


def asked(rate: Rate, now: float, wanted: float) -> Rate:
    """About to be asked: written down before, so that one who is started again and again keeps to the limit."""
    return replace(rate, next=now + _bounded(rate.interval(wanted)))


def granted(rate: Rate, now: float, wanted: float) -> Rate:
    """It brought an assignment. Where no limit is known or wanted, the next may be asked for at once."""
    return replace(rate, looked=now, next=now + min(rate.interval(wanted), MOST), outages=0)


def empty(rate: Rate, now: float, wanted: float) -> Rate:
    """Nothing to validate at this time."""
    return replace(rate, looked=now, next=now + _bounded(rate.interval(wanted)), outages=0)


def limited(rate: Rate, now: float, wanted: float, seconds: float | None) -> Rate:
    """A limit was reached: learn it, and wait for as long as it says. Not counted as a turn of this task."""
    told = seconds if seconds is not None and math.isfinite(seconds) and seconds > 0 else None
    learned = rate.limit if told is None else min(told, MOST)
    wait = _slack(learned) if learned is not None else max(wanted, UNTOLD)
    return replace(rate, limit=learned, next=now + _bounded(wait), outages=0)


def first_wait(usual: float, time_sleep: float) -> float:
    """The first of a row of waits: the usual one, or what validation.time_sleep says where that is less."""
    return min(usual, max(LEAST, time_sleep))


def outage(rate: Rate, now: float, wanted: float, retry_after: float | None, first: float = OUTAGE) -> Rate:
    """The API is down: longer waits with each time, never shorter than the task's interval or what the API asks for."""
    outages = min(rate.outages + 1, 30)
    wait = max(min(first * 2 ** (outages - 1), MOST_OUTAGE), rate.interval(wanted), retry_after or 0.0)
    return replace(rate, next=now + _bounded(wait), outages=outages)


def too_early(since: float, wait: float, now: float) -> bool:
    """Whether less than `wait` seconds have gone since then. A time that lies ahead was noted by a clock that was
    wrong, and is waited for no longer: at most, something is tried once too often."""
    return since - SKEW <= now < since + wait


def due(rates: Mapping[str, Rate], task_ids: tuple[str, ...], now: float) -> str | None:
    """The task whose turn it is: of those that may be asked, the one looked up longest ago; None where none may be."""
    free = [task for task in task_ids if rates.get(task, Rate()).next <= now]
    return min(free, key=lambda task: rates.get(task, Rate()).looked, default=None)


def load(path: Path, now: float) -> dict[str, Rate]:
    """What is known of all tasks; nothing where the file is absent or broken.

    Times further ahead than the longest wait were noted by a clock that was wrong: such a task may be asked now.
    """
    found = {}
    for task, value in (read_json(path) or {}).items():
        rate = _rate(value)
        if rate is not None:
            found[task] = replace(rate, next=rate.next if rate.next <= now + MOST + SKEW else now,
                                  looked=min(rate.looked, now))
    return found


def _rate(value: object) -> Rate | None:
    try:
        rate = Rate(**value) if isinstance(value, dict) else None
        if rate is None:
            return None
        numbers = [rate.looked, rate.next, rate.outages, rate.limit or 0.0]
        return rate if all(math.isfinite(number) and number >= 0 for number in numbers) else None
    except TypeError:
        return None


def save(path: Path, rates: Mapping[str, Rate]) -> None:
    """Write what is known. Raises StorageError."""
    write_json(path, {task: asdict(rate) for task, rate in rates.items()})
