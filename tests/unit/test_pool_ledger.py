"""The token: who may mint, what a transfer sends, and what it refuses; sums that never change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from automate.errors import PoolError
from automate.pools.ledger import SUPPLY, quantity_of
from tests.unit.pool_support import Bench, opened, reply_named

SOMEBODY = "s" * 43


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with opened(tmp_path) as made:
        yield made


def check_sums(bench: Bench) -> None:
    """Double entry: all entries sum to 0, each message's too, and balances are the sums of entries."""
    assert bench.one("SELECT COALESCE(SUM(amount), 0) FROM entries") == 0
    assert bench.rows("SELECT message FROM entries GROUP BY message HAVING SUM(amount) <> 0 OR COUNT(*) <> 2") == []
    held = {row["account"]: row["amount"] for row in bench.rows("SELECT * FROM balances WHERE amount <> 0")}
    summed = {row["account"]: row["total"] for row in bench.rows(
        "SELECT account, SUM(amount) AS total FROM entries GROUP BY account HAVING total <> 0")}
    assert held == summed
    assert bench.rows("SELECT 1 FROM balances WHERE amount < 0 AND account <> 'genesis'") == []


def test_a_transfer_moves_money_and_tells_both(bench: Bench) -> None:
    bench.mint("ann", 100)
    sent = bench.send("ann", "token", "Transfer", "hello", Recipient=bench.address("bob"), Quantity="40",
                      X_Dataset="siqa", Note="mine")
    debit = reply_named(sent, "Debit-Notice")
    assert debit["From"] == bench.id("token")
    assert debit["tags"] == {"Action": "Debit-Notice", "Message-Id": sent.id, "Recipient": bench.address("bob"),
                             "Quantity": "40", "X-Dataset": "siqa"}
    told = bench.rows("SELECT * FROM messages WHERE target = ? AND action = 'Credit-Notice'", bench.address("bob"))
    assert len(told) == 1 and told[0]["cause"] == sent.id
    credit = bench.exchange.receipt(sent.id)
    assert credit is not None and credit.state == "handled"
    assert json.loads(told[0]["tags"]) == {"Action": "Credit-Notice", "Sender": bench.address("ann"), "Quantity": "40",
                                           "X-Dataset": "siqa"}
    assert (bench.balance("ann"), bench.balance("bob")) == (60, 40)
    entries = bench.rows("SELECT account, other, amount FROM entries WHERE message = ? ORDER BY amount", sent.id)
    assert [(row["account"], row["other"], row["amount"]) for row in entries] == [
        (bench.address("ann"), bench.address("bob"), -40), (bench.address("bob"), bench.address("ann"), 40)]
    check_sums(bench)


def test_a_transfer_with_cast_tells_nobody(bench: Bench) -> None:
    bench.mint("ann", 100)
    sent = bench.send("ann", "token", "Transfer", Recipient=SOMEBODY, Quantity="1", Cast="true")
    assert (sent.state, sent.replies) == ("handled", ())
    assert bench.rows("SELECT 1 FROM messages WHERE cause = ?", sent.id) == []
    assert bench.balance(SOMEBODY) == 1


def test_a_silent_transfer_to_the_pool_is_refused_as_its_money_would_open_nothing(bench: Bench) -> None:
    bench.mint("ann", 100)
    sent = bench.send("ann", "token", "Transfer", Recipient="pool", Quantity="1", Cast="true", X_Dataset="siqa")
    assert sent.state == "refused" and "Cast" in str(sent.error)
    assert bench.balance("ann") == 100


def test_too_little_money_is_answered_as_ao_does_also_with_cast(bench: Bench) -> None:
    bench.mint("ann", 9)
    before = bench.dump("messages")
    for tags in cast("tuple[dict[str, Any], ...]", ({}, {"Cast": "1"})):
        sent = bench.send("ann", "token", "Transfer", Recipient=SOMEBODY, Quantity="10", **tags)
        answer = reply_named(sent, "Transfer-Error")
        assert answer["tags"] == {"Action": "Transfer-Error", "Message-Id": sent.id, "Error": "Insufficient Balance!"}
        assert len(sent.replies) == 1
    assert bench.send("new", "token", "Transfer", Recipient=SOMEBODY, Quantity="1").error == "Insufficient Balance!"
    assert bench.dump("messages") == before


def test_one_pays_oneself(bench: Bench) -> None:
    bench.mint("ann", 5)
    assert bench.send("ann", "token", "Transfer", Recipient=bench.address("ann"), Quantity="5").state == "handled"
    assert bench.balance("ann") == 5
    refused = bench.send("ann", "token", "Transfer", Recipient=bench.address("ann"), Quantity="6")
    assert refused.error == "Insufficient Balance!"
    check_sums(bench)


@pytest.mark.parametrize("recipient", ["", "genesis", "nobody", "a" * 42, "a" * 44, "a" * 42 + "=", "a" * 42 + "é",
                                       "'; DROP TABLE balances; --", "token", "../../etc/passwd"])
