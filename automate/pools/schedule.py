"""The spec's crons: what a clock would do now, as messages; the lines to install for a real clock.

Never sleeps and never looks at the time: `now` is an argument."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from automate.pools.exchange import Exchange
from automate.pools.messages import Message


def due(exchange: Exchange, now: int) -> list[Message]:
    """The clock's messages since the last tick, once, also after a week of sleep: Evaluate for each data set with an
    open pool or due rows, Update-Leaderboard for each model of an open pool, Allocate-Rewards for each pool that is
    over. Ids come from job and turn, so that the same turn twice has effect once."""
    raise NotImplementedError


def tick(exchange: Exchange, now: int) -> dict[str, int]:
    """Send them; how many of each action were handled."""
    raise NotImplementedError


def lines(kind: Literal["cron", "scrontab", "systemd"], workspace: Path, executable: str) -> str:
    """What to install so that `pool tick` runs hourly."""
    raise NotImplementedError
