"""Numbers as the monitor writes them: sizes, rates, times, shares.

Pure; what is not known is a dash."""

from __future__ import annotations

import time

NONE = "-"


def size(count: float) -> str:
    """Bytes: 17 B, 3.4 KB, 12.0 MB."""
    for unit in ("B", "KB", "MB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GB"


def short(value: float | None) -> str:
    """A count or rate in few characters: 0.42, 3.1, 240, 12.3k, 4.1M."""
    if value is None:
        return NONE
    for unit in ("", "k", "M", "G"):
        if abs(value) < 999.5 or unit == "G":
            break
        value /= 1000
    places = 0 if value == int(value) or abs(value) >= 100 else 2 if abs(value) < 1 else 1
    return f"{value:.{places}f}{unit}"


def share(part: float | None) -> str:
    """A share between 0 and 1 in percent."""
    return NONE if part is None else f"{100 * part:.0f}%"


def percent(games: int, wanted: int) -> str:
    """How far: 100% only where all are finished."""
    if not wanted:
        return NONE
    return "100%" if games >= wanted else f"{min(99, 100 * games // wanted)}%"


def clock(seconds: float | None) -> str:
    """A duration: 0:07, 3:20, 1:02:03, 2-01:00:00."""
    if seconds is None:
        return NONE
    minutes, rest = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}-{hours:02d}:{minutes:02d}:{rest:02d}"
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def moment(at: float, now: float) -> str:
    """A time of day, with its day where that is another than now's."""
    then, here = time.localtime(at), time.localtime(now)
    if then[:3] == here[:3]:
        return time.strftime("%H:%M", then)
    return time.strftime("%a %H:%M" if abs(at - now) < 6 * 86400 else "%Y-%m-%d %H:%M", then)


def memory(used: float | None, total: float | None) -> str:
    """GPU memory, given in MiB: 71/80 GB."""
    if used is None:
        return NONE
    return f"{used / 1024:.0f}/{total / 1024:.0f} GB" if total else f"{used / 1024:.0f} GB"