def test_an_address_that_nobody_can_have_gets_nothing(bench: Bench, recipient: str) -> None:
    bench.mint("ann", 5)
    before = bench.dump("messages")
    sent = bench.send("ann", "token", "Transfer", Recipient=recipient, Quantity="1")
    assert sent.state == "refused" and reply_named(sent, "Transfer-Error")["tags"]["Error"]
    assert bench.dump("messages") == before


def test_a_transfer_without_recipient_or_quantity_says_so(bench: Bench) -> None:
    bench.mint("ann", 5)
    assert "Quantity" in str(bench.send("ann", "token", "Transfer", Recipient=SOMEBODY).error)
    assert "Recipient" in str(bench.send("ann", "token", "Transfer", Quantity="1").error)


@pytest.mark.parametrize("text", [None, "", "0", "00", "-1", "+1", "1.0", "1.5", "1e3", " 1", "1 ", "1\n", "ten",
                                  "0x10", "1_000", "٣", "²", "NaN", str(SUPPLY + 1), "9" * 40, "9" * 5000, "1;2"])
def test_what_is_no_quantity(text: str | None) -> None:
    with pytest.raises(PoolError) as raised:
        quantity_of(text)
    assert raised.value.what.startswith("Quantity") and len(raised.value.what) < 200


@pytest.mark.parametrize(("text", "amount"), [("1", 1), ("007", 7), (str(SUPPLY), SUPPLY)])
def test_what_is_a_quantity(text: str, amount: int) -> None:
    assert quantity_of(text) == amount


def test_only_the_genesis_key_mints(bench: Bench) -> None:
    before = bench.dump("messages")
    sent = bench.send("ann", "token", "Mint", Recipient=bench.address("ann"), Quantity="5")
    assert sent.state == "refused" and "genesis" in str(sent.error)
    clock = bench.unsigned("c" * 43, "token", "Mint", via="clock", anchor="1", Recipient=SOMEBODY, Quantity="5")
    assert clock.state == "refused"
    assert bench.dump("messages") == before
    mint = bench.send("owner", "token", "Mint", Recipient=bench.address("ann"), Quantity="5")
    assert reply_named(mint, "Mint-Response")["tags"]["Quantity"] == "5"
    assert bench.balance("ann") == 5
    check_sums(bench)


def test_the_supply_has_an_end(bench: Bench) -> None:
    bench.mint("ann", SUPPLY - 1)
    assert "at most" in str(bench.send("owner", "token", "Mint", Recipient=SOMEBODY, Quantity="2").error)
    bench.mint("bob", 1)
    assert bench.send("owner", "token", "Mint", Recipient=SOMEBODY, Quantity="1").state == "refused"
    assert bench.send("ann", "token", "Transfer", Recipient=bench.address("bob"),
                      Quantity=str(SUPPLY - 1)).state == "handled"
    assert bench.balance("bob") == SUPPLY
    check_sums(bench)


def test_balance_is_told_of_oneself_of_others_and_of_processes(bench: Bench) -> None:
    bench.mint("ann", 7)
    own = reply_named(bench.send("ann", "token", "Balance"), "Balance-Response")
    assert (own["Data"], own["tags"]["Balance"], own["tags"]["Account"]) == ("7", "7", bench.address("ann"))
    other = reply_named(bench.send("bob", "token", "Balance", Recipient=bench.address("ann")), "Balance-Response")
    assert other["Data"] == "7"
    assert reply_named(bench.send("bob", "token", "Balance", Recipient="pool"), "Balance-Response")["Data"] == "0"
    assert bench.send("bob", "token", "Balance", Recipient="genesis").state == "refused"


def test_info_tells_the_supply(bench: Bench) -> None:
    bench.mint("ann", 7)
    assert reply_named(bench.send("bob", "token", "Info"), "Info-Response")["tags"]["Supply"] == "7"


def test_a_replayed_transfer_has_effect_once(bench: Bench) -> None:
    bench.mint("ann", 10)
    message = bench.message("ann", "token", "Transfer", Recipient=SOMEBODY, Quantity="3")
    for _ in range(3):
        bench.exchange.receive([message])
    assert bench.balance("ann") == 7


_STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc"), st.integers(-2, 60)), max_size=12)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_STEPS)
def test_any_transfers_leave_the_sum_as_it_is(tmp_path_factory: pytest.TempPathFactory,
                                              steps: list[tuple[str, str, int]]) -> None:
    with opened(tmp_path_factory.mktemp("bench")) as bench:
        held = dict.fromkeys("abc", 0)
        for name in held:
            bench.mint(name, 50)
            held[name] = 50
        for giver, taker, amount in steps:
            sent = bench.send(giver, "token", "Transfer", Recipient=bench.address(taker), Quantity=str(amount))
            if 0 < amount <= held[giver]:
                held[giver] -= amount
                held[taker] += amount
                assert sent.state == "handled"
            else:
                assert sent.state == "refused"
        assert {name: bench.balance(name) for name in held} == held
        check_sums(bench)
