"""How near a fleet of unequal servers comes to the ideal finish: all work over the sum of what the servers can do.

python benchmarks/fleet_balance.py [--games N]; needs the real test data. One server is three times slower."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from automate.arena.judge import Engine
from automate.arena.referee import Ask, Referee
from automate.serving.fleet.members import Pace
from automate.serving.rehearsal_behaviour import Behaviour
from automate.settings_fleet import Routing
from benchmarks.support import Campaign, busy, loop_factory, print_table, real_campaign, spread
from tests.rigs.fleet import rig_of, usable

ROUTINGS: tuple[Routing, ...] = ("affinity", "least", "round-robin")
GOAL = 1.10
GAME_TOKENS = 2500
"""Tokens of a mean game, by which a rate in games becomes one in tokens."""


@dataclass(frozen=True)
class Run:
    """One campaign: seconds, the ideal's seconds, games of each server, and the share that came to a known question."""

    seconds: float
    ideal: float
    games: dict[str, int]
    known: float

    @property
    def ratio(self) -> float:
        return self.seconds / self.ideal


def behaviour(rate: float, in_flight: int) -> Behaviour:
    """A server of so many mean games a second, with a KV cache for so many."""
    return Behaviour(latency=0.2, prompt_rate=rate * GAME_TOKENS, kv_tokens=in_flight * GAME_TOKENS)


def _known(asked: Sequence[str]) -> int:
    """How many requests of a worker begin as one before them did, by their first thousand characters."""
    return len(asked) - len({text[:1000] for text in asked})


async def play(campaign: Campaign, rates: Sequence[float], in_flight: int, routing: Routing, folder: Path) -> Run:
    """One campaign over fresh servers."""
    async with rig_of(folder) as rig:
        for number, rate in enumerate(rates):
            await rig.worker(f"w{number}", behaviour(rate, in_flight))
        async with rig.serving(routing=routing, concurrency=None, pace=Pace()) as serving:
            await usable(serving, len(rates))
            ask = Ask(4096, 256, 0.0, 6, structured=True, tokenize=True)
            engine = Engine(Referee(serving, ask, serving.limiter), serving.limiter,
                            lambda game, record: tokens.append(record["usage"][0]))
            tokens: list[int] = []
            began = time.perf_counter()
            tally = await engine.play(campaign.tasks())
            seconds = time.perf_counter() - began
            if tally.outcomes.get("verdict", 0) != len(campaign.games):
                sys.exit(f"{routing}: {tally.outcomes} of {len(campaign.games)} games")
            games = {name: len(worker.asked) for name, worker in rig.workers.items()}
            known = sum(_known(worker.asked) for worker in rig.workers.values()) / len(tokens)
            return Run(seconds, sum(tokens) / (sum(rates) * GAME_TOKENS), games, known)


def measure(args: argparse.Namespace, rates: Sequence[float]) -> dict[Routing, list[Run]]:
    """Every routing by turns."""
    runs: dict[Routing, list[Run]] = {routing: [] for routing in ROUTINGS}
    with tempfile.TemporaryDirectory(prefix="fhpc-b-") as folder:
        campaign = real_campaign(Path(folder) / "w", args.games)
        for number in range(args.rounds):
            for routing in ROUTINGS[:: 1 if number % 2 == 0 else -1]:
                place = Path(folder) / f"{routing[:1]}{number}"
                place.mkdir()
                with asyncio.Runner(loop_factory=loop_factory("uvloop")) as runner:
                    run = runner.run(play(campaign, rates, args.in_flight, routing, place))
                runs[routing].append(run)
                print(f"{routing}: {run.seconds:.1f} s, ideal {run.ideal:.1f} s, {run.games}", file=sys.stderr)
    return runs


def main() -> int:
    """Print each routing's finish next to the ideal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--games", type=int, default=4500)
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--rate", type=float, default=60, help="games a second of a server that is not slow")
    parser.add_argument("--slower", type=float, default=3, help="how many times slower the last server is")
    parser.add_argument("--in-flight", type=int, default=32, help="games that each server's KV cache holds")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    rates = [args.rate] * (args.servers - 1) + [args.rate / args.slower]
    print(busy())
    runs = measure(args, rates)
    print(f"{args.games:,} games, {args.servers} servers of {args.rate:g} games/s, the last {args.slower:g} times "
          f"slower, {args.rounds} rounds: median (range)\n")
    print_table(["routing", "finish, s", "ideal, s", "finish over ideal", "games of the slow one",
                 "requests to a worker that had the beginning, %"], [
        [routing, spread([run.seconds for run in done], 1), f"{done[0].ideal:.1f}",
         spread([run.ratio for run in done], 3), spread([run.games[f"w{len(rates) - 1}"] for run in done]),
         spread([100 * run.known for run in done], 1)] for routing, done in runs.items()])
    met = all(run.ratio <= GOAL for run in runs["affinity"])
    print(f"\ngoal (affinity by question within {GOAL - 1:.0%} of the ideal finish, every round): "
          f"{'met' if met else 'MISSED'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
