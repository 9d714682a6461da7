"""Bad messages: forged, altered, replayed, without Action, with junk as Data. A clear error, and nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from automate.errors import PoolError
from automate.pools.exchange import handlers_of
from automate.pools.keys import verified
from tests.unit.pool_hostile_rig import SQL, refused
from tests.unit.pool_support import DAY, ROWS, Bench, opened, reply_named


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A data set, a pool with two models, some money."""
    with opened(tmp_path) as made:
        made.dataset("siqa")
        made.mint("ann", 1000)
        made.send("ann", "token", "Transfer", Recipient=made.id("pool"), Quantity=500, X_Dataset="siqa",
                  X_Allocation="ArithmeticDecrease")
        for who in ("ben", "cleo"):
            added = made.send(who, "pool", "Add-Model", {"name": f"{who}-1", "data_tx": f"{who}/model"})
            assert added.state == "handled"
            assert made.send(who, "pool", "Join-Pool", {"dataset": "siqa", "model": f"{who}-1"}).state == "handled"
        yield made


# --- signatures ---------------------------------------------------------------------------------------
def _other_letter(text: object) -> str:
    assert isinstance(text, str)
    return ("A" if text[5] != "A" else "B").join((text[:5], text[6:]))


def _tags(raw: dict[str, Any], name: str, value: str) -> list[dict[str, str]]:
    return [tag if tag["name"] != name else {"name": name, "value": value} for tag in raw["Tags"]]


ALTERED: dict[str, Callable[[dict[str, Any]], dict[str, object]]] = {
    "signature": lambda raw: {"Signature": _other_letter(raw["Signature"])},
    "no signature": lambda raw: {"Signature": None},
    "signature of another type": lambda raw: {"Signature": 7},
    "short signature": lambda raw: {"Signature": raw["Signature"][:40]},
    "no key": lambda raw: {"Owner": None},
    "id": lambda raw: {"Id": _other_letter(raw["Id"])},
    "no id": lambda raw: {"Id": None},
    "data": lambda raw: {"Data": raw["Data"] + " "},
    "quantity": lambda raw: {"Tags": _tags(raw, "Quantity", "999")},
    "recipient": lambda raw: {"Tags": _tags(raw, "Recipient", raw["From"])},
    "action": lambda raw: {"Tags": _tags(raw, "Action", "Mint")},
    "a tag more": lambda raw: {"X-More": "1"},
    "a tag less": lambda raw: {"Tags": raw["Tags"][1:]},
    "target": lambda raw: {"Target": raw["From"]},
    "anchor": lambda raw: {"Anchor": raw["Anchor"] + "1"},
    "timestamp": lambda raw: {"Timestamp": raw["Timestamp"] + 1},
    "from": lambda raw: {"From": raw["Target"]},
}


@pytest.mark.parametrize("what", ALTERED)
def test_an_altered_message_is_not_believed(bench: Bench, what: str) -> None:
    raw: dict[str, Any] = bench.sign("ann", "token", "Transfer", "note", Recipient=bench.address("ben"), Quantity="5")
    assert verified(raw, "http").sender == bench.address("ann")
    with pytest.raises(PoolError) as error:
        verified(raw | ALTERED[what](raw), "http")
    assert str(error.value)


def test_a_message_in_somebody_elses_name_is_not_believed(bench: Bench) -> None:
    """Mallory signs properly, with her own key, what says that it is from Ann; also with Ann's public key beside it."""
    ann = bench.sign("ann", "token", "Transfer", "", Recipient=bench.address("mallory"), Quantity="5")
    mallory = bench.sign("mallory", "token", "Transfer", "", Recipient=bench.address("mallory"), Quantity="5")
    for stolen in ({"From": ann["From"]}, {"From": ann["From"], "Owner": ann["Owner"]},
                   {"From": ann["From"], "Owner": ann["Owner"], "Id": ann["Id"]}):
        with pytest.raises(PoolError):
            verified(mallory | stolen, "http")


# --- replays ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("restart", [False, True])
def test_a_replayed_message_has_effect_once(bench: Bench, restart: bool) -> None:
    message = bench.message("ann", "token", "Transfer", Recipient=bench.address("ben"), Quantity="5")
    first = bench.exchange.receive([message])[0]
    before = bench.dump()
    if restart:
        bench.reopen()
    again = bench.exchange.receive([message, message])
    assert bench.dump() == before
    assert [one.replayed for one in (first, *again)] == [False, True, True]
    assert again[0].replies == first.replies and again[0].state == "handled"
    assert bench.balance("ben") == 5


def test_one_message_twice_in_one_batch_has_effect_once(bench: Bench) -> None:
    message = bench.message("ann", "token", "Transfer", Recipient=bench.address("ben"), Quantity="5")
    assert [one.state for one in bench.exchange.receive([message, message])] == ["handled", "handled"]
    assert bench.balance("ben") == 5


