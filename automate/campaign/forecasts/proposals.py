"""From a forecast to what to ask for: --time, batch size, batches at once; each with its reason.

Pure; only proposes. Settings stay as they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from automate.campaign.forecasts.estimates import BatchForecast, Forecast, JobLimits, schedule
from automate.durations import in_words, slurm_time

FIXED_SHARE = 0.125
"""The most of a batch that may go for loading and starting."""
LONGEST_BATCH = 4 * 3600.0
"""Seconds of a batch that a cluster's queue still takes gladly, and that can be lost to a broken node."""
ROUND_TO = 300.0
ROUNDS = 4
"""How often a batch size is looked at again with the batches that it makes."""
NEAR_BEST = 1.1
"""So much later than the earliest finish is as good."""


@dataclass(frozen=True)
class Proposal:
    """`time` as --time takes it, `batch_size` in models, `parallel` batches at once with `finishes` (at once, seconds)
    to choose from; `notes` say why."""

    time: str
    batch_size: int
    parallel: int
    finishes: tuple[tuple[int, float], ...]
    notes: tuple[str, ...]


def propose(forecast: Forecast, limits: JobLimits, *, longest: float = math.inf,
            again: Callable[[int], Forecast] | None = None) -> Proposal | None:
    """What to ask for; None where nothing is due. `longest`: seconds that the partition allows.

    `again` forecasts the same games in batches of another size: time and batches at once are then those of the size
    that is proposed.
    """
    busy = _busy(forecast)
    if not busy:
        return None
    size, size_note = _size(busy)
    for _ in range(ROUNDS if again else 0):
        if again is None or size == max(batch.size.models for batch in busy):
            break
        busy = _busy(again(size))
        size, more = _size(busy)
        size_note = more.removesuffix(_kept(size))
    time, time_note = _time(busy, limits, longest)
    finishes = _finishes(busy, limits, time)
    best = min(seconds for _, seconds in finishes)
    parallel = next(count for count, seconds in finishes if seconds <= NEAR_BEST * best)
    notes = [time_note, size_note, f"at once: {_why(parallel, len(busy), limits)}"]
    return Proposal(slurm_time(time), size, parallel, finishes, tuple(notes))


def _busy(forecast: Forecast) -> list[BatchForecast]:
    return [batch for batch in forecast.batches if batch.size.games]


def _kept(size: int) -> str:
    return f"; {size} as now is as good"


def _why(parallel: int, batches: int, limits: JobLimits) -> str:
    if parallel == batches:
        return "every batch, as each one more ends the whole earlier" if batches > 1 else "there is one batch"
    if parallel == limits.parallel:
        return f"as many as the settings allow; there are {batches} batches"
    return "more would end the whole by less than a tenth earlier"


def _time(busy: Sequence[BatchForecast], limits: JobLimits, longest: float) -> tuple[float, str]:
    """The longest batch at the interval's upper end, and the drain; rounded up, within the partition's limit."""
    high = max(batch.alone.high for batch in busy)
    wanted = math.ceil((high + limits.lead) / ROUND_TO) * ROUND_TO
    why = f"--time: the longest batch takes {in_words(high)} at most (80 %), and {in_words(limits.lead)} to drain"
    if wanted <= longest:
        return wanted, why
    return longest, f"{why}; the partition allows {in_words(longest)}: batches go on in another start"


def _size(busy: Sequence[BatchForecast]) -> tuple[int, str]:
    """Models a batch: so many that loading is a small share of it, and not so many that it takes too long."""
    models = sum(batch.size.models for batch in busy)
    play = sum(batch.play.mid for batch in busy) / models
    fixed = sum(batch.load.mid + batch.overhead.mid for batch in busy) / len(busy)
    least = math.ceil(fixed * (1 / FIXED_SHARE - 1) / play)
    most = max(1, math.floor((LONGEST_BATCH - fixed) / play))
    size = max(1, min(least, most, models))
    share = fixed / (fixed + size * play)
    why = (f"batch size: a model takes {in_words(play)} of play, a start {in_words(fixed)} before it; with {size} "
           f"model(s) that is {share:.0%} of a batch")
    now = max(batch.size.models for batch in busy)
    long = fixed + now * play > LONGEST_BATCH and now > most
    if not long and now >= size:
        return now, f"{why}{_kept(now)}"
    return size, why


def _finishes(busy: Sequence[BatchForecast], limits: JobLimits, time: float) -> tuple[tuple[int, float], ...]:
    """(batches at once, seconds to the end) for 1, 2, 4, ... and all, within what the settings allow, under the
    proposed time limit."""
    most = min(limits.parallel or len(busy), len(busy))
    counts = sorted({min(2**power, most) for power in range(most.bit_length() + 1)})
    seconds = [batch.alone.mid if batch.alone.mid <= time else batch.seconds.mid for batch in busy]
    return tuple((count, schedule(seconds, count)) for count in counts)
