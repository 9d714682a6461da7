"""Evaluation of a pool's questions by two servers of a fleet, next to a bare client's loop over the same two servers.

python benchmarks/pool_evaluation.py [--questions N]; rehearsal servers in jobs of their own, asked by turns."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import aiohttp
import orjson

from automate.campaign.pools import servers
from automate.campaign.pools.jobs import places_of
from automate.cluster.local.executor import LocalCluster
from automate.fleet_places import FleetPlaces
from automate.fleets.jobs import AT_ONCE
from automate.journal import replace_file, write_json
from automate.pools.answering import requests
from automate.pools.answering.job import OK, RoundJob, fleet_of
from automate.pools.answering.journal import recorded
from automate.pools.answering.requests import NOTHING
from automate.pools.round_records import RoundSpec, Work, spec_record, work_record
from automate.serving.fleet.keys import client_context, read_secrets
from automate.serving.fleet.registry import use
from automate.workspace import Workspace, open_workspace
from benchmarks.support import busy, loop_factory, print_table, spread

MODEL, SERVERS, GOAL = "m1", 2, 0.8
IN_FLIGHT = 32
"""Of each server: what a fleet's engine begins with, and what the bare client has all the time."""
KINDS: dict[str, dict[str, float]] = {
    "of 150 questions a second": {"latency": 0.05, "prompt_rate": 150 * 90},
    "that answer at once": {"latency": 0.0},
}
"""Servers by what they do: a question is about 90 tokens."""


def questions(count: int) -> list[Work]:
    """Multiple-choice questions of SIQA's length, made up."""
    lines = []
    for number in range(count):
        text = (f"Robin number {number} didn't find the keys at home and called a friend, who was at work until late. "
                "What will Robin do next?\nA. wait in front of the door\nB. break a window\nC. go to the friend's work")
        chat = ({"role": "system", "content": "Answer with the letter of the right answer."},
                {"role": "user", "content": text})
        lines.append(Work(f"r{number}", MODEL, chat, "generate", ("A", "B", "C"), 1))
    return lines


def make_workspace(root: Path, behaviour: dict[str, float]) -> Workspace:
    """A workspace whose models are rehearsed."""
    root.mkdir()
    (root / "flock-hpc.yaml").write_text(json.dumps({
        "cluster": "local", "slurm": {"gpus": 0}, "fleet": {"address": "127.0.0.1"}, "pools": {"replicas": SERVERS},
        "generate": {"kind": "rehearsal", "rehearsal": behaviour, "concurrency": IN_FLIGHT}}))
    return open_workspace(root)


@dataclass
class Bench:
    """A fleet of two servers, the questions, and who asks them."""

    workspace: Workspace
    work: Sequence[Work]

    @property
    def places(self) -> FleetPlaces:
        return FleetPlaces(self.workspace.root, fleet_of("bench"))

    def start(self) -> None:
        """Have the servers, and wait for them."""
        cluster = LocalCluster(self.workspace.local_queue, self.workspace.root, AT_ONCE)
        servers.start(self.workspace, cluster, RoundSpec("bench", 0, 0, {MODEL: "a/b"}, {}), [MODEL])
        deadline = time.monotonic() + 60
        while len(list(self.places.workers.glob("*.json"))) < SERVERS:
            if time.monotonic() > deadline:
                sys.exit("the servers did not start")
            time.sleep(0.1)

    async def by_engine(self, name: str) -> float:
        """Seconds of a whole round's job: files read, servers found, all asked, records on disk."""
        places = places_of(self.workspace)
        places.round(name).mkdir(parents=True)
        replace_file(places.work(name), (orjson.dumps(work_record(line)) + b"\n" for line in self.work))
        write_json(places.round_spec(name), spec_record(RoundSpec(name, 0, len(self.work), {MODEL: "a/b"}, {})))
        job = RoundJob(self.workspace, name, lambda text: None, os.environ, fleet=fleet_of("bench"))
        began = time.perf_counter()
        status = await job.run()
        seconds = time.perf_counter() - began
        if status != OK or len(recorded(places, name)) != len(self.work):
            sys.exit(f"the round ended with {status}, {len(recorded(places, name))} answers")
        return seconds

    async def by_hand(self) -> float:
        """Seconds of a loop that sends the same bodies to the same servers, and keeps nothing."""
        secrets = await asyncio.to_thread(read_secrets, self.places)
        urls = [f"https://{record['host']}:{record['port']}/v1/chat/completions"
                for record in (json.loads(path.read_bytes()) for path in sorted(self.places.workers.glob("*.json")))]
        began, left = time.perf_counter(), iter(self.work)
        connector = aiohttp.TCPConnector(limit=0, ssl=client_context(secrets))
        headers = {"Authorization": f"Bearer {secrets.key}", "Content-Type": "application/json"}
        async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
            found = await asyncio.gather(*(_loop(session, url, left) for url in urls for _ in range(IN_FLIGHT)))
        seconds = time.perf_counter() - began
        if sum(found) != len(self.work):
            sys.exit(f"{sum(found)} answers by hand")
        return seconds


async def _loop(session: aiohttp.ClientSession, url: str, left: Iterator[Work]) -> int:
    done = 0
    for line in left:
        body = {"model": MODEL, "messages": requests.messages_of(line, NOTHING), "temperature": 0.0, "max_tokens": 1,
                **requests.extra_of(line, switch=True)}
        async with session.post(url, data=orjson.dumps(body)) as response:
            answer = orjson.loads(await response.read())
        done += answer["choices"][0]["message"]["content"] in line.choices
    return done


def measure(behaviour: dict[str, float], count: int, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of the engine and of the bare loop, by turns, on one fleet."""
    with tempfile.TemporaryDirectory(prefix="flock-bench-") as folder:
        bench = Bench(make_workspace(Path(folder) / "w", behaviour), questions(count))
        bench.start()
        engine, hand = list[float](), list[float]()
        try:
            with use(bench.places, "router"), asyncio.Runner(loop_factory=loop_factory("uvloop")) as runner:
                runner.run(bench.by_hand())  # once to warm up
                for number in itertools.count(1):
                    engine.append(runner.run(bench.by_engine(f"r{number}")))
                    hand.append(runner.run(bench.by_hand()))
                    if number == rounds:
                        break
        finally:
            servers.end(bench.workspace, "bench")
            _wait_for_end(bench)
    return engine, hand


def _wait_for_end(bench: Bench) -> None:
    deadline = time.monotonic() + 60
    while servers.jobs_left(bench.workspace, "bench") and time.monotonic() < deadline:
        time.sleep(0.2)


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    print(busy())
    rows = []
    for kind, behaviour in KINDS.items():
        engine, hand = measure(behaviour, args.questions, args.rounds)
        ratios = [other / own for own, other in zip(engine, hand, strict=True)]
        rows.append([f"two servers {kind}", spread([args.questions / one for one in engine]),
                     spread([args.questions / one for one in hand]), spread(ratios, 2)])
    print_table(["", "a round's job, questions/s", "bare client, questions/s", "job over client"], rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
