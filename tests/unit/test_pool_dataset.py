"""A data set's process: Init, Info, Get-Models, notices of money."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from automate.pools.dataset import HANDLERS, kind_of, load
from automate.pools.messages import Receipt
from tests.unit.pool_support import ROWS, Bench, opened, reply_named


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with opened(tmp_path / "work") as made:
        made.send("ann", "pool", "Spawn", {"name": "set", "kind": "siqa"})
        yield made


def data(receipt: Receipt, action: str) -> Any:
    assert receipt.state == "handled", receipt
    return json.loads(reply_named(receipt, action)["Data"])


def settings(bench: Bench, name: str = "set") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bench.one("SELECT settings FROM processes WHERE name = ?", name))
    return found


def evaluated(bench: Bench, name: str = "set") -> None:
    """One evaluation, put straight into the tables."""
    with bench.store.transaction():
        bench.store.db.execute("INSERT INTO models (name, inference_process, data_tx, process, owner, added) "
                               "VALUES ('m', 'router', 'owner/m', ?, 'ann', 1)", ("m" * 43,))
        bench.store.db.execute(
            "INSERT INTO evaluations (dataset_id, model_id, prompt, correct_answer, dataset) "
            "SELECT min(id), 1, 'p', '1', dataset FROM questions WHERE dataset = ?", (bench.id(name),))


def test_the_specs_handlers_are_there() -> None:
    assert {"Init", "Load-Data", "Info", "Get-Models", "Credit-Notice", "Debit-Notice"} <= set(HANDLERS)


def test_init_as_the_spec_shows_it_makes_the_data_set_ready(bench: Bench) -> None:
    said = data(bench.send("ann", "set", "Init"), "Init-Response")
    assert said["settings"]["LlamaRouter"] == bench.exchange.router
    assert said["settings"]["WrappedAR"] == bench.exchange.token
    assert "A, B or C" in said["settings"]["SystemPrompt"]
    assert bench.process("set").ready


def test_initialization_values_are_settings_by_data_or_tags(bench: Bench) -> None:
    bench.send("ann", "set", "Init", {"DataTxID": "tx-1", "SystemPrompt": "Choose.", "LlamaRouter": "router"})
    receipt = bench.send("ann", "set", "Init", Method="loglikelihood", WrappedAR=bench.exchange.token)
    said = data(receipt, "Init-Response")
    assert said["changed"] == ["Method", "WrappedAR"]
    assert settings(bench) == {"DataTxID": "tx-1", "SystemPrompt": "Choose.", "LlamaRouter": bench.exchange.router,
                               "WrappedAR": bench.exchange.token, "Method": "loglikelihood"}
    kind = kind_of(bench.exchange.context(bench.process("set")))
    assert (kind.prompt, kind.method) == ("Choose.", "loglikelihood")


@pytest.mark.parametrize(("given", "why"), [
    ({"Colour": "red"}, "'Colour' is no setting of kind siqa"), ([1], "no JSON object"), ("{", "not JSON"),
    ("text", "not JSON"), ({"Method": "guess"}, "Method must be one of"), ({"SystemPrompt": 5}, "must be text"),
    ({"SystemPrompt": "x" * 300_000}, "300,000 bytes long"), ({"SystemPrompt": "a\0b"}, "NUL"),
    ({"DataTxID": []}, "list, not text"), ({"DataTxID": "x" * 2000}, "2,000 bytes long"),
    ({"LlamaRouter": "token"}, "not the one here"), ({"WrappedAR": "x' OR '1'='1"}, "not the one here"),
    ('{"SystemPrompt": "\\ud800"}', "JSON")])
def test_settings_that_can_not_be_used_are_refused_and_change_nothing(bench: Bench, given: object, why: str) -> None:
    before = bench.dump("messages")
    receipt = bench.send("ann", "set", "Init", given)
    assert receipt.state == "refused"
    assert why in str(receipt.error)
    assert bench.dump("messages") == before


def test_a_setting_that_is_said_twice_must_be_the_same(bench: Bench) -> None:
    assert "two values" in str(bench.send("ann", "set", "Init", {"SystemPrompt": "a"}, SystemPrompt="b").error)
    assert bench.send("ann", "set", "Init", {"SystemPrompt": "a"}, SystemPrompt="a").state == "handled"


def test_init_again_wipes_nothing(bench: Bench) -> None:
    bench.send("ann", "set", "Init", {"SystemPrompt": "Choose."})
    bench.send("ann", "set", "Load-Data", ROWS)
    evaluated(bench)
    before = bench.dump("messages")
    assert data(bench.send("ann", "set", "Init"), "Init-Response")["changed"] == []
    assert data(bench.send("ann", "set", "Init", {"SystemPrompt": "Choose."}), "Init-Response")["changed"] == []
    assert bench.dump("messages") == before


def test_what_models_were_asked_with_stays_once_there_are_evaluations(bench: Bench) -> None:
    bench.send("ann", "set", "Init", {"SystemPrompt": "Choose."})
    bench.send("ann", "set", "Load-Data", ROWS)
    assert bench.send("ann", "set", "Init", {"SystemPrompt": "Think."}).state == "handled"
    evaluated(bench)
    for change in ({"SystemPrompt": "Guess."}, {"Method": "loglikelihood"}):
        receipt = bench.send("ann", "set", "Init", change)
        assert receipt.state == "refused"
        assert "their scores would not compare" in str(receipt.error)
    assert settings(bench)["SystemPrompt"] == "Think."
    assert bench.send("ann", "set", "Init", {"DataTxID": "tx-2"}).state == "handled"


def test_how_rows_are_read_stays_once_there_are_rows(bench: Bench) -> None:
    rows = [{"question": "q", "choices": ["a", "b"], "answer": "B"}]
    bench.dataset("mc", "multiple-choice", rows=rows, Answer="letter")
    assert "read with the old one" in str(bench.send("owner", "mc", "Init", {"Answer": "text"}).error)
    assert bench.send("owner", "mc", "Init", {"SystemPrompt": "x"}).state == "handled"
    assert json.loads(bench.one("SELECT options FROM questions")) == ["a", "b"]
    assert bench.rows("SELECT * FROM datasets") == []


def test_only_owners_initialise(bench: Bench) -> None:
    assert "only its owner may send Init" in str(bench.send("eve", "set", "Init").error)
    assert not bench.process("set").ready
    assert bench.send("owner", "set", "Init").state == "handled"


def test_info_answers_anybody(bench: Bench) -> None:
    bench.send("ann", "set", "Init", {"DataTxID": "tx-1"})
    bench.send("ann", "set", "Load-Data", ROWS)
    said = data(bench.send("eve", "set", "Info"), "Info-Response")
    assert (said["name"], said["kind"], said["num_samples"], said["data_txid"]) == ("set", "siqa", 3, "tx-1")
    assert said["methods"] == ["generate", "loglikelihood"]
    assert said["method"] == "generate"
    assert said["description"]
    assert said["owner"] == bench.address("ann")


def test_get_models_answers_with_the_specs_columns(bench: Bench) -> None:
    assert data(bench.send("eve", "set", "Get-Models"), "Get-Models-Response") == []
    bench.send("ann", "set", "Init")
    bench.send("ann", "set", "Load-Data", ROWS)
    evaluated(bench)
    assert data(bench.send("eve", "set", "Get-Models"), "Get-Models-Response") == [
        {"id": 1, "name": "m", "inference_process": "router", "data_tx": "owner/m", "process": "m" * 43}]


def test_notices_of_money_are_believed_of_the_token_only(bench: Bench) -> None:
    bench.mint("ann", 10)
    assert bench.send("ann", "token", "Transfer", Recipient=bench.id("set"), Quantity="4").state == "handled"
    assert bench.balance(bench.id("set")) == 4
    assert bench.one("SELECT state FROM messages WHERE action = 'Credit-Notice' AND target = ?", bench.id("set")) == \
        "handled"
    for action in ("Credit-Notice", "Debit-Notice"):
        receipt = bench.send("eve", "set", action, Quantity="1000000", Sender="eve")
        assert receipt.state == "refused"
        assert "token only" in str(receipt.error)


def test_a_file_can_be_loaded_without_a_message(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*ROWS, {"context": "x"}]))
    with bench.store.transaction():
        added, known, bad = load(bench.exchange.context(bench.process("set")), path, "m")
    assert (added, known, [row.number for row in bad]) == (3, 0, [4])


def test_a_kind_that_is_gone_is_said_in_words(bench: Bench) -> None:
    bench.bare_dataset("lost", "no-such-kind")
    receipt = bench.send("owner", "lost", "Info")
    assert receipt.state == "refused"
    assert "no data set kind 'no-such-kind'" in str(receipt.error)


def test_rows_that_are_added_later_are_put_to_models_under_evaluation(bench: Bench) -> None:
    bench.send("ann", "set", "Init")
    bench.send("ann", "set", "Load-Data", ROWS[:2])
    model = {"name": "m", "inference_process": "router", "data_tx": "bob/m"}
    assert bench.send("bob", "pool", "Add-Model", model).state == "handled"
    assert bench.send("ann", "set", "Benchmark", "m").state == "handled"
    assert bench.one("SELECT count(*) FROM evaluations") == 2
    bench.send("ann", "set", "Load-Data", ROWS)
    assert bench.one("SELECT count(*) FROM evaluations WHERE state = 'pending'") == 3
    assert bench.rows("SELECT action, error FROM messages WHERE state NOT IN ('handled', 'delivered')") == []
    before = bench.one("SELECT count(*) FROM messages WHERE action = 'Benchmark'")
    bench.send("ann", "set", "Load-Data", ROWS)
    assert bench.one("SELECT count(*) FROM messages WHERE action = 'Benchmark'") == before
    assert bench.send("eve", "set", "Benchmark-Response", "{}").state == "refused"
