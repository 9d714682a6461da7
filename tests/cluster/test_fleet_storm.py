"""A campaign on a fleet of servers, on a real Slurm: servers killed, a node down, engine and router killed."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from tests.cluster.support import Campaign, in_queue
from tests.e2e.support import (
    BASELINE,
    JUDGE,
    TULU,
    assert_complete,
    assert_nothing_runs,
    command,
    environment,
    eventually,
    games_of,
    journal,
    judge_settings,
    kill,
    make_workspace,
    read_answers,
    read_questions,
    read_rows,
    rows_file,
    verdicts_of,
    victims,
)
from tests.rigs.slurm import SlurmRig

FLEET = {"heartbeat": 1, "stale": 5, "idle": 60, "patience": 60, "address": "127.0.0.1"}
ASKED = {"mem": "60G", "cpus_per_task": 1, "gpus": 0, "time": "00:10:00"}  # three servers a node
LIMITS = {"claim_stale": 2, "poll": 0.5, "resubmits": 20}


def home(root: Path) -> Path:
    return root / ".flock-hpc" / "fleets" / "judge"


def workers(root: Path) -> list[dict[str, Any]]:
    """The registered workers of a campaign's fleet."""
    found = []
    for path in (home(root) / "workers").glob("*.json"):
        with contextlib.suppress(FileNotFoundError):
            found.append(json.loads(path.read_text()))
    return found


def played(root: Path) -> int:
    """How many lines the journals of all models hold."""
    files = (root / ".flock-hpc" / "journal").glob("*/*/*/*/*.jsonl")
    return sum(file.read_bytes().count(b"\n") for file in files)


def after(root: Path, more: int) -> None:
    """Wait until some more games were played."""
    wanted = played(root) + more
    eventually(lambda: played(root) >= wanted, f"{more} more games")


@contextlib.contextmanager
def router(one: Campaign, log: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """`flock-hpc router` over the campaign's fleet, and its base URL."""
    with log.open("wb") as out:
        process = subprocess.Popen(command("router", "--name", "judge", "--port", "0"), cwd=one.root, stdout=out,
                                   stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment(one.env))
    try:
        eventually(lambda: re.search(r"http://127\.0\.0\.1:\d+", log.read_text()), "the router's address")
        found = re.search(r"http://127\.0\.0\.1:\d+", log.read_text())
        assert found is not None
        yield process, found[0]
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)


def ask(root: Path, url: str) -> str:
    """One chat completion through an address, with the fleet's key."""
    body = json.dumps({"model": JUDGE, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}).encode()
    key = (home(root) / "key").read_text().strip()
    request = urllib.request.Request(f"{url}/v1/chat/completions", body, {
        "Content-Type": "application/json", "Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return str(json.load(reply)["choices"][0]["message"]["content"])


def answers_soon(root: Path, url: str) -> None:
    def answered() -> bool:
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            return ask(root, url).startswith("Rehearsal")
        return False

    eventually(answered, f"an answer by {url}")


def kill_router(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL the command; what it had started must end by itself."""
    below = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    eventually(lambda: not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in below),
               "nothing left of the killed router", timeout=30)


def assert_every_game_once(root: Path) -> None:
    questions, theirs = read_questions(root), read_answers(root, BASELINE)
    for model in TULU:
        assert_complete(read_rows(rows_file(root, model)), questions, theirs=theirs, ours=read_answers(root, model))
    assert len(verdicts_of(root, TULU)) == 2 * len(questions) * len(TULU)
    assert verdicts_of(root, TULU) == games_of(root, TULU)
    counts = Counter((model, line["uid"], line["order"]) for model in TULU for line in journal(root, model))
    assert set(counts.values()) == {1}


def test_a_campaign_on_a_fleet_survives_the_cluster(slurm: SlurmRig, tmp_path: Path) -> None:
    root = make_workspace(tmp_path / "w", real=True, cluster="generic", slurm=ASKED, limits=LIMITS, fleet=FLEET)
    judge_settings(root, rehearsal={"latency": 0.6, "load_seconds": 2}, concurrency=8)
    one = Campaign(slurm, root, "--fleet", "4")
    try:
        one.follow()
        eventually(lambda: len(workers(root)) == 4, "four workers")
        assert {worker["node"] for worker in workers(root)} == {"n1", "n2"}
        after(root, 100)
        for server in victims(root)["server"][:2]:
            assert kill(server)
        after(root, 100)
        with router(one, tmp_path / "router") as (process, url):
            answers_soon(root, url)
            kill_router(process)
        with router(one, tmp_path / "router2") as (process, url):
            answers_soon(root, url)
            slurm.run("scontrol", "update", "nodename=n2", "state=down", "reason=test")
            after(root, 100)
            scaled = one.flock("serve", "--scale", "5", "--name", "judge")
            assert scaled.returncode == 0, scaled.stdout + scaled.stderr
            assert kill(victims(root)["engine"][0])
            slurm.run("scontrol", "update", "nodename=n2", "state=resume", check=False)  # it may be back by itself
            after(root, 100)
            answers_soon(root, url)
        assert one.ended(400) == 0, one.log.read_text()
        assert_every_game_once(root)
        eventually(lambda: not in_queue(slurm, root), "no job left", timeout=90)
        assert_nothing_runs(root)
        assert workers(root) == []
    finally:
        slurm.run("scontrol", "update", "nodename=n2", "state=resume", check=False)
        one.close()
        one.flock("serve", "--stop", "--now", "--name", "judge")
        one.flock("cancel")
