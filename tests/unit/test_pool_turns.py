"""Whose turn it is: nobody who waits is passed over, however many join, and strangers come last."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automate.pools import outsiders
from automate.pools.messages import Receipt
from automate.pools.requests import price_of
from automate.pools.rounds import make_round, read_work
from automate.pools.turns import Waiting, order
from automate.settings_pools import PoolPrice
from tests.unit.pool_rounds_support import handled, siqa, states
from tests.unit.pool_support import HOUR, Bench, opened, reply_named


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with opened(tmp_path, evaluate_limit=4) as bench:
        bench.mint("ann", 100)
        yield bench


def pool(bench: Bench, dataset: str) -> str:
    receipt = handled(bench.send("ann", "token", "Transfer", Recipient=bench.exchange.pool, Quantity="5",
                                 X_Dataset=dataset, X_Allocation="Equal", X_Days="30"))
    return str(json.loads(reply_named(receipt, "Create-Pool-Response")["Data"])["pool"])


def join(bench: Bench, into: str, who: str, model: str) -> None:
    handled(bench.send(who, "pool", "Add-Model", {"name": model, "data_tx": "org/model"}))
    handled(bench.send(who, "pool", "Join-Pool", {"dataset": into, "model": model}))


def evaluated(bench: Bench) -> dict[str, int]:
    """How many questions of each model one Evaluate starts."""
    before = asked(bench)
    bench.clock.forward(HOUR)
    handled(bench.send("owner", "siqa", "Evaluate"))
    return dict(asked(bench) - before)


def asked(bench: Bench) -> Counter[str]:
    return Counter({row["model"]: row["n"] for row in bench.rows(
        "SELECT model, count(*) AS n FROM inferences GROUP BY model")})


def inference(bench: Bench, who: str, count: int, begin: int = 0, **more: object) -> Receipt:
    prompts = [{"id": str(number), "prompt": "p", **more} for number in range(begin, begin + count)]
    return bench.send(who, "router", "Inference", {"model": "honest", "prompts": prompts})


# --- who is next ----------------------------------------------------------------------------------------
def one(model: int, owner: str, count: int, turn: int = 0, owner_turn: int = 0) -> Waiting:
    return Waiting(model, owner, count, turn, owner_turn)


def test_few_questions_are_not_passed_over() -> None:
    line = [one(1, "honest", 100), *[one(model, f"stranger {model}", 2000) for model in range(2, 1103)]]
    assert Counter(order(line, 2000))[1] >= 1
    assert Counter(order([one(1, "a", 1), one(2, "b", 100)], 10)) == {1: 1, 2: 9}
    assert Counter(order([one(1, "a", 9), *[one(model, "b", 9) for model in range(2, 12)]], 10))[1] == 5
    assert list(order([one(1, "a", 2)], 10)) == [1, 1]
    assert list(order([], 10)) == []


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 9)), max_size=12), st.integers(1, 7))
def test_all_that_is_due_is_started_and_nobody_waits_longer_than_a_round(models: list[tuple[int, int]],
                                                                         limit: int) -> None:
    left = dict(enumerate((count for _, count in models), 1))
    owners = {model: f"owner {owner}" for model, (owner, _) in enumerate(models, 1)}
    turns, last = dict.fromkeys(left, 0), 0
    waits: Counter[str] = Counter()
    while any(left.values()):
        line = [one(model, owners[model], count, turns[model],
                    max(turns[other] for other in left if owners[other] == owners[model]))
                for model, count in left.items() if count]
        started = list(order(line, limit))
        assert len(started) == min(limit, sum(left.values()))
        for place, model in enumerate(started, 1):
            left[model] -= 1
            turns[model] = last + place
        assert min(left.values()) >= 0
        last += len(started)
        there = {waiting.owner for waiting in line}
        for owner in there:
            waits[owner] = 0 if owner in {owners[model] for model in started} else waits[owner] + 1
        assert max(waits.values()) < -(-len(set(owners.values())) // limit)


def test_thirty_models_of_a_stranger_starve_nobody(bench: Bench) -> None:
    siqa(bench, 20)
    into = pool(bench, "siqa")
    join(bench, into, "ben", "honest")
    assert evaluated(bench) == {"honest": 4}
    for number in range(30):
        join(bench, into, "eve", f"bad{number}")
    found = [evaluated(bench) for _ in range(8)]
    assert [one.get("honest") for one in found] == [2] * 8
    assert len({model for one in found for model in one} - {"honest"}) == 16


def test_who_joins_later_waits_behind_those_who_are_there(bench: Bench) -> None:
    siqa(bench, 20)
    into = pool(bench, "siqa")
    for number in range(6):
        join(bench, into, f"early {number}", f"early{number}")
    seen: Counter[str] = Counter(evaluated(bench))
    for hour in range(3):
        for number in range(4):
            join(bench, into, f"late {hour} {number}", f"late{hour}-{number}")
        seen.update(evaluated(bench))
    assert {f"early{number}" for number in range(6)} <= set(seen)
    for _ in range(6):
        seen.update(evaluated(bench))
    assert len(seen) == 18


def test_the_balance_is_for_all(tmp_path: Path) -> None:
    with opened(tmp_path, price={"prompt": 1}) as bench:
        bench.mint("ann", 100)
        dataset = siqa(bench, 20)
        handled(bench.send("ann", "token", "Transfer", Recipient=dataset, Quantity="10"))
        into = pool(bench, "siqa")
        for number in range(10):
            join(bench, into, "eve", f"bad{number}")
        join(bench, into, "ben", "honest")
        assert evaluated(bench)["honest"] == 5


# --- strangers ------------------------------------------------------------------------------------------
def test_pools_come_before_strangers_and_no_queue_before_another(bench: Bench) -> None:
    dataset = siqa(bench, 4)
    into = pool(bench, "siqa")
    join(bench, into, "ben", "honest")
    handled(inference(bench, "eve", 30))
    handled(inference(bench, "fay", 2))
    evaluated(bench)
    spec = make_round(bench.exchange, bench.places, limit=8)
    assert spec is not None
    who = {row["reference"]: row["requester"] for row in bench.rows("SELECT reference, requester FROM inferences")}
    found = [who[work.reference] for work in read_work(bench.places, spec.name)]
    eve, fay = bench.address("eve"), bench.address("fay")
    assert found == [dataset] * 4 + [eve, fay, eve, fay]


def test_what_strangers_may_have_waiting_is_bounded_for_all_of_them(tmp_path: Path) -> None:
    with opened(tmp_path, max_waiting=10) as bench:
        bench.mint("ann", 5)
        siqa(bench, 20)
        join(bench, pool(bench, "siqa"), "ben", "honest")
        handled(inference(bench, "eve", 6))
        refused = inference(bench, "fay", 5)
        assert "6 free inferences wait already" in (refused.error or "")
        handled(inference(bench, "fay", 4))
        assert states(bench, "inferences") == {"queued": 10}
        handled(inference(bench, "owner", 2))
        assert evaluated(bench) == {"honest": 20}


def test_a_strangers_data_set_without_a_pool_is_an_outsider(tmp_path: Path) -> None:
    with opened(tmp_path, max_waiting=3) as bench:
        bench.mint("ann", 5)
        rows = [{"context": f"c{number}", "question": "q", "answerA": "1", "answerB": "2", "answerC": "3",
                 "result": "1"} for number in range(9)]
        bench.dataset("hers", who="eve", rows=rows)
        handled(bench.send("ben", "pool", "Add-Model", {"name": "honest", "data_tx": "org/model"}))
        handled(bench.send("eve", "hers", "Benchmark", "honest"))
        handled(inference(bench, "fay", 1))
        for _ in range(2):
            handled(bench.send("eve", "hers", "Evaluate"))
            assert states(bench) == {"pending": 7, "started": 2}
        pool(bench, "hers")
        handled(bench.send("eve", "hers", "Evaluate", "4"))
        assert states(bench) == {"pending": 3, "started": 6}


def test_answers_to_strangers_are_short(bench: Bench) -> None:
    handled(bench.send("ben", "pool", "Add-Model", {"name": "honest", "data_tx": "org/model"}))
    refused = inference(bench, "eve", 1, max_tokens=outsiders.MOST_TOKENS + 1)
    assert "tokens" in (refused.error or "")
    handled(inference(bench, "eve", 1, max_tokens=outsiders.MOST_TOKENS))
    handled(inference(bench, "owner", 1, max_tokens=32_768))


# --- words ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("text", "words"), [
    ("one two, three", 3), ("раз два три", 3), ("写" * 100_000, 75_000), ("!" * 160, 10), ("a" * 24, 1), ("a" * 25, 7),
    ("naïve café", 2), ("x_y", 2)])
def test_words_of_any_script_have_a_price(text: str, words: int) -> None:
    chat: Any = ({"role": "user", "content": text},)
    assert price_of(PoolPrice(token=1), chat, 0) == words
