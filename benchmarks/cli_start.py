"""How long `flock-hpc --help` takes next to `python -c "import click"`.

python benchmarks/cli_start.py [--rounds N]; prints one table."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.support import busy, print_table, spread

GOAL = 2.0


def seconds(command: list[str]) -> float:
    """Wall time of one run of a command, in seconds."""
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main() -> int:
    """Alternate both commands; print medians and ranges in milliseconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    contestants = {
        "python -c 'import click'": [sys.executable, "-c", "import click"],
        "flock-hpc --help": [str(Path(sys.executable).with_name("flock-hpc")), "--help"],
    }
    runs: dict[str, list[float]] = {name: [] for name in contestants}
    print(f"{busy()}; {rounds} rounds, by turns\n")
    for command in contestants.values():
        seconds(command)  # fills the file cache
    for _ in range(rounds):
        for name, command in contestants.items():
            runs[name].append(seconds(command) * 1000)
    bare, ours = (statistics.median(times) for times in runs.values())
    print_table(["command", "ms: median (range)", "ratio"], [
        [name, spread(times, 1), f"{statistics.median(times) / bare:.2f}"] for name, times in runs.items()])
    met = ours <= GOAL * bare
    print(f"\ngoal (at most {GOAL:g} times as long): {'met' if met else 'MISSED'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
