"""The engine's speed next to a bare aiohttp loop that sends the very same requests to the same server.

python benchmarks/engine.py [--games N] [--rounds N]; needs the real test data, and prints one table."""

from __future__ import annotations

import argparse
import asyncio
import gc
import resource
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

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from automate.arena.judge import Engine  # noqa: E402
from automate.arena.referee import Ask, Referee  # noqa: E402
from automate.serving.client import Address, JudgeClient  # noqa: E402
from automate.serving.limiter import Limiter  # noqa: E402
from benchmarks.support import (  # noqa: E402
    JUDGE,
    Campaign,
    Served,
    busy,
    loop_factory,
    print_table,
    real_campaign,
    rehearsal_judge,
    spread,
)

CONTESTANTS = {"engine": "flock-hpc engine", "bare": "bare aiohttp"}
MAX_TOKENS, TEMPERATURE = 4096, 0.0
GOAL_RATIO, GOAL_RATE = 0.9, 1500


@dataclass(frozen=True)
class Run:
    """One contestant's run: wall and CPU seconds of the play alone, peak memory of the whole process in MiB."""

    games: int
    prepared: float
    seconds: float
    client_cpu: float
    server_cpu: float
    peak_mib: float

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
        {"model": JUDGE, "messages": render(), "temperature": TEMPERATURE, "max_tokens": MAX_TOKENS}
        for _, render in campaign.tasks()
    ]


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
        gc.collect()
        with asyncio.Runner(loop_factory=loop_factory(args.loop)) as runner:
            runner.get_loop()
            started, mine, theirs = time.perf_counter(), time.process_time(), sum(server.cpu_times()[:2])
            done = runner.run(play)
            seconds, cpu = time.perf_counter() - started, time.process_time() - mine
        if done != len(campaign.games):
            sys.exit(f"{args.contestant}: {done} of {len(campaign.games)} games")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return Run(done, started - began, seconds, cpu, sum(server.cpu_times()[:2]) - theirs, peak)


def run_apart(contestant: str, loop: str, args: argparse.Namespace) -> Run:
    """One run in a process of its own against a server of its own."""
    with tempfile.TemporaryDirectory(prefix="flock-bench-") as folder:
        socket = Path(folder) / "judge.sock"
        with rehearsal_judge(socket, "--latency", str(args.latency)) as server:
            command = [sys.executable, __file__, "--contestant", contestant, "--loop", loop, "--socket", str(socket),
                       "--server", str(server.pid), "--games", str(args.games), "--in-flight", str(args.in_flight)]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=600)
    return Run(**orjson.loads(done.stdout))


def measure(args: argparse.Namespace) -> dict[tuple[str, str], list[Run]]:
    """All rounds; in each round every contestant on every loop once, in turns."""
    runs: dict[tuple[str, str], list[Run]] = {}
    for number in range(args.rounds):
        for loop in args.loops.split(","):
            for contestant in list(CONTESTANTS)[:: 1 if number % 2 == 0 else -1]:
                run = run_apart(contestant, loop, args)
                runs.setdefault((loop, contestant), []).append(run)
                print(f"round {number + 1}, {loop}, {CONTESTANTS[contestant]}: {run.rate:,.0f} games/s, CPU seconds "
                      f"client {run.client_cpu:.2f}, server {run.server_cpu:.2f}", file=sys.stderr)
    return runs


def report(args: argparse.Namespace, runs: dict[tuple[str, str], list[Run]]) -> bool:
    """Print the table; whether the goal is met on the loop that jobs use."""
    rows, met = [], True
    for loop in args.loops.split(","):
        bare = [run.rate for run in runs[loop, "bare"]]
        ratios = [run.rate / other for run, other in zip(runs[loop, "engine"], bare, strict=True)]
        for contestant, name in CONTESTANTS.items():
            mine = runs[loop, contestant]
            rows.append([
                loop, name, spread([run.rate for run in mine]),
                spread(ratios, 2) if contestant == "engine" else "1",
                f"{max(run.peak_mib for run in mine):.0f}", spread([run.client_cpu for run in mine], 2),
                spread([run.server_cpu for run in mine], 2), spread([run.prepared for run in mine], 2)])
        if loop == "uvloop":
            rates = sorted(run.rate for run in runs[loop, "engine"])
            met = sorted(ratios)[len(ratios) // 2] >= GOAL_RATIO and rates[len(rates) // 2] >= GOAL_RATE
    print(f"{args.games:,} games, {args.in_flight} in flight, {args.latency * 1000:g} ms latency, {args.rounds} rounds; "
          "median (range)")
    print_table(["loop", "contestant", "games/s", "ratio", "peak RSS, MiB", "client CPU, s", "server CPU, s",
                 "preparation, s"], rows)
    print(f"goal (ratio >= {GOAL_RATIO}, >= {GOAL_RATE:,} games/s, uvloop): {'met' if met else 'MISSED'}")
    return met


def main() -> int:
    """Measure, or (with --contestant) be measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--games", type=int, default=4500)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--in-flight", type=int, default=256)
    parser.add_argument("--latency", type=float, default=0.05)
    parser.add_argument("--loops", default="uvloop,asyncio")
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
