"""GPU-hours of a campaign by what its jobs said of themselves, and whether one more start fits under the cap.

Pure over run records and submissions; asks no Slurm, so that a job can use it before it goes on by itself."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automate.arena.batches import needs_gpu
from automate.arena.preflight.judge import asked_gpus
from automate.arena.running.runlog import own_job_id, read_runs
from automate.cluster.submit import Submission, SubmissionBook
from automate.durations import seconds_of
from automate.fleet_places import FleetPlaces, fleets_folder
from automate.fleets.account import read_worker_runs
from automate.serving.fleet.records import FleetSpec, Group
from automate.serving.fleet.registry import read_spec, read_wish
from automate.settings import Settings
from automate.workspace import Workspace

Run = Mapping[str, Any]
FRESH = 900.0
"""Seconds after its last word in which a start that did not end is taken to run still."""
GRACE = 60.0
"""Seconds that a start may have gone on after its last word, when it was killed."""


@dataclass(frozen=True)
class Usage:
    """GPU-hours that were used, and those that jobs in the queue may take at most."""

    used: float
    reserved: float

    @property
    def total(self) -> float:
        return self.used + self.reserved

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.used + other.used, self.reserved + other.reserved)


def gpus_of(settings: Settings) -> int:
    """GPUs of one job; one where options of the user's own say it."""
    if not needs_gpu(settings):
        return 0
    asked = asked_gpus(settings.slurm)
    return 1 if asked is None else asked


def hours_of_start(settings: Settings) -> float:
    """GPU-hours that one start takes at most: its time limit times its GPUs."""
    gpus = gpus_of(settings)
    return gpus * seconds_of(settings.slurm.time) / 3600 if gpus else 0.0


def number(run: Run, key: str) -> float | None:
    """A number of a record, or None where it has none that makes sense."""
    value = run.get(key)
    sound = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e12
    return float(value) if sound else None  # type: ignore[arg-type]


def lived(run: Run) -> float:
    """Seconds of one start: as it counted them, or from its first word to its last and a little more."""
    counted, first = number(run, "seconds") or 0.0, number(run, "started")
    ended, last = number(run, "ended"), number(run, "updated")
    if run.get("phase") == "ended" and counted:
        return counted
    until = ended if ended is not None else (last + GRACE if last is not None else first)
    return max(counted, (until or 0.0) - (first or 0.0), 0.0)


def cards(run: Run, settings: Settings) -> float:
    """GPUs of one start; those of the settings where it doesn't say."""
    said = number(run, "gpus")
    return gpus_of(settings) if said is None else said


def of_campaign(runs: Iterable[Run], settings: Settings) -> list[Run]:
    """The records of one judge's campaign; those that name no judge count too."""
    return [run for run in runs if run.get("judge") in (None, settings.judge.name)]


def goes_on(run: Run) -> bool:
    """Whether a start ended with its job in the queue again."""
    after = run.get("next")
    return isinstance(after, dict) and after.get("kind") in ("requeue", "slurm")


def without_slurm(runs: Sequence[Run], submissions: Sequence[Submission], finished: frozenset[str],
                  settings: Settings, own: str | None, now: float) -> Usage:
    """The usage by files alone, rather too much than too little. `own` is the asking job, whose start ends now."""
    used = reserved = 0.0
    start = hours_of_start(settings)
    newest = {run.get("job"): run for run in runs}
    for run in runs:
        hours = cards(run, settings) * lived(run) / 3600
        each = 0.0 if number(run, "gpus") == 0 else start  # an engine over a fleet holds none
        last, job = newest[run.get("job")] is run, run.get("job")
        silent = now - (number(run, "updated") or 0.0)
        if run.get("phase") == "ended" or not last or job == own or silent > FRESH:
            used += hours
            reserved += each if last and goes_on(run) and job != own and job not in finished else 0.0
        else:
            used += hours
            reserved += max(0.0, each - hours)
    waiting = {job for submission in submissions for job in submission.jobs} - set(newest) - finished
    return Usage(used, reserved + start * len(waiting))


def by_files(workspace: Workspace, own: str | None, now: float) -> Usage:
    """The campaign's usage, servers of fleets included, without asking Slurm. `own`: the asking job, if it ends now."""
    settings = workspace.settings
    runs = of_campaign(read_runs(workspace.runs), settings)
    finished = frozenset(path.name.removesuffix(".cancelled") for path in workspace.submissions.glob("*.cancelled"))
    usage = without_slurm(runs, SubmissionBook(workspace.submissions).all(), finished, settings, own, now)
    return usage + of_fleets(workspace.root, settings.judge.name, now)


def may_go_on(workspace: Workspace, *, own: str | None = None, now: float | None = None) -> bool:
    """Whether one more start of the asking job fits under limits.max_gpu_hours.

    Where several jobs may ask at once, write `next` (requeue) into the run's record first and ask then: others' wishes
    count, so that of two for the last place neither gets it rather than both. A job without GPUs may always go on.
    """
    cap, start = workspace.settings.limits.max_gpu_hours, hours_of_start(workspace.settings)
    if cap is None or start == 0:
        return True
    own = own_job_id() if own is None else own
    return by_files(workspace, own, time.time() if now is None else now).total + start <= cap


# --- servers of fleets ------------------------------------------------------------------------------
def hours_of_server(group: Group) -> float:
    """GPU-hours that one job of a fleet's server takes at most; infinite where it has no time limit."""
    if not group.gpus:
        return 0.0
    return float("inf") if group.time_limit is None else group.gpus * group.time_limit / 3600


def servers_that_fit(cap: float | None, usage: Usage, group: Group) -> int | None:
    """How many more servers of a group fit under a cap in GPU-hours; None: any number."""
    each = hours_of_server(group)
    if cap is None or each == 0:
        return None
    left = cap - usage.total
    return 0 if each == float("inf") or left < each else math.floor(left / each + 1e-9)


def of_fleets(root: Path, model: str, now: float) -> Usage:
    """GPU-hours of the servers of a model in all fleets of a workspace, by their files alone."""
    usage = Usage(0.0, 0.0)
    folder = fleets_folder(root)
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        places = FleetPlaces(root, path.name)
        spec = read_spec(places)
        runs = [run for run in read_worker_runs(places) if run.get("model") == model]
        group = next((one for one in spec.groups if one.model == model), None) if spec is not None else None
        asked = frozenset() if spec is None or group is None or read_wish(places).stop else _asked(places, spec, group)
        usage += usage_of_servers(runs, asked, hours_of_server(group) if group is not None else 0.0, now)
    return usage


def _asked(places: FleetPlaces, spec: FleetSpec, group: Group) -> frozenset[str]:
    """Jobs of a group's servers that were handed in."""
    book = SubmissionBook(places.submissions).all()
    return frozenset(f"{one.job}_{index}" for one in book for index, number in one.tasks.items()
                     if one.plan == spec.id and one.job is not None and number == group.number)


def usage_of_servers(runs: Sequence[Run], asked: frozenset[str], each: float, now: float) -> Usage:
    """What these starts of servers used and may yet use. `asked`: jobs that were handed in; `each`: hours of one.

    One beside an engine is no job: the engine's own counts its GPUs.
    """
    used = reserved = 0.0
    for run in (run for run in runs if run.get("job") is not None):
        hours = (number(run, "gpus") or 0.0) * lived(run) / 3600
        used += hours
        if run.get("phase") != "ended" and now - (number(run, "updated") or 0.0) <= FRESH:
            reserved += max(0.0, each - hours)
    return Usage(used, reserved + each * len(asked - {str(run.get("job")) for run in runs}))
