"""How long the leaderboard takes over the 24 real models, next to Arena-Hard's own program on the same files.

python benchmarks/leaderboard.py [--peer CHECKOUT --peer-python PYTHON]; prints one table. Without a checkout of
lmarena/arena-hard-auto, and a Python that has its torch, pandas and tqdm, our own figures alone."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from automate.results.battles import Battles, Style
from automate.results.boards import Options
from automate.results.compatible.result import loading_lines, show_result
from automate.results.reading.folder import of_data
from automate.results.reading.judgments import read_judgments
from automate.results.reading.style import read_style
from automate.results.scoring.compare import ranked
from automate.results.scoring.scores import leaderboard, scored
from benchmarks.support import ROOT, busy, print_table

BENCH, JUDGE, BASELINE = "ko", "ens", "claude-3.7-sonnet"
BOTH = ("markdown", "length")
GOALS = {"compatible": 20.0, "compatible, style control": 10.0}
LIMIT = 2.0

DRIVER = """
import glob, os, runpy, sys, time
checkout, bench, judge, baseline, *control = sys.argv[1:]
sys.path.insert(0, checkout)
import numpy, pandas, torch
from utils.judge_utils import JUDGE_SETTINGS
torch.set_num_threads(1)
listed = glob.glob
glob.glob = lambda *names, **options: sorted(listed(*names, **options), key=os.path.basename)
JUDGE_SETTINGS[bench] = {"baseline": baseline}
numpy.random.seed(0)
sys.argv = ["show_result.py", "-b", bench, "-j", judge, "-c", bench, *(["-f", *control] if control else [])]
began, spent = time.perf_counter(), time.process_time()
runpy.run_path(checkout + "/show_result.py", run_name="__main__")
print("seconds", time.perf_counter() - began, time.process_time() - spent, file=sys.stderr)
"""
"""Runs the peer's program unchanged: seeded, one thread, files by name; its imports are not in the time."""


def folder() -> Path:
    """The folder that holds `data/ko`; ends the program where there is none."""
    found = Path(os.environ.get("FLOCK_HPC_TEST_DATA") or ROOT.parent / "shared" / "data") / "leaderboard-dev"
    if not (found / "data" / BENCH).is_dir():
        sys.exit(f"no judgments at {found}: name the folder of test data in FLOCK_HPC_TEST_DATA")
    return found


def read(data: Path, style: bool) -> tuple[Battles, Style | None]:
    """The judgments, and the answers' metadata where style asks for it."""
    where = of_data(data, BENCH)
    battles = read_judgments(where, [JUDGE]).battles
    return battles, read_style(where, [*battles.models, *battles.baselines], battles.questions) if style else None


def compatible(data: Path, control: tuple[str, ...]) -> str:
    """From files to text, in the compatible mode."""
    battles, style = read(data, bool(control))
    return f"{loading_lines(battles)}\n{show_result(battles, style, seed=0, control=control, category=BENCH)}\n"


@dataclass
class Best:
    """The shortest of several runs in seconds: by the clock, and of processor time."""

    wall: float = float("inf")
    cpu: float = float("inf")

    def add(self, wall: float, cpu: float) -> None:
        self.wall, self.cpu = min(self.wall, wall), min(self.cpu, cpu)

    def run(self, work: Callable[[], object]) -> None:
        """Run and time it once."""
        began, spent = time.perf_counter(), time.process_time()
        work()
        self.add(time.perf_counter() - began, time.process_time() - spent)

    def __str__(self) -> str:
        return f"{self.wall:.3f} ({self.cpu:.3f})"


def peer(command: list[str], data: Path, times: Best) -> str:
    """Run the peer's program once and take its time, without its imports; returns what it printed."""
    done = subprocess.run(command, cwd=data, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"the peer's program failed:\n{done.stderr[-2000:]}")
    wall, cpu = done.stderr.rsplit("seconds ", 1)[1].split()
    times.add(float(wall), float(cpu))
    return done.stdout


