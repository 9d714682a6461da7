"""The spec's sequence from mint to rewards: its own payloads, real rounds by rehearsal servers, a clock moved by hand.

Balances are counted here from the jobs' record files and the facts' formula."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from automate.campaign.pools.desks import Opening
from automate.campaign.pools.evaluating import evaluate
from automate.campaign.pools.jobs import places_of
from automate.pools.desk import open_desk
from automate.workspace import open_workspace
from tests.e2e.pool_rig import Funded
from tests.e2e.pool_sequence_rig import DAY, FUNDS, HOUR, ROWS, Sequence, rewards
from tests.e2e.support import SLURM, read_lines
from tests.unit.pool_support import Clock, named_key

PRICE, LIMIT = 2, 20
MODELS = {"m1": "ben", "m2": "cleo", "m3": "cleo"}
LETTERS = {"1": "A", "2": "B", "3": "C"}


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Path]:
    root = tmp_path / "w"
    root.mkdir()
    (root / "flock-hpc.yaml").write_text(yaml.safe_dump({
        "cluster": "local", "slurm": SLURM, "limits": {"claim_stale": 1, "poll": 0.5},
        "generate": {"kind": "rehearsal", "rehearsal": {"latency": 0.01}}, "fleet": {"address": "127.0.0.1"},
        "pools": {"price": {"prompt": PRICE}, "evaluate_limit": LIMIT}}))
    yield root
    ending = Funded.__new__(Funded)
    ending.workspace, ending.executor = open_workspace(root), "local"
    ending.end()


def test_the_whole_sequence(workspace: Path, tmp_path: Path) -> None:
    opened = open_workspace(workspace)
    clock, places = Clock(), places_of(opened)
    desk = Opening(places, clock)
    with open_desk(places, clock=clock):
        pass
    said: list[str] = []
    sequence = Sequence(places, desk, clock)
    count = len(ROWS) * len(MODELS)
    sequence.spawn(tmp_path)
    sequence.fund(inferences=PRICE * count)
    for name, who in MODELS.items():
        sequence.join(who, name, f"{who}/{name}")
        clock.forward(1)
    sequence.refused("ben", "belongs to", Target=sequence.ids["pool"], Action="Join-Pool",
                     Data=f'{{"dataset": "{sequence.ids["benchmark"]}", "model": "{sequence.ids["m2"]}"}}')
    assert [row["score"] for row in sequence.leaderboard()] == [0, 0, 0]

    # Evaluate, hourly: a turn starts what its limit allows, once; pool evaluate starts the rest, and has all answered
    clock.forward(HOUR)
    assert desk.do("tick")["Evaluate"] == 1  # type: ignore[index]
    assert desk.do("tick")["Evaluate"] == 0  # type: ignore[index]
    assert sequence.balance(sequence.ids["router"]) == PRICE * LIMIT
    done = evaluate(opened, desk, pool=sequence.ids["benchmark"], executor="local", submit=True, wait=True, limit=None,
                    say=said.append)
    assert done.done and (done.answers, done.strays, done.due) == (count, 0, 0), said
    assert sequence.balance(sequence.ids["siqa"]) == 0, "every inference was paid, once"
    assert sequence.balance(sequence.ids["router"]) == PRICE * count
    right = right_answers(places.rounds)
    assert sum(right.values()) > 0

    # Update-Leaderboard, daily
    clock.forward(DAY)
    assert desk.do("tick")["Update-Leaderboard"] == 1  # type: ignore[index]
    board = sequence.leaderboard()
    assert {row["name"]: row["correct"] for row in board} == right
    assert {row["name"]: row["score"] for row in board} == {name: n / len(ROWS) for name, n in right.items()}
    assert [row["model"] for row in board] == [sequence.ids[name] for name in rewards(right, list(MODELS))]

    # Allocate-Rewards: not before the end; at the end by the clock, once
    asked = {"Target": sequence.ids["pool"], "Action": "Allocate-Rewards",
             "Data": f'{{"dataset": "{sequence.ids["benchmark"]}"}}'}
    sequence.refused("ann", "not time", **asked)
    clock.forward(29 * DAY)
    assert desk.do("tick")["Allocate-Rewards"] == 1  # type: ignore[index]
    paid = rewards(right, list(MODELS))
    people: dict[str, int] = {"ben": 0, "cleo": 0}
    for name, amount in paid.items():
        people[MODELS[name]] += amount
    for _ in range(3):
        assert {who: sequence.balance(named_key(who).address) for who in people} == people
        assert sequence.balance(named_key("ann").address) == 5000 - PRICE * count - sum(paid.values())
        assert sequence.balance(sequence.ids["pool"]) == 0
        sequence.must("ann", **asked)
        clock.forward(DAY)
        assert desk.do("tick")["Allocate-Rewards"] == 0  # type: ignore[index]
    assert sum(paid.values()) in (FUNDS, FUNDS - 1)
    sequence.refused("ben", "paid", Target=sequence.ids["pool"], Action="Join-Pool",
                     Data=f'{{"dataset": "{sequence.ids["benchmark"]}", "model": "{sequence.ids["m1"]}"}}')
    assert desk.ask("audit", id=sequence.ids["benchmark"])["problems"] == []  # type: ignore[index]


def right_answers(rounds: Path) -> dict[str, int]:
    """Right answers of each model, from the jobs' record files and the work they were given."""
    right = dict.fromkeys(MODELS, 0)
    for folder in rounds.iterdir():
        asked = {line["reference"]: line for line in read_lines(folder / "work.jsonl")}
        for file in folder.glob("answers/*.jsonl"):
            for record in read_lines(file):
                if record["kind"] == "answer":
                    work = asked[record["reference"]]
                    row = next(row for row in ROWS if row["question"] in work["messages"][-1]["content"])
                    right[work["model"]] += record["result"] == LETTERS[row["result"]]
    return right
