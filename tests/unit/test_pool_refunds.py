"""Money for inferences that came to nothing: it goes back, once, even where the token refuses it at first."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from automate.errors import PoolError
from automate.pools import exchange, ledger, refunds, router
from automate.pools.audit import audit
from automate.pools.exchange import Context
from automate.pools.inferences import end
from automate.pools.messages import Message, Outgoing, Receipt
from automate.pools.round_records import worker_record
from automate.pools.rounds import give_up, hand_in, make_round
from tests.unit.pool_rounds_support import append, handled, siqa, states
from tests.unit.pool_support import HOUR, Bench, opened, reply_named

PRICE = 5


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """ann has 100, a model has a worker, a data set of 6 questions has 30 and a pool."""
    with opened(tmp_path, price={"prompt": PRICE}, attempts=1, inference_timeout=7200) as made:
        siqa(made, 6)
        made.mint("ann", 110)
        handled(made.send("ann", "token", "Transfer", Recipient=made.id("pool"), Quantity=10, X_Dataset="siqa",
                          X_Allocation="Equal", X_Days=30))
        made.mint("owner", 30)
        handled(made.send("owner", "token", "Transfer", Recipient=made.id("siqa"), Quantity=30))
        handled(made.send("ben", "pool", "Add-Model", {"name": "tiny", "data_tx": "ben/tiny"}))
        yield made


def worker(bench: Bench) -> None:
    handled(bench.send("owner", "router", "Register-Worker", {"model": "tiny", "worker": "w1"}))


def pay(bench: Bench, reference: str, who: str = "ann", quantity: int = PRICE, **tags: Any) -> Receipt:
    given: dict[str, Any] = {"X_Model": "tiny", "X_Prompt": "Why?", "X_Reference": reference} | tags
    return bench.send(who, "token", "Transfer", Recipient=bench.exchange.router, Quantity=quantity, **given)


def asked(bench: Bench) -> list[str]:
    return [row["reference"] for row in bench.rows("SELECT reference FROM inferences ORDER BY rowid")]


def joined(bench: Bench) -> None:
    pool = bench.one("SELECT id FROM pools")
    handled(bench.send("ben", "pool", "Join-Pool", {"dataset": pool, "model": "tiny"}))


def problems(bench: Bench) -> list[str]:
    found = audit(bench.exchange, bench.one("SELECT id FROM pools"), bench.clock.now)["problems"]
    assert isinstance(found, list)
    return found


def held(bench: Bench) -> int:
    return bench.balance(bench.exchange.router)


@pytest.fixture
def refuse(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """While this holds anything, the token refuses what the router sends, so often."""
    left: list[int] = []
    real = ledger.HANDLERS["Transfer"]

    def transfer(context: Context, message: Message) -> Any:
        if message.sender == context.router and left:
            left.pop()
            raise PoolError("not today")
        return real(context, message)

    monkeypatch.setitem(ledger.HANDLERS, "Transfer", transfer)
    return left


# --- once -----------------------------------------------------------------------------------------------
def test_an_inference_that_is_named_four_times_is_refunded_once(bench: Bench) -> None:
    worker(bench)
    for number in range(4):
        handled(pay(bench, f"r{number}"))
    first = asked(bench)[0]
    told = handled(bench.send("ann", "router", "Cancel-Inference", {"references": [first] * 4}))
    assert json.loads(reply_named(told, "Cancel-Inference-Response")["Data"]) == {"cancelled": 1}
    assert (bench.balance("ann"), held(bench)) == (85, 15)
    assert bench.one("SELECT workload FROM workers") == 3
    assert problems(bench) == []


def test_two_cancels_in_one_commit_are_one(bench: Bench) -> None:
    handled(pay(bench, "r"))
    twice = [bench.message("ann", "router", "Cancel-Inference", {"references": asked(bench)}) for _ in range(2)]
    bench.exchange.receive(twice)
    assert (bench.balance("ann"), held(bench)) == (100, 0)
    assert bench.one("SELECT count(*) FROM refunds") == 1


def test_what_is_over_does_not_end_again(bench: Bench) -> None:
    handled(pay(bench, "r"))
    handled(bench.send("ann", "router", "Cancel-Inference", {"references": asked(bench)}))
    before = bench.dump()
    with bench.store.transaction():
        context = bench.exchange.context(bench.process("router"))
        for state in ("failed", "cancelled", "answered"):
            assert end(context, asked(bench)[0], state, None, "again") == []
        assert end(context, "never", "failed", None, "x") == []
    assert bench.dump() == before


def test_several_refunds_to_one_are_one_transfer(bench: Bench) -> None:
    for number in range(3):
        handled(pay(bench, f"r{number}"))
    handled(bench.send("ann", "router", "Cancel-Inference", {"references": asked(bench)}))
    (sent,) = bench.rows("SELECT tags FROM messages WHERE action = 'Transfer' AND sender = ?", bench.exchange.router)
    assert json.loads(sent["tags"])["Quantity"] == "15"
    assert {row["state"] for row in bench.rows("SELECT state FROM refunds")} == {"paid"}
    assert (bench.balance("ann"), problems(bench)) == (100, [])


# --- refused --------------------------------------------------------------------------------------------
def test_a_refused_refund_is_owed_told_and_sent_again(bench: Bench, refuse: list[int]) -> None:
    handled(pay(bench, "r"))
    refuse.append(1)
    receipt = handled(bench.send("ann", "router", "Cancel-Inference", {"references": asked(bench)}))
    told = json.loads(reply_named(receipt, "Refund-Error")["Data"])
    assert (told["error"], told["quantity"], told["recipient"]) == ("not today", "5", bench.address("ann"))
    assert bench.one("SELECT count(*) FROM messages WHERE action = 'Refund-Error' AND target = ?",
                     bench.owner.address) == 1
    assert (bench.balance("ann"), held(bench)) == (95, 5)
    assert [one for one in problems(bench) if f"owes 5 to {bench.address('ann')}" in one and "not today" in one]
    assert len(problems(bench)) == 1
    handled(pay(bench, "again"))  # the next occasion
    assert (bench.balance("ann"), held(bench)) == (95, 5)
    handled(bench.send("ann", "router", "Cancel-Inference", {"references": asked(bench)}))
    assert (bench.balance("ann"), held(bench), problems(bench)) == (100, 0, [])


def test_the_owner_cant_withdraw_what_is_owed(bench: Bench, refuse: list[int]) -> None:
    handled(pay(bench, "r"))
    refuse.append(1)
    handled(bench.send("ann", "router", "Cancel-Inference", {"references": asked(bench)}))
    assert bench.send("owner", "router", "Withdraw", {"quantity": "5"}).state == "refused"
    worker(bench)
    handled(pay(bench, "answered"))
    yes = {"id": asked(bench)[1], "result": "yes"}
    bench.unsigned("w1", "router", "Inference-Response", yes, via="job", anchor="1")
    handled(bench.send("owner", "router", "Withdraw", {"quantity": "5"}))
    assert (bench.balance("ann"), held(bench), problems(bench)) == (95, 0, [])


def test_a_data_sets_owner_is_told_of_its_refund(bench: Bench, refuse: list[int]) -> None:
    joined(bench)
    handled(bench.send("owner", "siqa", "Evaluate"))
    worker(bench)
    refuse.append(1)
    bench.unsigned("w1", "router", "Inference-Response", {"id": asked(bench)[0], "error": "no"}, via="job", anchor="1")
    assert [row["target"] for row in bench.rows("SELECT target FROM messages WHERE action = 'Refund-Error'")] == [
        bench.owner.address]
    bench.unsigned("w1", "router", "Inference-Response", {"id": asked(bench)[1], "error": "no"}, via="job", anchor="2")
    assert (bench.balance(bench.id("siqa")), held(bench), problems(bench)) == (10, 20, [])


def test_the_next_round_is_an_occasion_too(bench: Bench, refuse: list[int]) -> None:
    joined(bench)
    handled(bench.send("owner", "siqa", "Evaluate", "1"))
    handled(pay(bench, "r"))
    refuse.append(1)
    handled(bench.send("ann", "router", "Cancel-Inference", {"references": asked(bench)}))
    assert (bench.balance("ann"), held(bench)) == (95, 10)
    assert make_round(bench.exchange, bench.places) is not None
    assert (bench.balance("ann"), held(bench), problems(bench)) == (100, 5, [])


@pytest.mark.parametrize("action", ["Debit-Notice", "Transfer-Error", "Credit-Notice"])
def test_notices_of_strangers_are_refused(bench: Bench, refuse: list[int], action: str) -> None:
    handled(pay(bench, "r"))
    refuse.append(1)
    handled(bench.send("ann", "router", "Cancel-Inference", {"references": asked(bench)}))
    (sent,) = bench.rows("SELECT id, tags FROM messages WHERE action = 'Transfer' AND sender = ?",
                         bench.exchange.router)
    before = bench.dump("messages")
    receipt = bench.send("mallory", "router", action, via="http", Message_Id=sent["id"], Sender="me", Quantity="5",
                         X_Refund=json.loads(sent["tags"])["X-Refund"])
    assert receipt.state == "refused" and "token" in (receipt.error or "")
    assert bench.dump("messages") == before


# --- many -----------------------------------------------------------------------------------------------
def test_money_goes_back_however_many_messages_that_takes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    joined(bench)
    handled(bench.send("owner", "siqa", "Evaluate"))
    assert (bench.balance(bench.id("siqa")), held(bench)) == (0, 30)
    spec = make_round(bench.exchange, bench.places)
    assert spec is not None
    append(bench, spec.name, [worker_record("tiny.1", "tiny", "joined")])
    hand_in(bench.exchange, bench.places)
    bench.clock.forward(3 * HOUR)
    monkeypatch.setattr(exchange, "CASCADE", 3)
    handled(bench.send("owner", "siqa", "Evaluate"))
    assert (bench.balance(bench.id("siqa")), held(bench), problems(bench)) == (30, 0, [])
    assert states(bench, "inferences") == {"cancelled": 6}


def test_a_debt_is_kept_however_many_messages_there_were(bench: Bench, refuse: list[int],
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    handled(pay(bench, "r"))
    refuse.append(1)
    monkeypatch.setattr(exchange, "CASCADE", 2)
    bench.send("ann", "router", "Cancel-Inference", {"references": asked(bench)})
    assert states(bench, "refunds") == {"owed": 1}


@pytest.mark.parametrize("stuck", [False, True])
def test_a_round_ends_page_by_page(bench: Bench, monkeypatch: pytest.MonkeyPatch, stuck: bool) -> None:
    """Also one that could not be ended before."""
    joined(bench)
    handled(bench.send("owner", "siqa", "Evaluate"))
    spec = make_round(bench.exchange, bench.places)
    assert spec is not None
    append(bench, spec.name, [worker_record("tiny.1", "tiny", "joined")])
    hand_in(bench.exchange, bench.places)
    with monkeypatch.context() as less:
        less.setattr(exchange, "CASCADE", 5)
        if stuck:
            with pytest.raises(PoolError, match="more than 5"):
                give_up(bench.exchange, bench.places, spec.name)
        less.setattr(router, "PAGE", 2)
        assert give_up(bench.exchange, bench.places, spec.name) == 6
        assert give_up(bench.exchange, bench.places, spec.name) == 0
    assert states(bench, "inferences") == {"failed": 6}
    assert bench.one("SELECT count(*) FROM workers WHERE unregistered IS NULL") == 0
    assert (bench.balance(bench.id("siqa")), held(bench), problems(bench)) == (30, 0, [])


def test_a_limit_that_is_too_much_is_bounded_and_said(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    joined(bench)
    monkeypatch.setattr("automate.pools.starting.MOST", 2)
    told = json.loads(reply_named(handled(bench.send("owner", "siqa", "Evaluate", "1000000")),
                                  "Evaluate-Response")["Data"])
    assert (told["started"], told["limit"], told["pending"]) == (2, 2, 4)


def test_an_error_is_one_line(bench: Bench) -> None:
    receipt = handled(pay(bench, "r", X_Model="nobody"))
    error = reply_named(receipt, "Inference-Error")["tags"]["Error"]
    assert "nobody" in error and "->" not in error and "  " not in error and "\n" not in error
    assert bench.balance("ann") == 100


# --- audited --------------------------------------------------------------------------------------------
THEFT = ("INSERT INTO entries (message, account, other, amount) SELECT e.message, '{router}', other, -5 FROM entries e "
         "WHERE account = '{router}' AND amount < 0 UNION ALL SELECT e.message, other, account, 5 FROM entries e "
         "WHERE account = '{router}' AND amount < 0")
TAMPERED: dict[str, str] = {
    "UPDATE refunds SET amount = 20": "cost 5; refunded was 20",
    "DELETE FROM refunds": "is cancelled and cost 5; refunded was 0",
    "UPDATE refunds SET recipient = 'me'": "to me",
    "UPDATE refunds SET inference = (SELECT reference FROM inferences WHERE state = 'queued')": "is queued and cost 5",
    "UPDATE refunds SET state = 'owed', batch = NULL": "the router owes 5",
    "UPDATE inferences SET state = 'cancelled' WHERE state = 'queued'": "refunded was 0",
    "UPDATE inferences SET price = 7 WHERE state = 'answered'": "the router has 10, and should have 12",
    "UPDATE inferences SET price = 0 WHERE state = 'cancelled'": "was refunded, and cost nothing",
    "UPDATE messages SET tags = json_remove(tags, '$.\"X-Refund\"') WHERE action = 'Transfer'": "it is no refund",
    "INSERT INTO refunds (recipient, amount, reason, made) VALUES ('me', 3, 'mine', 0)": "the router owes 3 to me",
    THEFT: "should have sent back 5",
}


@pytest.mark.parametrize("sql", TAMPERED)
def test_what_was_changed_is_named(bench: Bench, sql: str) -> None:
    worker(bench)
    for number in range(3):
        handled(pay(bench, f"r{number}"))
    first, second, _ = asked(bench)
    handled(bench.send("ann", "router", "Cancel-Inference", {"references": [first]}))
    bench.unsigned("w1", "router", "Inference-Response", {"id": second, "result": "yes"}, via="job", anchor="1")
    assert problems(bench) == []
    bench.store.db.execute("PRAGMA foreign_keys = OFF")
    with bench.store.transaction():
        assert bench.store.db.execute(sql.replace("{router}", bench.exchange.router)).rowcount > 0
    assert any(TAMPERED[sql] in problem for problem in problems(bench)), problems(bench)


def test_the_audit_knows_the_old_theft(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """One inference that is paid back four times, by whatever fault."""
    handled(pay(bench, "r"))
    handled(pay(bench, "s", who="ann"))
    real: Callable[..., list[Outgoing]] = refunds.pay

    def four(context: Context, message: Message, recipient: str | None = None) -> list[Outgoing]:
        return real(context, message, recipient) * 2

    monkeypatch.setattr("automate.pools.inferences.pay", four)
    handled(bench.send("ann", "router", "Cancel-Inference", {"references": asked(bench)[:1]}))
    assert held(bench) == 0
    found = problems(bench)
    assert any("should have sent back 5" in one for one in found) and any("the router has 0" in one for one in found)
