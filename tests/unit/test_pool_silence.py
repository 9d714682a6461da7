"""An inference times out when who has it is silent, not when it is old; what came is handed in before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from automate.pools.deeds import DEEDS, Office
from automate.pools.desk import LocalDesk
from automate.pools.keys import GENESIS, load_key
from automate.pools.round_records import Answer, answer_record, worker_record
from automate.pools.rounds import give_up, hand_in, make_round, read_work
from automate.pools.schedule import tick
from tests.unit.pool_rounds_support import add_model, append, at_work, begun, handled, job, states
from tests.unit.pool_support import HOUR, Bench, opened, reply_named
from tests.unit.pool_web_rig import served


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with opened(tmp_path) as made:
        yield made


def evaluate(bench: Bench) -> int:
    """Evaluate; how many it took back."""
    receipt = handled(bench.send("owner", "siqa", "Evaluate"))
    return int(json.loads(reply_named(receipt, "Evaluate-Response")["Data"])["expired"])


def test_a_round_that_goes_on_answering_may_take_as_long_as_it_likes(bench: Bench) -> None:
    begun(bench, rows=10)
    spec = at_work(bench)
    for turn, line in enumerate(read_work(bench.places, spec.name)):
        bench.clock.forward(HOUR)
        append(bench, spec.name, [answer_record(Answer(line.reference, "A", "tiny.1", turn, turn))])
        hand_in(bench.exchange, bench.places)
        assert evaluate(bench) == 0
    assert states(bench) == {"answered": 10}
    assert bench.one("SELECT count(*) FROM strays") == 0


def test_each_model_of_a_round_is_silent_by_itself(bench: Bench) -> None:
    begun(bench, "tiny", "other")
    spec = at_work(bench, "tiny.1", "other.1")
    bench.clock.forward(3 * HOUR)
    job(bench, spec, only=1)
    hand_in(bench.exchange, bench.places)
    assert evaluate(bench) == 3
    assert bench.rows("SELECT DISTINCT m.name, e.attempts FROM evaluations e JOIN models m ON m.id = e.model_id "
                      "WHERE e.attempts > 1") == [{"name": "other", "attempts": 2}]


def test_a_job_that_waits_for_a_machine_again_is_no_attempt(bench: Bench) -> None:
    begun(bench)
    spec = at_work(bench)
    append(bench, spec.name, [worker_record("tiny.1", "tiny", "left")])
    hand_in(bench.exchange, bench.places)
    bench.clock.forward(30 * HOUR)
    assert evaluate(bench) == 0
    job(bench, spec, worker="tiny.9", file="2.jsonl")
    hand_in(bench.exchange, bench.places)
    assert states(bench) == {"answered": 3}
    assert bench.one("SELECT max(attempts) FROM evaluations") == 1


@pytest.mark.parametrize("leaves", ["left", "another model"])
def test_while_another_server_is_there_the_time_runs(bench: Bench, leaves: str) -> None:
    begun(bench)
    add_model(bench, "other")
    spec = at_work(bench, "tiny.1", "tiny.2")
    if leaves == "left":
        append(bench, spec.name, [worker_record("tiny.1", "tiny", "left")])
        hand_in(bench.exchange, bench.places)
    else:
        handled(bench.send("owner", "router", "Register-Worker", {"model": "other", "worker": "tiny.1"}))
    bench.clock.forward(3 * HOUR)
    assert evaluate(bench) == 3


def test_a_worker_by_hand_that_goes_takes_no_time_from_a_round(bench: Bench) -> None:
    begun(bench)
    handled(bench.send("owner", "router", "Register-Worker", {"model": "tiny", "worker": "w1"}))
    at_work(bench)
    handled(bench.send("owner", "router", "Unregister-Worker", {"worker": "w1"}))
    assert bench.rows("SELECT DISTINCT worker, begun FROM inferences") == [{"worker": None, "begun": bench.clock.now}]
    bench.clock.forward(3 * HOUR)
    assert evaluate(bench) == 3


def test_a_server_that_leaves_without_answers_counts_when_its_round_is_over(bench: Bench) -> None:
    begun(bench)
    spec = at_work(bench)
    append(bench, spec.name, [worker_record("tiny.1", "tiny", "left")])
    give_up(bench.exchange, bench.places, spec.name)
    assert bench.rows("SELECT DISTINCT state, tries FROM inferences") == [{"state": "queued", "tries": 1}]


def test_what_is_given_to_a_worker_by_hand_is_not_failed_unasked(bench: Bench) -> None:
    begun(bench)
    handled(bench.send("owner", "router", "Register-Worker", {"model": "tiny", "worker": "w1"}))
    assert bench.one("SELECT count(*) FROM inferences WHERE worker = 'w1'") == 3
    for _ in range(bench.settings.attempts + 1):
        bench.clock.forward(3 * HOUR)
        assert evaluate(bench) == 0
    assert states(bench) == {"started": 3}


def test_what_is_taken_back_is_cancelled_paid_back_and_asked_once(tmp_path: Path) -> None:
    with opened(tmp_path, price={"prompt": 2}) as bench:
        made = bench.dataset()
        handled(bench.send("owner", "token", "Mint", Recipient=made, Quantity=12))
        add_model(bench)
        handled(bench.send("owner", "siqa", "Benchmark", "tiny"))
        assert evaluate(bench) == 0
        spec = at_work(bench)
        job(bench, spec, only=1)
        hand_in(bench.exchange, bench.places)
        bench.clock.forward(3 * HOUR)
        assert evaluate(bench) == 2
        give_up(bench.exchange, bench.places, spec.name)
        again = make_round(bench.exchange, bench.places)
        assert again is not None and again.count == 2
        assert (bench.balance(made), bench.balance(bench.exchange.router)) == (6, 6)
        assert states(bench, "inferences") == {"answered": 1, "cancelled": 2, "sent": 2}
    assert "expire" not in DEEDS, "rows are taken back by Evaluate, which tells the router"


def test_a_desk_hands_in_before_it_evaluates(bench: Bench) -> None:
    begun(bench)
    spec = at_work(bench)
    job(bench, spec, file="2.jsonl")
    bench.clock.forward(3 * HOUR)
    desk = LocalDesk(Office(bench.store, bench.exchange, bench.places), bench.clock)
    assert desk.send(bench.sign("owner", "siqa", "Evaluate")).state == "handled"
    assert states(bench) == {"answered": 3}
    assert bench.one("SELECT count(*) FROM strays") == 0


def test_a_tick_hands_in_before(bench: Bench) -> None:
    begun(bench)
    spec = at_work(bench)
    job(bench, spec, file="2.jsonl")
    bench.clock.forward(3 * HOUR)
    LocalDesk(Office(bench.store, bench.exchange, bench.places), bench.clock).do("tick")
    assert states(bench) == {"answered": 3}


async def test_who_serves_hands_in_before_an_evaluate_over_http(tmp_path: Path) -> None:
    found: list[str] = []

    def prepare(bench: Bench) -> None:
        found.append(begun(bench))
        job(bench, at_work(bench), file="2.jsonl")
        bench.clock.forward(3 * HOUR)

    async with served(tmp_path, prepare) as web:
        key = load_key(web.places.key(GENESIS))
        body = (await web.post(key.sign(found[0], "Evaluate", anchor="e", timestamp=1)))[2]
        assert body["state"] == "handled", body
        told = json.loads(reply_of(body, "Evaluate-Response"))
        assert (told["expired"], told["started"], told["pending"]) == (0, 0, 0)
    with opened(tmp_path) as bench:
        assert states(bench) == {"answered": 3}


def reply_of(receipt: dict[str, list[dict[str, str]]], action: str) -> str:
    return next(one["Data"] for one in receipt["replies"] if one["Action"] == action)


def test_nothing_new_writes_nothing(bench: Bench) -> None:
    begun(bench)
    spec = at_work(bench)
    reached = bench.places.handed(spec.name)
    before = reached.stat().st_mtime_ns, reached.stat().st_ino
    hand_in(bench.exchange, bench.places)
    assert (reached.stat().st_mtime_ns, reached.stat().st_ino) == before


# --- who is asked at all --------------------------------------------------------------------------------
def test_money_goes_only_to_models_somebody_waits_for(bench: Bench) -> None:
    begun_models(bench, "over", "open", "alone")
    tick(bench.exchange, bench.clock.now)
    assert asked(bench) == {"open"}
    handled(bench.send("owner", "siqa", "Evaluate"))
    assert asked(bench) == {"open", "alone"}
    handled(bench.send("owner", "siqa", "Evaluate", Model="over"))
    assert asked(bench) == {"open", "alone", "over"}


def test_the_clock_leaves_a_data_set_alone_of_which_all_is_settled(bench: Bench) -> None:
    begun_models(bench, "over")
    assert tick(bench.exchange, bench.clock.now)["Evaluate"] == 0


def test_later_rows_are_not_put_to_models_whose_pools_are_settled(bench: Bench) -> None:
    begun_models(bench, "over", "open", "alone")
    row = {"context": "later", "question": "q", "answerA": "a", "answerB": "b", "answerC": "c", "result": "1"}
    handled(bench.send("owner", "siqa", "Load-Data", [row]))
    assert {row["name"]: row["n"] for row in bench.rows(
        "SELECT m.name, count(*) AS n FROM evaluations e JOIN models m ON m.id = e.model_id GROUP BY 1")} == {
        "over": 3, "open": 4, "alone": 4}


def begun_models(bench: Bench, *names: str) -> None:
    """Models with pending rows: `over` in a settled pool, `open` in one that ends in a year, `alone` in none."""
    bench.dataset()
    for name in names:
        add_model(bench, name)
        handled(bench.send("owner", "siqa", "Benchmark", name))
        if name == "alone":
            continue
        bench.mint("ann", 10)
        handled(bench.send("ann", "token", "Transfer", Recipient=bench.exchange.pool, Quantity=10,
                           X_Dataset=bench.id("siqa"), X_Allocation="Equal", X_Days=1 if name == "over" else 365))
        pool = bench.rows("SELECT id FROM pools ORDER BY rowid DESC")[0]["id"]
        handled(bench.send("trainer", "pool", "Join-Pool", {"dataset": pool, "model": name}))
    bench.clock.forward(72 * HOUR)
    for row in bench.rows("SELECT id FROM pools WHERE end_time < ?", bench.clock.now):
        handled(bench.send("ann", "pool", "Allocate-Rewards", {"dataset": row["id"]}))
    assert bench.one("SELECT count(*) FROM pools WHERE state <> 'open'") == ("over" in names)


def asked(bench: Bench) -> set[str]:
    return {str(row["model"]) for row in bench.rows("SELECT model FROM inferences")}
