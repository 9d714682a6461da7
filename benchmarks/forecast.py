"""How far forecasts are from what came out: ten campaigns against rehearsal judges, each forecast before it is played.

python benchmarks/forecast.py [--keep DIR]; prints two tables. A forecast may use only the run records of earlier
campaigns of the same judge. It is not told the rehearsal judge's options: without history it takes the constants of a
70B judge on one H200, which are wrong here, as they are for anybody's own judge."""

from __future__ import annotations

import argparse
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from automate.campaign.forecasts.planning import Outlook, look_ahead
from automate.campaign.forecasts.rates import Interval
from automate.campaign.state import pick_cluster
from automate.workspace import Workspace, open_workspace
from benchmarks.support import BASELINE, BENCH, CHECKPOINTS, busy, data_folder, print_table

GOAL = 0.15


@dataclass(frozen=True)
class Judge:
    """A rehearsal judge: its options, and how many games its client keeps in flight."""

    name: str
    options: dict[str, float]
    concurrency: int | str = "auto"


@dataclass(frozen=True)
class Campaign:
    """So many models on so many questions, in batches of a size, so many at once."""

    models: int
    questions: int
    size: int
    parallel: int


@dataclass(frozen=True)
class Outcome:
    """Forecast and truth, in seconds: to the end of the last batch, and of all jobs together."""

    judge: str
    campaign: Campaign
    earlier: int
    finish: Interval
    told: float
    jobs: float
    took: float
    jobs_took: float

    @property
    def error(self) -> float:
        return abs(self.finish.mid / self.took - 1)

    @property
    def jobs_error(self) -> float:
        return abs(self.jobs / self.jobs_took - 1)

    @property
    def held(self) -> bool:
        return self.finish.low <= self.took <= self.finish.high


POOL = Judge("pool-rehearsal", {"latency": 2.0, "kv_tokens": 300_000, "load_seconds": 8.0, "status_500": 0.02,
                                "no_label": 0.02})
FIXED = Judge("fixed-rehearsal", {"latency": 0.6, "load_seconds": 15.0, "bytes_per_token": 3.4}, 16)
PLAN: tuple[tuple[Judge, tuple[Campaign, ...]], ...] = (
    (POOL, (Campaign(1, 750, 1, 1), Campaign(3, 750, 1, 2), Campaign(2, 300, 2, 1), Campaign(4, 200, 2, 2),
            Campaign(6, 100, 1, 3))),
    (FIXED, (Campaign(1, 300, 1, 1), Campaign(2, 500, 1, 2), Campaign(4, 100, 4, 1), Campaign(3, 250, 2, 1),
             Campaign(3, 750, 1, 3))),
)


def make(root: Path, judge: Judge, models: int) -> Workspace:
    """A workspace over the real data with so many models, which are copies of the real checkpoints."""
    data = data_folder()
    root.mkdir(parents=True)
    settings = {
        "cluster": "local", "bench": BENCH, "baseline": BASELINE,
        "slurm": {"mem": "100M", "cpus_per_task": 1, "time": "01:00:00", "gpus": 0},
        "judge": {"kind": "rehearsal", "name": judge.name, "rehearsal": judge.options,
                  "concurrency": judge.concurrency},
        "limits": {"claim_stale": 2, "poll": 0.5},
    }
    (root / "flock-hpc.yaml").write_text(yaml.safe_dump(settings))
    workspace = open_workspace(root)
    workspace.answers.mkdir(parents=True)
    workspace.questions.symlink_to((data / "question.jsonl").resolve())
    for name, source in ((BASELINE, BASELINE), *((f"model-{n}", CHECKPOINTS[n % 3]) for n in range(models))):
        workspace.answer_file(name).symlink_to((data / "model_answer" / f"{source}.jsonl").resolve())
    return workspace


def blind(workspace: Workspace, size: int) -> Workspace:
    """The workspace as a forecast sees it that is not told what the rehearsal judge's options are."""
    settings = workspace.settings
    judge = settings.judge.model_copy(update={"kind": "vllm", "rehearsal": {}})
    return Workspace(workspace.root, settings.model_copy(update={"judge": judge, "batch_size": size}),
                     workspace.default_baseline)


def forecast(workspace: Workspace, names: Sequence[str], campaign: Campaign) -> Outlook:
    """The forecast of a campaign with what is on disk now."""
    cluster = pick_cluster(workspace, "local")
    return look_ahead(workspace, cluster, names, campaign.questions, campaign.parallel)


