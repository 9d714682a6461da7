"""Flock validation on a test Slurm: 100 assignments through fetch, one array job and submit, next to one by one.

    python benchmarks/validation.py [--assignments 100] [--single 20] [--storm 200]

Both go against the stand-in of the API on this machine, with a light module; what is measured is what the tool itself
takes. `--storm N` plays the storm of the tests with N assignments instead, and prints what came out."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from automate.campaign.validation.circle import Circle, Given  # noqa: E402
from automate.campaign.validation.fetching import fetch_until  # noqa: E402
from automate.campaign.validation.running import run_fetched, submit_finished  # noqa: E402
from automate.validation.assignments import State  # noqa: E402
from automate.validation.standin import StandIn  # noqa: E402
from automate.validation.standin.plan import Plan, TaskPlan  # noqa: E402
from automate.workspace import open_workspace  # noqa: E402
from tests.rigs.slurm import SlurmRig  # noqa: E402
from tests.rigs.validation_storm import ValidationStorm  # noqa: E402


def circle_of(root: Path, api: StandIn, per_task: int) -> Circle:
    """A workspace for the stand-in; array tasks of `per_task` assignments."""
    root.mkdir()
    (root / "flock-hpc.yaml").write_text(json.dumps({
        "cluster": "generic", "executor": "slurm", "limits": {"claim_stale": 5},
        "slurm": {"mem": "100M", "cpus_per_task": 1, "gpus": 0, "time": "00:10:00"},
        "validation": {"base_url": api.base_url, "manager": "current", "lookup_interval": 0, "time_sleep": 1,
                       "max_outstanding": 1000, "min_free_gb": 0, "per_task": per_task}}))
    return Circle(open_workspace(root), lambda line: None, given=Given(api.key), executor="slurm")


def once(circle: Circle, most: int | None) -> dict[str, float]:
    """One round: fetch up to `most`, run as one array, submit; seconds of each."""
    def timed(part: Callable[[], object]) -> float:
        began = time.perf_counter()
        part()
        return time.perf_counter() - began

    return {"fetch": timed(lambda: fetch_until(circle, "example", ["1"], most=most, once=True)),
            "run": timed(lambda: run_fetched(circle, ids=None, most=None, submit=True, wait=True)),
            "submit": timed(lambda: submit_finished(circle))}


def measure(root: Path, assignments: int, per_task: int, most: int | None) -> tuple[dict[str, float], float]:
    """Seconds of each part and of all, for `assignments` in rounds of `most`."""
    with StandIn(Plan(tasks=(TaskPlan(1, submissions=assignments),), key="benchmark-key")) as api:
        circle, total = circle_of(root, api, per_task), dict.fromkeys(("fetch", "run", "submit"), 0.0)
        began = time.perf_counter()
        while circle.spool.count(State.SUBMITTED) < assignments:
            total = {part: total[part] + seconds for part, seconds in once(circle, most).items()}
        assert all(record.accepted == 1 for record in api.assignments.values())
        return total, time.perf_counter() - began


def main() -> None:
    """Measure, or blow the storm."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--assignments", type=int, default=100)
    parser.add_argument("--single", type=int, default=20, help="how many go one by one (default: 20)")
    parser.add_argument("--storm", type=int, metavar="N", help="play a storm of N assignments instead")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with SlurmRig() as rig, tempfile.TemporaryDirectory() as name:
        os.environ.update(rig.environment())
        root = Path(name)
        if args.storm:
            storm = ValidationStorm(rig, root / "storm", assignments=args.storm, seed=args.seed)
            states, wrong = storm.blow(kills=args.storm // 3, pause=(0.5, 3.0), limit=3600)
            print(f"{args.storm} submissions: {dict(Counter(states.values()))}; killed {dict(storm.killed)}; "
                  f"given up for {dict(storm.causes)}; loops started {storm.starts}; wrong: {wrong or 'nothing'}")
            return
        print(f"{'':28}{'fetch':>8}{'run':>8}{'submit':>8}{'all':>8}  seconds an assignment")
        for title, count, per_task, most in (("one array, a task each", args.assignments, 1, None),
                                             ("one array, ten a task", args.assignments, 10, None),
                                             ("one by one", args.single, 1, 1)):
            with redirect_stdout(StringIO()):
                parts, total = measure(root / title.replace(" ", "-"), count, per_task, most)
            print(f"{title + f' ({count})':28}" + "".join(f"{parts[part]:8.1f}" for part in ("fetch", "run", "submit"))
                  + f"{total:8.1f}  {total / count:.2f}")


if __name__ == "__main__":
    main()
