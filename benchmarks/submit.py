"""Handing in 500 batches: as one array next to one job a batch, on a real Slurm of two nodes.

    python benchmarks/submit.py --batches 500

The partition is down, so that nothing starts: what is measured is `judge --submit` alone, and within it the time from
the first sbatch call to the end of the last, and how often each of Slurm's commands was called."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.support import busy, print_table, spread  # noqa: E402
from tests.e2e.support import EXAMPLES, bench_file, command, environment, make_workspace  # noqa: E402
from tests.rigs.slurm import SlurmRig, available  # noqa: E402

COMMANDS = ("sbatch", "squeue", "sacct", "scontrol", "sacctmgr", "sinfo")
WRAPPER = """#!/bin/bash
began=$EPOCHREALTIME
"{real}" "$@"
status=$?
for argument in "$@"; do [ "$argument" = --test-only ] && only=-test; done
echo "{name}${{only:-}} $began $EPOCHREALTIME" >> "{log}"
exit $status
"""


@dataclass(frozen=True)
class Run:
    """Seconds of the command, seconds of its handing over, and calls by command."""

    seconds: float
    handing: float
    calls: Counter[str]


def many_models(root: Path, count: int) -> None:
    """Give the example so many models: copies of its answers under other names, linked to."""
    file = root / "arena-hard-auto" / "config" / "api_config.yaml"
    known = yaml.safe_load(file.read_text())
    names = [f"model-{number:04d}" for number in range(count)]
    for number, name in enumerate(names):
        source = EXAMPLES[number % len(EXAMPLES)]
        answers = bench_file(root, "model_answer", f"{source}.jsonl")
        answers.with_name(f"{name}.jsonl").symlink_to(answers)
        known[name] = dict(known[source])
    file.write_text(yaml.dump(known, Dumper=yaml.CSafeDumper))
    (root / "arena_hard_models_to_test.txt").write_text("\n".join(names) + "\n")


def counted(folder: Path, log: Path, path: str) -> None:
    """Wrappers that write down when each of Slurm's commands was called."""
    folder.mkdir()
    for name in COMMANDS:
        (folder / name).write_text(WRAPPER.format(real=shutil.which(name, path=path), name=name, log=log))
        (folder / name).chmod(0o755)


def one_run(rig: SlurmRig, folder: Path, batches: int, how: str) -> Run:
    """Hand a campaign in, and cancel it."""
    slurm = {"mem": "100M", "cpus_per_task": 1, "gpus": 0, "time": "00:10:00"}
    root = make_workspace(folder / "campaign", cluster="generic", slurm=slurm)
    many_models(root, batches)
    log, env = folder / "calls", rig.environment()
    counted(folder / "bin", log, env["PATH"])
    line = command("judge", "--all", "--submit", "--batch-size", "1", "--executor", "slurm", how)
    began = time.perf_counter()
    done = subprocess.run(line, cwd=root, env=environment({**rig.env, "PATH": f"{folder / 'bin'}:{env['PATH']}"}),
                          capture_output=True, text=True, stdin=subprocess.DEVNULL)
    seconds = time.perf_counter() - began
    waiting = rig.run("squeue", "--me", "-h", "-r", "-o", "%i").stdout.split()
    if done.returncode or len(waiting) != batches:
        sys.exit(f"exit {done.returncode}, {len(waiting)} of {batches} batches are queued:\n{done.stdout}{done.stderr}")
    rig.run("scancel", "--me")
    while rig.run("squeue", "--me", "-h", "-o", "%i").stdout:
        time.sleep(0.2)
    calls = [words.split() for words in log.read_text().splitlines()]
    times = [(float(start), float(end)) for name, start, end in calls if name == "sbatch"]
    handing = max(end for _, end in times) - min(start for start, _ in times)
    return Run(seconds, handing, Counter(name for name, *_ in calls))


def main() -> int:
    """Measure both ways by turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    if reason := available():
        sys.exit(reason)
    print(busy())
    runs: dict[str, list[Run]] = {"--array": [], "--no-array": []}
    with SlurmRig(min_job_age=5) as rig, tempfile.TemporaryDirectory(prefix="flock-bench-") as folder:
        rig.run("scontrol", "update", "partitionname=test", "state=down")
        for number in range(args.rounds):
            for how in list(runs)[:: 1 if number % 2 == 0 else -1]:
                place = Path(folder) / f"{number}{how}"
                place.mkdir()
                runs[how].append(one_run(rig, place, args.batches, how))
                print(f"round {number + 1}, {how}: {runs[how][-1].seconds:.1f} s", file=sys.stderr)
    rows = []
    for how, mine in runs.items():
        calls = mine[-1].calls
        rows.append([f"judge --submit {how}", spread([run.handing for run in mine], 2),
                     spread([run.seconds for run in mine], 1), str(calls["sbatch"]),
                     ", ".join(f"{name} {count}" for name, count in sorted(calls.items()) if name != "sbatch")])
    print(f"\n{args.batches} batches of one model, {os.cpu_count()} cores, {args.rounds} rounds: median (range)\n")
    print_table(["how", "handing over, s", "the whole command, s", "sbatch calls", "other calls"], rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
