"""The arithmetic of a forecast: batches of counted tokens, learned rates and limits of jobs to seconds and GPU-hours.

Pure; reads nothing. `forecast.py` counts the tokens and asks for the rates."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from automate.campaign.forecasts.rates import Z80, Interval, Rates
from automate.durations import in_words

REQUEUE_DELAY = 120.0
"""Seconds that Slurm keeps a requeued job waiting at least; they cost no GPU-hours."""
LEAST_ROOM = 60.0


@dataclass(frozen=True)
class BatchSize:
    """A batch's due games, and their tokens: of prompts and of verdicts."""

    number: int
    models: int
    games: int
    prompt_tokens: float
    output_tokens: float


@dataclass(frozen=True)
class JobLimits:
    """What bounds the jobs: seconds of --time (inf: none), and of `lead` before it, in which no game is started; GPUs
    of each; batches at once."""

    time_limit: float
    lead: float
    gpus: int
    parallel: int | None = None
    requeue_delay: float = REQUEUE_DELAY


@dataclass(frozen=True)
class BatchForecast:
    """One batch: `play`, `load` and `overhead` in seconds of one start; `seconds` of all its starts together;
    `starts` at low, mid and high, or None where the time limit leaves no time for play."""

    size: BatchSize
    play: Interval
    load: Interval
    overhead: Interval
    seconds: Interval
    starts: tuple[int, int, int] | None

    @property
    def alone(self) -> Interval:
        """Seconds that one start would take if no limit ended it."""
        return self.play + self.load + self.overhead


@dataclass(frozen=True)
class Assumption:
    """One number that the forecast rests on: its name, its value in words, and where it comes from."""

    name: str
    value: str
    source: str


@dataclass(frozen=True)
class Forecast:
    """What batches will take: `seconds` from the first start to the last end over `parallel` batches at once, without
    waiting in the queue (`wait`: its median so far, where known); `learned` from so many ended starts of this judge on
    this GPU; `problems` in words."""

    batches: tuple[BatchForecast, ...]
    parallel: int
    gpu_hours: Interval
    gpu_hours_at_most: float
    seconds: Interval
    wait: float | None
    learned: int
    assumptions: tuple[Assumption, ...]
    problems: tuple[str, ...]

    @property
    def games(self) -> int:
        return sum(batch.size.games for batch in self.batches)

    @property
    def prompt_tokens(self) -> float:
        return sum(batch.size.prompt_tokens for batch in self.batches)

    @property
    def output_tokens(self) -> float:
        return sum(batch.size.output_tokens for batch in self.batches)

    def end(self, now: float) -> Interval:
        """Epoch seconds of the last batch's end, if the first starts at `now`."""
        return Interval(now + self.seconds.low, now + self.seconds.mid, now + self.seconds.high)


# --- one batch --------------------------------------------------------------------------------------


def _play(size: BatchSize, rates: Rates, sigma: float) -> Interval:
    work = rates.work(size.games, size.prompt_tokens, size.output_tokens)
    low, mid, high = (rates.play(work * math.exp(z * sigma)) for z in (-Z80, 0.0, Z80))
    return Interval(low, mid, high)


def doubt(rates: Rates, together: float = 1.0) -> float:
    """Standard deviation of ln(truth / forecast) of play: of the rates, of `together` batches' own noise, and of the
    verdicts' length."""
    return math.sqrt(rates.spread**2 + rates.noise**2 / max(together, 1.0)
                     + (rates.output_share() * rates.output.sigma) ** 2)


def room_of(load: float, limits: JobLimits) -> float:
    """Seconds in which a start that the time limit ends begins games; not above 0: it never plays."""
    return limits.time_limit - load - limits.lead


def work_of_a_start(room: float, rates: Rates, drained: float = 1.0) -> float:
    """Seconds of play that such a start gets done: games in flight still finish while it drains, about one game's
    length of them (`drained` of it); a minute at least."""
    return max(room + drained * rates.game_seconds, LEAST_ROOM)


def starts_needed(play: float, fixed: float, work: float, limits: JobLimits, rates: Rates) -> int:
    """How many starts a batch needs under the time limit if each gets `work` seconds done, each with its own load."""
    if fixed + play <= limits.time_limit:
        return 1
    return max(2, math.ceil((play - rates.game_seconds / 2) / work))


