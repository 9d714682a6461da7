"""What tests of pool evaluations share: a workspace with a funded pool that two rehearsed models have joined."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from automate.campaign.pools.desks import Opening
from automate.campaign.pools.evaluating import Evaluated, evaluate, look
from automate.campaign.pools.jobs import places_of
from automate.fleet_places import FleetPlaces
from automate.fleets.jobs import cluster_of, is_over, jobs_of
from automate.workspace import Workspace, open_workspace
from tests.e2e.support import SLURM
from tests.unit.pool_support import Bench

MODELS = ("m1", "m2")
WAIT = 120.0


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def question(number: int) -> dict[str, str]:
    return {"context": f"Ann's friend wasn't there on day {number}.", "question": "Why? 為什麼?",
            "answerA": "illness", "answerB": "a \"trip\"", "answerC": "sleep", "result": str(1 + number % 3)}


class Funded:
    """A workspace with a funded pool that two models have joined."""

    def __init__(self, root: Path, questions: int, *, rehearsal: dict[str, Any] | None = None,
                 executor: str = "local", fleet: dict[str, Any] | None = None, pools: dict[str, Any] | None = None,
                 **dataset: Any) -> None:
        self.executor = executor
        root.mkdir()
        (root / "flock-hpc.yaml").write_text(yaml.safe_dump({
            "cluster": "local" if executor == "local" else "generic", "slurm": SLURM,
            "limits": {"claim_stale": 1, "poll": 0.5, "resubmits": 3},
            "generate": {"kind": "rehearsal", "rehearsal": {"latency": 0.01, **(rehearsal or {})}},
            "fleet": {"address": "127.0.0.1", **(fleet or {})}, "pools": {"lock_wait": 30, **(pools or {})}}))
        self.workspace: Workspace = open_workspace(root)
        self.places = places_of(self.workspace)
        with Bench(root) as bench:
            bench.clock.now = now_ms()
            self.dataset = bench.dataset("siqa", rows=[question(number) for number in range(questions)], **dataset)
            bench.mint("ann", 100)
            funded = bench.send("ann", "token", "Transfer", Recipient=bench.id("pool"), Quantity=60, X_Dataset="siqa",
                                X_Allocation="ArithmeticDecrease")
            assert funded.state == "handled", funded
            self.pool = str(bench.one("SELECT id FROM pools"))
            for name in MODELS:
                added = bench.send("bob", "pool", "Add-Model", {"name": name, "data_tx": f"bob/{name}"})
                joined = bench.send("bob", "pool", "Join-Pool", {"dataset": self.pool, "model": name})
                assert [added.state, joined.state] == ["handled", "handled"], joined
        self.desk = Opening(self.places, now_ms)
        self.said: list[str] = []

    def evaluate(self, **given: Any) -> Evaluated:
        values: dict[str, Any] = {"pool": self.pool, "executor": self.executor, "submit": True, "wait": True,
                                  "limit": None, "say": self.said.append, **given}
        return evaluate(self.workspace, self.desk, **values)

    def records(self) -> list[dict[str, Any]]:
        """Every answer in every record file."""
        files = sorted(self.places.rounds.glob("*/answers/*.jsonl"))
        lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        return [line for line in lines if line["kind"] == "answer"]

    def rows(self, sql: str) -> list[dict[str, Any]]:
        with Bench(self.workspace.root) as bench:
            return bench.rows(sql)

    def end(self) -> None:
        """Leave no job behind."""
        cluster = cluster_of(self.workspace.root, self.executor)
        fleets = self.workspace.root / ".flock-hpc" / "fleets"
        jobs = [one.job for path in (fleets.iterdir() if fleets.is_dir() else ())
                for one in jobs_of(FleetPlaces(self.workspace.root, path.name), cluster)]
        rounds = [str(view.job) for view in look(self.workspace) if view.job]
        cluster.cancel([*jobs, *rounds])
        until(self.fleets_over, "the end of all servers")

    def fleets_over(self) -> bool:
        """Whether no job of any fleet may act."""
        fleets = self.workspace.root / ".flock-hpc" / "fleets"
        if not fleets.is_dir():
            return True
        cluster = cluster_of(self.workspace.root, self.executor)
        return all(is_over(FleetPlaces(self.workspace.root, path.name), cluster)
                   for path in fleets.iterdir())


def until(true: Callable[[], object], what: str, seconds: float = WAIT) -> None:
    """Wait until something is so, with a deadline."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"{what} did not come about"
        time.sleep(0.02)


def assert_answered_once(made: Funded, questions: int) -> None:
    """Every question of every model has one answer, by its own reference, and the rows say so."""
    answered = made.rows("SELECT e.*, m.name FROM evaluations e JOIN models m ON m.id = e.model_id")
    assert len(answered) == questions * len(MODELS)
    assert {row["state"] for row in answered} == {"answered"}
    assert {row["attempts"] for row in answered} == {1}
    assert made.rows("SELECT * FROM strays") == []
    references = [record["reference"] for record in made.records()]
    assert len(references) == len(set(references)) == questions * len(MODELS)
    by_model = {name: {row["worker"].split(".")[0] for row in answered if row["name"] == name} for name in MODELS}
    assert by_model == {name: {name} for name in MODELS}, "each model was answered by servers of its own"
