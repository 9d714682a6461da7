"""A pool from key to reward by commands alone: rehearsal servers, local jobs."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from automate.campaign.pools.looking import open_rounds
from automate.campaign.pools.servers import end
from automate.workspace import open_workspace
from tests.e2e.support import PROJECT, SLURM

QUESTIONS, FUNDS, WAIT = 30, 1000, 240
SETTINGS = {
    "cluster": "local", "slurm": SLURM, "limits": {"claim_stale": 1, "poll": 0.5, "resubmits": 3},
    "generate": {"kind": "rehearsal", "rehearsal": {"latency": 0.005}}, "fleet": {"address": "127.0.0.1"},
    "pools": {"evaluate_every": 0.001, "leaderboard_every": 0.001, "rewards_every": 0.001}}


class Shell:
    """A workspace in which commands are typed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        (root / "flock-hpc.yaml").write_text(yaml.safe_dump(SETTINGS))
        (root / "rows.jsonl").write_text("".join(json.dumps(
            {"context": f"Ann's \"{number}\". 世界", "question": "Why?", "answerA": "a", "answerB": "b", "answerC": "c",
             "result": str(number % 3 + 1)}) + "\n" for number in range(QUESTIONS)))

    def call(self, *words: object, script: str | None = None) -> subprocess.CompletedProcess[str]:
        start = ["-m", "automate", "pool"] if script is None else [str(PROJECT / "scripts" / script)]
        environ = {name: value for name, value in os.environ.items() if not name.startswith("FLOCK_HPC_")}
        return subprocess.run([sys.executable, *start, *map(str, words)], cwd=self.root, env=environ, text=True,
                              capture_output=True, check=False, timeout=WAIT)

    def __call__(self, *words: object, script: str | None = None) -> str:
        """What a command prints; it must succeed."""
        done = self.call(*words, script=script)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def end(self, pool: str) -> None:
        """Let a pool's time be over, as no command can."""
        with contextlib.closing(sqlite3.connect(self.root / ".flock-hpc" / "pools" / "state.sqlite")) as db, db:
            db.execute("UPDATE pools SET end_time = ? WHERE id = ?", (time.time_ns() // 1_000_000, pool))

    def json(self, *words: object) -> Any:
        return json.loads(self(*words, "--json"))


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """No server is left at the end."""
    made = Shell(tmp_path / "a workspace")
    yield made
    workspace = open_workspace(made.root)
    for name in open_rounds(workspace):
        end(workspace, name)


def test_from_key_to_reward(shell: Shell) -> None:
    address = shell("keygen").strip()
    trainer = shell("keygen", "--name", "trainer").strip()
    shell("mint", "me", 5000)
    dataset = shell("dataset", "create", "siqa", "--from", "rows.jsonl").split()[0]
    pool = shell("create", "--dataset", "siqa", "--fund", FUNDS, "--allocation", "ArithmeticDecrease").strip()
    for name in ("one", "two"):
        shell("model", "add", name, "--path", f"org/{name}", "--key", "trainer")
        shell("join", pool[:8], "--model", name, "--key", "trainer")

    looked = shell("evaluate", pool)
    assert "one" in looked
    assert shell.json("dataset", "info", "siqa")["evaluations"]["pending"] == 2 * QUESTIONS
    shell("evaluate", pool, "--submit", "--wait", "--executor", "local")
    assert shell.json("dataset", "info", "siqa")["evaluations"] == {
        "pending": 0, "started": 0, "answered": 2 * QUESTIONS, "failed": 0, "expired": 0}
    places = shell.json("leaderboard", pool)["places"]
    assert [place["progress"] for place in places] == [1.0, 1.0]
    assert "reward" not in shell("leaderboard", pool)

    shell.end(pool)
    shell("tick", "--executor", "local")
    assert shell.json("show", pool)["state"] == "paid"
    assert shell("leaderboard", pool, "--csv").splitlines()[1].endswith(",666")
    assert [place["reward"] for place in shell.json("leaderboard", pool)["places"]] == ["666", "333"]
    assert shell.json("balance", trainer)["balance"] == "999"
    assert shell.json("balance", address)["balance"] == str(5000 - FUNDS + 1)
    before = (shell.json("balance", trainer), shell.json("balance", address))
    shell("tick", "--executor", "local")
    assert (shell.json("balance", trainer), shell.json("balance", address)) == before
    assert "Sound" in shell("audit", pool)
    assert shell.json("audit", pool)["problems"] == []
    assert shell.call("join", pool, "--model", "one", "--key", "trainer").returncode == 1
    assert dataset in shell("processes")


def test_the_specs_scripts(shell: Shell) -> None:
    shell("keygen")
    ids = shell(script="spawn.py")
    assert all(name in ids for name in ("token", "pool", "router", "siqa"))
    assert shell(script="spawn.py") == ids
    shell("init", script="siqa.py")
    assert f"{QUESTIONS} questions loaded" in shell("load-data", "rows.jsonl", script="siqa.py")
    assert f"{QUESTIONS} were there" in shell("load-data", "rows.jsonl", script="siqa.py")
    shell("model", "add", "one", "--path", "org/one")
    shell("benchmark", "one", script="siqa.py")
    assert json.loads(shell("evaluate", "7", script="siqa.py"))["state"] == "handled"
    counts = shell.json("dataset", "info", "siqa")["evaluations"]
    assert (counts["started"], counts["pending"]) == (7, QUESTIONS - 7)
    assert "7 started" in shell("info", script="siqa.py")
    shell("mint", "me", 100)
    shell("transfer", "30", "--to", "siqa", script="wrapped_ar.py")
    assert "70" in shell("balance", script="wrapped_ar.py")
    assert shell.json("balance", "siqa")["balance"] == "30"
    assert shell.call("transfer", "71", script="wrapped_ar.py").returncode == 1
    assert shell.call("transfer", "-5", script="wrapped_ar.py").returncode != 0


def test_ticks_alone_evaluate(shell: Shell) -> None:
    shell("keygen")
    shell("mint", "me", FUNDS)
    shell("dataset", "create", "siqa", "--from", "rows.jsonl")
    pool = shell("create", "--dataset", "siqa", "--fund", FUNDS).strip()
    shell("model", "add", "one", "--path", "org/one")
    shell("join", pool, "--model", "one")
    assert f"{QUESTIONS}" in shell("evaluate", pool)
    deadline = time.time() + WAIT
    while shell.json("leaderboard", pool)["places"][0]["progress"] < 1:
        assert time.time() < deadline, shell("dataset", "info", "siqa")
        done = shell.call("tick", "--executor", "local")
        assert (done.returncode, "limit" in done.stderr) == (0, False), done.stderr  # the clock has said what may start
    assert len(list((shell.root / ".flock-hpc" / "pools" / "rounds").glob("*/round.json"))) == 1


def test_two_ticks_at_once_do_it_once(shell: Shell) -> None:
    shell("keygen")
    shell("mint", "me", FUNDS)
    shell("dataset", "create", "siqa", "--from", "rows.jsonl")
    pool = shell("create", "--dataset", "siqa", "--fund", FUNDS, "--days", "0.000000001").strip()
    ticks = [subprocess.Popen([sys.executable, "-m", "automate", "pool", "tick", "--executor", "local"],
                              cwd=shell.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
             for _ in range(2)]
    said = [tick.communicate(timeout=WAIT)[0] for tick in ticks]
    assert [tick.returncode for tick in ticks] == [0, 0], said
    found = shell.json("show", pool)
    assert (found["state"], found["returned"], len(found["payouts"])) == ("refunded", str(FUNDS), 1)
    assert shell.json("balance")["balance"] == str(FUNDS)
    assert shell("tick") == ""


@pytest.fixture
def served(shell: Shell) -> Iterator[str]:
    """The address at which a workspace with a pool is served."""
    shell("keygen")
    shell("mint", "me", FUNDS)
    shell("dataset", "create", "siqa", "--from", "rows.jsonl")
    server = subprocess.Popen([sys.executable, "-u", "-m", "automate", "pool", "serve", "--port", "0"], cwd=shell.root,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert server.stdout is not None
    try:
        line = next(line for line in server.stdout if "http://" in line)
        yield line[line.index("http://"):].split()[0].rstrip("/")
    finally:
        server.terminate()
        server.communicate(timeout=60)


def test_a_trainer_elsewhere_takes_part_over_http(shell: Shell, served: str, tmp_path: Path) -> None:
    pool = shell("create", "--dataset", "siqa", "--fund", FUNDS).strip()
    away = Shell(tmp_path / "away")
    address = away("keygen").strip()
    at = ("--url", served)
    assert pool[:10] in away("list", *at)
    assert len(away("model", "add", "one", "--path", "org/one", *at).strip()) == 43
    refused = away.call("model", "add", "two", "--path", str(away.root), *at)
    assert (refused.returncode, "folder" in refused.stderr) == (1, True)
    away("join", pool[:7], "--model", "one", *at)
    assert away.json("leaderboard", pool[:7], *at)["places"][0]["participant"] == address
    assert "one" in away("leaderboard", "siqa", *at)
    assert "one" in away("show", pool, *at)
    assert "org/one" in away("model", "list", *at)
    assert away.json("balance", *at)["balance"] == "0"
    poor = away.call("create", "--dataset", "siqa", "--fund", 5, *at)
    assert poor.returncode == 1
    assert f"{address} has 0: too little for 5" in poor.stderr
    assert "siqa" in away("processes", *at)
    assert not (away.root / ".flock-hpc" / "pools" / "state.sqlite").exists()
    assert [one["model"] for one in shell.json("show", pool)["models"]] == ["one"]


def test_nobody_there_is_said(shell: Shell) -> None:
    shell("keygen")
    for url in ("http://127.0.0.1:9", "ftp://x", "nonsense"):
        done = shell.call("list", "--url", url)
        assert done.returncode == 1
        assert done.stderr.startswith("Error: ")
        assert "Traceback" not in done.stderr
