"""What a worker is really asked: no more than was paid for, and on record where it is not the data set's prompt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from automate.pools.answering import requests
from automate.pools.answering.asking import Asker
from automate.pools.answering.requests import Told
from automate.pools.answering.workers import Roster
from automate.pools.audit import audit
from automate.pools.round_records import LONGEST_PROMPT, Answer, Work, answer_record, worker_record
from automate.pools.rounds import hand_in, make_round, read_spec, read_work
from automate.serving.client import Reply
from tests.unit.pool_rounds_support import add_model, append, handled
from tests.unit.pool_support import Bench, opened

CHAT = ({"role": "system", "content": "Choose."}, {"role": "user", "content": "Why?"})


class Server:
    """Answers A, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def ask_worker(self, call: Any, question: str | None = None) -> Any:
        return await call(self, "one")

    async def chat(self, messages: Any, **given: Any) -> Reply:
        self.asked.append({"messages": messages, **given})
        return Reply("A", "stop", 1, 1, 0)


def prepared(bench: Bench) -> str:
    bench.dataset()
    bench.mint("ann", 10_000)
    handled(bench.send("ann", "token", "Transfer", Recipient=bench.id("siqa"), Quantity=1000))
    handled(bench.send("ann", "token", "Transfer", Recipient=bench.exchange.pool, Quantity=100,
                       X_Dataset=bench.id("siqa"), X_Allocation="Equal"))
    add_model(bench)
    pool = str(bench.one("SELECT id FROM pools"))
    handled(bench.send("trainer", "pool", "Join-Pool", {"dataset": pool, "model": "tiny"}))
    return pool


@pytest.mark.parametrize(("price", "said", "asked"), [
    ({"token": 1}, 500, 1), ({}, 500, 500), ({"prompt": 2}, 500, 500)])
async def test_no_more_tokens_are_asked_for_than_were_paid(tmp_path: Path, price: dict[str, int], said: int,
                                                           asked: int) -> None:
    with opened(tmp_path, price=price) as bench:
        bench.dataset()
        bench.mint("ann", 1000)
        handled(bench.send("ann", "token", "Transfer", Recipient=bench.id("siqa"), Quantity=1000))
        add_model(bench)
        handled(bench.send("owner", "router", "setMaxTokens", str(said), Model="tiny"))
        handled(bench.send("owner", "siqa", "Benchmark", "tiny"))
        handled(bench.send("owner", "siqa", "Evaluate"))
        spec = make_round(bench.exchange, bench.places)
        assert spec is not None
        told = {name: Told.of(one) for name, one in read_spec(bench.places, spec.name).workers.items()}
        server = Server()
        await Asker(server, Roster("tiny", lambda one: None), lambda: 1, told).answer(
            read_work(bench.places, spec.name)[0])
    assert server.asked[0]["max_tokens"] == asked


async def test_a_record_says_what_was_asked_where_that_differs() -> None:
    work = Work("r", "tiny", CHAT, "generate", ("A", "B"), 1)
    server = Server()
    told = {"tiny.1": Told(system_prompt="Be brief.")}
    found = await Asker(server, Roster("tiny", lambda one: None), lambda: 1, told).answer(work)
    assert found.prompt is not None and json.loads(found.prompt) == server.asked[0]["messages"] == [
        {"role": "system", "content": "Be brief."}, CHAT[1]]
    same = await Asker(server, Roster("tiny", lambda one: None), lambda: 1, {}).answer(work)
    assert same.prompt is None


def test_of_a_very_long_prompt_the_part_that_differs_is_kept() -> None:
    long = ({"role": "user", "content": "x" * LONGEST_PROMPT},)
    work = Work("r", "tiny", long, "generate", (), 1)
    asked = requests.messages_of(work, Told(system_prompt="Be brief."))
    assert json.loads(requests.asked_otherwise(work, asked) or "") == [{"role": "system", "content": "Be brief."}]


@pytest.mark.parametrize("failed", [False, True])
def test_an_attempt_has_the_prompt_that_was_asked(tmp_path: Path, failed: bool) -> None:
    with opened(tmp_path) as bench:
        pool = prepared(bench)
        handled(bench.send("owner", "siqa", "Evaluate"))
        spec = make_round(bench.exchange, bench.places)
        assert spec is not None
        first, second, _ = read_work(bench.places, spec.name)
        prompt = json.dumps(list(CHAT))
        append(bench, spec.name, [worker_record("tiny.1", "tiny", "joined"), *[answer_record(Answer(
            line.reference, None if failed else "A", "tiny.1", 1, 2, error="boom" if failed else None,
            prompt=prompt if line is first else None)) for line in (first, second)]])
        assert hand_in(bench.exchange, bench.places)[0].answers == 2
        assert {row["reference"]: row["prompt"] for row in bench.rows(
            "SELECT reference, prompt FROM attempts WHERE outcome <> 'started'")} == {
            first.reference: prompt, second.reference: None}
        traced: Any = audit(bench.exchange, pool, bench.clock.now)
        tries = [one for row in traced["answers"]["evaluations"] for one in row["tries"]]
        assert [one["prompt"] for one in tries if one["reference"] == first.reference] == [prompt]
        assert traced["problems"] == []
