"""A storm over a campaign of three real checkpoints on a real Slurm: kills at random, then a count of what is left.

    python benchmarks/soak.py --kills 100        (make soak)

Jobs, engines, servers, guards, slurmd, slurmctld and the command itself are killed at random moments while
`judge --submit --wait` plays 4,500 games in several batches. At the end every game must be there once, with the label
of an undisturbed campaign (the rehearsal judge answers the same prompt alike), and nothing may be left running."""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.support import print_table  # noqa: E402
from tests.e2e.support import (  # noqa: E402
    TULU,
    Key,
    games_of,
    journal,
    judge_now,
    judge_settings,
    make_workspace,
    processes_of,
    repeated,
    verdicts_of,
)
from tests.rigs.faults import heal  # noqa: E402
from tests.rigs.slurm import SlurmRig, available  # noqa: E402
from tests.rigs.storm import Driver, Storm  # noqa: E402

GAMES = 4500
LIMITS = {"claim_stale": 5, "poll": 2, "resubmits": 100, "requeues": 500, "drain": 20}
ASKED = {"mem": "100M", "cpus_per_task": 1, "gpus": 0, "time": "00:06:00"}


@dataclass
class Log:
    """Lines to the screen and to a file, each with the seconds since the start."""

    file: Path
    began: float = field(default_factory=time.monotonic)

    def say(self, text: str) -> None:
        line = f"{time.monotonic() - self.began:7.1f}  {text}"
        print(line, flush=True)
        with self.file.open("a") as out:
            out.write(line + "\n")


def calm_games(folder: Path) -> list[Key]:
    """Every game of the campaign as it is without a storm, on this machine."""
    root = make_workspace(folder / "calm", real=True)
    judge_now(root, "--all")
    games = games_of(root, TULU)
    if len(games) != GAMES or verdicts_of(root, TULU) != games:
        sys.exit(f"{len(games)} games of an undisturbed campaign, instead of {GAMES}")
    return games


def stormy_workspace(folder: Path, args: argparse.Namespace) -> Path:
    """The workspace of the campaign: a slow judge, so that it lasts, and a time limit that hits as well."""
    root = make_workspace(folder / "storm", real=True, cluster="generic", limits=LIMITS, slurm=ASKED)
    judge_settings(root, rehearsal={"latency": args.latency}, concurrency=args.in_flight)
    return root


def held_claims(root: Path) -> list[str]:
    """Claims that nobody has given up: the newest of each folder."""
    found = []
    for folder in {path.parent for path in (root / ".flock-hpc" / "claims").rglob("g*.json")}:
        newest = max(folder.glob("g*.json"))
        if not newest.with_suffix(".released").exists():
            found.append(str(newest.relative_to(root)))
    return sorted(found)


def torn(root: Path) -> list[str]:
    """Record files and rows that do not end with a whole line of JSON."""
    found = []
    for path in [*(root / ".flock-hpc" / "journal").rglob("*.jsonl"),
                 *(root / "arena-hard-auto").rglob("model_judgment/*/*.jsonl")]:
        data = path.read_bytes()
        try:
            for line in data.split(b"\n"):
                json.loads(line or b"0")
        except ValueError:
            found.append(str(path.relative_to(root)))
        if data and not data.endswith(b"\n"):
            found.append(str(path.relative_to(root)))
    return sorted(set(found))


def verdict(root: Path, calm: Sequence[Key], temporary: Path) -> dict[str, int]:
    """What must be zero after the storm, counted; `temporary` is the jobs' own TMPDIR."""
    rows, played = games_of(root, TULU), verdicts_of(root, TULU)
    slots = [key[:3] for key in played]
    wanted = {key[:3] for key in calm}
    deadline = time.monotonic() + 60
    while processes_of(root) and time.monotonic() < deadline:
        time.sleep(1)
    return {
        "games lost": len(wanted - {key[:3] for key in rows}) + len(wanted - set(slots)),
        "games twice in the rows": len(repeated(rows)),
        "games twice in the journal": sum(count - 1 for count in Counter(slots).values()),
        "labels unlike those of calm times": len(set(rows) ^ set(calm)) + len(set(played) ^ set(calm)),
        "processes left over": len(processes_of(root)),
        "claims still held": len(held_claims(root)),
        "torn files": len(torn(root)),
        "sockets and folders left in TMPDIR": len(list(temporary.iterdir())),
    }