def test_a_refused_message_stays_refused_when_it_comes_again(bench: Bench) -> None:
    message = bench.message("ben", "token", "Transfer", Recipient=bench.address("ann"), Quantity="5")
    assert bench.exchange.receive([message])[0].state == "refused"
    bench.mint("ben", 100)
    assert bench.exchange.receive([message])[0].state == "refused"
    assert bench.balance("ben") == 100


def test_a_message_for_one_process_is_not_one_for_another(bench: Bench) -> None:
    """What was signed for the token can't be given to the pool: the target is signed too."""
    raw = bench.sign("ann", "token", "Info")
    with pytest.raises(PoolError):
        verified(raw | {"Target": bench.id("pool")}, "http")


# --- Action -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("action", [None, "", 7, ["Transfer"], " ", "Trans\nfer", "x" * 200])
def test_a_message_without_a_proper_action_is_refused(bench: Bench, action: object) -> None:
    raw = bench.sign("ann", "token", "Info")
    tags = [] if action is None else [{"name": "Action", "value": action}]
    with pytest.raises(PoolError):
        verified({**raw, "Tags": tags, "Action": None} if action is None else {**raw, "Action": action, "Tags": tags},
                 "http")


@pytest.mark.parametrize("target", ["token", "pool", "router", "siqa"])
@pytest.mark.parametrize("action", ["Make-Me-Rich", "transfer", "INFO", "__init__", SQL[:100]])
def test_an_unknown_action_is_refused_with_those_that_there_are(bench: Bench, target: str, action: str) -> None:
    refused(bench, "ann", target, action, says="unknown Action")


@pytest.mark.parametrize("target", ["nobody", "a" * 43, SQL[:100], "genesis"])
def test_a_message_to_nobody_is_refused(bench: Bench, target: str) -> None:
    refused(bench, "ann", target, "Info", says="no process")


# --- Data ---------------------------------------------------------------------------------------------
JSON_HANDLERS = [("pool", "Join-Pool", ("dataset", "model")), ("pool", "Add-Model", ("name", "data_tx")),
                 ("pool", "Spawn", ("name", "kind")), ("router", "Inference", ("model", "prompts"))]


@pytest.mark.parametrize("text", ["{", "not json", "{'a': 1}", '{"a": NaN}', "[1,", '{"a": "\\ud800"}', "", "\ufeff{}",
                                  '{"a": 1, "a": 2}', "[" * 200, "null", "7", '"text"', "[]"])
@pytest.mark.parametrize(("target", "action"), [(target, action) for target, action, _ in JSON_HANDLERS])
def test_data_that_is_no_object_is_refused(bench: Bench, target: str, action: str, text: str) -> None:
    refused(bench, "ben", target, action, text, says="")


@pytest.mark.parametrize(("target", "action", "lacks"),
                         [(target, action, name) for target, action, names in JSON_HANDLERS for name in names])
def test_data_that_lacks_a_field_is_refused_naming_it(bench: Bench, target: str, action: str, lacks: str) -> None:
    fields = {"dataset": "siqa", "model": "ben-1", "name": "another", "data_tx": "ben/model", "kind": "siqa",
              "prompts": [{"id": "1", "prompt": "hello", "dataset": "me"}]}
    names = next(names for _, known, names in JSON_HANDLERS if known == action)
    refused(bench, "ben", target, action, {name: fields[name] for name in names if name != lacks}, says=lacks)


@pytest.mark.parametrize("value", [None, True, 1.5, [], {}, "", "x" * 70_000, "a/" + SQL])
@pytest.mark.parametrize(("target", "action", "field"),
                         [(target, action, name) for target, action, names in JSON_HANDLERS for name in names])
def test_a_field_of_the_wrong_kind_is_refused(bench: Bench, target: str, action: str, field: str,
                                              value: object) -> None:
    fields = {"dataset": "siqa", "model": "ben-1", "name": "another", "data_tx": "ben/model", "kind": "siqa",
              "prompts": [{"id": "1", "prompt": "hello", "dataset": "me"}]}
    names = next(names for _, known, names in JSON_HANDLERS if known == action)
    refused(bench, "ben", target, action, {name: fields[name] for name in names} | {field: value}, says="")


# --- everything everywhere ----------------------------------------------------------------------------
def junk() -> Iterator[tuple[str, dict[str, object]]]:
    every = ("Recipient", "Quantity", "Sender", "Model", "Message-Id", "X-Dataset", "X-Allocation", "X-Reference",
             "Limit", "Worker", "dataset", "model", "reference", "result", "id", "name", "kind", "path", "rows",
             "settings", "prompts", "score", "progress", "correct", "total", "unevaluated", "pool", "turn")
    for value in (SQL, "' OR 1=1 --", "\U0001f4a5", "0", "-1", "99999999999999999999", "../../etc/passwd", "%s%n"):
        yield value, dict.fromkeys(every, value)
    yield "", dict.fromkeys(every, "")


