"""What the tests of bad input share: a message that has to be refused, in words, with nothing changed."""

from __future__ import annotations

from typing import Any

from automate.pools.keys import Key
from tests.unit.pool_support import Bench, reply_named

ASIDE = ("messages",)
"""What a refused message may change: its own record is there."""
SQL = "x'); DROP TABLE balances; UPDATE balances SET amount = 1; --"


def refused(bench: Bench, who: str | Key, target: str, action: str, data: object = "", *, says: str,
            via: Any = "http", **tags: Any) -> None:
    """The message is refused, its sender told why, and nothing but its record is there afterwards."""
    before = bench.dump(*ASIDE)
    receipt = bench.send(who, bench.id(target), action, data, via=via, **tags)
    assert receipt.state == "refused", receipt
    assert bench.dump(*ASIDE) == before
    told = reply_named(receipt, f"{action}-Error")
    assert says.casefold() in told["tags"]["Error"].casefold(), told["tags"]["Error"]
    assert told["tags"]["Message-Id"] == receipt.id
    assert told["tags"]["Error"] and "Traceback" not in told["tags"]["Error"]
