"""Ends a campaign's jobs: those of its batches, and the small job that would hand in more.

Never touches another job, and never calls a job cancelled that Slurm would not cancel."""

from __future__ import annotations

import contextlib
import re

from automate.campaign.refill import active_refills, forget
from automate.campaign.state import CampaignState, cluster_of_kind
from automate.errors import FlockError
from automate.workspace import Workspace


def refused_among(problems: list[str], jobs: list[str]) -> set[str]:
    """Which of some jobs these lines name; all of them where a line names none."""
    found: set[str] = set()
    for problem in problems:
        named = {job for job in jobs if re.search(rf"(?<![\w]){re.escape(job)}(?![\w])", problem)}
        found |= named or set(jobs)
    return found


def cancel(workspace: Workspace, state: CampaignState) -> tuple[list[str], list[str]]:
    """Cancel every job of this workspace that waits or runs; (ids of those cancelled, problems).

    A job that gets SIGTERM looks whether it was cancelled, so that is written down first, and taken back where Slurm
    refuses: another user's job stays as it is.
    """
    forget(workspace)
    for plan in {submission.plan for submission in state.submissions}:
        with contextlib.suppress(OSError):
            workspace.stopped(plan).touch()
    jobs: dict[str, list[str]] = {}
    for view in state.active:
        if view.job is not None:
            jobs.setdefault("local" if view.job.startswith("local-") else "slurm", []).append(view.job)
    if small := small_jobs(workspace, state):
        jobs["slurm"] = [*small, *jobs.get("slurm", [])]  # first, so that it hands nothing in meanwhile
    cancelled, problems = list[str](), list[str]()
    for kind, ids in jobs.items():
        _mark(workspace, ids, True)
        cluster = cluster_of_kind(workspace, kind)
        try:
            said = cluster.cancel(ids) if cluster is not None else [f"no Slurm here to cancel {', '.join(ids)}"]
        except FlockError as error:
            said = [str(error)]
        refused = refused_among(said, ids)
        _mark(workspace, sorted(refused), False)
        problems += said
        cancelled += [job for job in ids if job not in refused]
    return cancelled, problems


def small_jobs(workspace: Workspace, state: CampaignState) -> list[str]:
    """Ids of refill jobs of this workspace that wait or run."""
    slurm = cluster_of_kind(workspace, "slurm")
    return active_refills(slurm, state) if slurm is not None else []


def _mark(workspace: Workspace, jobs: list[str], cancelled: bool) -> None:
    for job in jobs:
        path = workspace.submissions / f"{job}.cancelled"
        with contextlib.suppress(OSError):
            if cancelled:
                path.touch()
            else:
                path.unlink(missing_ok=True)
