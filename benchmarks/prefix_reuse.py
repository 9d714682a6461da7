"""How much of the prompts a real vLLM serves from its prefix cache: this engine's order next to model by model.

python benchmarks/prefix_reuse.py [--questions N]; needs the real test data and scripts/setup-test-vllm.sh."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from automate.arena.benchmark import Answers
from automate.arena.context import load_answers, load_match
from automate.arena.games import Game, Match
from automate.arena.hearing import Heard
from automate.arena.judge import Engine, Task, question_major
from automate.arena.prompts import Message
from automate.arena.referee import Ask, Referee
from automate.arena.verdict import Verdict
from automate.serving.client import Address, JudgeClient
from automate.serving.limiter import Limiter
from automate.serving.metrics import ServerMetrics, parse_metrics
from benchmarks.support import Served, busy, print_table, real_workspace, spread
from tests.rigs.vllm import MODEL_NAME, TinyServer, available

QUESTION_CHARACTERS, ANSWER_CHARACTERS = 1500, 3000
IN_FLIGHT, OUTPUT_TOKENS, BLOCKS = 16, 8, 2400
OURS, THEIRS = "question by question (ours)", "model by model"


class OneAsk(Referee):
    """A referee that takes the first reply: a random model says nothing, and asking again would be other prompts."""

    async def _conclude(self, messages: list[Message], first: Heard,
                        affinity: str | None = None) -> tuple[Verdict, list[Heard]]:
        return first.verdict, []


@dataclass(frozen=True)
class Cut:
    """The benchmark's campaign: a match and answers with texts cut short, and the games by model."""

    match: Match
    answers: dict[str, Answers]
    games: list[list[Game]]

    def tasks(self, order: Sequence[Game]) -> Iterator[Task]:
        """Games as the engine takes them."""
        questions = {question.uid: question for question in self.match.questions}
        for game in order:
            def render(game: Game = game) -> list[Message]:
                return self.match.messages(self.answers[game.model], questions[game.uid], game.order)

            yield game, render


def _cut(answers: Answers) -> Answers:
    return replace(answers, texts={uid: text[:ANSWER_CHARACTERS] for uid, text in answers.texts.items()})


def campaign(root: Path, questions: int) -> Cut:
    """The first questions, cut, with three checkpoints against the baseline in both orders."""
    workspace, models = real_workspace(root)
    match = load_match(workspace)
    first = [replace(q, prompt=q.prompt[:QUESTION_CHARACTERS]) for q in match.questions[:questions]]
    match = replace(match, questions=first, baseline_answers={k: _cut(v) for k, v in match.baseline_answers.items()})
    answers = {}
    for model in models:
        found = load_answers(workspace, model)
        if found is None:
            sys.exit(f"no answers of {model}")
        answers[model] = _cut(found)
    return Cut(match, answers, [match.wanted(answers[model]) for model in models])


@dataclass(frozen=True)
class Run:
    """One order played to its end: games, seconds, and the server's counters afterwards."""

    played: int
    seconds: float
    metrics: ServerMetrics

    @property
    def share(self) -> float:
        """The share of prompt tokens that the server took from its prefix cache."""
        return (self.metrics.prefix_hits or 0) / (self.metrics.prefix_queries or 1)

    @property
    def rate(self) -> float:
        """Games a second."""
        return self.played / self.seconds


async def play(cut: Cut, order: Sequence[Game], socket: Path) -> Run:
    """Play games in this order through the engine."""
    async with JudgeClient(Address("http://localhost", str(socket)), MODEL_NAME, timeout=600) as client:
        context = (await client.models())[MODEL_NAME]
        limiter = Limiter(IN_FLIGHT)
        ask = Ask(OUTPUT_TOKENS, 1, 0.0, 2, structured=False, tokenize=True)
        engine = Engine(OneAsk(Served(client, context), ask, limiter), limiter, lambda game, record: None)
        began = time.monotonic()
        tally = await engine.play(cut.tasks(order))
        return Run(tally.played, time.monotonic() - began, parse_metrics(await client.metrics(timeout=120)))


def measure(cut: Cut, rounds: int, folder: Path) -> dict[str, list[Run]]:
    """Play both orders by turns, each on a freshly started server."""
    uids = [question.uid for question in cut.match.questions]
    orders = {OURS: question_major(cut.games, uids), THEIRS: [game for games in cut.games for game in games]}
    runs: dict[str, list[Run]] = {name: [] for name in orders}
    for number in range(rounds):
        for name in list(orders)[:: 1 if number % 2 == 0 else -1]:
            socket = folder / f"{number}{len(runs[name])}.sock"
            with TinyServer(socket, ("--num-gpu-blocks-override", str(BLOCKS))):
                run = asyncio.run(play(cut, orders[name], socket))
            if run.played != len(orders[name]):
                sys.exit(f"{name}: {run.played} of {len(orders[name])} games")
            runs[name].append(run)
            print(f"{name}: {run.share:.1%} from the cache, {run.rate:.1f} games/s", file=sys.stderr)
    return runs


def main() -> int:
    """Print the server's own counters for both orders."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    reason = available()
    if reason:
        sys.exit(reason)
    print(busy())
    with tempfile.TemporaryDirectory(prefix="fhpc-prefix-") as folder:
        runs = measure(campaign(Path(folder) / "w", args.questions), args.rounds, Path(folder))
    first = runs[OURS][0]
    print(f"{first.played} games, {IN_FLIGHT} in flight, {first.metrics.kv_tokens or 0:,} tokens of KV cache, "
          f"{args.rounds} rounds: median (range)\n")
    print_table(["order", "prompt tokens", "from the prefix cache, %", "games/s"], [
        [name, f"{done[0].metrics.prefix_queries or 0:,.0f}", spread([100 * run.share for run in done], 1),
         spread([run.rate for run in done], 1)] for name, done in runs.items()])
    return 0


if __name__ == "__main__":
    sys.exit(main())
