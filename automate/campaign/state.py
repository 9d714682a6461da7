"""What became of every batch: plans, submissions, the queue's word and the jobs' own, put together.

Never submits or cancels; an unknown state stays unknown, with its reason."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from automate.arena.batches import Batch, PlanKind
from automate.campaign.kinds import Files, under
from automate.campaign.monitoring.vitals import RunFiles
from automate.campaign.plans import StoredPlan, read_plans
from automate.cluster import slurm
from automate.cluster.asking import known_users, me
from automate.cluster.base import Cluster
from automate.cluster.local.executor import LocalCluster
from automate.cluster.queue import JobState, JobStatus
from automate.cluster.shared import ENDED, Answer, SharedQueue
from automate.cluster.slurm import SlurmCluster
from automate.cluster.submit import Submission, SubmissionBook
from automate.errors import ClusterError, StorageError
from automate.journal import read_json, write_json
from automate.workspace import Workspace


@dataclass(frozen=True)
class BatchView:
    """A batch of a plan with its newest job, if any, and what that job says of itself.

    `submissions`: how often it was handed over, without the successors that its own jobs submitted.
    """

    stored: StoredPlan
    batch: Batch
    job: str | None
    status: JobStatus | None
    run: Mapping[str, Any] | None
    submissions: int

    @property
    def kind(self) -> PlanKind:
        """Whether it judges or generates answers."""
        return self.stored.plan.kind

    @property
    def may_act(self) -> bool:
        return self.status is not None and self.status.may_act

    @property
    def state(self) -> str:
        """planned, queued, running, unknown, or the state in which its job ended, in lower case."""
        if self.status is None:
            return "planned"
        if self.status.state.queued:
            return "queued"
        if self.status.state.active:
            return "running"
        if self.status.state is JobState.UNKNOWN and self.status.gone and self.run and "status" in self.run:
            return "completed" if self.run["status"] == 0 else "failed"
        return self.status.state.value.lower()


@dataclass(frozen=True)
class CampaignState:
    """All batches of a workspace, newest plan last.

    `asked`: how many seconds ago Slurm gave the answer that this rests on; `queue_problem`: why it could not be asked.
    `also`: the jobs that were asked about beside them.
    """

    batches: tuple[BatchView, ...]
    submissions: tuple[Submission, ...]
    asked: float = 0.0
    queue_problem: str | None = None
    also: Mapping[str, JobStatus] = field(default_factory=dict)

    @property
    def active(self) -> list[BatchView]:
        """Batches that wait or run, or of which that can't be ruled out."""
        return [view for view in self.batches if view.may_act]

    @property
    def busy_models(self) -> dict[str, BatchView]:
        """Models of judging batches that wait or run."""
        return self.busy("judge")

    def busy(self, kind: PlanKind) -> dict[str, BatchView]:
        """Models of batches of a kind of work that wait or run."""
        return {model: view for view in self.active if view.kind == kind for model in view.batch.models}

    def of_kind(self, kind: PlanKind) -> CampaignState:
        """The same with batches of one kind of work only."""
        return replace(self, batches=tuple(view for view in self.batches if view.kind == kind))

    def of_plan(self, plan: str) -> list[BatchView]:
        return [view for view in self.batches if view.stored.plan.id == plan]


def pick_cluster(workspace: Workspace, executor: str | None = None, kind: PlanKind = "judge") -> Cluster:
    """The cluster that `executor` names; auto: Slurm where its commands are, else this machine.

    `kind`: the work that is to be handed in; this machine runs servers of GPUs one at a time.
    """
    wanted = executor or workspace.settings.executor
    if wanted == "slurm" and not slurm.available():
        raise ClusterError("no Slurm on this machine: no sbatch or squeue on PATH", where="executor",
                           todo="run this on the cluster's login node, or use --executor local")
    if wanted == "slurm" or (wanted == "auto" and slurm.available()):
        return SlurmCluster()
    parallel = workspace.settings.limits.max_parallel or (
        1 if under(workspace, kind).settings.judge.kind == "vllm" else 2)
    return LocalCluster(workspace.local_queue, workspace.root, parallel)


