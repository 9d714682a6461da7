"""Money of a data set and of the router has a way out, to its owner, and nothing that is owed goes with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from automate.pools.audit import audit
from automate.pools.rounds import give_up, hand_in, make_round
from tests.unit.pool_rounds_support import add_model, at_work, handled, job, states
from tests.unit.pool_support import Bench, opened


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Ann's data set with 20 units, at 2 an inference, and a pool that tiny is in; its three questions are asked."""
    with opened(tmp_path, price={"prompt": 2}) as made:
        made.dataset(who="ann")
        made.mint("ann", 120)
        handled(made.send("ann", "token", "Transfer", Recipient=made.id("siqa"), Quantity=20))
        handled(made.send("ann", "token", "Transfer", Recipient=made.exchange.pool, Quantity=100,
                          X_Dataset=made.id("siqa"), X_Allocation="Equal"))
        add_model(made)
        pool = made.one("SELECT id FROM pools")
        handled(made.send("trainer", "pool", "Join-Pool", {"dataset": pool, "model": "tiny"}))
        handled(made.send("owner", "siqa", "Evaluate"))
        yield made


def problems(bench: Bench) -> object:
    return audit(bench.exchange, bench.one("SELECT id FROM pools"), bench.clock.now)["problems"]


def test_a_data_sets_owner_takes_its_money_out(bench: Bench) -> None:
    handled(bench.send("ann", "siqa", "Withdraw", {"quantity": 4}))
    handled(bench.send("ann", "siqa", "Withdraw", {"quantity": "10", "recipient": bench.address("bob")}))
    assert (bench.balance("ann"), bench.balance("bob"), bench.balance(bench.id("siqa"))) == (4, 10, 0)
    assert problems(bench) == []


@pytest.mark.parametrize("who", ["owner", "bob", "trainer"])
def test_nobody_else_does(bench: Bench, who: str) -> None:
    receipt = bench.send(who, "siqa", "Withdraw", {"quantity": 1})
    assert (receipt.state, bench.balance(bench.id("siqa"))) == ("refused", 14)
    if who != "owner":
        assert bench.send(who, "router", "Withdraw", {"quantity": 1}).state == "refused"


@pytest.mark.parametrize("data", [{"quantity": 15}, {"quantity": 0}, {"quantity": -1}, {"quantity": "1.5"}, {}, "14",
                                  {"quantity": True}, {"quantity": 1, "recipient": "nowhere"},
                                  {"quantity": 1, "recipient": 5}, {"quantity": 1, "recipient": "siqa"}])
def test_withdrawals_that_are_none(bench: Bench, data: object) -> None:
    assert bench.send("ann", "siqa", "Withdraw", data).state == "refused"
    assert bench.balance(bench.id("siqa")) == 14


def test_the_router_keeps_what_may_go_back(bench: Bench) -> None:
    spec = at_work(bench)
    assert bench.send("owner", "router", "Withdraw", {"quantity": 1}).state == "refused"
    job(bench, spec, only=2)
    hand_in(bench.exchange, bench.places)
    assert bench.send("owner", "router", "Withdraw", {"quantity": 5}).state == "refused"
    assert problems(bench) == []
    handled(bench.send("owner", "router", "Withdraw", {"quantity": 4}))
    assert (bench.balance("owner"), bench.balance(bench.exchange.router)) == (4, 2)
    assert problems(bench) == []


def test_two_withdrawals_in_one_batch_take_no_more_than_there_is(bench: Bench) -> None:
    messages = [bench.message("ann", "siqa", "Withdraw", {"quantity": 10}) for _ in range(2)]
    assert [one.state for one in bench.exchange.receive(messages)] == ["handled", "refused"]
    assert bench.balance(bench.id("siqa")) == 4


def test_the_audit_names_what_is_asked_twice(bench: Bench) -> None:
    job(bench, at_work(bench), only=1)
    hand_in(bench.exchange, bench.places)
    assert problems(bench) == []
    with bench.store.transaction():
        bench.store.db.execute("UPDATE attempts SET outcome = 'expired' WHERE outcome = 'started'")
    found = problems(bench)
    assert isinstance(found, list)
    assert sum("is asked twice" in one for one in found) == 2


# --- what is paid too much -------------------------------------------------------------------------------
def test_what_a_data_set_pays_too_much_goes_back_to_it(bench: Bench) -> None:
    made = bench.id("siqa")
    prompts = [{"id": f"more{number}", "prompt": "Why?", "dataset": made} for number in range(2)]
    for target, action, data, tags in (
            (bench.exchange.router, "Inference", {"model": "tiny", "prompts": prompts}, {}),
            (bench.exchange.token, "Transfer", "", {"Recipient": bench.exchange.router, "Quantity": 9})):
        handled(bench.unsigned(made, target, action, data, via="process", anchor=action, X_Reference="both", **tags))
    assert (bench.balance(made), bench.balance(bench.exchange.router)) == (10, 10)
    assert states(bench, "inferences") == {"queued": 5}


def test_a_wish_for_a_model_is_done_with_its_round(bench: Bench) -> None:
    add_model(bench, "other")
    handled(bench.send("owner", "router", "loadModel", "other"))
    spec = make_round(bench.exchange, bench.places)
    assert spec is not None
    assert bench.one("SELECT done FROM wishes") is None
    now = bench.clock.forward(1000)
    give_up(bench.exchange, bench.places, spec.name)
    row = bench.rows("SELECT done, outcome FROM wishes")[0]
    assert row == {"done": now, "outcome": f"round {spec.name} ended without a server of it"}
