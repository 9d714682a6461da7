"""What the benchmarks share: a campaign over real questions and answers in a folder of its own, and tables.

Never writes below the test data, which is linked to, not copied."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from automate.arena.benchmark import Question
from automate.arena.context import load_answers, load_match
from automate.arena.games import Game
from automate.arena.judge import Task, question_major
from automate.arena.ledger import ModelLedger
from automate.arena.prompts import Message
from automate.serving.client import JudgeClient
from automate.settings import Settings
from automate.workspace import Workspace

ROOT = Path(__file__).resolve().parents[1]
BENCH = "arena-hard-v2.0"
BASELINE = "llama3.1-8b-instruct"
CHECKPOINTS = tuple(f"tulu3-8b-rank64-alpha1e5-001-step{step}" for step in (6000, 12000, 48000))
JUDGE = "rehearsal-judge"


def data_folder() -> Path:
    """Arena-Hard's data folder among the real test data; ends the program where there is none."""
    folder = Path(os.environ.get("FLOCK_HPC_TEST_DATA") or ROOT.parent / "shared" / "data")
    found = folder / "arena-hard-auto" / "data" / BENCH
    if not (found / "question.jsonl").is_file():
        sys.exit(f"no real questions at {found}: name the folder of test data in FLOCK_HPC_TEST_DATA")
    return found


def real_workspace(root: Path, copies: int = 1) -> tuple[Workspace, list[str]]:
    """A workspace over the real data with each checkpoint `copies` times under its own name, and those names."""
    data = data_folder()
    settings = Settings.model_validate(
        {"bench": BENCH, "baseline": BASELINE, "judge": {"kind": "rehearsal", "name": JUDGE}})
    workspace = Workspace(root, settings, BASELINE)
    workspace.answers.mkdir(parents=True)
    workspace.questions.symlink_to(data / "question.jsonl")
    models = [model + (f"-copy{copy}" if copy else "") for copy in range(copies) for model in CHECKPOINTS]
    for model in (BASELINE, *models):
        source = data / "model_answer" / f"{model.partition('-copy')[0]}.jsonl"
        workspace.answer_file(model).symlink_to(source.resolve())
    return workspace, models


@dataclass(frozen=True)
class Campaign:
    """Ledgers by model, the games to play in their order, and the questions by uid."""

    ledgers: dict[str, ModelLedger]
    games: list[Game]
    questions: dict[str, Question]

    def tasks(self) -> Iterator[Task]:
        """The games as the engine takes them: rendered when their turn comes."""
        for game in self.games:
            ledger = self.ledgers[game.model]
            yield game, lambda ledger=ledger, game=game: ledger.render(game.uid, game.order)  # type: ignore[misc]

    def messages(self) -> Iterator[list[Message]]:
        """The games' messages, rendered."""
        for game in self.games:
            ledger = self.ledgers[game.model]
            yield ledger.match.messages(ledger.answers, self.questions[game.uid], game.order)

    def close(self) -> None:
        """Flush and close all record files."""
        for ledger in self.ledgers.values():
            ledger.close()


def real_campaign(root: Path, games: int) -> Campaign:
    """A campaign of that many games in question-major order, its record files not opened yet."""
    per_copy = len(CHECKPOINTS) * 1500
    workspace, models = real_workspace(root, -(-games // per_copy))
    match = load_match(workspace)
    ledgers = {}
    for model in models:
        answers = load_answers(workspace, model)
        if answers is None:
            sys.exit(f"no answers of {model}")
        ledgers[model] = ModelLedger(workspace, model, match, answers, workspace.settings.limits.attempts)
    order = question_major([ledger.games for ledger in ledgers.values()], [q.uid for q in match.questions])
    return Campaign(ledgers, order[:games], {question.uid: question for question in match.questions})


class Served:
    """A server that is there already; fits the engine's `Serving`."""

    def __init__(self, client: JudgeClient, context: int | None) -> None:
        self.context = context
        self._client = client

    async def client(self) -> JudgeClient:
        """The client; the server is taken to live."""
        return self._client

    def suspect(self) -> None:
        """Nothing to look at: the benchmark checks what was played."""


@contextmanager
def rehearsal_judge(socket: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A rehearsal judge in a process of its own on a Unix socket, for as long as the `with` block lasts."""
    command = [sys.executable, "-m", "automate.serving.rehearsal", "--model", JUDGE, "--uds", str(socket), *options]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while not socket.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit("the rehearsal judge did not start")
            time.sleep(0.02)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)


def loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """How a loop of this kind ("uvloop" or "asyncio") is made."""
    if name == "uvloop":
        import uvloop

        return uvloop.new_event_loop
    return asyncio.new_event_loop


def spread(values: Sequence[float], digits: int = 0) -> str:
    """Median and range, as text."""
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A Markdown table."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, ["-" * width for width in widths], *rows):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |")


def wait_for_quiet(patience: float) -> None:
    """Wait for a moment in which the machine does next to nothing, for `patience` seconds at most."""
    deadline = time.monotonic() + patience
    while psutil.cpu_percent(0.25) > 8 and time.monotonic() < deadline:
        pass


def busy() -> str:
    """How busy the machine is already, for the record."""
    return "load average before: " + ", ".join(f"{load:.2f}" for load in os.getloadavg())
