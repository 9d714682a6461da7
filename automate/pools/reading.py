"""Questions about the state: pools, models, data sets, balances, who got what; read only.

Never changes anything and never prints; answers are JSON values."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from automate.pools.exchange import Exchange

Question = Callable[..., object]

QUESTIONS: Mapping[str, Question] = {}
"""By name, each `(exchange, now, **given)`: processes (), pools (), pool (id), leaderboard (id), models (dataset=None),
datasets (), dataset (id), balance (account), message (id), audit (id), workers (), due (dataset=None)."""


def ask(exchange: Exchange, what: str, now: int, given: Mapping[str, object]) -> object:
    """Raises PoolError for an unknown question or thing."""
    raise NotImplementedError
