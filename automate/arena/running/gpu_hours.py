"""GPU-hours of a campaign by what its jobs said of themselves, and whether one more start fits under the cap.

Pure over run records and submissions; asks no Slurm, so that a job can use it before it goes on by itself."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automate.arena.batches import needs_gpu
from automate.arena.engine_job import FleetUse, engine_settings
from automate.arena.preflight.judge import asked_gpus
from automate.arena.running.runlog import own_job_id, read_runs
from automate.cluster.submit import Submission, SubmissionBook
from automate.durations import seconds_of
from automate.fleet_places import FleetPlaces
from automate.fleets.account import read_worker_runs
from automate.fleets.jobs import fleets_of
from automate.journal import read_json
from automate.serving.fleet.records import Group
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
                  settings: Settings, own: str | None, now: float, engines: frozenset[str] = frozenset()) -> Usage:
    """The usage by files alone, rather too much than too little. `own` is the asking job, whose start ends now.

    `engines`: plans whose jobs play on a fleet.
    """
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
    engine = hours_of_start(engine_settings(settings))
    waiting = {job: engine if submission.plan in engines else start
               for submission in submissions for job in submission.jobs}
    known = {*newest, *finished}
    return Usage(used, reserved + sum(each for job, each in waiting.items() if job not in known))


def by_files(workspace: Workspace, own: str | None, now: float) -> Usage:
    """The campaign's usage, servers of fleets included, without asking Slurm. `own`: the asking job, if it ends now."""
    settings = workspace.settings
    runs = of_campaign(read_runs(workspace.runs), settings)
    finished = frozenset(path.name.removesuffix(".cancelled") for path in workspace.submissions.glob("*.cancelled"))
    book = SubmissionBook(workspace.submissions).all()
    usage = without_slurm(runs, book, finished, settings, own, now, _engines(workspace, book))
    return usage + of_fleets(workspace.root, settings.judge.name, now, own=own)


def _engines(workspace: Workspace, submissions: Iterable[Submission]) -> frozenset[str]:
    """The plans among those handed in that are played on a fleet."""
    plans = {submission.plan for submission in submissions}
    return frozenset(plan for plan in plans if FleetUse.of(
        (read_json(workspace.plans / f"{plan}.json") or {}).get("fleet")) is not None)


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


def server_may_go_on(workspace: Workspace, group: Group, *, own: str | None, now: float | None = None) -> bool:
    """Whether one more start of a fleet's server fits under limits.max_gpu_hours; `own`: its job.

    As `may_go_on` of a batch: write `next` (requeue) into its record first.
    """
    usage = by_files(workspace, own, time.time() if now is None else now)
    return servers_that_fit(workspace.settings.limits.max_gpu_hours, usage, group) != 0


def of_fleets(root: Path, model: str, now: float, *, own: str | None = None) -> Usage:
    """GPU-hours of the servers of a model in all fleets of a workspace, by their files alone.

    `own`: the asking server's job, whose start ends now.
    """
    usage = Usage(0.0, 0.0)
    for name in fleets_of(root):
        places = FleetPlaces(root, name)
        spec = read_spec(places)
        group = next((one for one in spec.groups if one.model == model), None) if spec is not None else None
        runs = [run for run in read_worker_runs(places) if run.get("model") == model]
        if spec is None or group is None:
            usage += usage_of_servers(runs, frozenset(), 0.0, now, own=own)
            continue
        book = [one for one in SubmissionBook(places.submissions).all() if one.plan == spec.id]
        mine, before = _of_now(book, runs)
        usage += usage_of_servers(before, frozenset(), 0.0, now)
        usage += usage_of_servers(mine, _waiting(places, book, group, mine, now), hours_of_server(group), now, own=own)
    return usage


def _jobs(book: Iterable[Submission], group: Group | None = None) -> set[str]:
    """Jobs of servers (of one group) that were handed in, as squeue prints them."""
    return {f"{one.job}_{index}" for one in book if one.job is not None
            for index, number in one.tasks.items() if group is None or number == group.number}


def _of_now(book: Sequence[Submission], runs: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """The starts of the fleet as it is, and those of before it was made anew, which are over."""
    if not book or any(one.open for one in book):  # whose a job is, is not known yet
        return list(runs), []
    handed = _jobs(book)
    return [run for run in runs if run.get("job") in handed], [run for run in runs if run.get("job") not in handed]


def _waiting(places: FleetPlaces, book: Sequence[Submission], group: Group, runs: Sequence[Run],
             now: float) -> frozenset[str]:
    """Jobs of a group's servers that may be in the queue: handed in, and neither cancelled nor lost before a word."""
    wish = read_wish(places)
    if wish.stop:
        return frozenset()
    spoke = {run.get("job") for run in runs}
    return frozenset(job for job in _jobs(book, group) - set(wish.dropped)
                     if job in spoke or not _died_mute(places, group, job, now))


def _died_mute(places: FleetPlaces, group: Group, job: str, now: float) -> bool:
    """Whether a job without a record was started long ago: there is a log of it."""
    for kind in ("out", "err"):
        with contextlib.suppress(OSError):
            if now - (places.logs / f"worker-{group.number}_{job}.{kind}").stat().st_mtime > FRESH:
                return True
    return False


def usage_of_servers(runs: Sequence[Run], asked: frozenset[str], each: float, now: float, *,
                     own: str | None = None) -> Usage:
    """What these starts of servers used and may yet use. `asked`: jobs that may be in the queue; `each`: hours of one.

    Every start is used up once; for a job, its newest start says what is set aside: the rest of its time limit while it
    lives, a whole start where it is in the queue again, nothing where it is over. `own`: the asking job, for which
    nothing is set aside, as its start ends now. One beside an engine is no job: the engine's own counts its GPUs.
    """
    used = reserved = 0.0
    of_jobs = sorted((run for run in runs if run.get("job") is not None), key=lambda run: number(run, "restart") or 0.0)
    newest = {str(run.get("job")): run for run in of_jobs}
    for run in of_jobs:
        job, last = str(run.get("job")), newest[str(run.get("job"))] is run
        lives = last and run.get("phase") != "ended" and now - (number(run, "updated") or 0.0) <= FRESH
        hours = (number(run, "gpus") or 0.0) * (_so_far(run) if lives else lived(run)) / 3600
        used += hours
        if not last or job == own:
            continue
        if goes_on(run) and (lives or (run.get("phase") == "ended" and job in asked)):
            reserved += each
        elif lives:
            reserved += max(0.0, each - hours)
    return Usage(used, reserved + each * len(asked - {*newest, own}))


def _so_far(run: Run) -> float:
    """Seconds of a start that lives: the rest of its time limit is set aside."""
    return max(number(run, "seconds") or 0.0, (number(run, "updated") or 0.0) - (number(run, "started") or 0.0))
