"""A pool with more models than one message may cause messages: it is paid in whole, or not at all and still open."""

from __future__ import annotations

from pathlib import Path

import pytest

from automate.pools import exchange
from automate.pools.allocation import RULES
from automate.pools.audit import audit
from tests.unit.pool_support import DAY, opened


def settled_in_part(root: Path, rule: str, most: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the audit says after Allocate-Rewards, where one message may cause so many."""
    with opened(root) as bench:
        bench.dataset("siqa")
        bench.mint("ann", 500)
        bench.send("ann", "token", "Transfer", Recipient=bench.id("pool"), Quantity=500, X_Dataset="siqa",
                   X_Allocation=rule)
        for number in range(6):
            bench.send("ben", "pool", "Add-Model", {"name": f"m{number}", "data_tx": "ben/model"})
            bench.send("ben", "pool", "Join-Pool", {"dataset": "siqa", "model": f"m{number}"})
        bench.clock.forward(60 * DAY)
        with monkeypatch.context() as less:
            less.setattr(exchange, "CASCADE", most)
            bench.send("ann", "pool", "Allocate-Rewards", {"dataset": "siqa"})
        problems = audit(bench.exchange, bench.one("SELECT id FROM pools"), bench.clock.now)["problems"]
        assert isinstance(problems, list)
        return problems


@pytest.mark.parametrize("rule", RULES)
def test_a_pool_is_paid_in_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    found = {most: settled_in_part(tmp_path / str(most), rule, most, monkeypatch) for most in (18, 26, 30)}
    assert {most: problems for most, problems in found.items() if problems} == {}
