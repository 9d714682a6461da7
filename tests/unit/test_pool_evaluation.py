"""Each question of each model once: started in turns, answered once, timed out a bounded number of times, paid for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from automate.pools.evaluation import count_of
from automate.pools.kinds.base import Count
from automate.pools.requests import Prompt
from automate.pools.starting import GROUP_LENGTH, Due, affordable, groups
from tests.unit.pool_rounds_support import add_model, at_work, begun, handled, siqa, states
from tests.unit.pool_support import HOUR, Bench, opened, reply_named


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with opened(tmp_path) as bench:
        yield bench


def data_of(receipt: Any, action: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(reply_named(receipt, action)["Data"])
    return found


def score(bench: Bench, model: str = "tiny") -> dict[str, Any]:
    return data_of(handled(bench.send("anybody", "siqa", "Score", model)), "Score-Response")


def answer(bench: Bench, reference: str, result: str | None = "A", sender: str | None = None, anchor: str = "",
           **more: object) -> Any:
    """An Inference-Response of the router (or of somebody else) to the data set."""
    return bench.unsigned(sender or bench.exchange.router, "siqa", "Inference-Response",
                          {"id": reference, "result": result, "worker": "w", **more}, via="process",
                          anchor=anchor or f"{reference}{result}{bench.clock.now}")


def references(bench: Bench) -> list[str]:
    return [row["r"] for row in bench.rows("SELECT inference_reference AS r FROM evaluations WHERE state = 'started' "
                                           "ORDER BY id")]


# --- Benchmark ------------------------------------------------------------------------------------------
def test_benchmark_is_idempotent_and_picks_up_later_rows(bench: Bench) -> None:
    siqa(bench)
    add_model(bench)
    assert data_of(bench.send("owner", "siqa", "Benchmark", "tiny"), "Benchmark-Response")["added"] == 3
    assert data_of(bench.send("owner", "siqa", "Benchmark", "tiny"), "Benchmark-Response")["added"] == 0
    handled(bench.send("owner", "siqa", "Load-Data", [{"context": "c", "question": "q", "answerA": "1", "answerB": "2",
                                                       "answerC": "3", "result": "2"}]))
    with bench.store.transaction():  # as if loading had not asked for it already
        bench.store.db.execute("DELETE FROM evaluations WHERE id > 3")
    again = data_of(bench.send("owner", "siqa", "Benchmark", "process-of-tiny"), "Benchmark-Response")
    assert again == {"model": "process-of-tiny", "added": 1, "known": 3, "total": 4}
    prompt = json.loads(bench.rows("SELECT prompt FROM evaluations ORDER BY id")[0]["prompt"])
    assert [one["role"] for one in prompt] == ["system", "user"]


def test_more_rows_than_are_read_at_a_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("automate.pools.evaluation.PAGE", 3)
    siqa(bench, 10)
    add_model(bench)
    assert data_of(bench.send("owner", "siqa", "Benchmark", "tiny"), "Benchmark-Response")["added"] == 10


@pytest.mark.parametrize("model", ["nobody", "", '{"model": ["x"]}', "' OR 1=1 --", "99"])
def test_benchmark_of_an_unknown_model_is_refused(bench: Bench, model: str) -> None:
    siqa(bench)
    add_model(bench)
    assert bench.send("owner", "siqa", "Benchmark", model).state == "refused"
    assert states(bench) == {}


@pytest.mark.parametrize("action", ["Benchmark", "Evaluate"])
def test_strangers_may_not(bench: Bench, action: str) -> None:
    begun(bench)
    before = bench.dump("messages")
    receipt = bench.send("stranger", "siqa", action, "tiny" if action == "Benchmark" else "1")
    assert receipt.state == "refused"
    assert "owner" in (receipt.error or "")
    assert bench.dump("messages") == before


# --- Evaluate -------------------------------------------------------------------------------------------
def test_evaluate_starts_rows_with_references_of_their_own(bench: Bench) -> None:
    begun(bench)
    found = references(bench)
    assert len(set(found)) == 3
    assert found == [row["reference"] for row in bench.rows("SELECT reference FROM attempts ORDER BY rowid")]
    assert found == [row["reference"] for row in bench.rows("SELECT reference FROM inferences ORDER BY rowid")]
    assert {row["s"] for row in bench.rows("SELECT inference_start_time AS s FROM evaluations")} == {bench.clock.now}


def test_limit_model_and_turns(bench: Bench) -> None:
    siqa(bench, 5)
    for name in ("one", "two"):
        add_model(bench, name)
        handled(bench.send("owner", "siqa", "Benchmark", name))
    assert data_of(bench.send("owner", "siqa", "Evaluate", "4"), "Evaluate-Response")["started"] == 4
    by_model = "SELECT model, count(*) AS n FROM inferences GROUP BY model ORDER BY model"
    assert [row["n"] for row in bench.rows(by_model)] == [2, 2]
    handled(bench.send("owner", "siqa", "Evaluate", '{"limit": 2}', Model="two"))
    assert [row["n"] for row in bench.rows(by_model)] == [2, 4]
    told = data_of(bench.send("owner", "siqa", "Evaluate"), "Evaluate-Response")
    assert (told["started"], told["pending"]) == (4, 0)


@pytest.mark.parametrize("limit", ["0", "-1", "1.5", "many", "[1]", "99999999999", "NaN", "true"])
def test_a_limit_that_is_none(bench: Bench, limit: str) -> None:
    siqa(bench)
    assert bench.send("owner", "siqa", "Evaluate", limit).state == "refused"


def due(model: str, price: int = 0, length: int = 10) -> Due:
    return Due(1, model, 1, Prompt("1", "d", ({"role": "user", "content": "x" * length},), "generate", (), 1), price)


def test_messages_are_of_one_model_and_bounded() -> None:
    mixed = [due("a"), due("b"), *[due("a") for _ in range(250)], due("b", length=GROUP_LENGTH), due("b")]
    assert [(group[0].model, len(group)) for group in groups(mixed)] == [
        ("a", 200), ("b", 1), ("a", 51), ("b", 1), ("b", 1)]
    assert groups([]) == []


def test_as_many_as_money_pays() -> None:
    rows, lacking = affordable(iter([due("a", 5), due("a", 5), due("a", 5)]), 12)
    assert (len(rows), lacking) == (2, 5)


# --- answers --------------------------------------------------------------------------------------------
def test_answers_are_taken_by_reference(bench: Bench) -> None:
    begun(bench)
    first, second, third = references(bench)
    answer(bench, second, "The answer: A")
    answer(bench, first, "C")
    answer(bench, third, None, error="no server")
    rows = bench.rows("SELECT state, prediction, answer, worker, attempts, error FROM evaluations ORDER BY id")
    assert [(row["state"], row["prediction"]) for row in rows] == [("answered", "3"), ("answered", "1"),
                                                                   ("pending", None)]
    assert rows[2]["error"] == "no server"
    told = score(bench)
    assert (told["correct"], told["answered"], told["unevaluated"], told["total"]) == (2, 2, 1, 3)


def test_late_twice_unknown_and_from_elsewhere_change_nothing(bench: Bench) -> None:
    begun(bench)
    first, second, third = references(bench)
    answer(bench, first, "C")
    at_work(bench)
    bench.clock.forward(3 * HOUR)
    handled(bench.send("owner", "siqa", "Evaluate"))
    before = bench.dump("messages", "strays")
    answer(bench, first, "A", anchor="again")
    answer(bench, second, "A")
    answer(bench, "made-up", "A")
    answer(bench, third, "A", sender=bench.address("worker"))
    assert bench.dump("messages", "strays") == before
    assert [row["reason"] for row in bench.rows("SELECT reason FROM strays ORDER BY id")] == [
        "twice", "late", "unknown", "elsewhere"]


def test_a_stranger_is_told_that_nothing_was_taken(bench: Bench) -> None:
    begun(bench)
    receipt = bench.send("stranger", "siqa", "Inference-Response", {"id": references(bench)[0], "result": "A"})
    assert "somebody else" in reply_named(receipt, "Inference-Response-Error")["tags"]["Error"]
    assert states(bench) == {"started": 3}


def test_failures_are_tried_again_and_then_failed(bench: Bench) -> None:
    begun(bench, rows=1)
    for turn in range(bench.settings.attempts):
        (reference,) = references(bench)
        answer(bench, reference, None, error=f"boom {turn}")
        handled(bench.send("owner", "siqa", "Evaluate"))
    assert states(bench) == {"failed": 1}
    assert bench.one("SELECT count(DISTINCT reference) FROM attempts") == 3
    told = score(bench)
    assert (told["failed"], told["answered"], told["progress"], told["score"]) == (1, 0, 0.0, 0.0)


def test_time_outs_go_back_and_then_fail(bench: Bench) -> None:
    siqa(bench, 1)
    add_model(bench)
    handled(bench.send("owner", "siqa", "Benchmark", "tiny"))
    seen = set()
    for turn in range(bench.settings.attempts):
        handled(bench.send("owner", "siqa", "Evaluate"))
        at_work(bench, f"tiny.{turn}")
        seen.update(references(bench))
        bench.clock.forward(3 * HOUR)
    told = data_of(bench.send("owner", "siqa", "Evaluate"), "Evaluate-Response")
    assert (told["expired"], told["started"]) == (1, 0)
    assert states(bench) == {"expired": 1}
    assert score(bench)["failed"] == 1
    assert len(seen) == bench.settings.attempts
    assert states(bench, "inferences") == {"cancelled": 3}
    assert bench.one("SELECT max(workload) FROM workers") == 0


def test_what_the_router_refuses_is_tried_again_later(bench: Bench) -> None:
    siqa(bench)
    add_model(bench)
    handled(bench.send("owner", "siqa", "Benchmark", "tiny"))
    with bench.store.transaction():  # an inference of the same reference, which the router must refuse
        bench.store.db.execute("CREATE TRIGGER broken BEFORE INSERT ON inferences BEGIN SELECT RAISE(IGNORE); END")
    handled(bench.send("owner", "siqa", "Evaluate"))
    assert states(bench) == {"pending": 3}
    assert "used before" in bench.rows("SELECT error FROM evaluations")[0]["error"]


# --- Score ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("started", "answered", "correct", "expected"), [
    (3, 0, 0, (0.0, 1347, 0.0)), (6, 6, 1, (1 / 6, 1344, 6 / 1350)), (0, 0, 0, (0.0, 1350, 0.0))])
def test_score_and_progress(bench: Bench, started: int, answered: int, correct: int,
                            expected: tuple[float, int, float]) -> None:
    made = siqa(bench, 1350)
    add_model(bench)
    handled(bench.send("owner", "siqa", "Benchmark", "tiny"))
    with bench.store.transaction():
        bench.store.db.execute("UPDATE evaluations SET state = 'started' WHERE id <= ?", (started,))
        bench.store.db.execute("UPDATE evaluations SET state = 'answered', prediction = '0' WHERE id <= ?", (answered,))
        bench.store.db.execute("UPDATE evaluations SET prediction = correct_answer WHERE id <= ?", (correct,))
    told = score(bench)
    assert (told["score"], told["unevaluated"], told["progress"]) == pytest.approx(expected)
    assert count_of(bench.store.db, made, 1) == Count(1350, answered, correct, 0)


def test_never_benchmarked_and_empty(bench: Bench) -> None:
    siqa(bench)
    add_model(bench)
    assert score(bench) == {"correct": 0, "unevaluated": 3, "total": 3, "score": 0.0, "progress": 0.0, "answered": 0,
                            "failed": 0}
    reply = reply_named(bench.send("anybody", "siqa", "Score", "tiny"), "Score-Response")
    assert reply["tags"]["Model"] == "process-of-tiny"
    bench.bare_dataset("empty")
    empty = data_of(bench.send("anybody", "empty", "Score", "tiny"), "Score-Response")
    assert (empty["score"], empty["progress"], empty["total"]) == (0.0, 0.0, 0)


# --- money ----------------------------------------------------------------------------------------------
PRICE = {"price": {"prompt": 10}}


def test_inference_is_paid_from_the_data_sets_balance(tmp_path: Path) -> None:
    with opened(tmp_path, **PRICE) as bench:
        made = siqa(bench, 5)
        add_model(bench)
        handled(bench.send("owner", "siqa", "Benchmark", "tiny"))
        told = data_of(bench.send("owner", "siqa", "Evaluate"), "Evaluate-Response")
        assert (told["started"], told["lacking"]) == (0, 10)
        bench.mint("ann", 100)
        handled(bench.send("ann", "token", "Transfer", Recipient=made, Quantity="35"))
        told = data_of(bench.send("owner", "siqa", "Evaluate"), "Evaluate-Response")
        assert (told["started"], told["pending"]) == (3, 2)
        assert (bench.balance(made), bench.balance(bench.exchange.router)) == (5, 30)
        assert states(bench, "inferences") == {"queued": 3}
        assert bench.one("SELECT count(*) FROM messages WHERE action = 'Transfer' AND sender = ?", made) == 1


def test_a_crash_while_paying_pays_once(tmp_path: Path) -> None:
    at = 1
    while True:
        with opened(tmp_path / str(at), **PRICE) as bench:
            made = siqa(bench, 2)
            add_model(bench)
            bench.mint("ann", 100)
            handled(bench.send("ann", "token", "Transfer", Recipient=made, Quantity="50"))
            handled(bench.send("owner", "siqa", "Benchmark", "tiny"))
            message = bench.message("owner", "siqa", "Evaluate")
            crashed = bench.crash(at, partial(bench.exchange.receive, [message]))
            bench.exchange.receive([message])
            assert (bench.balance(made), bench.balance(bench.exchange.router)) == (30, 20)
            assert states(bench, "inferences") == {"queued": 2}
            assert bench.one("SELECT count(*) FROM attempts") == 2
            if not crashed:
                return
        at += 4


def test_what_fails_or_times_out_is_paid_back(tmp_path: Path) -> None:
    with opened(tmp_path, **PRICE) as bench:
        made = siqa(bench, 2)
        add_model(bench)
        handled(bench.send("owner", "router", "Register-Worker", {"model": "tiny", "worker": "tiny.1"}))
        bench.mint("ann", 100)
        handled(bench.send("ann", "token", "Transfer", Recipient=made, Quantity="20"))
        handled(bench.send("owner", "siqa", "Benchmark", "tiny"))
        handled(bench.send("owner", "siqa", "Evaluate"))
        first, second = references(bench)
        bench.unsigned("tiny.1", "router", "Inference-Response", {"id": first, "error": "boom"}, via="job", anchor="1")
        assert bench.balance(made) == 10
        bench.unsigned("tiny.1", "router", "Inference-Response", {"id": second, "result": "A"}, via="job", anchor="2")
        assert bench.balance(made) == 10
        handled(bench.send("owner", "siqa", "Evaluate"))
        assert bench.balance(made) == 0
        at_work(bench, "tiny.2")
        bench.clock.forward(3 * HOUR)
        told = data_of(bench.send("owner", "siqa", "Evaluate"), "Evaluate-Response")
        assert (told["expired"], told["started"]) == (1, 0)  # the money is back only after this message
        assert bench.balance(made) == 10
        handled(bench.send("owner", "siqa", "Evaluate"))
        assert states(bench, "inferences") == {"answered": 1, "cancelled": 1, "failed": 1, "queued": 1}


def test_a_transfer_error_counts_no_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path, **PRICE) as bench:
        siqa(bench)
        add_model(bench)
        handled(bench.send("owner", "siqa", "Benchmark", "tiny"))
        monkeypatch.setattr("automate.pools.starting.balance", lambda *_: 10**9)
        handled(bench.send("owner", "siqa", "Evaluate"))
        assert states(bench) == {"pending": 3}
        assert {row["attempts"] for row in bench.rows("SELECT attempts FROM evaluations")} == {0}
        assert {row["outcome"] for row in bench.rows("SELECT outcome FROM attempts")} == {"unpaid"}
        assert states(bench, "inferences") == {"cancelled": 3}
        assert bench.balance(bench.exchange.router) == 0


def test_errors_of_strangers_change_nothing(bench: Bench) -> None:
    begun(bench)
    sent = bench.one("SELECT id FROM messages WHERE action = 'Inference'")
    before = bench.dump("messages")
    for action in ("Transfer-Error", "Inference-Error"):
        assert bench.send("stranger", "siqa", action, Message_Id=sent, Error="x").state == "refused"
    assert bench.dump("messages") == before
