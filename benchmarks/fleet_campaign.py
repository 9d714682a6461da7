"""One campaign in batches of one model, and the same on a fleet: what the servers' seconds went into. On a real Slurm.

    python benchmarks/fleet_campaign.py [--models 24] [--questions 60] [--servers 4] [--load 20]

Both run with as many servers at once, the same rehearsal judge (a second for a game, eight games at once, `--load`
seconds until it is ready) and the same games. A server's seconds are those that Slurm counts for its job; those spent
on games are the seconds in which at least one game was in flight, by the jobs' own records."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from automate.durations import seconds_of  # noqa: E402
from benchmarks.support import print_table  # noqa: E402
from tests.e2e.support import (  # noqa: E402
    BASELINE,
    TULU,
    bench_file,
    command,
    environment,
    judge_settings,
    make_workspace,
    processes_of,
    verdicts_of,
)
from tests.rigs.slurm import SlurmRig, available  # noqa: E402

ASKED = {"mem": "100M", "cpus_per_task": 1, "gpus": 0, "time": "00:30:00"}


@dataclass(frozen=True)
class Used:
    """Seconds: of servers' jobs by Slurm, of them with a game in flight, and from the command's start to its end."""

    jobs: int
    servers: float
    games: float
    wall: float

    @property
    def lost(self) -> float:
        return self.servers - self.games


def workspace(folder: Path, args: argparse.Namespace) -> tuple[Path, list[str]]:
    """A workspace over real answers with each checkpoint under several names."""
    root = make_workspace(folder, real=True, questions=args.questions, cluster="generic", slurm=ASKED,
                          fleet={"heartbeat": 2, "stale": 15, "address": "127.0.0.1"}, limits={"poll": 1})
    judge_settings(root, rehearsal={"latency": 1.0, "load_seconds": args.load}, concurrency=8)
    names = [f"{TULU[number % 3]}-copy{number // 3}" for number in range(args.models)]
    for name in names:
        shutil.copyfile(bench_file(root, "model_answer", f"{name.partition('-copy')[0]}.jsonl"),
                        bench_file(root, "model_answer", f"{name}.jsonl"))
    (root / "arena_hard_models_to_test.txt").write_text("\n".join(names) + "\n")
    file = root / "arena-hard-auto" / "config" / "api_config.yaml"
    known = yaml.safe_load(file.read_text())
    known |= {name: dict(known[name.partition("-copy")[0]]) for name in names}
    file.write_text(yaml.safe_dump(known))
    return root, names


def campaign(rig: SlurmRig, root: Path, names: Sequence[str], games: int, *options: str) -> float:
    """Run it to its end; seconds. Ends the program where a game is missing or there twice."""
    began = time.monotonic()
    line = command("judge", "--submit", "--wait", "--executor", "slurm", *options)
    done = subprocess.run(line, cwd=root, env=environment(rig.env), capture_output=True, text=True)
    wall = time.monotonic() - began
    found = verdicts_of(root, names)
    if done.returncode or len(found) != games or len(set(found)) != games:
        sys.exit(f"exit status {done.returncode}, {len(found)} games of {games}:\n{done.stdout}\n{done.stderr}")
    deadline = time.monotonic() + 120
    while processes_of(root) and time.monotonic() < deadline:
        time.sleep(0.5)
    return wall


def elapsed(rig: SlurmRig, root: Path, word: str) -> list[float]:
    """Seconds of each job whose name begins with a word, by Slurm's accounting."""
    said = rig.run("sacct", "-X", "-n", "-P", "--duplicates", "-o", "JobName,Elapsed,WorkDir").stdout
    rows = [line.split("|") for line in said.splitlines()]
    return [seconds_of(time_) for name, time_, folder in rows if name.startswith(word) and folder == str(root)]


def in_batches(rig: SlurmRig, root: Path, wall: float) -> Used:
    runs = [json.loads(path.read_text()) for path in (root / ".flock-hpc" / "runs").glob("*.json")]
    jobs = elapsed(rig, root, "judge-")
    return Used(len(jobs), sum(jobs), sum(float(run["play_seconds"]) for run in runs), wall)


def on_a_fleet(rig: SlurmRig, root: Path, wall: float) -> Used:
    folder = root / ".flock-hpc" / "fleets" / "judge" / "runs"
    runs = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    jobs = elapsed(rig, root, "serve-")
    return Used(len(jobs), sum(jobs), sum(float(run["spent"]["work"]) for run in runs), wall)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("models", 24), ("questions", 60), ("servers", 4), ("load", 20)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    if reason := available():
        sys.exit(reason)
    games, rows, lost = 2 * args.questions * args.models, [], []
    with tempfile.TemporaryDirectory(prefix="fleet-campaign-") as folder, SlurmRig() as rig:
        for title, options, count in (
                ("batches of 1", ("--batch-size", "1", "--max-parallel", str(args.servers)), in_batches),
                (f"fleet of {args.servers}", ("--fleet", str(args.servers)), on_a_fleet)):
            root, names = workspace(Path(folder) / title.replace(" ", "-"), args)
            used = count(rig, root, campaign(rig, root, names, games, *options))
            lost.append(used.lost)
            rows.append((title, str(used.jobs), f"{used.servers:.0f}", f"{used.games:.0f}", f"{used.lost:.0f}",
                         f"{used.lost / used.servers:.0%}", f"{used.wall:.0f}"))
    print(f"{args.models} models x {args.questions} questions, {games:,} games against {BASELINE}; "
          f"{args.servers} servers at once, {args.load} s to load")
    print_table(("campaign", "server jobs", "server-seconds", "with games in flight", "not on games", "share",
                 "wall (s)"), rows)
    print(f"not on games: {lost[1] / lost[0]:.2f} of that of the batches (goal: at most 0.25)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