def cluster_of_kind(workspace: Workspace, kind: str, users: Sequence[str] = ()) -> Cluster | None:
    """The cluster of a kind for looking only (at the jobs of `users` too), or None where this machine has none."""
    if kind == "local":
        return LocalCluster(workspace.local_queue, workspace.root)
    return SlurmCluster(users) if slurm.available() else None


def other_users(submissions: Iterable[Submission]) -> list[str]:
    """Who else has submitted in this workspace."""
    return known_users({submission.user for submission in submissions if submission.user} - {me()})


def _names(plans: Iterable[StoredPlan]) -> dict[str, tuple[StoredPlan, int | None]]:
    """Job name -> (plan, batch number), with None for an array's name."""
    found: dict[str, tuple[StoredPlan, int | None]] = {}
    for stored in plans:
        for batch in stored.plan.batches:
            found[stored.plan.job_name(batch)] = (stored, batch.number)
        for part in stored.parts:
            found[stored.plan.array_name(part.part)] = (stored, None)
    return found


def _batch_of(status: JobStatus, names: Mapping[str, tuple[StoredPlan, int | None]]) -> tuple[str, int] | None:
    """(plan, batch) that a job belongs to by its name and array index."""
    found = names.get(status.name)
    if found is None:
        return None
    stored, number = found
    if number is None:
        index = status.job.partition("_")[2]
        part = next((p for p in stored.parts if stored.plan.array_name(p.part) == status.name), None)
        if part is None or not index.isdigit():
            return None
        number = int(index) + part.offset
    return stored.plan.id, number


def look(workspace: Workspace, max_age: float = 0.0, also: Sequence[str] = ()) -> CampaignState:
    """Ask every cluster that was ever used once, and put the answers together.

    With a `max_age` (seconds) Slurm's answer may be that old: all who look at the workspace share one. Without it
    Slurm is asked now, as it must be before anything is done. `also`: jobs of Slurm that are no batch's, such as those
    of fleets, to be asked about in the same question.
    """
    plans = read_plans(workspace)
    submissions = SubmissionBook(workspace.submissions).all()
    names = _names(plans)
    kinds = {submission.executor for submission in submissions} | ({"slurm"} if slurm.available() else set())
    statuses = _ended_before(workspace)
    asked, problem, beside = 0.0, None, dict[str, JobStatus]()
    for kind in sorted(kinds):
        jobs = [job for sub in submissions if sub.executor == kind for job in sub.jobs if job not in statuses]
        cluster = cluster_of_kind(workspace, kind, other_users(submissions))
        if cluster is None:
            problem = "no Slurm commands here"
            statuses.update({job: JobStatus(job, JobState.UNKNOWN, problem) for job in jobs})
        elif kind != "slurm":
            statuses.update(cluster.look(jobs, list(names)))
        elif jobs or names or also:
            answer = _answer(workspace, [*jobs, *also], other_users(submissions), max_age)
            asked, problem = answer.age, answer.problem
            statuses.update(answer.statuses(jobs, names.keys()))
            beside = answer.statuses(also, ())
    _remember_ended(workspace, submissions, statuses)
    for job, status in statuses.items():
        if status.gone and (workspace.submissions / f"{job}.cancelled").exists():
            statuses[job] = replace(status, state=JobState.CANCELLED, evidence="cancelled by flock-hpc")
    return CampaignState(tuple(_views(workspace, plans, submissions, names, statuses)), tuple(submissions),
                         asked, problem, beside)


@functools.cache
def _shared(folder: Path) -> SharedQueue:
    return SharedQueue(folder)


@functools.cache
def _run_files(folder: Path) -> RunFiles:
    return RunFiles(folder)


