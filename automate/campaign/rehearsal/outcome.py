"""What came out of a rehearsal: time, GPU-hours, starts, and every game counted in the journal. Rehearsed seconds.

Only reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from automate.arena.counting.progress import Progress
from automate.arena.running.runlog import read_runs
from automate.cluster.local.executor import LocalQueue
from automate.cluster.local.schedule import Job
from automate.cluster.rehearsed.cluster import State, read_state
from automate.cluster.rehearsed.events import never_struck
from automate.cluster.rehearsed.place import batch_of
from automate.cluster.rehearsed.scenario import Event
from automate.journal import read_journal, read_jsonl
from automate.names import baseline_tag
from automate.workspace import Workspace


@dataclass(frozen=True)
class Outcome:
    """A rehearsed campaign. Seconds are rehearsed ones; `lost`: games without an end, `twice`: games played twice.

    `wait_seconds` is that before the first start; `wall_seconds` is from the first start to the last end; `batches` and
    `starts_of` give the seconds that each batch had a node, and how often it was started; `deaths`, `ends` count
    servers' deaths by cause and jobs' bad ends by state; `excluded` are nodes that jobs were kept away from;
    `own_seconds`: what this machine itself took for a start and an end, in rehearsed seconds of one start;
    `unstruck`: a line for each event that never struck.
    """

    wall_seconds: float
    wait_seconds: float
    gpu_hours: float
    batches: Mapping[int, float]
    starts_of: Mapping[int, int]
    requeues: int
    games: int
    finished: int
    outcomes: Mapping[str, int]
    lost: int
    twice: int
    rows: int
    deaths: Mapping[str, int]
    ends: Mapping[str, int]
    refused: int
    excluded: tuple[str, ...]
    events: Sequence[tuple[float, str]]
    own_seconds: float
    unstruck: Sequence[str] = ()
    rounds: int = 1
    gave_up: str = ""

    @property
    def starts(self) -> int:
        """Starts of all batches together."""
        return sum(self.starts_of.values())

    @property
    def complete(self) -> bool:
        """Whether every game was played, once."""
        return self.finished == self.games and not self.lost and not self.twice


def starts_of(job: Job) -> list[dict[str, Any]]:
    """Every start of a job; one that has not ended yet is left out."""
    found = list(job.get("starts") or ())
    if job.get("started") and job.get("ended") and not any(s["started"] == job["started"] for s in found):
        found.append({"node": job.get("host"), "started": job["started"], "ended": job["ended"],
                      "state": job["state"], "exit": job.get("exit")})
    return found


def outcome_of(space: Workspace, progress: Progress, *, scale: float, gpus: int, began: float,
               load: Mapping[str, float], rounds: int, gave_up: str,
               scenario_events: Sequence[Event] = ()) -> Outcome:
    """Count everything that a rehearsal left. `load`: rehearsed seconds that loading takes on each node."""
    queue = LocalQueue(space.local_queue)
    jobs = queue.jobs()
    every = [(job, start) for job in jobs for start in starts_of(job)]
    first = min((start["started"] for _, start in every), default=began)
    last = max((start["ended"] for _, start in every), default=first)
    seconds: dict[int, float] = {}
    starts: Counter[int] = Counter()
    for job, start in every:
        number = batch_of(job) or 0
        starts[number] += 1
        seconds[number] = seconds.get(number, 0.0) + (start["ended"] - start["started"]) * scale
    runs = read_runs(space.runs)
    state = read_state(queue.cluster_file) or State()
    verdicts = _verdicts(space, progress)
    refused = queue.refused_file
    return Outcome(
        wall_seconds=(last - first) * scale, wait_seconds=max(first - began, 0.0) * scale,
        gpu_hours=sum(seconds.values()) * gpus / 3600, batches=seconds, starts_of=dict(starts),
        requeues=sum(int(job.get("restart") or 0) for job in jobs), games=progress.wanted, finished=progress.finished,
        outcomes=_outcomes(progress), lost=progress.wanted - progress.finished,
        twice=sum(1 for count in verdicts.values() if count > 1), rows=_rows(space, progress),
        deaths=_deaths(runs), ends=Counter(start["state"] for _, start in every if start["state"] != "COMPLETED"),
        refused=len(refused.read_text().splitlines()) if refused.is_file() else 0,
        excluded=tuple(sorted({node for job in jobs for node in job.get("exclude") or ()})),
        events=[(float(when), str(words)) for when, words in state.log],
        own_seconds=_own_seconds(runs, jobs, load, scale),
        unstruck=never_struck(scenario_events, state.fired, state.struck), rounds=rounds, gave_up=gave_up)


def _verdicts(space: Workspace, progress: Progress) -> Counter[str]:
    """How many verdicts there are of each game."""
    tag = baseline_tag(space.settings.baseline)
    return Counter(str(record.get("key")) for model in progress.models
                   for _, record in read_journal(space.journal(model, tag)).records
                   if record.get("outcome") == "verdict")


def _outcomes(progress: Progress) -> Counter[str]:
    """Finished games by how they ended."""
    found: Counter[str] = Counter()
    for entry in progress.models.values():
        for game in entry.games:
            state = entry.recorded.state(game, progress.attempts)
            if state.done:
                found[str((state.record or {}).get("outcome", "verdict"))] += 1
    return found


def _rows(space: Workspace, progress: Progress) -> int:
    """Arena-Hard's rows: each question of a model once."""
    tag = baseline_tag(space.settings.baseline)
    found = set()
    for model in progress.models:
        path = space.rows_file(model, tag, space.default_baseline)
        if path.is_file():
            found |= {(model, str(row.get("uid"))) for _, row in read_jsonl(path).records}
    return len(found)


def _deaths(runs: Sequence[Mapping[str, Any]]) -> Counter[str]:
    """Servers' deaths by cause, as the jobs tell."""
    lists = [run.get("deaths") for run in runs]
    return Counter(str(death.get("cause", "unknown")) for deaths in lists if isinstance(deaths, list)
                   for death in deaths if isinstance(death, dict))


def _own_seconds(runs: Sequence[Mapping[str, Any]], jobs: Sequence[Job], load: Mapping[str, float],
                 scale: float) -> float:
    """What this machine adds to a start that ended well: all but loading, as planned, and play. Its median."""
    took = {(job["job"], count): start for job in jobs for count, start in enumerate(starts_of(job))}
    found = []
    for run in runs:
        start, play = took.get((str(run.get("job")), int(run.get("restart") or 0))), run.get("play_seconds")
        good = start is not None and start["state"] == "COMPLETED" and not run.get("deaths")
        if start is not None and good and isinstance(play, int | float) and play:
            seconds = (start["ended"] - start["started"] - play) * scale
            found.append(seconds - load.get(str(start["node"]), 0.0))
    return max(0.0, sorted(found)[len(found) // 2]) if found else 0.0
