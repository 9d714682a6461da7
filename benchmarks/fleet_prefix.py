"""How much of the prompts a fleet of real vLLM servers takes from its prefix caches, by how workers are chosen.

python benchmarks/fleet_prefix.py [--questions N]; needs the real test data and scripts/setup-test-vllm.sh."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from automate.arena.judge import Engine, question_major
from automate.arena.referee import Ask
from automate.serving.client import Address, JudgeClient
from automate.serving.fleet.members import Pace
from automate.serving.fleet.records import Group
from automate.serving.messages import Encoded
from automate.serving.metrics import parse_metrics
from automate.settings_fleet import Routing
from benchmarks.prefix_reuse import Cut, OneAsk, campaign
from benchmarks.support import busy, print_table, spread
from tests.rigs.fleet import rig_of, usable
from tests.rigs.vllm import MODEL_NAME, TinyServer, available

ROUTINGS: tuple[Routing, ...] = ("affinity", "least", "round-robin")
NAMES = {"affinity": "affinity by question", "least": "least workload", "round-robin": "round robin"}
EACH, BLOCKS = 8, 800
"""Requests in flight at each server, and the blocks of its KV cache."""
OUTPUT_TOKENS = range(4, 36)


class Uneven(OneAsk):
    """A referee whose replies are of many lengths, as a judge's are: equal ones would end in lockstep."""

    async def _room(self, prompt: Encoded, wanted: int | None = None, least: int | None = None) -> int:
        return OUTPUT_TOKENS[zlib.crc32(prompt.json) % len(OUTPUT_TOKENS)]


@dataclass(frozen=True)
class Run:
    """One campaign: games, seconds, and the servers' own counters of it, in tokens."""

    played: int
    seconds: float
    queries: float
    hits: float

    @property
    def share(self) -> float:
        """The share of prompt tokens that came from a prefix cache."""
        return self.hits / (self.queries or 1)


@contextlib.contextmanager
def servers(folder: Path, count: int = 2, blocks: int = BLOCKS) -> Iterator[list[Path]]:
    """So many servers with small KV caches, for as long as the block lasts; their sockets."""
    with contextlib.ExitStack() as stack:
        started = [TinyServer(folder / f"{n}.sock", ("--num-gpu-blocks-override", str(blocks)),
                              {"VLLM_SERVER_DEV_MODE": "1"}) for n in range(count)]
        for server in started:
            stack.callback(server.stop)
            server.start()
        for server in started:
            server.wait_ready()
        yield [server.socket_path for server in started]


async def _forget(socket: Path) -> None:
    """Empty a server's prefix cache."""
    async with (aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as session,
                session.post("http://localhost/reset_prefix_cache") as response):
        response.raise_for_status()


async def _counted(sockets: Sequence[Path]) -> tuple[float, float]:
    """Prefix queries and hits of all servers so far, in tokens."""
    queries = hits = 0.0
    for socket in sockets:
        async with JudgeClient(Address("http://localhost", str(socket)), MODEL_NAME) as client:
            metrics = parse_metrics(await client.metrics(timeout=120))
        queries, hits = queries + (metrics.prefix_queries or 0), hits + (metrics.prefix_hits or 0)
    return queries, hits


async def play(cut: Cut, sockets: Sequence[Path], routing: Routing, folder: Path) -> Run:
    """The campaign over these servers, their caches empty before."""
    order = question_major(cut.games, [question.uid for question in cut.match.questions])
    for socket in sockets:
        await _forget(socket)
    queries, hits = await _counted(sockets)
    async with rig_of(folder, groups=(Group(1, MODEL_NAME, "worker_1.sh", 1, 2),)) as rig:
        for number, socket in enumerate(sockets):
            await rig.front(f"w{number}", socket, model=MODEL_NAME)
        async with rig.serving(routing=routing, concurrency=EACH, pace=Pace()) as serving:
            await usable(serving, len(sockets))
            ask = Ask(max(OUTPUT_TOKENS), 1, 0.0, 2, structured=False, tokenize=True)
            engine = Engine(Uneven(serving, ask, serving.limiter), serving.limiter, lambda game, record: None)
            began = time.monotonic()
            tally = await engine.play(cut.tasks(order))
            seconds = time.monotonic() - began
    if tally.played != len(order):
        raise RuntimeError(f"{routing}: {tally.played} of {len(order)} games")
    asked, had = await _counted(sockets)
    return Run(tally.played, seconds, asked - queries, had - hits)


def measure(questions: int, rounds: int, folder: Path) -> dict[Routing, list[Run]]:
    """Every routing by turns, on the same servers."""
    cut = campaign(folder / "w", questions)
    runs: dict[Routing, list[Run]] = {routing: [] for routing in ROUTINGS}
    with servers(folder) as sockets:
        for number in range(rounds):
            for routing in ROUTINGS[:: 1 if number % 2 == 0 else -1]:
                place = folder / f"{routing[:1]}{number}"
                place.mkdir()
                run = asyncio.run(play(cut, sockets, routing, place))
                runs[routing].append(run)
                print(f"{routing}: {run.share:.1%} from the caches, {run.played / run.seconds:.1f} games/s",
                      file=sys.stderr)
    return runs


def main() -> int:
    """Print the servers' own counters for each way to choose."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    reason = available()
    if reason:
        sys.exit(reason)
    print(busy())
    with tempfile.TemporaryDirectory(prefix="fhpc-p-") as folder:
        runs = measure(args.questions, args.rounds, Path(folder))
    print(f"{runs['least'][0].played} games, 2 servers, {EACH} in flight at each, {BLOCKS:,} blocks of KV cache each, "
          f"{args.rounds} rounds: median (range)\n")
    print_table(["workers chosen by", "prompt tokens", "from the prefix caches, %", "games/s"], [
        [NAMES[routing], f"{done[0].queries:,.0f}", spread([100 * run.share for run in done], 1),
         spread([run.played / run.seconds for run in done], 1)] for routing, done in runs.items()])
    return 0


if __name__ == "__main__":
    sys.exit(main())