def against_peer(options: argparse.Namespace, data: Path, name: str,
                 control: tuple[str, ...]) -> tuple[list[str], bool]:
    """A line of the table: both by turns. The goal is about processor time, as other work may share the machine."""
    ours, alone, theirs, text = Best(), Best(), Best(), ""
    battles, style = read(data, bool(control))
    for _ in range(options.rounds):
        ours.run(lambda: compatible(data, control))
        alone.run(lambda: show_result(battles, style, seed=0, control=control, category=BENCH))
        if options.peer:
            text = peer([str(options.peer_python), "-c", DRIVER, str(options.peer.resolve()), BENCH, JUDGE, BASELINE,
                         *control], data, theirs)
    line = [f"{name}, 100 rounds", str(ours), str(alone)]
    if not options.peer:
        return [*line, "-", "-", "-"], True
    same = "the same text" if text == compatible(data, control) else "other digits"
    factor = theirs.cpu / ours.cpu
    return [*line, str(theirs), f"{factor:.0f} (goal {GOALS[name]:.0f})", same], factor >= GOALS[name]


def default(rounds: int, data: Path, style: tuple[str, ...]) -> tuple[Best, Best]:
    """Our default mode, from files to board, and without the reading."""
    ours, alone, options = Best(), Best(), Options(style=style)
    battles, counts = read(data, bool(style))
    for _ in range(rounds):
        ours.run(lambda: leaderboard(*with_options(read(data, bool(style)), options)))
        alone.run(lambda: leaderboard(*with_options((battles, counts), options)))
    return ours, alone


def with_options(found: tuple[Battles, Style | None], options: Options) -> tuple[Battles, Options, Style | None]:
    """The arguments of `leaderboard`."""
    return found[0], options, found[1]


def made_up(models: int, questions: int) -> tuple[Battles, Style]:
    """Judgments of many models on many questions, and their answers' style."""
    generator = np.random.default_rng(0)
    size = models * questions
    model, question = (index.astype(np.int32).ravel() for index in np.indices((models, questions)))
    better = generator.normal(size=models)[model] + generator.normal(size=questions)[question]
    verdicts = [np.clip(np.round(better + generator.normal(size=size)), -2, 2).astype(np.int8) for _ in range(2)]
    names, none = tuple(f"m{number}" for number in range(models)), np.zeros(size, np.int32)
    uids = tuple(f"q{number}" for number in range(questions))
    counts = {name: generator.integers(1, 1000, (questions, 4)).astype(np.float64) for name in (*names, "base")}
    return (Battles(names, uids, ("all",), ("base",), ("judge",), model, question, none, none, none, *verdicts),
            Style(uids, counts))


def many(models: int) -> list[str]:
    """A line of the table: scores, intervals, ranks of many models."""
    battles, style = made_up(models, 750)
    cells = []
    for features in ((), BOTH):
        best, options = Best(), Options(style=features)
        for _ in range(3):
            best.run(lambda: ranked(scored(battles, options, style), battles, options, style))  # noqa: B023 - run at once
        cells.append(str(best))
    return [f"{models} models x 750 questions", *cells]


def main() -> int:
    """Measure and print; exit status 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", type=Path, help="a checkout of lmarena/arena-hard-auto")
    parser.add_argument("--peer-python", type=Path, default=Path(sys.executable))
    parser.add_argument("--rounds", type=int, default=5, help="runs of each; the best counts")
    options, data = parser.parse_args(), folder()
    print(f"{busy()}; best of {options.rounds}, by turns; seconds by the clock (of processor time); imports left out\n")
    lines: list[list[str]] = []
    met = True
    for name, control in (("compatible", ()), ("compatible, style control", BOTH)):
        line, good = against_peer(options, data, name, control)
        lines, met = [*lines, line], met and good
    for name, style in (("default", ()), ("default, style control", BOTH)):
        ours, alone = default(options.rounds, data, style)
        met = met and ours.wall < LIMIT
        goal = f"(goal under {LIMIT:g} s)"
        lines.append([f"{name}, 1,000 rounds by question", str(ours), str(alone), "-", goal, "-"])
    print_table(["what", "ours, files to result", "statistics alone", "the peer", "times as fast", "output"], lines)
    print()
    print_table(["default mode with ranks, 1,000 rounds", "plain", "style control"], [many(71), many(270)])
    print(f"\ngoals: {'met' if met else 'MISSED'}" + ("" if options.peer else "; the peer was not run"))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