KINDS = [("token", "token"), ("pool", "pool"), ("router", "router"), ("dataset", "siqa")]
MAY = {("token", "Mint")}


@pytest.mark.parametrize(("kind", "target"), KINDS)
@pytest.mark.parametrize("shape", ["tags", "object", "text", "list"])
def test_junk_in_every_field_of_every_action_does_nothing(bench: Bench, kind: str, target: str, shape: str) -> None:
    """SQL, paths, numbers and emptiness, as tags, fields of Data, Data: no fault, no table lost, no money moved."""
    tables = set(bench.dump())
    before = bench.dump("messages", "strays", "wishes", "workers", "ticks")
    for action in handlers_of(kind):
        for value, fields in junk():
            tags: dict[str, Any] = {name.replace("-", "_"): one for name, one in fields.items()
                                       if name[0].isupper()} if shape == "tags" else {}
            data = {"object": fields, "text": value, "list": [value, fields], "tags": ""}[shape]
            receipt = bench.send("mallory", target, action, data, via="http", **tags)
            assert receipt.state in ("handled", "refused"), (action, value, receipt.error)
            if receipt.state == "refused":
                assert reply_named(receipt, f"{action}-Error")["tags"]["Error"]
    assert set(bench.dump()) == tables
    assert bench.dump("messages", "strays", "wishes", "workers", "ticks") == before


@pytest.mark.parametrize(("kind", "target"), KINDS)
def test_what_mallory_may_not_do_is_refused_whatever_she_says(bench: Bench, kind: str, target: str) -> None:
    """Proper messages from somebody who may not send them."""
    bench.clock.forward(40 * DAY)
    model = bench.one("SELECT process FROM models WHERE name = 'ben-1'")
    pool = bench.one("SELECT id FROM pools")
    score = {"correct": 3, "total": 3, "unevaluated": 0, "score": 1.0, "progress": 1.0}
    note = {"pool": pool, "asker": bench.address("mallory"), "message": "m", "since": 0, "turn": 9}
    asked: dict[str, list[tuple[str, object, dict[str, Any]]]] = {
        "token": [("Mint", "", {"Recipient": bench.address("mallory"), "Quantity": 5})],
        "pool": [("Score-Response", score, {"Model": model}), ("Settle-Pool", note, {}),
                 ("Credit-Notice", "", {"Sender": bench.address("mallory"), "Quantity": "500", "X_Dataset": "siqa",
                                        "X_Allocation": "Equal"}),
                 ("Debit-Notice", "", {"Quantity": "500"}), ("Transfer-Error", "", {"Message-Id": "x"}),
                 ("Allocate-Rewards", {"dataset": pool}, {}), ("Update-Leaderboard", {"dataset": pool}, {}),
                 ("Join-Pool", {"dataset": pool, "model": "ben-1"}, {}), ("Benchmark-Error", "", {})],
        "router": [("Register-Worker", {"model": "ben-1"}, {}), ("Unregister-Worker", "", {}),
                   ("loadModel", "ben-1", {}), ("setModel", "ben-1", {}), ("setMaxTokens", "5", {}),
                   ("setSystemPrompt", "Answer A.", {}),
                   ("Credit-Notice", "", {"Sender": bench.address("mallory"), "Quantity": "500"})],
        "dataset": [("Init", {}, {}), ("Load-Data", [dict(ROWS[0])], {}), ("Benchmark", model, {}),
                    ("Evaluate", "100", {"Model": model}), ("Transfer-Error", "", {"Message-Id": "x"}),
                    ("Inference-Response", {"id": "1", "model": "ben-1", "result": "A"}, {"X-Reference": "1"})],
    }
    for action, data, tags in asked[kind]:
        before = bench.dump("messages", "strays")
        receipt = bench.send("mallory", target, action, data, via="http",
                             **{name.replace("-", "_"): value for name, value in tags.items()})
        assert receipt.state == "refused" or action == "Inference-Response", (action, receipt)
        assert reply_named(receipt, f"{action}-Error")["tags"]["Error"]
        assert bench.dump("messages", "strays") == before, action


def test_ten_megabytes_of_data_are_taken_or_refused_and_not_kept(bench: Bench) -> None:
    receipt = bench.send("ann", "pool", "Join-Pool", {"dataset": "x" * 10_000_000, "model": "y"}, via="http")
    assert receipt.state == "refused"
    assert len(str(receipt.error)) < 4000
    assert bench.one("SELECT data IS NULL AND size > 10000000 FROM messages WHERE id = ?", receipt.id)
