"""The spec's sequence with two models in one pool: a tiny real one on a real vLLM, and a rehearsed one.

The evaluation's own engine asks both servers at once, and writes record files as its job does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from aiohttp.test_utils import TestServer

from automate.campaign.pools.desks import Opening
from automate.campaign.pools.jobs import places_of
from automate.pools.answering.asking import Asker
from automate.pools.answering.engine import Engine, Part
from automate.pools.answering.journal import Journal
from automate.pools.answering.workers import Roster
from automate.pools.desk import open_desk
from automate.pools.rounds import read_work
from automate.serving.client import Address, JudgeClient
from automate.serving.limiter import Limiter
from automate.serving.rehearsal import make_app
from automate.serving.rehearsal_behaviour import Behaviour
from automate.workspace import open_workspace
from tests.e2e.pool_sequence_rig import DAY, FUNDS, HOUR, ROWS, Sequence, rewards
from tests.rigs.vllm import TinyServer
from tests.serving.test_pool_answers import One
from tests.unit.pool_support import Clock, named_key

PRICE = 3
MODELS = {"tiny": "ben", "rehearsed": "cleo"}
LETTERS = {"1": "A", "2": "B", "3": "C"}


async def test_the_whole_sequence_with_a_real_model(tiny_vllm: TinyServer, tmp_path: Path) -> None:
    root = tmp_path / "w"
    root.mkdir()
    (root / "flock-hpc.yaml").write_text(yaml.safe_dump({"cluster": "local", "pools": {"price": {"prompt": PRICE}}}))
    places, clock = places_of(open_workspace(root)), Clock()
    with open_desk(places, clock=clock):
        pass
    sequence = Sequence(places, Opening(places, clock), clock)
    sequence.spawn(tmp_path)
    sequence.fund(inferences=PRICE * len(ROWS) * 2)
    for name, who in MODELS.items():
        sequence.join(who, name, f"{who}/{name}")
        clock.forward(1)

    clock.forward(HOUR)
    assert tick(sequence)["Evaluate"] == 1
    made: Any = sequence.desk.do("make_round", limit=None, models=None)
    assert made["count"] == 2 * len(ROWS)
    await answer_round(sequence, made["name"], tiny_vllm)
    given: Any = sequence.desk.do("hand_in")
    handed = given[0]
    assert (handed["answers"], handed["strays"], handed["left"]) == (2 * len(ROWS), 0, 0)
    assert sequence.desk.do("hand_in") in ([], [{**handed, "answers": 0}]), "twice is once"

    found: Any = sequence.desk.ask("audit", id=sequence.ids["benchmark"])
    assert found["problems"] == []
    said = {name: [row for row in found["answers"]["evaluations"] if row["model"] == name] for name in MODELS}
    assert all(row["answer"] in ("A", "B", "C", "N") and row["worker"] == f"{name}.1"
               for name, rows in said.items() for row in rows)
    right = {name: sum(row["answer"] == LETTERS[row["correct_answer"]] for row in rows) for name, rows in said.items()}
    assert_paid(sequence, clock, right)


def assert_paid(sequence: Sequence, clock: Clock, right: dict[str, int]) -> None:
    """Leaderboard by the daily clock; rewards at the end, by the formula; every unit where it belongs."""
    clock.forward(DAY)
    tick(sequence)
    assert {row["name"]: (row["correct"], row["answered"], row["score"]) for row in sequence.leaderboard()} == {
        name: (count, len(ROWS), count / len(ROWS)) for name, count in right.items()}
    clock.forward(29 * DAY)
    assert tick(sequence)["Allocate-Rewards"] == 1
    paid = rewards(right, list(MODELS))
    for name, who in MODELS.items():
        assert sequence.balance(named_key(who).address) == paid[name]
    assert sorted(paid.values()) == [333, 666]
    spent = PRICE * len(ROWS) * 2
    assert sequence.balance(named_key("ann").address) == 5000 - spent - sum(paid.values())
    assert sequence.balance(sequence.ids["router"]) == spent
    assert (sequence.balance(sequence.ids["pool"]), sequence.balance(sequence.ids["siqa"])) == (0, 0)
    found: Any = sequence.desk.ask("audit", id=sequence.ids["benchmark"])
    assert (found["problems"], found["money"]["paid"] + found["money"]["dust"]) == ([], FUNDS)


def tick(sequence: Sequence) -> dict[str, int]:
    done: Any = sequence.desk.do("tick")
    assert json.dumps(done)
    return dict(done)


async def answer_round(sequence: Sequence, name: str, server: TinyServer) -> None:
    """Both servers at once: the real one by its Unix socket, the rehearsed one on loopback."""
    work = read_work(sequence.places, name)
    journal = Journal(sequence.places, name)
    rehearsed = TestServer(make_app("rehearsed", Behaviour()))
    await rehearsed.start_server()
    try:
        async with JudgeClient(Address("http://localhost", str(server.socket_path)), server.model_name) as real, \
                JudgeClient(Address(f"http://127.0.0.1:{rehearsed.port}"), "rehearsed") as stand_in:
            parts = []
            for model, client in (("tiny", real), ("rehearsed", stand_in)):
                asker = Asker(One(client), Roster(model, journal.worker), sequence.now, {}, retries=0)
                parts.append(Part(model, asker, Limiter(4), [line for line in work if line.model == model]))
            await Engine(parts, journal.answer).play()
        assert [(part.failed, part.errors) for part in parts] == [(None, 0)] * 2
    finally:
        journal.close()
        await rehearsed.close()
