"""How many GPU-hours a campaign has used and set aside, and how many more batches fit under limits.max_gpu_hours.

Never counts a job in the queue for less than its time limit, and never asks Slurm anything."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from automate.arena.engine_job import engine_settings
from automate.arena.running.gpu_hours import Run, Usage, cards, gpus_of, hours_of_start, lived, of_campaign, of_fleets
from automate.arena.running.runlog import read_runs
from automate.campaign.state import BatchView, CampaignState
from automate.cluster.limits import Room
from automate.cluster.queue import JobStatus
from automate.durations import seconds_of
from automate.journal import read_json
from automate.settings import JUDGE_KINDS, Settings
from automate.workspace import Workspace


def elapsed_of(status: JobStatus | Mapping[str, Any]) -> float:
    """Seconds that Slurm says a job ran; 0 where it doesn't say."""
    text = status.elapsed if isinstance(status, JobStatus) else str(status.get("elapsed") or "")
    seconds = seconds_of(text) if ":" in text else 0.0
    return 0.0 if seconds == float("inf") else seconds


def _by_slurm(workspace: Workspace, state: CampaignState) -> dict[str, float]:
    """Elapsed seconds of jobs by Slurm: those looked at now, and ends that were written down."""
    found: dict[str, float] = {}
    for path in workspace.submissions.glob("*.ended"):
        for data in (read_json(path) or {}).get("jobs", []):
            if isinstance(data, dict):
                found[str(data.get("job"))] = elapsed_of(data)
    found |= {view.job: elapsed_of(view.status) for view in state.batches if view.job and view.status}
    return found


def _settings_of(view: BatchView, default: Settings) -> Settings:
    """What a batch's job asks Slurm for, by its plan."""
    given = view.stored.settings
    wanted = given.get("slurm") if isinstance(given, dict) else None
    try:
        settings = default.model_copy(update={"slurm": type(default.slurm).model_validate(wanted)})
    except ValueError:
        return default
    judge = given.get("judge")
    kind = judge.get("kind") if isinstance(judge, dict) else None
    if view.kind == "generate" and kind in JUDGE_KINDS:  # whether answers need GPUs is its own matter
        settings = settings.model_copy(update={"judge": settings.judge.model_copy(update={"kind": kind})})
    return engine_settings(settings) if view.stored.plan.use is not None else settings


def same_campaign(view: BatchView, settings: Settings) -> bool:
    """Whether a batch is of this bench and judge."""
    stored = view.stored.settings
    judge = stored.get("judge")
    name = judge.get("name") if isinstance(judge, dict) else None
    return bool(stored.get("bench") == settings.bench and name == settings.judge.name)


def gpu_hours(workspace: Workspace, state: CampaignState, runs: Sequence[Run] | None = None) -> Usage:
    """GPU-hours of the campaign of this bench and judge: used so far, and set aside for jobs in the queue.

    A job that runs counts with what it has used, and with the rest of its time limit as set aside. The servers of
    fleets are counted too, by their own records.
    """
    settings = workspace.settings
    mine = of_campaign(read_runs(workspace.runs) if runs is None else runs, settings)
    slurm = _by_slurm(workspace, state)
    newest = {str(run.get("job")): run for run in mine}
    used, of_job = 0.0, dict[str, float]()
    for run in mine:
        job = str(run.get("job"))
        seconds = max(lived(run), slurm.get(job, 0.0)) if newest[job] is run else lived(run)
        used += cards(run, settings) * seconds / 3600
        of_job[job] = 0.0 if run.get("phase") == "ended" else cards(run, settings) * seconds / 3600
    reserved = 0.0
    for view in state.batches:
        if same_campaign(view, settings):
            asks = _settings_of(view, settings)
            gpus, here = hours_of_start(asks), of_job.get(view.job or "", 0.0)
            if view.job is not None and view.job not in newest:  # it never said a word
                here = gpus_of(asks) * slurm.get(view.job, 0.0) / 3600
                used += here
            if view.may_act:
                reserved += max(0.0, gpus - here) if view.state == "running" else gpus
    return Usage(used, reserved) + of_fleets(workspace.root, settings.judge.name, time.time())


def budget_room(workspace: Workspace, state: CampaignState, runs: Sequence[Run] | None = None) -> Room:
    """How many more jobs fit under limits.max_gpu_hours, each counted with its whole time limit."""
    cap, each = workspace.settings.limits.max_gpu_hours, hours_of_start(workspace.settings)
    if cap is None or each == 0:
        return Room()
    usage = gpu_hours(workspace, state, runs)
    left = cap - usage.total
    fits = 0 if each == float("inf") or left < each else math.floor(left / each + 1e-9)
    return Room.counted(fits, lambda more: (
        f"limits.max_gpu_hours={cap:g}; {usage.used:.2f} used, "
        f"{usage.reserved + (more * each if more else 0.0):.2f} set aside for jobs in the queue, a batch takes up to "
        f"{each:.2f}"))

