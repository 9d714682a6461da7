"""The audit: silent where all is well; what somebody changed in the database is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from automate.errors import PoolError
from automate.pools.audit import audit
from tests.unit.pool_play import PLAY, opened, played
from tests.unit.pool_support import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with opened(tmp_path) as made:
        made.dataset("siqa")
        yield played(made)


def audited(bench: Bench) -> dict[str, Any]:
    return audit(bench.exchange, bench.one("SELECT id FROM pools"), bench.clock.now)


def test_a_pool_that_was_paid_is_traced_to_who_signed(bench: Bench) -> None:
    found = audited(bench)
    assert found["problems"] == []
    money = found["money"]
    assert {name: money[name] for name in ("funds", "paid", "dust", "refund", "minted", "ledger")} == {
        "funds": 100, "paid": 99, "dust": 1, "refund": 0, "minted": 1050, "ledger": 0}
    pool = bench.id("pool")
    mine = [(row["other"], row["amount"], row["signed_by"], row["root_action"], row["via"])
            for row in money["entries"] if row["account"] == pool]
    ann, ben, cleo, owner = (bench.address(who) for who in ("ann", "ben", "cleo", "owner"))
    assert mine == [(ann, 100, ann, "Transfer", "http"), (ben, -66, owner, "Allocate-Rewards", "clock"),
                    (cleo, -33, owner, "Allocate-Rewards", "clock"), (ann, -1, owner, "Allocate-Rewards", "clock")]
    assert [(row["kind"], row["name"], row["amount"], row["rank"]) for row in money["payouts"]] == [
        ("reward", "ben-1", 66, 1), ("reward", "cleo-1", 33, 2), ("dust", None, 1, None)]


def test_every_answer_is_there_with_its_tries_and_strays(bench: Bench) -> None:
    answers = audited(bench)["answers"]
    assert len(answers["evaluations"]) == 6
    row = answers["evaluations"][4]
    assert (row["model"], row["answer"], row["prediction"], row["correct_answer"], row["worker"], row["state"]) == (
        "cleo-1", "A", "1", "1", "cleo-1.w", "answered")
    assert "Sydney" in row["prompt"]
    assert [one["outcome"] for one in row["tries"]] == ["expired", "answered"]
    assert row["tries"][1]["reference"] == row["inference_reference"] and row["tries"][1]["message"]
    assert [(row["reason"], row["sender"]) for row in answers["strays"]] == [("late", "cleo-1.w")]
    assert [(row["name"], row["counted"]["correct"], row["correct"]) for row in answers["models"]] == [
        ("ben-1", 2, 2), ("cleo-1", 2, 2)]


@pytest.mark.parametrize("steps", range(4, len(PLAY)))
def test_nothing_is_wrong_at_any_time_of_a_pools_life(tmp_path: Path, steps: int) -> None:
    with opened(tmp_path) as bench:
        bench.dataset("siqa")
        assert audited(played(bench, steps))["problems"] == []


def test_what_is_queued_is_under_way_and_no_problem(tmp_path: Path) -> None:
    with opened(tmp_path) as bench:
        bench.dataset("siqa")
        played(bench)
        with bench.store.transaction():
            bench.store.db.execute("UPDATE messages SET state = 'queued' WHERE action = 'Debit-Notice'")
        assert audited(bench)["problems"] == []


def test_there_is_no_audit_of_no_pool(bench: Bench) -> None:
    with pytest.raises(PoolError, match="no pool 'nothing'"):
        audit(bench.exchange, "nothing", 0)


TAMPERED = {
    # money
    "UPDATE balances SET amount = amount + 1 WHERE account = (SELECT funder FROM pools)": "has a balance of 902",
    "INSERT INTO balances VALUES ('me', 5)": "and no entry",
    "INSERT INTO entries (message, account, other, amount) SELECT settled_by, 'me', 'you', 5 FROM pools": "sum to 5",
    "INSERT INTO entries (message, account, other, amount) SELECT settled_by, 'me', 'you', 5 FROM pools UNION ALL "
    "SELECT settled_by, 'you', 'me', -5 FROM pools": "only a handled Transfer or Mint moves money",
    "UPDATE entries SET amount = amount * 2 WHERE message = "
    "(SELECT cause FROM messages, pools WHERE messages.id = pools.id)": "the ledger has 200",
    "UPDATE messages SET state = 'refused' WHERE action = 'Mint'": "only a handled",
    "UPDATE pools SET funds = 120": "funded it with 120",
    "UPDATE pools SET funder = 'me'": "funded it",
    "UPDATE payouts SET amount = 67 WHERE rank = 1": "is not its funds",
    "UPDATE payouts SET amount = amount + CASE rank WHEN 1 THEN 5 ELSE -5 END WHERE rank IS NOT NULL": "ledger has",
    "UPDATE payouts SET account = 'me' WHERE rank = 1": "should have paid 66 to me",
    "DELETE FROM payouts WHERE kind = 'dust'": "is not its funds",
    "UPDATE pools SET state = 'open', settled = NULL, settled_by = NULL": "is open, and has payouts",
    "UPDATE pools SET state = 'refunded'": "is refunded, and its refund is 0",
    "UPDATE pools SET allocation = 'Equal'": "Equal gives",
    "UPDATE pools SET allocation = 'Mine'": "rule of allocation that is not there",
    "UPDATE pool_models SET participant = 'me' WHERE model = 1": "model 1",
    "UPDATE pool_models SET joined = joined + 1 WHERE model = 1": "model 1: ArithmeticDecrease gives 33",
    # answers and scores
    "UPDATE pool_models SET correct = 3 WHERE model = 2": "leaderboard, cleo-1: correct is 3",
    "UPDATE pool_models SET score = 1 WHERE model = 2": "score is 1",
    "UPDATE pool_models SET updated_by = joined_by": "is no Score-Response of the pool's data set",
    "UPDATE pool_models SET updated_by = NULL": "no Score-Response brought",
    "UPDATE evaluations SET prediction = '3' WHERE id = 1": "its prediction is '3'",
    "UPDATE evaluations SET answer = 'C', prediction = '3' WHERE id = 1": "is not the one of its attempt",
    "UPDATE evaluations SET correct_answer = '1' WHERE id = 1": "its right answer is '1'",
    "UPDATE questions SET result = '1' WHERE id = 1": "its question's '1'",
    "UPDATE evaluations SET state = 'failed' WHERE id = 1": "1 attempts brought an answer",
    "DELETE FROM attempts WHERE evaluation = 1": "0 attempts brought an answer",
    "UPDATE attempts SET outcome = 'answered' WHERE outcome = 'expired'": "2 attempts brought an answer",
    "UPDATE attempts SET outcome = 'started' WHERE outcome = 'expired'": "1 attempts are under way",
    "UPDATE attempts SET message = (SELECT settled_by FROM pools) WHERE evaluation = 1": "no handled",
    "UPDATE attempts SET message = NULL WHERE evaluation = 1": "no handled Inference-Response",
    "UPDATE evaluations SET worker = 'me.w' WHERE id = 1": "is not the one of its attempt",
}
BOTH = ("UPDATE evaluations SET answer = 'C', prediction = '3' WHERE id = 1; "
        "UPDATE attempts SET answer = 'C' WHERE evaluation = 1")


@pytest.mark.parametrize("sql", TAMPERED)
def test_what_was_changed_in_the_database_is_named(bench: Bench, sql: str) -> None:
    bench.store.db.execute("PRAGMA foreign_keys = OFF")
    with bench.store.transaction():
        assert bench.store.db.execute(sql).rowcount > 0
    problems = audited(bench)["problems"]
    assert any(TAMPERED[sql] in problem for problem in problems), problems


def test_an_answer_that_was_changed_everywhere_but_in_its_message_is_named(bench: Bench) -> None:
    with bench.store.transaction():
        for statement in BOTH.split("; "):
            assert bench.store.db.execute(statement).rowcount == 1
    assert any("says 'A', and the attempt 'C'" in problem for problem in audited(bench)["problems"])


def test_a_message_that_was_changed_is_named(bench: Bench) -> None:
    with bench.store.transaction():
        changed = bench.store.db.execute("UPDATE messages SET data = replace(data, '\"A\"', '\"C\"') WHERE id = "
                                         "(SELECT message FROM attempts WHERE evaluation = 1)")
        assert changed.rowcount == 1
    assert any("is not what was sent" in problem for problem in audited(bench)["problems"])
