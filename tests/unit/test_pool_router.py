"""The router: least workload, answers once and from who was asked, payment and refund, what outsiders may."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from automate.errors import PoolError
from automate.pools.messages import Receipt
from automate.pools.requests import MOST_PROMPTS, chat_of, price_of, prompts_of, tokens_of
from automate.pools.router import least
from automate.settings_pools import PoolPrice
from tests.unit.pool_rounds_support import add_model, handled, states
from tests.unit.pool_support import Bench, opened, reply_named


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with opened(tmp_path) as bench:
        add_model(bench)
        yield bench


def worker(bench: Bench, *names: str, model: str = "tiny") -> None:
    for name in names:
        handled(bench.send("owner", "router", "Register-Worker", {"model": model, "worker": name}))


def ask(bench: Bench, count: int = 1, who: str = "ann", first: int = 0, **more: object) -> Receipt:
    return bench.send(who, "router", "Inference", {"model": "tiny", "prompts": [
        {"id": str(first + n), "prompt": f"It's {n}?", "dataset": "mine", **more} for n in range(count)]})


def loads(bench: Bench) -> dict[str, int]:
    return {row["address"]: row["workload"] for row in bench.rows("SELECT address, workload FROM workers")}


def asked(bench: Bench) -> list[str]:
    return [row["reference"] for row in bench.rows("SELECT reference FROM inferences ORDER BY rowid")]


def answer(bench: Bench, reference: str, by: str, text: str | None = "yes", **more: object) -> Receipt:
    return bench.unsigned(by, "router", "Inference-Response", {"id": reference, "result": text, **more}, via="job",
                          anchor=f"{reference} {by} {text} {len(bench.rows('SELECT 1 FROM messages'))}")


# --- workers --------------------------------------------------------------------------------------------
def test_least() -> None:
    assert least({"b": 1, "a": 1, "c": 0}) == "c"
    assert least({"b": 1, "a": 1}) == "a"
    assert least({}) is None


def test_six_prompts_over_three_idle_workers_go_two_each(bench: Bench) -> None:
    worker(bench, "w1", "w2", "w3")
    handled(ask(bench, 6))
    assert loads(bench) == {"w1": 2, "w2": 2, "w3": 2}
    answer(bench, asked(bench)[1], "w2")
    assert loads(bench) == {"w1": 2, "w2": 1, "w3": 2}
    handled(ask(bench, 1, first=10))
    assert loads(bench) == {"w1": 2, "w2": 2, "w3": 2}


def test_without_a_worker_it_waits(bench: Bench) -> None:
    add_model(bench, "other")
    worker(bench, "w1", model="other")
    handled(ask(bench, 2))
    assert [row["worker"] for row in bench.rows("SELECT worker FROM inferences")] == [None, None]
    worker(bench, "w2")
    assert loads(bench) == {"w1": 0, "w2": 2}


def test_registering_again_keeps_what_is_in_flight(bench: Bench) -> None:
    worker(bench, "w1")
    handled(ask(bench, 3))
    worker(bench, "w1")
    assert loads(bench) == {"w1": 3}
    assert answer(bench, asked(bench)[0], "w1").replies == ()
    assert loads(bench) == {"w1": 2}


def test_unregistering_gives_its_work_to_others(bench: Bench) -> None:
    worker(bench, "w1", "w2")
    handled(ask(bench, 4))
    handled(bench.send("owner", "router", "Unregister-Worker", "w1"))
    assert loads(bench) == {"w1": 0, "w2": 4}
    handled(bench.send("owner", "router", "Unregister-Worker", {"worker": "w2"}))
    assert {row["worker"] for row in bench.rows("SELECT worker FROM inferences")} == {None}
    assert states(bench, "inferences") == {"queued": 4}
    assert bench.send("owner", "router", "Unregister-Worker", "w2").state == "refused"


def test_a_worker_that_changes_its_model(bench: Bench) -> None:
    add_model(bench, "other")
    worker(bench, "w1")
    handled(ask(bench, 2))
    worker(bench, "w1", model="other")
    assert loads(bench) == {"w1": 0}
    assert {row["worker"] for row in bench.rows("SELECT worker FROM inferences")} == {None}


@pytest.mark.parametrize(("action", "data"), [
    ("Register-Worker", '{"model": "tiny", "worker": "w1"}'), ("Unregister-Worker", "w1"), ("loadModel", "tiny"),
    ("setMaxTokens", "5"), ("setSystemPrompt", "x"), ("Round-Made", '{"round": "x", "references": []}'),
    ("Round-Over", '{"round": "x"}'), ("Credit-Notice", "")])
def test_strangers_change_nothing(bench: Bench, action: str, data: str) -> None:
    worker(bench, "w1")
    before = bench.dump("messages")
    receipt = bench.send("stranger", "router", action, data, Worker="w1", Sender="me", Quantity="5")
    assert receipt.state == "refused"
    assert reply_named(receipt, f"{action}-Error")["tags"]["Error"]
    assert bench.dump("messages") == before


@pytest.mark.parametrize("data", [
    {}, {"model": "nobody"}, {"model": 3}, {"model": "tiny", "worker": "a b"}, {"model": "tiny", "worker": "x" * 43},
    {"model": "tiny", "worker": "tiny/*"}, "not JSON", {"model": "tiny", "fleet": 3}])
def test_workers_that_are_none(bench: Bench, data: object) -> None:
    assert bench.send("owner", "router", "Register-Worker", data).state == "refused"
    assert loads(bench) == {}


def test_what_is_said_of_workers(bench: Bench) -> None:
    worker(bench, "w1", "w2")
    handled(bench.send("owner", "router", "setMaxTokens", "5", Model="tiny"))
    handled(bench.send("owner", "router", "setMaxTokens", {"max_tokens": 9}, Worker="w2"))
    handled(bench.send("owner", "router", "setSystemPrompt", "It's \"you\".", Worker="w1"))
    worker(bench, "w3")  # a new one has what all of its model were told
    assert {row["address"]: (row["max_tokens"], row["system_prompt"]) for row in bench.rows("SELECT * FROM workers")
            } == {"w1": (5, "It's \"you\"."), "w2": (9, None), "w3": (5, None), "tiny/*": (5, None)}
    worker(bench, "w2")
    handled(bench.send("owner", "router", "setSystemPrompt", "", Worker="w1"))
    assert bench.rows("SELECT max_tokens, system_prompt FROM workers WHERE address IN ('w1', 'w2') ORDER BY 1") == [
        {"max_tokens": 5, "system_prompt": None}, {"max_tokens": 9, "system_prompt": None}]
    shown = json.loads(reply_named(bench.send("ann", "router", "Get-Workers"), "Get-Workers-Response")["Data"])
    assert [one["address"] for one in shown] == ["w1", "w2", "w3"]


@pytest.mark.parametrize("data", ["0", "-1", "1.5", "x", "", '{"max_tokens": null}', '{"max_tokens": true}', "999999",
                                  "1 OR 1"])
def test_tokens_that_are_none(bench: Bench, data: str) -> None:
    worker(bench, "w1")
    assert bench.send("owner", "router", "setMaxTokens", data, Worker="w1").state == "refused"
    assert bench.one("SELECT max_tokens FROM workers") is None


def test_settings_of_nobody(bench: Bench) -> None:
    assert bench.send("owner", "router", "setMaxTokens", "5").state == "refused"
    assert bench.send("owner", "router", "setMaxTokens", "5", Worker="w9").state == "refused"
    assert bench.send("owner", "router", "setSystemPrompt", "x" * 70_000, Model="tiny").state == "refused"


@pytest.mark.parametrize("action", ["loadModel", "setModel"])
def test_a_wish_is_kept_until_a_worker_is_there(bench: Bench, action: str) -> None:
    handled(bench.send("owner", "router", action, "tiny"))
    assert bench.rows("SELECT model, done FROM wishes") == [{"model": "tiny", "done": None}]
    assert bench.send("owner", "router", action, "nobody").state == "refused"
    worker(bench, "w1")
    assert bench.one("SELECT outcome FROM wishes") == "worker w1"


# --- inferences -----------------------------------------------------------------------------------------
def test_an_answer_goes_to_who_asked(bench: Bench) -> None:
    worker(bench, "w1")
    queued = json.loads(reply_named(ask(bench), "Inference-Queued")["Data"])
    assert queued["queued"] == 1
    answer(bench, queued["references"][0], "w1", "yes\u2028'")
    (sent,) = bench.rows("SELECT target, data, tags FROM messages WHERE action = 'Inference-Response' AND "
                         "via = 'process'")
    assert sent["target"] == bench.address("ann")
    told = json.loads(sent["data"])
    assert {name: told[name] for name in ("id", "model", "dataset", "result")} == {
        "id": "0", "model": "tiny", "dataset": "mine", "result": "yes\u2028'"}
    assert json.loads(sent["tags"])["X-Reference"] == "0"


def test_answers_that_are_not_taken(bench: Bench) -> None:
    worker(bench, "w1", "w2")
    handled(ask(bench, 2))
    first, second = asked(bench)
    answer(bench, first, "w1")
    before = bench.dump("messages", "strays")
    for reference, by, reason in ((first, "w1", "twice"), (second, "w1", "elsewhere"), (second, "w9", "elsewhere"),
                                  ("nothing", "w1", "unknown")):
        told = reply_named(answer(bench, reference, by, "other"), "Inference-Response-Error")
        assert "not taken" in told["tags"]["Error"]
        assert bench.rows("SELECT reason FROM strays ORDER BY id DESC LIMIT 1")[0]["reason"] == reason
    assert bench.dump("messages", "strays") == before
    handled(bench.send("ann", "router", "Cancel-Inference", {"references": [second, first, "x"]}))
    answer(bench, second, "w2")
    assert bench.rows("SELECT reason FROM strays ORDER BY id DESC LIMIT 1")[0]["reason"] == "late"
    assert states(bench, "inferences") == {"answered": 1, "cancelled": 1}
    assert loads(bench) == {"w1": 0, "w2": 0}


def test_nobody_cancels_for_others(bench: Bench) -> None:
    handled(ask(bench))
    handled(bench.send("bob", "router", "Cancel-Inference", {"references": asked(bench)}))
    assert states(bench, "inferences") == {"queued": 1}


@pytest.mark.parametrize("data", [
    "", "[]", {"model": "tiny"}, {"prompts": []}, {"model": "tiny", "prompts": []}, {"model": "tiny", "prompts": "x"},
    {"model": "tiny", "prompts": [3]}, {"model": "tiny", "prompts": [{"id": "1"}]},
    {"model": "nobody", "prompts": [{"id": "1", "prompt": "x"}]},
    {"model": "tiny", "prompts": [{"id": "1", "prompt": ""}]},
    {"model": "tiny", "prompts": [{"id": "1", "prompt": [{"role": "boss", "content": "x"}]}]},
    {"model": "tiny", "prompts": [{"id": "1", "prompt": [{"role": "user", "content": 3}]}]},
    {"model": "tiny", "prompts": [{"id": "", "prompt": "x"}]},
    {"model": "tiny", "prompts": [{"id": "1", "prompt": "x"}, {"id": "1", "prompt": "y"}]},
    {"model": "tiny", "prompts": [{"id": "1", "prompt": "x", "method": "magic"}]},
    {"model": "tiny", "prompts": [{"id": "1", "prompt": "x", "method": "loglikelihood"}]},
    {"model": "tiny", "prompts": [{"id": "1", "prompt": "x", "choices": ["a", "a"]}]},
    {"model": "tiny", "prompts": [{"id": "1", "prompt": "x", "max_tokens": 0}]},
    {"model": "tiny", "prompts": [{"id": "1", "prompt": "x" * 1_000_000}]},
    {"model": "tiny", "prompts": [{"id": str(n), "prompt": "x"} for n in range(MOST_PROMPTS + 1)]}])
def test_requests_that_are_none(bench: Bench, data: object) -> None:
    receipt = bench.send("ann", "router", "Inference", data)
    assert receipt.state == "refused"
    assert states(bench, "inferences") == {}


def test_an_id_is_used_once(bench: Bench) -> None:
    handled(ask(bench))
    assert "used before" in (ask(bench).error or "")
    handled(ask(bench, who="bob"))


def test_outsiders_have_a_queue_of_bounded_length(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("automate.pools.inferences.MOST_WAITING", 3)
    handled(ask(bench, 2))
    assert "at most" in (ask(bench, 2, first=5).error or "")
    handled(ask(bench, 3, who="bob"))


def test_requests_as_they_are_kept() -> None:
    assert chat_of("hi") == ({"role": "user", "content": "hi"},)
    (one,) = prompts_of({"prompts": [{"id": 7, "prompt": "x", "choices": ["a", "b"], "method": "loglikelihood",
                                      "max_tokens": "3"}]}, "me", 100)
    assert (one.id, one.dataset, one.choices, one.max_tokens) == ("7", "me", ("a", "b"), 3)
    assert tokens_of(" 12 ") == 12
    with pytest.raises(PoolError):
        tokens_of(1.0)


# --- money ----------------------------------------------------------------------------------------------
def test_prices() -> None:
    chat = ({"role": "user", "content": "one two, three"},)
    assert price_of(PoolPrice(prompt=1, token=1), chat, 1) == 5  # the facts' example
    assert price_of(PoolPrice(), chat, 100) == 0
    assert price_of(PoolPrice(prompt=7), chat, 100) == 7


PRICE = {"price": {"prompt": 1, "token": 1}}


def pay(bench: Bench, quantity: int, **tags: Any) -> Receipt:
    given: dict[str, Any] = {"X_Model": "tiny", "X_Prompt": "one two three", "X_Tokens": "1", "X_Reference": "r1"}
    given |= tags
    return bench.send("ann", "token", "Transfer", Recipient=bench.exchange.router, Quantity=str(quantity), **given)


def test_a_request_that_comes_with_its_payment(tmp_path: Path) -> None:
    with opened(tmp_path, **PRICE) as bench:
        add_model(bench)
        worker(bench, "w1")
        bench.mint("ann", 100)
        assert "without payment" in (ask(bench).error or "")
        handled(pay(bench, 8))
        assert (bench.balance("ann"), bench.balance(bench.exchange.router)) == (95, 5)
        (reference,) = asked(bench)
        answer(bench, reference, "w1", None, error="boom")
        assert (bench.balance("ann"), bench.balance(bench.exchange.router)) == (100, 0)
        handled(pay(bench, 5, X_Reference="r2"))
        answer(bench, asked(bench)[1], "w1")
        assert bench.balance("ann") == 95
        answer(bench, asked(bench)[1], "w1", "again")
        assert bench.balance("ann") == 95
        handled(pay(bench, 5, X_Reference="r3"))
        for _ in range(2):
            handled(bench.send("ann", "router", "Cancel-Inference", {"references": asked(bench)}))
        assert bench.balance("ann") == 95


@pytest.mark.parametrize(("quantity", "tags"), [
    (4, {}), (50, {"X_Model": "nobody"}), (50, {"X_Tokens": "-1"}), (50, {"X_Reference": ""}), (50, {"X_Prompt": ""}),
    (50, {"X_Model": ""})])
def test_money_for_nothing_goes_back(tmp_path: Path, quantity: int, tags: dict[str, str]) -> None:
    with opened(tmp_path, **PRICE) as bench:
        add_model(bench)
        bench.mint("ann", 100)
        handled(pay(bench, quantity, **tags))
        assert (bench.balance("ann"), bench.balance(bench.exchange.router)) == (100, 0)
        assert states(bench, "inferences") == {}
        reasons = [json.loads(row["tags"]) for row in bench.rows(
            "SELECT tags FROM messages WHERE action = 'Credit-Notice' AND target = ?", bench.address("ann"))]
        assert reasons[-1]["X-Reason"]


def test_a_plain_transfer_to_the_router_goes_back(bench: Bench) -> None:
    bench.mint("ann", 100)
    handled(bench.send("ann", "token", "Transfer", Recipient=bench.exchange.router, Quantity="7"))
    assert bench.balance("ann") == 100


def test_info(bench: Bench) -> None:
    worker(bench, "w1")
    told = json.loads(reply_named(bench.send("ann", "router", "Info"), "Info-Response")["Data"])
    assert (told["workers"], told["price"]) == (1, {"prompt": 0, "token": 0})
