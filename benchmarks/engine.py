"""The engine's speed next to a bare aiohttp loop that sends the very same requests to the same server.

python benchmarks/engine.py [--games N] [--rounds N]; needs the real test data, and prints one table."""

from __future__ import annotations

import argparse
import asyncio
import gc
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import aiohttp
import orjson
import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from automate.arena.judge import Engine
from automate.arena.referee import Ask, Referee
from automate.serving.client import Address, JudgeClient
from automate.serving.limiter import Limiter
from benchmarks.support import (
    JUDGE,
    Campaign,
    Served,
    busy,
    loop_factory,
    print_table,
    real_campaign,
    rehearsal_judge,
    spread,
    wait_for_quiet,
)

CONTESTANTS = {"engine": "flock-hpc engine", "bare": "bare aiohttp"}
MAX_TOKENS, TEMPERATURE = 4096, 0.0
IN_FLIGHT, LATENCY = 256, 0.05
GOAL_RATIO, GOAL_RATE = 0.9, 1500
QUIET = 0.1
"""Cores that other processes may use in an undisturbed run."""


@dataclass(frozen=True)
class Run:
    """One contestant's run: wall and CPU seconds of the play alone, peak memory of the whole process in MiB.

    `others` is what all other processes used of the machine meanwhile, in cores.
    """

    games: int
    prepared: float
    seconds: float
    client_cpu: float
    server_cpu: float
    peak_mib: float
    others: float

    @property
    def rate(self) -> float:
        return self.games / self.seconds


async def play_engine(campaign: Campaign, socket: str, in_flight: int) -> int:
    """All games through client, referee, engine and ledger, to the last flush; how many got a verdict."""
    async with JudgeClient(Address("http://localhost", socket), JUDGE) as client:
        serving = Served(client, (await client.models())[JUDGE])
        limiter = Limiter(in_flight)
        ask = Ask(MAX_TOKENS, 256, TEMPERATURE, 6, structured=True, tokenize=True)
        engine = Engine(Referee(serving, ask, limiter), limiter, lambda game, record: campaign.ledgers[game.model]
                        .add(game, record))
        tally = await engine.play(campaign.tasks())
    campaign.close()
    return tally.outcomes.get("verdict", 0)


async def play_bare(bodies: list[dict[str, object]], socket: str, in_flight: int) -> int:
    """The same requests, and nothing else: encode, post, read, decode, keep the text; how many texts."""
    url, headers, texts = "http://localhost/v1/chat/completions", {"Content-Type": "application/json"}, []
    turns: Iterator[dict[str, object]] = iter(bodies)

    async def work(session: aiohttp.ClientSession) -> None:
        for body in turns:
            async with session.post(url, data=orjson.dumps(body), headers=headers) as response:
                reply = orjson.loads(await response.read())
                texts.append(reply["choices"][0]["message"]["content"])

    connector = aiohttp.UnixConnector(socket, limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        await asyncio.gather(*(work(session) for _ in range(in_flight)))
    return len(texts)


def _bodies(campaign: Campaign) -> list[dict[str, object]]:
    return [
        {"model": JUDGE, "messages": messages, "temperature": TEMPERATURE, "max_tokens": MAX_TOKENS}
        for messages in campaign.messages()
    ]


class Clock:
    """What time it is: on the wall, and in CPU seconds of this process, of the server, and of the whole machine."""

    def __init__(self, server: psutil.Process) -> None:
        used = psutil.cpu_times()
        self.wall, self.mine, self.server = time.perf_counter(), time.process_time(), sum(server.cpu_times()[:2])
        self.machine = sum(getattr(used, kind, 0.0) for kind in ("user", "nice", "system", "irq", "softirq", "steal"))


def contest(args: argparse.Namespace) -> Run:
    """One run of one contestant, in this process."""
    server = psutil.Process(args.server)
    with tempfile.TemporaryDirectory(prefix="flock-bench-") as folder:
        began = time.perf_counter()
        campaign = real_campaign(Path(folder), args.games)
        if args.contestant == "engine":
            for ledger in campaign.ledgers.values():
                ledger.open("bench")
            play = play_engine(campaign, args.socket, args.in_flight)
        else:
            play = play_bare(_bodies(campaign), args.socket, args.in_flight)
        prepared = time.perf_counter() - began
        gc.collect()
        with asyncio.Runner(loop_factory=loop_factory(args.loop)) as runner:
            runner.get_loop()
            start = Clock(server)
            done = runner.run(play)
            end = Clock(server)
        if done != len(campaign.games):
            sys.exit(f"{args.contestant}: {done} of {len(campaign.games)} games")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        seconds, mine, theirs = end.wall - start.wall, end.mine - start.mine, end.server - start.server
        others = max(0.0, end.machine - start.machine - mine - theirs) / seconds
        return Run(done, prepared, seconds, mine, theirs, peak, others)


def run_apart(contestant: str, loop: str, args: argparse.Namespace) -> Run:
    """One run in a process of its own against a server of its own."""
    with tempfile.TemporaryDirectory(prefix="flock-bench-") as folder:
        socket = Path(folder) / "judge.sock"
        with rehearsal_judge(socket, "--latency", str(args.latency)) as server:
            command = [sys.executable, __file__, "--contestant", contestant, "--loop", loop, "--socket", str(socket),
                       "--server", str(server.pid), "--games", str(args.games), "--in-flight", str(args.in_flight)]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=600)
    return Run(**orjson.loads(done.stdout))


