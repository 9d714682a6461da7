"""A small world of pools for random play: people, a worker, a data set; what they say; what must always hold.

Keeps its own books (what was minted, what was answered first), so that the database is not its own witness."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from automate.errors import PoolError
from automate.pools import ledger
from automate.pools.audit import audit
from automate.pools.exchange import Context
from automate.pools.keys import process_id
from automate.pools.messages import Message, Outgoing, Receipt, Via
from tests.unit.pool_support import Bench

PEOPLE = ("ann", "ben", "cleo")
MODELS = {"ben-1": "ben", "ben-2": "ben", "cleo-1": "cleo"}
LETTERS = {"1": "A", "2": "B", "3": "C"}
MEMORY = Path("/dev/shm")


def question(number: int) -> dict[str, str]:
    return {"context": f"It's {number} o'clock", "question": "What now?", "answerA": "O'Neil's", "answerB": "ö",
            "answerC": "); DROP TABLE models; --", "result": str(number % 3 + 1)}


def right(answer: str, result: str) -> bool:
    """Whether one of the answers that are given here is right: its last letter stands alone."""
    return answer[-1:] == LETTERS[result]


class World:
    """The bench, and the books. `price`: of an inference."""

    def __init__(self, price: int = 0, questions: int = 3) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pools-", dir=MEMORY if MEMORY.is_dir() else None))
        self.bench = Bench(self.folder, attempts=2, evaluate_limit=4, inference_timeout=1800, winners=2, grace=86400,
                           price={"prompt": price})
        self.minted, self.number, self.crashes, self.price = 0, 0, 0, price
        self.refusing = self.refused = False
        self._transfer = ledger.HANDLERS["Transfer"]
        ledger.HANDLERS["Transfer"] = self.transfer
        self.said: dict[str, list[str]] = {}
        self.sent: list[Message] = []
        self.dataset = self.bench.dataset("siqa", rows=[question(number) for number in range(questions)])
        for model, owner in MODELS.items():
            added = self.bench.send(owner, "pool", "Add-Model", {"name": model, "data_tx": f"{owner}/model"})
            assert added.state == "handled", added
            self.job("owner", "router", "Register-Worker", {"model": model, "worker": f"{model}.w"})

    def transfer(self, context: Context, message: Message) -> Sequence[Outgoing]:
        """The token's, which at times refuses what the router sends back."""
        if self.refusing and message.sender == context.router:
            self.refused = True
            raise PoolError("not today")
        return self._transfer(context, message)

    def close(self) -> None:
        ledger.HANDLERS["Transfer"] = self._transfer
        self.bench.trap.left = None
        self.bench.store.close()
        shutil.rmtree(self.folder)

    # --- messages ---------------------------------------------------------------------------------------
    def say(self, who: str, target: str, action: str, data: object = "", crashes: Sequence[int] = (),
            **tags: Any) -> Receipt:
        """A signed message of somebody."""
        return self.give(self.bench.message(who, target, action, data, via="http", **tags), crashes)

    def job(self, sender: str, target: str, action: str, data: object = "", crashes: Sequence[int] = (), *,
            via: Via = "job", **tags: Any) -> Receipt:
        """A message of a job, or of the clock."""
        self.number += 1
        made = self.bench.message("owner", target, action, data, anchor=str(self.number), **tags)
        name = self.bench.owner.address if sender == "owner" else sender
        return self.give(Message(process_id("job", str(self.number)), name, made.target, made.tags, made.data,
                                 made.anchor, made.timestamp, via), crashes)

    def give(self, message: Message, crashes: Sequence[int] = ()) -> Receipt:
        """Hand it in; where the program dies, at these statements of its lives, another goes on and gets it again."""
        self.sent.append(message)
        self.live(lambda: self.bench.exchange.receive([message]), crashes)
        receipt = self.bench.exchange.receive([message])[0]
        if receipt.state == "refused":
            assert any(one["Action"] == f"{message.action}-Error" for one in receipt.replies), receipt
        return receipt

    def live(self, doing: Callable[[], object], crashes: Sequence[int]) -> None:
        """Do it, to its end at last."""
        for at in crashes:
            if not self.bench.crash(at, doing):
                return
            self.crashes += 1
        doing()

    # --- what must always hold --------------------------------------------------------------------------
    def check(self) -> None:
        """All of it; nothing may be under way."""
        bench = self.bench
        assert bench.rows("SELECT id, action, error FROM messages WHERE state IN ('queued', 'failed')") == []
        self._money()
        self._answers()
        self._inferences()
        for pool in bench.rows("SELECT * FROM pools"):
            self._pool(pool)
            found = audit(bench.exchange, pool["id"], bench.clock.now)["problems"]
            assert isinstance(found, list)
            assert [one for one in found if not self.refused or "the router owes" not in one] == []

    def _money(self) -> None:
        sums: Counter[str] = Counter()
        moved: Counter[str] = Counter()
        for row in self.bench.rows("SELECT * FROM entries"):
            sums[row["account"]] += row["amount"]
            moved[row["message"]] += row["amount"]
        assert not any(moved.values())
        assert -sums["genesis"] == self.minted
        assert min([amount for account, amount in sums.items() if account != "genesis"], default=0) >= 0
        kept = {row["account"]: row["amount"] for row in self.bench.rows("SELECT * FROM balances WHERE amount <> 0")}
        assert kept == {account: amount for account, amount in sums.items() if amount}
        held = self.bench.one("SELECT COALESCE(SUM(funds), 0) FROM pools WHERE state = 'open'")
        assert sums[self.bench.id("pool")] == held

    def _inferences(self) -> None:
        """Of what anybody gave the router, it has what waits, what was answered, and what the token refused to send
        back; nothing else, so that nobody has more back than he gave, and nobody less."""
        router = self.bench.id("router")
        given: Counter[str] = Counter()
        for row in self.bench.rows("SELECT other, SUM(amount) AS amount FROM entries WHERE account = ? GROUP BY other",
                                   router):
            given[self.bench.owner.address if row["other"] == "genesis" else row["other"]] += row["amount"]
        kept: Counter[str] = Counter()
        for row in self.bench.rows("SELECT requester, COUNT(*) AS n FROM inferences WHERE state IN "
                                   "('queued', 'sent', 'answered') GROUP BY requester"):
            kept[row["requester"]] += row["n"] * self.price
        for row in self.bench.rows("SELECT recipient, SUM(amount) AS amount FROM refunds WHERE state = 'owed' GROUP BY "
                                   "recipient"):
            assert self.refused
            kept[row["recipient"]] += row["amount"]
        assert self.bench.one("SELECT COUNT(*) FROM refunds WHERE state = 'sent'") == 0
        assert +given == +kept and min(given.values(), default=0) >= 0

    def _pool(self, pool: dict[str, object]) -> None:
        """Paid is what the entries say, in one go, and by the rule as the books give it."""
        out = self.bench.rows(
            "SELECT e.account, e.amount FROM entries e JOIN messages m ON m.id = e.message"
            " WHERE e.other = ? AND e.amount > 0 AND json_extract(m.tags, '$.X-Pool') = ?"
            .replace("'$.X-Pool'", "'$.\"X-Pool\"'"), self.bench.id("pool"), str(pool["id"]))
        assert sum(row["amount"] for row in out) == (0 if pool["state"] == "open" else pool["funds"])
        if pool["state"] != "open":
            got: Counter[str] = Counter()
            for row in out:
                got[row["account"]] += row["amount"]
            assert got == self._due(pool)

    def _due(self, pool: dict[str, object]) -> Counter[str]:
        rows = self.bench.rows("SELECT * FROM pool_models WHERE pool = ? AND answered > 0 ORDER BY rowid",
                               str(pool["id"]))
        rows.sort(key=lambda row: -Fraction(row["correct"], row["total"] or 1))
        correct = [row["correct"] for row in rows]
        count, funds = min(2, len(rows)), int(str(pool["funds"]))
        weights = {"ArithmeticDecrease": list(range(count, 0, -1)), "Equal": [1] * len(rows),
                   "WinnerTakesAll": [1] if correct and correct[0] else [],
                   "Proportional": correct[:2]}[str(pool["allocation"])]
        due: Counter[str] = Counter()
        for row, weight in zip(rows, weights, strict=False):
            due[row["participant"]] += funds * weight // (sum(weights) or 1)
        due[str(pool["funder"])] += funds - sum(due.values())
        return +due

    def _answers(self) -> None:
        """An evaluation has the first answer that its worker gave to its reference, once."""
        for row in self.bench.rows("SELECT e.*, q.result FROM evaluations e JOIN questions q ON q.id = e.dataset_id"):
            brought = self.bench.rows("SELECT * FROM attempts WHERE evaluation = ? AND outcome = 'answered'", row["id"])
            assert len(brought) == (row["state"] == "answered")
            assert row["attempts"] <= 2
            if row["state"] == "answered":
                first = self.said[row["inference_reference"]][0]
                assert (row["answer"], row["prediction"] == row["result"]) == (first, right(first, row["result"]))
        twice = self.bench.rows("SELECT reference FROM attempts GROUP BY reference HAVING COUNT(*) > 1")
        assert twice == []

    def score(self, model: str) -> tuple[int, int, int]:
        """Right, answered and all, from the books."""
        rows = self.bench.rows(
            "SELECT e.*, q.result FROM evaluations e JOIN models m ON m.id = e.model_id"
            " JOIN questions q ON q.id = e.dataset_id WHERE m.name = ? AND e.state = 'answered'", model)
        count = sum(right(self.said[row["inference_reference"]][0], row["result"]) for row in rows)
        return count, len(rows), int(self.bench.one("SELECT COUNT(*) FROM questions"))
