"""Ends a campaign's jobs: of its batches, its fleet's servers, the small job that would hand in more, the report's.

Never touches another job, and never calls a job cancelled that Slurm would not cancel."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

from automate.campaign.chain_report import active_reports
from automate.campaign.refill import active_refills
from automate.campaign.state import CampaignState, cluster_of_kind
from automate.cluster.asking import me
from automate.errors import FlockError, StorageError
from automate.fleet_places import FleetPlaces, fleets_folder
from automate.journal import replace_file
from automate.workspace import Workspace

if TYPE_CHECKING:
    from automate.serving.fleet.records import FleetSpec


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
    plans = {submission.plan for submission in state.submissions}
    plans |= {path.stem for path in workspace.submissions.glob("*.waiting")}
    others = {sub.plan for sub in state.submissions if sub.user not in (None, me())}
    before = {plan: _stop(workspace, plan) for plan in plans - others}  # nothing is handed in meanwhile
    jobs: dict[str, list[str]] = {}
    for view in state.active:
        if view.job is not None:
            jobs.setdefault("local" if view.job.startswith("local-") else "slurm", []).append(view.job)
    if small := small_jobs(workspace, state):
        jobs["slurm"] = [*small, *jobs.get("slurm", [])]  # first, so that it hands nothing in meanwhile
    for job in active_reports(workspace, state):
        jobs.setdefault("local" if job.startswith("local-") else "slurm", []).append(job)
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
    left = {job for ids in jobs.values() for job in ids} - set(cancelled)
    spared = _spared(state, plans, set(cancelled), left)
    if not left:
        servers, said = stop_fleets(workspace)
        cancelled, problems = cancelled + servers, problems + said
    for plan in spared & before.keys():
        _go_on(workspace, plan, before[plan])
    for plan in plans - spared - before.keys():
        _stop(workspace, plan)
    return cancelled, problems


def campaign_fleets(workspace: Workspace) -> list[tuple[FleetPlaces, FleetSpec]]:
    """The fleets that were made for campaigns of this workspace, by this user, and that have jobs which may act."""
    if not fleets_folder(workspace.root).is_dir():
        return []
    from automate.fleets.jobs import cluster_of, fleets_of, is_over
    from automate.serving.fleet.registry import read_spec

    found = []
    for places in (FleetPlaces(workspace.root, name) for name in fleets_of(workspace.root)):
        spec = read_spec(places)
        if spec is not None and spec.campaign is not None and spec.user == me() \
                and not is_over(places, cluster_of(workspace.root, spec.executor)):
            found.append((places, spec))
    return found


def stop_fleets(workspace: Workspace) -> tuple[list[str], list[str]]:
    """End the servers of campaigns' fleets, those with work too; (ids of their jobs, problems)."""
    jobs, problems = list[str](), list[str]()
    try:
        for places, spec in campaign_fleets(workspace):
            from automate.fleets.handing import stop
            from automate.fleets.jobs import cluster_of

            done = stop(places, spec, cluster_of(workspace.root, spec.executor), now=True)
            jobs += [job for job in done.cancelled if job not in refused_among(list(done.problems), [*done.cancelled])]
            problems += done.problems
    except FlockError as error:
        problems.append(str(error))
    return jobs, problems


def _spared(state: CampaignState, plans: set[str], cancelled: set[str], refused: set[str]) -> set[str]:
    """Plans that go on: Slurm cancelled none of their jobs and refused one, or refused all that was asked of it."""
    def of(jobs: set[str]) -> set[str]:
        found = {view.stored.plan.id for view in state.active if view.job in jobs}
        return found | {sub.plan for sub in state.submissions if sub.job in jobs}
    return (plans if refused and not cancelled else of(refused)) - of(cancelled)


def _stop(workspace: Workspace, plan: str) -> tuple[bool, bytes | None]:
    """Let nothing more of a plan be handed in; (whether that was so before, what stood in its mark of waiting)."""
    was, waiting = workspace.stopped(plan).exists(), None
    with contextlib.suppress(OSError):
        workspace.stopped(plan).touch()
    with contextlib.suppress(OSError):
        waiting = workspace.waiting(plan).read_bytes()
        workspace.waiting(plan).unlink(missing_ok=True)
    return was, waiting


def _go_on(workspace: Workspace, plan: str, before: tuple[bool, bytes | None]) -> None:
    """Take back that a plan was stopped."""
    was, waiting = before
    with contextlib.suppress(OSError, StorageError):
        if waiting is not None:
            replace_file(workspace.waiting(plan), waiting)
        if not was:
            workspace.stopped(plan).unlink(missing_ok=True)


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
