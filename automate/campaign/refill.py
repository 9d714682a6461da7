"""The small job that hands in what did not fit: when one is needed, its script, and handing it in.

Never needs a GPU, and there is one at a time."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, replace

from automate.campaign.chain_held import Chain
from automate.campaign.handing import Request, Submitted
from automate.campaign.kinds import kind_of
from automate.campaign.plans import StoredPlan
from automate.campaign.state import CampaignState
from automate.cluster.base import Cluster
from automate.cluster.limits import limit_words
from automate.cluster.script import directives, log_pattern, render
from automate.cluster.submit import Submission, SubmissionBook, hand_over, new_submission
from automate.errors import FlockError
from automate.journal import replace_file, write_json
from automate.workspace import Workspace

MOST_BEFORE = 20
"""Jobs that a refill job waits for any of, at most."""


def wanted(workspace: Workspace, cluster: Cluster) -> bool:
    """Whether what does not fit is handed in by a small job."""
    return workspace.settings.limits.refill == "job" and cluster.kind == "slurm"


def refills(state: CampaignState) -> list[Submission]:
    """Refill jobs that were accepted, newest last."""
    return [one for one in state.submissions if one.by == "refill" and not one.tasks and one.job is not None]


def active_refills(cluster: Cluster, state: CampaignState) -> list[str]:
    """Ids of refill jobs that wait or run."""
    jobs = [one.job for one in refills(state) if one.job and one.executor == cluster.kind][-20:]
    return [job for job, status in cluster.look(jobs).items() if status.may_act and job in jobs] if jobs else []


def remember(workspace: Workspace, stored: StoredPlan, request: Request, chain: Chain | None = None) -> None:
    """Write down that batches of a plan wait, and how they are to be handed in."""
    more = {"chain": chain.as_data()} if chain is not None else {}
    write_json(workspace.waiting(stored.plan.id), {"plan": stored.plan.id, "request": asdict(request), **more})


def write_script(workspace: Workspace, stored: StoredPlan) -> None:
    """Write the small job's script: this partition and account, one CPU, ten minutes, no GPU."""
    slurm = workspace.settings.slurm
    small = slurm.model_copy(update={
        "time": "00:10:00", "mem": "1G" if slurm.mem else None, "cpus_per_task": 1, "gpus": 0, "gres": None,
        "constraint": None, "options": {"requeue": True}})
    logs = {kind: log_pattern(workspace.logs, f"judge-refill_%j_{stored.plan.id}.{suffix}")
            for kind, suffix in (("output", "out"), ("error", "err"))}
    context = {"directives": directives(small, name=name_of(stored), gpus=False, **logs), "plan": stored.plan.id,
               "python": sys.executable, "workspace": workspace.root, "script": workspace.refill_script}
    workspace.logs.mkdir(parents=True, exist_ok=True)  # Slurm makes none, and a campaign may only generate so far
    replace_file(workspace.refill_script, render("refill.sh.j2", context, workspace.templates).encode(), 0o775)


def name_of(stored: StoredPlan) -> str:
    """A refill job's name."""
    return f"judge-refill-{stored.plan.tag}"


def before(state: CampaignState, accepted: Sequence[Submission]) -> str | None:
    """Jobs of which the first to end may make room, for a dependency."""
    jobs = [job for submission in accepted for job in submission.jobs]
    jobs += [view.job for view in state.active if view.job and view.job not in jobs]
    return "?".join(job for job in jobs[:MOST_BEFORE] if not job.startswith("local-")) or None


def hand_in_small(workspace: Workspace, cluster: Cluster, stored: StoredPlan, state: CampaignState,
                  accepted: Sequence[Submission]) -> Submission:
    """Submit the small job. Raises SubmitError with Slurm's words. Hold the submit claim."""
    write_script(workspace, stored)
    job = new_submission(stored.plan.id, name_of(stored), workspace.refill_script, cluster.kind, {}, array=False,
                         parallel=None, by="refill")
    return hand_over(SubmissionBook(workspace.submissions), cluster, replace(job, after=before(state, accepted)))


def arrange(workspace: Workspace, cluster: Cluster, stored: StoredPlan, request: Request, state: CampaignState,
            done: Submitted, chain: Chain | None = None) -> str:
    """See to it that a small job hands in what waits; says which, or why there is none. Hold the submit claim."""
    remember(workspace, stored, request, chain)
    command = "flock-hpc run --submit" if chain is not None else kind_of(stored.plan.kind).submit
    there = active_refills(cluster, state)
    if there:
        return f"job {there[0]} hands them in when there is room"
    try:
        job = hand_in_small(workspace, cluster, stored, state, done.accepted)
    except FlockError as error:
        return (f"no job could be submitted to hand them in ({limit_words(error.what) or error.what}); "
                f"run '{command}' again when jobs have ended")
    return f"job {job.job} (small, no GPU) hands them in when the first batch ends"