def weather(root: Path, storm: Storm, driver: Driver) -> dict[str, int]:
    """What happened: kills by kind, and what the campaign did about them."""
    runs = [json.loads(path.read_text()) for path in (root / ".flock-hpc" / "runs").glob("*.json")]
    submissions = [json.loads(path.read_text()) for path in (root / ".flock-hpc" / "submissions").glob("*.json")]
    steps = Counter(str((run.get("next") or {}).get("kind")) for run in runs)
    reasons = Counter(str(run.get("stopped_by")) for run in runs)
    found = {f"killed: {kind}": count for kind, count in sorted(storm.killed.items())}
    found |= {"kills in all": storm.killed.total()}
    found |= {"starts of batches": len(runs), "submissions": len(submissions), "starts of the command": driver.starts}
    found |= {f"starts that ended by: {why}": count for why, count in sorted(reasons.items()) if why != "None"}
    found |= {f"went on by: {kind}": count for kind, count in sorted(steps.items()) if kind != "None"}
    found |= {"records": sum(len(journal(root, model)) for model in TULU)}
    return found


def run(args: argparse.Namespace, folder: Path) -> bool:
    """One storm; whether nothing was lost, doubled or left over."""
    chance, log = random.Random(args.seed), Log(folder / "soak.log")
    log.say(f"seed {args.seed}, {args.kills} kills, {args.in_flight} in flight at {args.latency:g} s")
    calm = calm_games(folder)
    root = stormy_workspace(folder, args)
    temporary = Path(tempfile.mkdtemp(prefix="soak-", dir="/tmp"))
    rig = SlurmRig(min_job_age=30, slurmd_timeout=20, message_timeout=5, kill_wait=5)
    with rig:
        driver = Driver(rig, root, folder / "command.log", "--batch-size", str(args.batch_size),
                        env={"TMPDIR": str(temporary)})
        storm = Storm(rig, root, chance, log.say)
        try:
            while (more := args.kills - storm.killed.total()) > 0 and not driver.ended():
                if more > 1:
                    storm.blow(min(args.gust, more - 1), args.pause, driver.ended)
                storm.strike_command(driver)
            calm_since = time.monotonic()
            log.say("the storm is over")
            while not driver.ended():
                if time.monotonic() - calm_since > args.patience:
                    log.say(f"no end within {args.patience} s: see {folder / 'command.log'}")
                    break
                time.sleep(1)
            log.say(f"the campaign has ended {time.monotonic() - calm_since:.0f} s later")
        finally:
            driver.end()
            heal(rig)
        left = verdict(root, calm, temporary)
    seconds = time.monotonic() - log.began
    report(weather(root, storm, driver), left, seconds, log)
    return not any(count for what, count in left.items() if "TMPDIR" not in what)


def report(happened: dict[str, int], left: dict[str, int], seconds: float, log: Log) -> None:
    """Print the table, and append it to the log."""
    rows = [[what, f"{count:,}"] for what, count in (*happened.items(), *left.items())]
    print_table(["what", "count"], [["seconds in all", f"{seconds:.0f}"], *rows])
    for what, count in rows:
        with log.file.open("a") as out:
            out.write(f"{what}: {count}\n")


def main() -> int:
    """Blow, and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--out", type=Path, help="folder for workspace and logs (default: a new one in /tmp)")
    parser.add_argument("--latency", type=float, default=2.0, help="seconds that each game takes")
    parser.add_argument("--in-flight", type=int, default=4, help="games in flight in each batch")
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--pause", type=float, nargs=2, default=(6.0, 18.0), metavar=("LEAST", "MOST"),
                        help="seconds between two kills")
    parser.add_argument("--gust", type=int, default=24, help="kills between two kills of the command itself")
    parser.add_argument("--patience", type=float, default=3600, help="seconds for the campaign's end after the storm")
    args = parser.parse_args()
    if reason := available():
        sys.exit(reason)
    folder = args.out or Path(tempfile.mkdtemp(prefix="flock-soak-", dir=os.environ.get("TMPDIR")))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"workspace and logs: {folder}")
    return 0 if run(args, folder) else 1


if __name__ == "__main__":
    sys.exit(main())
