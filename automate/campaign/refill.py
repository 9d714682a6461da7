"""The small job that hands in what did not fit: it starts when a batch ends, and goes on while batches wait.

Never needs a GPU, and never stays when nothing waits any more."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace

from pydantic import ValidationError

from automate.campaign.handing import Request, Submitted, hand_in, submit_claim
from automate.campaign.plans import StoredPlan, read_plans
from automate.campaign.state import CampaignState, look
from automate.campaign.waiting import count_of, never_submitted
from automate.claims import Claim
from automate.cluster.base import Cluster
from automate.cluster.limits import limit_words
from automate.cluster.own_job import postpone
from automate.cluster.script import directives, log_pattern, render
from automate.cluster.slurm import SlurmCluster
from automate.cluster.submit import Submission, SubmissionBook, hand_over, new_submission, settle_open
from automate.errors import ClaimedError, FlockError
from automate.journal import read_json, replace_file, write_json
from automate.settings import Settings
from automate.workspace import Workspace

MOST_BEFORE = 20
"""Jobs that a refill job waits for any of, at most."""
PATIENCE = 480.0
"""Seconds that a refill job waits for another command to end its planning."""


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


def remember(workspace: Workspace, stored: StoredPlan, request: Request) -> None:
    """Write down that batches of a plan wait, and how they are to be handed in."""
    write_json(workspace.waiting(stored.plan.id), {"plan": stored.plan.id, "request": asdict(request)})


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
            done: Submitted) -> str:
    """See to it that a small job hands in what waits; says which, or why there is none. Hold the submit claim."""
    remember(workspace, stored, request)
    there = active_refills(cluster, state)
    if there:
        return f"job {there[0]} hands them in when there is room"
    try:
        job = hand_in_small(workspace, cluster, stored, state, done.accepted)
    except FlockError as error:
        return (f"no job could be submitted to hand them in ({limit_words(error.what) or error.what}); "
                "run 'flock-hpc judge --submit' again when jobs have ended")
    return f"job {job.job} (small, no GPU) hands them in when the first batch ends"


# --- inside the small job -----------------------------------------------------------------------------
def _waiting(workspace: Workspace) -> list[tuple[str, Request]]:
    found = []
    for path in sorted(workspace.submissions.glob("*.waiting")):
        data = read_json(path) or {}
        with contextlib.suppress(TypeError, KeyError):
            given = data["request"]
            found.append((str(data["plan"]), Request(**{**given, "models": tuple(given["models"])})))
    return found


def submit_claim_patiently(workspace: Workspace) -> Claim:
    """The submit claim, waited for some minutes. Raises ClaimedError."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return submit_claim(workspace)
        except ClaimedError:
            if time.monotonic() > until:
                raise
            time.sleep(2.0)


def _under(workspace: Workspace, stored: StoredPlan) -> Workspace:
    """The workspace with a plan's own settings, which hold the options that `judge` was given."""
    try:
        return replace(workspace, settings=Settings.model_validate(stored.settings))
    except ValidationError:
        return workspace


def run(workspace: Workspace, say: Callable[[str], None], environ: Mapping[str, str]) -> int:
    """Hand in what fits of all plans that wait, and go on later while any is left; the exit status."""
    cluster: Cluster = SlurmCluster()
    claim = submit_claim_patiently(workspace)
    try:
        settle_open(SubmissionBook(workspace.submissions), cluster)
        left: StoredPlan | None = None
        status, accepted = 0, list[Submission]()
        for name, request in _waiting(workspace):
            state, plans = look(workspace), read_plans(workspace)
            stored = next((one for one in plans if one.plan.id == name), None)
            numbers = never_submitted(workspace, state, stored, plans) if stored else []
            if stored is None or not numbers:
                say(f"plan {name}: nothing waits any more")
                workspace.waiting(name).unlink(missing_ok=True)
                continue
            done = hand_in(_under(workspace, stored), cluster, stored, request, state, numbers=numbers, by="refill",
                           spare=1)
            status = max(status, tell(stored, done, say))
            accepted += done.accepted
            if done.waiting:
                left = stored
            else:
                workspace.waiting(name).unlink(missing_ok=True)
        if left is not None:
            _go_on(_under(workspace, left), cluster, left, look(workspace), accepted, say, environ)
        return status
    finally:
        claim.release()


def tell(stored: StoredPlan, done: Submitted, say: Callable[[str], None]) -> int:
    """Say what was handed in; 1 where something was refused."""
    for note in done.notes:
        say(note)
    for submission in done.accepted:
        say(f"plan {stored.plan.id}: {count_of(submission.tasks)} handed in as job {submission.job}")
    for submission, error in done.refused:
        say(f"plan {stored.plan.id}: not handed in: batches {sorted(submission.tasks.values())}: {error}")
    if done.waiting:
        say(f"plan {stored.plan.id}: {count_of(done.waiting)} "
            + ("still waits for room: " if len(done.waiting) == 1 else "still wait for room: ") + done.why)
    return 1 if done.refused else 0


def _go_on(workspace: Workspace, cluster: Cluster, stored: StoredPlan, state: CampaignState,
           accepted: Sequence[Submission], say: Callable[[str], None], environ: Mapping[str, str]) -> None:
    """Another small job; where the limit leaves no place for a second one, this very job again, later."""
    try:
        job = hand_in_small(workspace, cluster, stored, state, accepted)
        say(f"job {job.job} goes on")
        return
    except FlockError as error:
        say(f"no second small job ({limit_words(error.what) or error.what}): this one waits again")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Slurm ends a job that is put into the queue again
    postpone(environ, before(state, accepted))
