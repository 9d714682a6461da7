"""Durations as Slurm writes them and as people read them. Seconds are floats.

Pure; standard library only."""

from __future__ import annotations


def seconds_of(time_limit: str) -> float:
    """Slurm's time formats in seconds: minutes, MM:SS, HH:MM:SS, D-HH[:MM[:SS]]; no time at all (0) is no limit."""
    days, _, rest = time_limit.rpartition("-")
    parts = [int(part) for part in rest.split(":")] if rest.replace(":", "").isdigit() else []
    if not parts:
        return float("inf")
    if days:
        hours, minutes, seconds = (*parts, 0, 0)[:3]
    elif len(parts) == 3:
        hours, minutes, seconds = parts
    else:
        hours, minutes, seconds = 0, parts[0], parts[1] if len(parts) == 2 else 0
    return int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds or float("inf")


def slurm_time(seconds: float) -> str:
    """Seconds as sbatch's --time takes them, rounded up to a whole minute: [D-]HH:MM:SS."""
    minutes = int(-(-seconds // 60))
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return (f"{days}-" if days else "") + f"{hours:02d}:{minutes:02d}:00"


def in_words(seconds: float) -> str:
    """Seconds for a reader: 45 s, 12 min, 3 h 05 min, 2 d 4 h."""
    if seconds == float("inf"):
        return "no limit"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
