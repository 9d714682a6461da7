"""Data sets that say what a test tells them, for tests of the pool process; and short words for its messages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from automate.errors import PoolError
from automate.pools.exchange import Context
from automate.pools.messages import Message, Outgoing, Receipt, reply
from tests.unit.pool_support import Bench, reply_named, use_handlers


class Scores:
    """Handlers of all data sets. `right[model]`: (correct, answered, failed, total) by the model's process id."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.right: dict[str, tuple[int, int, int, int]] = {}
        self.benchmarked: list[tuple[str, str]] = []
        self.broken = False
        use_handlers(monkeypatch, "dataset", {"Benchmark": self.benchmark, "Score": self.score})

    def benchmark(self, context: Context, message: Message) -> Sequence[Outgoing]:
        if self.broken:
            raise PoolError("this data set is broken")
        self.benchmarked.append((context.me.id, message.data))
        return (reply(message, "ok"),)

    def score(self, context: Context, message: Message) -> Sequence[Outgoing]:
        if self.broken:
            raise PoolError("this data set is broken")
        correct, answered, failed, total = self.right.get(message.data, (0, 0, 0, 10))
        data = {"correct": correct, "unevaluated": total - answered - failed, "total": total, "failed": failed,
                "answered": answered, "score": correct / answered if answered else 0,
                "progress": answered / total if total else 0}
        until = {name: value for name, value in message.tags.items() if name == "Until"}
        return (reply(message, data, "Score-Response", Model=message.data, **until),)


class Arena:
    """A bench with a data set `siqa` whose answers `scores` says."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bench, self.scores = bench, Scores(monkeypatch)
        self.dataset = bench.bare_dataset()

    def fund(self, who: str = "fay", quantity: int = 1000, rule: str = "ArithmeticDecrease", **tags: Any) -> str:
        """The id of a new pool; its funder is given the money first."""
        self.bench.mint(who, quantity)
        return self.opened(self.pay(who, quantity, **{"X_Dataset": self.dataset, "X_Allocation": rule, **tags}))

    def pay(self, who: str, quantity: int, **tags: Any) -> Receipt:
        return self.bench.send(who, "token", "Transfer", Recipient=self.bench.id("pool"), Quantity=quantity, **tags)

    def opened(self, receipt: Receipt) -> str:
        return str(json.loads(reply_named(receipt, "Create-Pool-Response")["Data"])["pool"])

    def model(self, who: str, name: str, right: tuple[int, int, int, int] | None = None) -> str:
        """The process id of a new model of somebody's."""
        added = self.bench.send(who, "pool", "Add-Model", {"name": name, "data_tx": f"hub/{name}"})
        assert added.state == "handled", added
        if right is not None:
            self.scores.right[added.id] = right
        return added.id

    def join(self, who: str, pool: str, model: str) -> Receipt:
        return self.bench.send(who, "pool", "Join-Pool", {"dataset": pool, "model": model})

    def enter(self, who: str, pool: str, name: str, correct: int, total: int = 10) -> str:
        """A new model that has answered all, joined."""
        made = self.model(who, name, (correct, total, 0, total))
        joined = self.join(who, pool, made)
        assert joined.state == "handled", joined
        return made

    def ask(self, who: str, action: str, data: object = "") -> Any:
        """The JSON of the answer to a message to the pool."""
        receipt = self.bench.send(who, "pool", action, data)
        assert receipt.state == "handled", receipt
        return json.loads(reply_named(receipt, f"{action}-Response")["Data"])

    def settle(self, pool: str, who: str = "owner") -> Mapping[str, Any]:
        settled: Mapping[str, Any] = self.ask(who, "Allocate-Rewards", {"dataset": pool})
        return settled

    def held(self) -> int:
        return self.bench.balance(self.bench.id("pool"))

    def check(self) -> None:
        """The pool process has exactly what open pools hold, and nothing waits."""
        assert self.held() == self.bench.one("SELECT COALESCE(SUM(funds), 0) FROM pools WHERE state = 'open'")
        assert self.bench.rows("SELECT 1 FROM messages WHERE state = 'queued'") == []
        assert self.bench.rows("SELECT action, error FROM messages WHERE state = 'failed'") == []