def run_undisturbed(contestant: str, loop: str, args: argparse.Namespace) -> Run:
    """The first run in which other processes left the cores alone, else the least disturbed of several."""
    runs: list[Run] = []
    while len(runs) < args.tries and not any(run.others <= QUIET for run in runs):
        wait_for_quiet(args.patience)
        runs.append(run_apart(contestant, loop, args))
    best = min(runs, key=lambda run: run.others)
    print(f"{loop}, {CONTESTANTS[contestant]}: {best.rate:,.0f} games/s, CPU seconds: client {best.client_cpu:.2f}, "
          f"server {best.server_cpu:.2f}; others {best.others:.2f} cores (try {len(runs)})", file=sys.stderr)
    return best


def measure(args: argparse.Namespace) -> dict[tuple[str, str], list[Run]]:
    """All rounds; in each round every contestant on every loop once, in turns."""
    runs: dict[tuple[str, str], list[Run]] = {}
    for number in range(args.rounds):
        for loop in args.loops.split(","):
            for contestant in list(CONTESTANTS)[:: 1 if number % 2 == 0 else -1]:
                runs.setdefault((loop, contestant), []).append(run_undisturbed(contestant, loop, args))
    return runs


def report(args: argparse.Namespace, runs: dict[tuple[str, str], list[Run]]) -> bool:
    """Print the table; whether the goal is met on the loop that jobs use (it is set for the default load)."""
    rows, met = [], True
    for loop in args.loops.split(","):
        rate = {name: statistics.median(run.rate for run in runs[loop, name]) for name in CONTESTANTS}
        for contestant, name in CONTESTANTS.items():
            mine = runs[loop, contestant]
            rows.append([
                loop, name, spread([run.rate for run in mine]), f"{rate[contestant] / rate['bare']:.2f}",
                f"{max(run.peak_mib for run in mine):.0f}", spread([run.client_cpu for run in mine], 2),
                spread([run.server_cpu for run in mine], 2), f"{max(run.others for run in mine):.2f}"])
        if loop == "uvloop":
            met = rate["engine"] >= max(GOAL_RATIO * rate["bare"], GOAL_RATE)
    print(f"{args.games:,} games, {args.in_flight} in flight, {args.latency * 1000:g} ms latency, "
          f"{args.rounds} rounds: median (range)\n")
    print_table(["loop", "contestant", "games/s", "ratio", "peak RSS, MiB", "client CPU, s", "server CPU, s",
                 "others, cores"], rows)
    if (args.latency, args.in_flight) != (LATENCY, IN_FLIGHT):
        return True
    print(f"\ngoal (ratio at least {GOAL_RATIO}, {GOAL_RATE:,} games/s or more, uvloop): {'met' if met else 'MISSED'}")
    return met


def main() -> int:
    """Measure, or (with --contestant) be measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--games", type=int, default=4500)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--in-flight", type=int, default=IN_FLIGHT)
    parser.add_argument("--latency", type=float, default=LATENCY, help="seconds; the goal is for the default")
    parser.add_argument("--loops", default="uvloop,asyncio")
    parser.add_argument("--tries", type=int, default=12, help="runs for one undisturbed one (default: %(default)s)")
    parser.add_argument("--patience", type=float, default=60, help="seconds to wait for a quiet moment before each run")
    for option in ("--contestant", "--loop", "--socket"):
        parser.add_argument(option, help=argparse.SUPPRESS)
    parser.add_argument("--server", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.contestant:
        print(orjson.dumps(asdict(contest(args))).decode())
        return 0
    print(busy())
    return 0 if report(args, measure(args)) else 1


if __name__ == "__main__":
    sys.exit(main())