def play(workspace: Workspace, names: Sequence[str], campaign: Campaign) -> tuple[float, float]:
    """Play a campaign to its end; (seconds from the first job's start to the last one's end, of all jobs together)."""
    before = set(workspace.local_queue.glob("local-*.json"))
    command = [sys.executable, "-m", "automate", "judge", "--submit", "--wait", "--executor", "local", "--models",
               *names, "--limit-questions", str(campaign.questions), "--batch-size", str(campaign.size),
               "--max-parallel", str(campaign.parallel)]
    done = subprocess.run(command, cwd=workspace.root, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(f"a campaign did not come to its end:\n{done.stdout}\n{done.stderr}")
    jobs = [orjson.loads(path.read_bytes()) for path in set(workspace.local_queue.glob("local-*.json")) - before]
    first, last = min(job["started"] for job in jobs), max(job["ended"] for job in jobs)
    return last - first, sum(job["ended"] - job["started"] for job in jobs)


def campaigns(root: Path, judge: Judge, planned: Sequence[Campaign]) -> Iterator[Outcome]:
    """Forecast and play campaigns of one judge, one after the other; each of models of its own."""
    workspace = make(root, judge, sum(campaign.models for campaign in planned))
    used = 0
    for campaign in planned:
        names = [f"model-{number}" for number in range(used, used + campaign.models)]
        used += campaign.models
        earlier = len(list(workspace.runs.glob("*.json"))) if workspace.runs.is_dir() else 0
        found = forecast(blind(workspace, campaign.size), names, campaign).forecast
        told = forecast(Workspace(root, workspace.settings.model_copy(update={"batch_size": campaign.size}),
                                  workspace.default_baseline), names, campaign).forecast
        took, jobs_took = play(workspace, names, campaign)
        yield Outcome(judge.name, campaign, earlier, found.seconds, told.seconds.mid,
                      sum(batch.seconds.mid for batch in found.batches), took, jobs_took)


def show(outcomes: Sequence[Outcome]) -> None:
    """A table, one row a campaign."""
    head = ("judge", "models x questions, batches", "at once", "earlier starts", "forecast, s (80 %)", "took, s",
            "error", "job seconds", "took", "error", "told its options")
    print_table(head, [(
        one.judge.removesuffix("-rehearsal"),
        f"{one.campaign.models} x {one.campaign.questions}, {math.ceil(one.campaign.models / one.campaign.size)}",
        str(one.campaign.parallel), str(one.earlier),
        f"{one.finish.mid:,.0f} ({one.finish.low:,.0f} to {one.finish.high:,.0f})", f"{one.took:,.0f}",
        f"{one.error:.0%}", f"{one.jobs:,.0f}", f"{one.jobs_took:,.0f}", f"{one.jobs_error:.0%}",
        f"{abs(one.told / one.took - 1):.0%}") for one in outcomes])


def main() -> int:
    """Play all campaigns; print the forecasts with history, then those without."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="play in this folder and keep it (default: a temporary one)")
    args = parser.parse_args()
    folder = args.keep or Path(tempfile.mkdtemp(prefix="flock-hpc-forecast-"))
    began, outcomes = time.monotonic(), list[Outcome]()
    print(f"{busy()}\n")
    try:
        for judge, planned in PLAN:
            outcomes += campaigns(folder / judge.name, judge, planned)
    finally:
        if args.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    later, first = [one for one in outcomes if one.earlier], [one for one in outcomes if not one.earlier]
    print("With the records of earlier campaigns of the same judge:\n")
    show(later)
    print("\nThe first campaign of each judge, without any history:\n")
    show(first)
    error, every = statistics.median(one.error for one in later), statistics.median(one.error for one in outcomes)
    jobs = statistics.median(one.jobs_error for one in later)
    print(f"\nfinish: median error {error:.1%} with history, {every:.1%} over all ten; job seconds: {jobs:.1%} with "
          f"history\n80 % interval held the truth in {sum(one.held for one in later)} of {len(later)} with history, "
          f"{sum(one.held for one in first)} of {len(first)} without\n{time.monotonic() - began:,.0f} s in all; goal: "
          f"median error under {GOAL:.0%}: {'met' if error < GOAL else 'NOT met'}")
    return 0 if error < GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
