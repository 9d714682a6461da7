"""What a campaign takes on a fleet of servers, each of which loads the judge once, next to batches of it.

Pure arithmetic over counted tokens and learned rates; docs/plan.md has the formula."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from automate.campaign.forecasts.estimates import (
    BatchSize,
    Forecast,
    JobLimits,
    doubt,
    room_of,
    starts_needed,
    work_of_a_start,
)
from automate.campaign.forecasts.rates import Z80, Interval, Rates
from automate.durations import in_words

NOTHING = Interval(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class FleetForecast:
    """What `servers` servers at once take for all games. Seconds.

    `seconds`: from the first server's start to the last game's end, without the queue; `play` of that with games;
    `starts` of one server under its time limit at low, mid and high, None where it would never play;
    `server_seconds`: of all servers together, `besides` of them for anything else than games: loading, starting, and
    the last games. `gpu_hours_at_most`: by the time limit. `wait`: the median wait in the queue, where known.
    """

    servers: int
    games: int
    play: Interval
    load: Interval
    starts: tuple[int, int, int] | None
    seconds: Interval
    server_seconds: Interval
    besides: Interval
    gpu_hours: Interval
    gpu_hours_at_most: float
    wait: float | None
    problems: tuple[str, ...] = ()

    @property
    def loads(self) -> int:
        """How often the judge is loaded."""
        return self.servers * (self.starts[1] if self.starts else 1)


def forecast_fleet(sizes: Sequence[BatchSize], rates: Rates, limits: JobLimits, servers: int) -> FleetForecast:
    """The games of all batches on one fleet. `limits`: of a server's job; its `parallel` means nothing here.

    No more servers are counted than there are games.
    """
    games = sum(size.games for size in sizes)
    count = max(1, min(servers, games))
    if not games:
        return FleetForecast(servers, 0, NOTHING, NOTHING, (0, 0, 0), NOTHING, NOTHING, NOTHING, NOTHING, 0.0,
                             rates.wait)
    work = rates.work(games, sum(size.prompt_tokens for size in sizes), sum(size.output_tokens for size in sizes))
    sigma = doubt(rates, count)
    works = [work * math.exp(z * sigma) for z in (-Z80, 0.0, Z80)]
    fixed = rates.load.interval() + rates.overhead.interval()
    plays = [rates.play(one / count) for one in works]
    stuck = fixed.mid + plays[1] > limits.time_limit and room_of(rates.load.value, limits) <= 0
    needed = [1 if stuck else _starts(play, own, load, limits, rates)
              for play, own, load in zip(plays, fixed.three, rates.load.interval().three, strict=True)]
    drained = rates.game_seconds / 2  # of each start that the time limit ends
    besides = [count * round(starts * own + (starts - 1) * drained + play - one / count, 6)
               for starts, own, play, one in zip(needed, fixed.three, plays, works, strict=True)]
    total = [one + other for one, other in zip(works, besides, strict=True)]
    walls = [starts * own + play + (starts - 1) * (drained + limits.requeue_delay)
             for starts, own, play in zip(needed, fixed.three, plays, strict=True)]
    hours = limits.gpus / 3600
    at_most = count * needed[2] * limits.time_limit * hours if limits.gpus else 0.0
    return FleetForecast(
        count, games, Interval(*plays), rates.load.interval(), None if stuck else (needed[0], needed[1], needed[2]),
        Interval(*walls), Interval(*total), Interval(*besides), Interval(*total) * hours, at_most, rates.wait,
        tuple(_problems(rates, limits)) if stuck else ())


def _starts(play: float, fixed: float, load: float, limits: JobLimits, rates: Rates) -> int:
    """Starts of one server, of which the time limit ends all but the last."""
    return starts_needed(play, fixed, work_of_a_start(room_of(load, limits), rates), limits, rates)


def _problems(rates: Rates, limits: JobLimits) -> tuple[str]:
    return (f"the time limit ({in_words(limits.time_limit)}) is too short for a server: loading takes about "
            f"{in_words(rates.load.value)}, and in the last {in_words(limits.lead)} it takes no game",)


def besides_games(found: Forecast, rates: Rates) -> float:
    """Server-seconds that batches spend on anything else than games: loading, starting, and each batch's last games."""
    return sum(batch.seconds.mid - rates.work(batch.size.games, batch.size.prompt_tokens, batch.size.output_tokens)
               for batch in found.batches if batch.size.games)


@dataclass(frozen=True)
class Compared:
    """A campaign on fleets next to batches. Seconds of servers; `loads`: how often the judge is loaded.

    `fleets`: one, or two where the number of servers may change: the least and the most. `batch_size`: models a batch.
    """

    fleets: tuple[FleetForecast, ...]
    batch_size: int
    batches: int
    parallel: int
    loads: int
    seconds: Interval
    server_seconds: float
    besides: float
    gpu_hours: Interval


def compare(fleets: Sequence[FleetForecast], batches: Forecast, rates: Rates, batch_size: int) -> Compared:
    """A fleet next to the same games in batches of `batch_size` models."""
    busy = [batch for batch in batches.batches if batch.size.games]
    return Compared(
        tuple(fleets), batch_size, len(busy), batches.parallel,
        sum(batch.starts[1] if batch.starts else 1 for batch in busy), batches.seconds,
        sum(batch.seconds.mid for batch in busy), besides_games(batches, rates), batches.gpu_hours)
