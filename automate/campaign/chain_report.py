"""The small job at the end of a chain: its script, which one waits or runs, and handing it in.

Never needs a GPU, never computes anything itself, and there is one at a time."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from automate import __version__
from automate.arena.batches import plan_tag
from automate.campaign.budget import same_campaign
from automate.campaign.plans import new_plan_id
from automate.campaign.state import BatchView, CampaignState, cluster_of_kind, look
from automate.cluster.base import Cluster
from automate.cluster.queue import JobStatus
from automate.cluster.script import directives, log_pattern, render
from automate.cluster.submit import Submission, SubmissionBook, hand_over, new_submission
from automate.errors import ConfigError, FlockError
from automate.journal import replace_file
from automate.workspace import Workspace

BY = "report"
TIME, MEMORY, CORES = "00:30:00", "4G", 2
LOOKED_AT = 20
"""How many of the newest report jobs are asked about."""


@dataclass(frozen=True)
class Wanted:
    """What a report is about: these models, against `baseline` where another than the settings' was asked for."""

    models: tuple[str, ...]
    baseline: str | None = None
    limit_questions: int | None = None


def report_jobs(state: CampaignState) -> list[Submission]:
    """Report jobs that were accepted, oldest first."""
    return [one for one in state.submissions if one.by == BY and one.job is not None]


def look_at_reports(workspace: Workspace, state: CampaignState) -> dict[str, JobStatus]:
    """What became of the newest report jobs, oldest first, by their ids."""
    found: dict[str, JobStatus] = {}
    newest = report_jobs(state)[-LOOKED_AT:]
    for kind in sorted({one.executor for one in newest}):
        jobs = [one.job for one in newest if one.executor == kind and one.job]
        cluster = cluster_of_kind(workspace, kind)
        said = cluster.look(jobs) if cluster is not None else {}
        found |= {job: said[job] for job in jobs if job in said}
    return {one.job: found[one.job] for one in newest if one.job in found}


def active_reports(workspace: Workspace, state: CampaignState) -> dict[str, JobStatus]:
    """Report jobs that wait or run, by their ids."""
    return {job: status for job, status in look_at_reports(workspace, state).items() if status.may_act}


def script_text(workspace: Workspace, wanted: Wanted, plan_id: str, python: str = sys.executable) -> str:
    """The text of the job's script: this partition and account, few cores, half an hour, no GPU."""
    slurm = workspace.settings.slurm
    small = slurm.model_copy(update={
        "time": TIME, "mem": MEMORY if slurm.mem else None, "cpus_per_task": CORES, "gpus": 0, "gres": None,
        "constraint": None, "options": {"requeue": True}})
    logs = {kind: log_pattern(workspace.logs, f"{plan_id}_%j.{suffix}")
            for kind, suffix in (("output", "out"), ("error", "err"))}
    context = {
        "directives": directives(small, name=name_of(workspace, plan_id), gpus=False, **logs), "python": python,
        "version": __version__, "workspace": workspace.root, "script": workspace.report_script,
        "models": wanted.models, "baseline": wanted.baseline, "limit": wanted.limit_questions}
    return render("report_job.sh.j2", context, workspace.templates)


def name_of(workspace: Workspace, plan_id: str) -> str:
    """A report job's name, unlike that of any other job."""
    return f"arena-report-{plan_tag(workspace, plan_id)}"


def hand_in_report(workspace: Workspace, cluster: Cluster, wanted: Wanted, after: Sequence[str]) -> Submission:
    """Submit the report job, to start when all of `after` have ended. Hold the submit claim.

    Raises SubmitError with the cluster's words.
    """
    plan_id = f"report-{new_plan_id(workspace)}"
    workspace.logs.mkdir(parents=True, exist_ok=True)
    replace_file(workspace.report_script, script_text(workspace, wanted, plan_id).encode(), 0o775)
    job = new_submission(plan_id, name_of(workspace, plan_id), workspace.report_script, cluster.kind, {}, array=False,
                         parallel=None, by=BY)
    return hand_over(SubmissionBook(workspace.submissions), cluster, replace(job, after=",".join(after) or None))


def check_version(version: str, root: Path) -> None:
    """Raise ConfigError where a report job was written by another version of flock-hpc."""
    if version != __version__:
        raise ConfigError(f"this report job was written by flock-hpc {version}, but {__version__} is installed now",
                          where=str(root), todo="run 'flock-hpc run --submit' again")


def after_these(views: Iterable[BatchView], kind: str) -> list[str]:
    """The jobs of batches that a report waits for; of an array its one id stands for all its tasks."""
    jobs = [view.job for view in views if view.job and view.job.startswith("local-") == (kind == "local")]
    return list(dict.fromkeys(job.partition("_")[0] for job in jobs))


def arrange_report(workspace: Workspace, cluster: Cluster, wanted: Wanted, *, new_jobs: bool,
                   fresh: bool) -> Submission | None:
    """See to it that a report job waits for every judging job; the one that was handed in, None where none is needed.

    One that waits already is kept where no job was added since, else another takes its place. With no judging job
    left, none is needed where the results are `fresh` or answers are still made. Hold the submit claim. Raises
    SubmitError with the cluster's words.
    """
    state = look(workspace)
    active = [view for view in state.of_kind("judge").active if same_campaign(view, workspace.settings)]
    after, reports = after_these(active, cluster.kind), active_reports(workspace, state)
    if not new_jobs and any(status.state.queued for status in reports.values()):
        return None
    if not after and (fresh or reports or state.of_kind("generate").active):
        return None
    withdraw(workspace, state)
    return hand_in_report(workspace, cluster, wanted, after)


def withdraw(workspace: Workspace, state: CampaignState) -> list[str]:
    """Cancel report jobs that wait for their turn, as another one takes their place; their ids."""
    gone = []
    for job, status in active_reports(workspace, state).items():
        if not status.state.queued:
            continue
        with contextlib.suppress(FlockError):
            cluster = cluster_of_kind(workspace, "local" if job.startswith("local-") else "slurm")
            if cluster is not None and not cluster.cancel([job]):
                gone.append(job)
    return gone


def log_of(workspace: Workspace, submission: Submission) -> str:
    """Where a report job writes what it does."""
    return str(workspace.logs / f"{submission.plan}_{submission.job}.out")
