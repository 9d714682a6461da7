"""Every unit of money and every answer of a pool, traced; and whether all invariants hold.

Never changes anything."""

from __future__ import annotations

from automate.pools.exchange import Exchange


def audit(exchange: Exchange, pool: str, now: int) -> dict[str, object]:
    """Money: each entry with its message and signature's owner, funds = paid + dust + refund, sums. Answers: each row
    with prompt, answer, prediction, worker, times, attempts, strays. `problems`: what doesn't hold (empty if sound)."""
    raise NotImplementedError
