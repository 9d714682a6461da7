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
from automate.arena.judge import Engine, Task, question_major
from automate.arena.prompts import Message
from automate.arena.referee import Ask, Referee
from automate.arena.verdict import Verdict
from automate.serving.client import Address, JudgeClient, Reply
from automate.serving.limiter import Limiter
from automate.serving.metrics import ServerMetrics, parse_metrics
from benchmarks.support import Served, busy, print_table, real_workspace
from tests.rigs.vllm import TinyServer, available

QUESTION_CHARACTERS, ANSWER_CHARACTERS = 1500, 3000
IN_FLIGHT, OUTPUT_TOKENS, BLOCKS = 16, 8, 2400


class OneAsk(Referee):
    """A referee that takes the first reply: a random model says nothing, and asking again would be other prompts."""

    async def _conclude(self, messages: list[Message], reply: Reply, first: Verdict) -> tuple[Verdict, list[Reply]]:
        return first, [reply]


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


async def play(cut: Cut, order: Sequence[Game], socket: Path) -> tuple[float, ServerMetrics, int]:
    """Play games in this order; (seconds, the server's counters, games played)."""
    async with JudgeClient(Address("http://localhost", str(socket)), "tiny", timeout=600) as client:
        context = (await client.models())["tiny"]
        limiter = Limiter(IN_FLIGHT)
        ask = Ask(OUTPUT_TOKENS, 1, 0.0, 2, structured=False, tokenize=True)
        engine = Engine(OneAsk(Served(client, context), ask, limiter), limiter, lambda game, record: None)
        began = time.monotonic()
        tally = await engine.play(cut.tasks(order))
        seconds = time.monotonic() - began
        return seconds, parse_metrics(await client.metrics(timeout=120)), tally.played


def main() -> int:
    """Play both orders, each on a freshly started server; print the server's own counters."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=60)
    questions = parser.parse_args().questions
    reason = available()
    if reason:
        sys.exit(reason)
    print(busy())
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory(prefix="fhpc-prefix-") as folder:
        cut = campaign(Path(folder) / "w", questions)
        uids = [question.uid for question in cut.match.questions]
        orders = {"question by question (ours)": question_major(cut.games, uids),
                  "model by model": [game for games in cut.games for game in games]}
        for name, order in orders.items():
            socket = Path(folder) / f"{len(rows)}.sock"
            with TinyServer(socket, ("--num-gpu-blocks-override", str(BLOCKS))):
                seconds, metrics, played = asyncio.run(play(cut, order, socket))
            share = (metrics.prefix_hits or 0) / (metrics.prefix_queries or 1)
            rows.append([name, str(played), f"{metrics.prefix_queries or 0:,.0f}", f"{share:.1%}",
                         f"{played / seconds:.1f}"])
    print_table(["order", "games", "prompt tokens", "from the prefix cache", "games/s"], rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