def _answer(workspace: Workspace, jobs: Sequence[str], users: Sequence[str], max_age: float) -> Answer:
    shared = _shared(workspace.queue_cache)
    return shared.get(jobs, users, max_age) if max_age > 0 else shared.fresh(jobs, users)


def _views(workspace: Workspace, plans: Iterable[StoredPlan], submissions: Iterable[Submission],
           names: Mapping[str, tuple[StoredPlan, int | None]], statuses: Mapping[str, JobStatus]) -> list[BatchView]:
    named: dict[tuple[str, int], list[JobStatus]] = {}
    for status in statuses.values():
        key = _batch_of(status, names)
        if key is not None:
            named.setdefault(key, []).append(status)
    handed: dict[tuple[str, int], list[Submission]] = {}
    for submission in submissions:
        for number in set(submission.tasks.values()):
            handed.setdefault((submission.plan, number), []).append(submission)
    runs = _runs_by_job(_run_files(workspace.runs).read())
    return [_view(stored, batch, handed.get((stored.plan.id, batch.number), []), statuses, named, runs)
            for stored in plans for batch in stored.plan.batches]


def _ended_before(workspace: Workspace) -> dict[str, JobStatus]:
    """Jobs whose end was written down: accounting need not be asked about them again."""
    found: dict[str, JobStatus] = {}
    for path in workspace.submissions.glob("*.ended"):
        for data in (read_json(path) or {}).get("jobs", []):
            status = JobStatus(**{**data, "state": JobState(data["state"])})
            found[status.job] = status
    return found


def _remember_ended(workspace: Workspace, submissions: Iterable[Submission],
                    statuses: Mapping[str, JobStatus]) -> None:
    """Write down the end of submissions that accounting alone still knows; a job in squeue may be requeued."""
    for submission in submissions:
        ends = [statuses[job] for job in submission.jobs if job in statuses]
        path = workspace.submissions / f"{submission.id}.ended"
        final = ends and all(status.evidence == "sacct" and status.state in ENDED for status in ends)
        if final and len(ends) == len(submission.jobs) and not path.exists():
            with contextlib.suppress(StorageError):  # somebody who may only look
                write_json(path, {"jobs": [asdict(status) for status in ends]})


Runs = Mapping[tuple[str, str, int], Mapping[str, Any]]
"""The newest record of a job for a batch of a plan: a controller that lost its state gives ids anew."""


def _runs_by_job(records: Sequence[dict[str, Any]]) -> Runs:
    return {(record["job"], str(record.get("plan")), record.get("batch", 0)): record
            for record in records if record.get("job")}


def _view(stored: StoredPlan, batch: Batch, mine: Sequence[Submission], statuses: Mapping[str, JobStatus],
          named: Mapping[tuple[str, int], list[JobStatus]], runs: Runs) -> BatchView:
    jobs = [job for sub in sorted(mine, key=lambda s: s.intended, reverse=True) if (job := sub.job_of(batch.number))]
    candidates = [statuses[job] for job in jobs if job in statuses]
    candidates += [status for status in named.get((stored.plan.id, batch.number), []) if status.job not in jobs]
    status = next((s for s in candidates if s.may_act), candidates[0] if candidates else None)
    job = status.job if status else (jobs[0] if jobs else None)
    return BatchView(stored, batch, job, status, runs.get((job or "", stored.plan.id, batch.number)),
                     sum(1 for sub in mine if sub.job is not None and sub.by != "job"))


def log_files(workspace: Workspace, view: BatchView) -> list[Path]:
    """A batch's log files, newest last: out, err and the server's log of every start."""
    part, plan = view.stored.part_of(view.batch.number), view.stored.plan
    if part is not None and part.offset and view.job is not None:
        pattern = f"{plan.word}-batch-*_{view.job}_{plan.id}.*"  # named by the task's index
    else:
        pattern = f"{plan.word}-batch-{view.batch.number}_*_{plan.id}.*"
    return sorted(Files(workspace, plan.kind).logs.glob(pattern), key=lambda path: path.stat().st_mtime)
