"""A fleet's forecast next to batches, as a table of texts.

Pure; used by `plan --fleet` and by the example in docs/plan.md."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from automate.durations import in_words

if TYPE_CHECKING:
    from automate.campaign.forecasts.fleets import Compared
    from automate.campaign.forecasts.rates import Interval


def comparison(found: Compared) -> tuple[list[str], list[list[str]]]:
    """Titles and rows: first batches, then a column for each fleet."""
    fleets = found.fleets
    titles = ["", f"batches of {found.batch_size}", *(f"fleet of {one.servers}" for one in fleets)]
    rows = [
        ["servers at once", str(found.parallel), *(str(one.servers) for one in fleets)],
        ["loads of the judge", f"{found.loads:,}", *(f"{one.loads:,}" for one in fleets)],
        ["servers' time", _span(found.server_seconds), *(_span(one.server_seconds.mid) for one in fleets)],
        ["  of it not on games", _span(found.besides), *(_span(one.besides.mid) for one in fleets)],
        ["finish", _time(found.seconds.mid), *(_time(one.seconds.mid) for one in fleets)],
        ["  80 % between", _range(found.seconds), *(_range(one.seconds) for one in fleets)],
    ]
    if found.gpu_hours.mid:
        rows.insert(4, ["GPU-hours (80 %)", _gpus(found.gpu_hours), *(_gpus(one.gpu_hours) for one in fleets)])
    return titles, rows


def _span(seconds: float) -> str:
    return f"{_hours(seconds / 3600)} h" if seconds >= 3600 else in_words(seconds)


def _hours(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def _gpus(hours: Interval) -> str:
    return f"{_hours(hours.mid)} ({_hours(hours.low)} to {_hours(hours.high)})"


def _time(seconds: float) -> str:
    return in_words(seconds) if math.isfinite(seconds) else "never"


def _range(one: Interval) -> str:
    return f"{_time(one.low)} to {_time(one.high)}"
