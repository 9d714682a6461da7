"""Money in JSON is text, and int again inside; nothing else changes."""

from __future__ import annotations

import json
from pathlib import Path

from automate.cli.views.pools import money
from automate.cli.views.pools_files import as_json
from automate.pools.amounts import as_text, as_whole
from tests.unit.pool_support import opened, reply_named

HUGE = 2**62 + 1
FOUND = {"funds": HUGE, "models": 3, "reward": None, "paid": 0, "places": [{"reward": HUGE, "rank": 1, "score": 0.5}],
         "entries": [{"amount": -HUGE, "seq": 2}], "startTime": HUGE, "name": "12"}


def test_money_and_nothing_else_becomes_text_and_comes_back() -> None:
    told = as_text(FOUND)
    assert told == {**FOUND, "funds": str(HUGE), "paid": "0", "entries": [{"amount": f"-{HUGE}", "seq": 2}],
                    "places": [{"reward": str(HUGE), "rank": 1, "score": 0.5}]}
    assert as_whole(told) == FOUND
    assert json.loads(as_json(FOUND)) == told
    assert money(str(HUGE)) == money(HUGE) == f"{HUGE:,}"


def test_funds_that_a_float_cant_hold_are_told_exactly(tmp_path: Path) -> None:
    with opened(tmp_path) as bench:
        bench.dataset()
        bench.mint("fay", HUGE)
        sent = bench.send("fay", "token", "Transfer", Recipient=bench.id("pool"), Quantity=HUGE,
                          X_Dataset=bench.id("siqa"), X_Allocation="Equal", X_Days=1)
        made = json.loads(reply_named(sent, "Create-Pool-Response")["Data"])
        listed = json.loads(reply_named(bench.send("ann", "pool", "Get-Pools"), "Get-Pools-Response")["Data"])
        bench.clock.forward(10**8)
        paid = json.loads(reply_named(bench.send("fay", "pool", "Allocate-Rewards", made["pool"]),
                                      "Allocate-Rewards-Response")["Data"])
    assert made["funds"] == listed[0]["funds"] == paid["refund"] == paid["payouts"][0]["amount"] == str(HUGE)
