"""How long the monitor's counting takes on a large campaign, next to merely reading the bytes that it has to read.

python benchmarks/monitor.py [--models N] [--questions N] [--rounds N] [--folder DIR]; prints one table. The data is
made up, kept in a folder of its own, and removed at the end."""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from automate.arena.context import load_answers, load_match
from automate.arena.counting.covered import mark_of, stamp_file
from automate.arena.counting.keys import compute
from automate.arena.counting.progress import Progress
from automate.arena.games import Game
from automate.settings import Settings
from automate.workspace import Workspace
from benchmarks.support import BASELINE, BENCH, JUDGE, busy, print_table, spread

BLOCK = 1 << 18
ANSWER, JUDGMENT, PROMPT = 4000, 3000, 15000
COLD_GOAL, WARM_GOAL, MEMORY_GOAL = 2.0, 0.1, 150


def workspace_at(root: Path) -> Workspace:
    """The campaign's workspace."""
    settings = Settings.model_validate(
        {"bench": BENCH, "baseline": BASELINE, "judge": {"kind": "rehearsal", "name": JUDGE}})
    return Workspace(root, settings, BASELINE)


def words(source: random.Random, size: int) -> str:
    """Text of about that size, with what real answers hold: lines, quotes, code and other alphabets."""
    parts = ("the model says ", "if x[0] == \"a\":\n    return\n", "größer ", "because ", "\\frac{1}{2} ", "[[A>B]] ",
             "a longer piece of plain text that goes on for a while, ", "\n\n")
    return "".join(source.choices(parts, k=size // 18))[:size]


def answer_rows(model: str, questions: int, size: int, seed: int) -> Iterator[bytes]:
    """A model's answers."""
    source = random.Random(seed)
    text = words(source, size * 2)
    for number in range(questions):
        start = source.randrange(size)
        yield orjson.dumps({"uid": f"{number:032x}", "model": model, "messages": [
            {"role": "user", "content": "?"},
            {"role": "assistant", "content": {"answer": f"{number} {text[start:start + size]}"}}]}) + b"\n"


def make(root: Path, models: int, questions: int) -> list[str]:
    """A campaign in which every game but the last hundred of each tenth model was played; the models' names.

    Rows are sparse files: their bytes are there to be read, and take no space on the disk.
    """
    workspace = workspace_at(root)
    workspace.answers.mkdir(parents=True)
    workspace.judgments.mkdir(parents=True)
    source = random.Random(0)
    workspace.questions.write_bytes(b"".join(orjson.dumps(
        {"uid": f"{number:032x}", "category": ("hard_prompt", "creative_writing")[number % 2],
         "prompt": words(source, 1500)}) + b"\n" for number in range(questions)))
    names = [f"model-{number:03d}-of-a-sweep-with-a-long-name" for number in range(models)]
    for seed, model in enumerate((BASELINE, *names)):
        workspace.answer_file(model).write_bytes(b"".join(answer_rows(model, questions, ANSWER, seed)))
    match = load_match(workspace)
    for number, model in enumerate(names):
        answers = load_answers(workspace, model)
        assert answers is not None
        games = compute(match, answers).games(match, questions)
        left = 100 if number % 10 == 0 else 0
        folder = workspace.journal(model, BASELINE)
        folder.mkdir(parents=True)
        with (folder / "20260101T000000000Z-b1-00000000.jsonl").open("wb") as file:
            for game in games[:len(games) - left]:
                file.write(record(game, source))
        os.utime(file.name, (1.7e9, 1.7e9))
        rows = workspace.rows_file(model, BASELINE, BASELINE)
        size = (len(games) - left) * (JUDGMENT + PROMPT)
        with rows.open("wb") as file:
            file.truncate(size)
        stamp_file(workspace, model, BASELINE).write_bytes(orjson.dumps(
            {"stamp": "made up", "bytes": size, **mark_of(rows, size, folder, [BASELINE])}))
    return names


def record(game: Game, source: random.Random) -> bytes:
    """A game's record as the engine writes it."""
    text = _TEXT[(start := source.randrange(JUDGMENT)):start + JUDGMENT]
    return orjson.dumps({
        "source": "engine", "key": game.key, "model": game.model, "uid": game.uid, "order": game.order,
        "baseline": game.baseline, "category": game.category, "prompt_sha": game.prompt_sha, "outcome": "verdict",
        "label": source.choice(("A>B", "B>A", "A=B", "A>>B")), "judgment": text, "seconds": 12.345,
        "time": round(time.time(), 3), "finish": "stop", "usage": [4200, 700, 1900]}) + b"\n"


_TEXT = words(random.Random(1), 2 * JUDGMENT)


def read_whole(paths: list[Path]) -> int:
    """Read files in blocks, without looking at them; their size."""
    total = 0
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        while data := os.read(fd, BLOCK):
            total += len(data)
        os.close(fd)
    return total


def needed(root: Path, kept: bool) -> list[Path]:
    """The files that a cold look has to read: with kept keys no answers but the baseline's, and never rows."""
    workspace = workspace_at(root)
    keys = workspace.keys_file("x", BASELINE).parent
    answers = [workspace.answer_file(BASELINE)] if kept else sorted(workspace.answers.glob("*.jsonl"))
    return [workspace.questions, *answers, *(sorted(keys.glob("*.keys")) if kept else []),
            *sorted(workspace.journals.rglob("*.jsonl"))]


def measure(root: Path, names: list[str], what: str) -> dict[str, float]:
    """One run of a contestant in this process: seconds, seconds of warm looks, and the peak of its memory (MiB)."""
    began, cpu = time.perf_counter(), time.process_time()
    if what.startswith("read"):
        read_whole(needed(root, what == "read"))
    else:
        workspace = workspace_at(root)
        progress = Progress(workspace, load_match(workspace), names)
    found = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}
    if what == "count":
        found |= warm(progress, names)
    return {**found, "memory": peak()}


def warm(progress: Progress, names: list[str]) -> dict[str, float]:
    """Five looks after ten models got 20 records each, and one after nothing: seconds."""
    source, times = random.Random(2), []
    busy_models, workspace = names[::10][:10], progress.workspace
    for look in range(5):
        for model in busy_models:
            entry = progress.models[model]
            due = [game for game in entry.games if not entry.recorded.state(game, progress.attempts).done][:20]
            path = workspace.journal(model, BASELINE) / f"20260201T00000{look}000Z-b1-{os.getpid():08x}.jsonl"
            path.write_bytes(b"".join(record(game, source) for game in due))
        for model in busy_models:  # not the monitor's own memory: it was made for writing the records
            entry = progress.models[model]
            entry.__dict__.pop("games", None)
            entry.forget()
        began = time.perf_counter()
        assert progress.refresh(inputs=True)
        times.append(time.perf_counter() - began)
    began = time.perf_counter()
    assert not progress.refresh(inputs=True)
    return {"warm": sorted(times)[2], "warm_worst": max(times), "idle": time.perf_counter() - began}


def peak() -> float:
    """Most memory that this process ever had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run(root: Path, models: int, what: str) -> dict[str, float]:
    """A contestant in a process of its own."""
    command = [sys.executable, __file__, "--models", str(models), "--folder", str(root), "--measure", what]
    found: dict[str, float] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return found


def settle(root: Path) -> None:
    """Make the kept keys older than their answers by enough, as they are in any campaign but one just made up."""
    for path in workspace_at(root).cache.rglob("*.keys"):
        later = path.stat().st_mtime + 60
        os.utime(path, (later, later))


def forget(root: Path) -> None:
    """Take what the last run appended away again."""
    for path in workspace_at(root).journals.rglob("20260201T*.jsonl"):
        path.unlink()


def main() -> int:
    """Make the data, measure by turns, print the table; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=120)
    parser.add_argument("--questions", type=int, default=750)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=None, help="Where to make the data: /dev/shm, /tmp, ...")
    parser.add_argument("--measure", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        names = sorted(path.stem for path in workspace_at(options.folder).answers.glob("model-*.jsonl"))
        print(json.dumps(measure(options.folder, names, options.measure)))
        return 0
    root = Path(tempfile.mkdtemp(prefix="flock-hpc-monitor-", dir=options.folder))
    try:
        return compare(root, options.models, options.questions, options.rounds)
    finally:
        shutil.rmtree(root)


def compare(root: Path, models: int, questions: int, rounds: int) -> int:
    """All contestants by turns, and what came out."""
    make(root, models, questions)
    on_disk = sum(path.stat().st_blocks * 512 for path in root.rglob("*") if path.is_file())
    first = run(root, models, "first")
    first_bytes = run(root, models, "read all")
    settle(root)
    runs: dict[str, list[dict[str, float]]] = {"read": [], "count": [], "recount": []}
    for _ in range(rounds):
        for what, found in runs.items():
            if what == "recount":
                shutil.rmtree(workspace_at(root).counts_file("x", BASELINE).parent)
            found.append(run(root, models, what))
            forget(root)
    workspace = workspace_at(root)
    sizes = {name: sum(path.stat().st_size for path in folder.rglob("*.jsonl")) / 1e6 for name, folder in
             (("journal", workspace.journals), ("rows", workspace.judgments), ("answers", workspace.answers))}
    said = ", ".join(f"{name} {size:,.0f} MB" for name, size in sizes.items())
    print(f"{busy()}; {rounds} rounds by turns; {models} models x {questions} questions, {said}; "
          f"{on_disk / 1e6:,.0f} MB on disk\n")
    return table(runs, first, first_bytes, sum(path.stat().st_size for path in needed(root, True)) / 1e6)


def table(runs: dict[str, list[dict[str, float]]], first: dict[str, float], first_bytes: dict[str, float],
          size: float) -> int:
    """Print it; 1 where a goal is missed."""
    def of(what: str, name: str) -> list[float]:
        return [found[name] * (1 if name == "memory" else 1000) for found in runs[what]]

    def middle(values: list[float]) -> float:
        return sorted(values)[len(values) // 2]

    ratio, cpu = (middle(of("count", name)) / middle(of("read", name)) for name in ("seconds", "cpu"))
    rows = [
        [f"reading {size:,.0f} MB", spread(of("read", "seconds")), "1.00", spread(of("read", "cpu")),
         spread(of("read", "memory"))],
        ["cold: a new process", spread(of("count", "seconds")), f"{ratio:.2f}", spread(of("count", "cpu")),
         spread(of("count", "memory"))],
        ["cold, counts not kept", spread(of("recount", "seconds")),
         f"{middle(of('recount', 'seconds')) / middle(of('read', 'seconds')):.2f}", spread(of("recount", "cpu")),
         spread(of("recount", "memory"))],
        ["warm: 200 new records in 10 models", spread(of("count", "warm")), "", "", ""],
        ["warm: the slowest of five", spread(of("count", "warm_worst")), "", "", ""],
        ["warm: nothing new", spread(of("count", "idle")), "", "", ""],
        ["the very first look, nothing kept", f"{first['seconds'] * 1000:,.0f}",
         f"{first['seconds'] / first_bytes['seconds']:.2f}", f"{first['cpu'] * 1000:,.0f}", f"{first['memory']:,.0f}"],
    ]
    print_table(["look", "ms: median (range)", "ratio to reading", "CPU, ms", "peak RSS, MiB"], rows)
    met = {f"cold at most {COLD_GOAL:g} times reading": ratio <= COLD_GOAL,
           f"warm under {WARM_GOAL:g} s": max(of("count", "warm_worst")) < WARM_GOAL * 1000,
           f"under {MEMORY_GOAL} MB": max(of("count", "memory")) * 1.048576 < MEMORY_GOAL}
    print(f"\nratio in CPU time: {cpu:.2f}\ngoals: "
          + ", ".join(f"{what}: {'met' if good else 'MISSED'}" for what, good in met.items()))
    return 0 if all(met.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