def forecast_batch(size: BatchSize, rates: Rates, limits: JobLimits, together: float = 1.0) -> BatchForecast:
    """One batch by itself; `together`: among how many the noise between batches averages out.

    Where the limit leaves no time for play, `starts` is None and the seconds are those of one start without a limit.
    """
    play, load, overhead = (_play(size, rates, doubt(rates, together)), rates.load.interval(),
                            rates.overhead.interval())
    if not size.games:
        nothing = Interval(0.0, 0.0, 0.0)
        return BatchForecast(size, nothing, load, overhead, nothing, (0, 0, 0))
    fixed = load + overhead
    if fixed.mid + play.mid > limits.time_limit and room_of(load.mid, limits) <= 0:
        return BatchForecast(size, play, load, overhead, play + fixed, None)
    work = [work_of_a_start(room_of(one, limits), rates, drained)
            for one, drained in zip(load.three, (1.0, 1.0, 0.0), strict=True)]
    low, mid, high = (starts_needed(p, f, w, limits, rates)
                      for p, f, w in zip(play.three, fixed.three, work, strict=True))
    seconds = [p + n * f + (n - 1) * rates.game_seconds / 2
               for p, f, n in zip(play.three, fixed.three, (low, mid, high), strict=True)]
    return BatchForecast(size, play, load, overhead, Interval(*seconds), (low, mid, high))


# --- many batches ------------------------------------------------------------------------------------


def schedule(seconds: Sequence[float], parallel: int) -> float:
    """When the last of these jobs ends if they start in order, `parallel` at once; seconds from the first start."""
    return schedule_starts([(one,) for one in seconds], parallel, 0.0)


def schedule_starts(batches: Sequence[Sequence[float]], parallel: int, delay: float) -> float:
    """When the last batch ends, each of so many starts; seconds from the first.

    A start holds a place; then the batch waits `delay` without one, and queues behind those that wait already.
    """
    places = [0.0] * max(1, min(parallel, len(batches)))
    waiting = [(0.0, index, 0) for index, starts in enumerate(batches) if starts]
    last = 0.0
    while waiting:
        ready, index, count = heapq.heappop(waiting)
        end = max(ready, places[0]) + batches[index][count]
        heapq.heapreplace(places, end)
        last = max(last, end)
        if count + 1 < len(batches[index]):
            heapq.heappush(waiting, (end + delay, index, count + 1))
    return last


def forecast_batches(sizes: Sequence[BatchSize], rates: Rates, limits: JobLimits, *,
                     assumptions: Iterable[Assumption] = ()) -> Forecast:
    """The forecast of batches in the order in which they start."""
    busy = [size for size in sizes if size.games]
    parallel = max(1, min(limits.parallel or len(busy), len(busy) or 1))
    rounds = math.ceil(len(busy) / parallel) if busy else 1
    batches = tuple(forecast_batch(size, rates, limits) for size in sizes)
    elapsed = [forecast_batch(size, rates, limits, rounds) for size in busy]
    low, mid, high = (schedule_starts([_starts(batch, index, limits) for batch in elapsed], parallel,
                                      limits.requeue_delay) for index in range(3))
    ends = min(low, mid), mid, max(mid, high)  # shorter starts may queue less luckily
    all_noise = [forecast_batch(size, rates, limits, len(busy)).seconds for size in busy]
    hours = sum(all_noise, Interval(0.0, 0.0, 0.0)) * (limits.gpus / 3600)
    starts = sum(batch.starts[2] if batch.starts else 1 for batch in batches)
    at_most = 0.0 if not limits.gpus else limits.gpus * starts * limits.time_limit / 3600
    return Forecast(batches, parallel, hours, at_most, Interval(*ends), rates.wait, rates.batches,
                    tuple(assumptions), tuple(_problems(batches, limits, rates)))


def _starts(batch: BatchForecast, index: int, limits: JobLimits) -> list[float]:
    """Seconds of each of a batch's starts: full ones up to the time limit, and the rest."""
    seconds, count = batch.seconds.three[index], (batch.starts or (1, 1, 1))[index]
    if count < 2:
        return [seconds]
    full = max(seconds / count, limits.time_limit - limits.lead)
    rest = seconds - (count - 1) * full
    return [full] * (count - 1) + [rest] if rest > 0 else [seconds / count] * count


def _problems(batches: Sequence[BatchForecast], limits: JobLimits, rates: Rates) -> Iterable[str]:
    stuck = [batch.size.number for batch in batches if batch.starts is None]
    if stuck:
        yield (f"the time limit ({in_words(limits.time_limit)}) is too short: loading takes about "
               f"{in_words(rates.load.value)}, the rest of a start {in_words(rates.overhead.value)}, and in the last "
               f"{in_words(limits.lead)} no game is started; batches would never end")
