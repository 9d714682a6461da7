"""What became of every batch: plans, submissions, the queue's word and the jobs' own, put together.

Never submits or cancels; an unknown state stays unknown, with its reason."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from automate.arena.batches import Batch
from automate.arena.runlog import read_runs
from automate.campaign.plans import StoredPlan, read_plans
from automate.cluster import slurm
from automate.cluster.base import Cluster
from automate.cluster.local import LocalCluster
from automate.cluster.queue import JobState, JobStatus
from automate.cluster.slurm import SlurmCluster
from automate.cluster.submit import Submission, SubmissionBook
from automate.errors import ClusterError, StorageError
from automate.journal import read_json, write_json
from automate.workspace import Workspace

_FINAL = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.TIMEOUT,
                    JobState.OUT_OF_MEMORY})


@dataclass(frozen=True)
class BatchView:
    """A batch of a plan with its newest job, if any, and what that job says of itself."""

    stored: StoredPlan
    batch: Batch
    job: str | None
    status: JobStatus | None
    run: Mapping[str, Any] | None
    submissions: int

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
    """All batches of a workspace, newest plan last."""

    batches: tuple[BatchView, ...]
    submissions: tuple[Submission, ...]

    @property
    def active(self) -> list[BatchView]:
        """Batches that wait or run, or of which that can't be ruled out."""
        return [view for view in self.batches if view.may_act]

    @property
    def busy_models(self) -> dict[str, BatchView]:
        return {model: view for view in self.active for model in view.batch.models}

    def of_plan(self, plan: str) -> list[BatchView]:
        return [view for view in self.batches if view.stored.plan.id == plan]


def pick_cluster(workspace: Workspace, executor: str | None = None) -> Cluster:
    """The cluster that `executor` names; auto: Slurm where its commands are, else this machine."""
    wanted = executor or workspace.settings.executor
    if wanted == "slurm" and not slurm.available():
        raise ClusterError("no Slurm on this machine: no sbatch or squeue on PATH", where="executor",
                           todo="run this on the cluster's login node, or use --executor local")
    if wanted == "slurm" or (wanted == "auto" and slurm.available()):
        return SlurmCluster()
    parallel = workspace.settings.limits.max_parallel or (1 if workspace.settings.judge.kind == "vllm" else 2)
    return LocalCluster(workspace.local_queue, workspace.root, parallel)


def cluster_of_kind(workspace: Workspace, kind: str) -> Cluster | None:
    """The cluster of a kind for looking only, or None where this machine doesn't have it."""
    if kind == "local":
        return LocalCluster(workspace.local_queue, workspace.root)
    return SlurmCluster() if slurm.available() else None


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


def look(workspace: Workspace) -> CampaignState:
    """Ask every cluster that was ever used once, and put the answers together."""
    plans = read_plans(workspace)
    submissions = SubmissionBook(workspace.submissions).all()
    names = _names(plans)
    kinds = {submission.executor for submission in submissions} | ({"slurm"} if slurm.available() else set())
    statuses = _ended_before(workspace)
    for kind in sorted(kinds):
        jobs = [job for sub in submissions if sub.executor == kind for job in sub.jobs if job not in statuses]
        cluster = cluster_of_kind(workspace, kind)
        if cluster is not None:
            statuses.update(cluster.look(jobs, list(names)))
        else:
            statuses.update({job: JobStatus(job, JobState.UNKNOWN, "no Slurm commands here") for job in jobs})
    _remember_ended(workspace, submissions, statuses)
    for job, status in statuses.items():
        if status.gone and (workspace.submissions / f"{job}.cancelled").exists():
            statuses[job] = replace(status, state=JobState.CANCELLED, evidence="cancelled by flock-hpc")
    named: dict[tuple[str, int], list[JobStatus]] = {}
    for status in statuses.values():
        key = _batch_of(status, names)
        if key is not None:
            named.setdefault(key, []).append(status)
    runs = _runs_by_job(read_runs(workspace.runs))
    views = [_view(stored, batch, submissions, statuses, named, runs)
             for stored in plans for batch in stored.plan.batches]
    return CampaignState(tuple(views), tuple(submissions))


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
        final = ends and all(status.evidence == "sacct" and status.state in _FINAL for status in ends)
        if final and len(ends) == len(submission.jobs) and not path.exists():
            with contextlib.suppress(StorageError):  # somebody who may only look
                write_json(path, {"jobs": [asdict(status) for status in ends]})


def _runs_by_job(records: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {record["job"]: record for record in records if record.get("job")}


def _view(stored: StoredPlan, batch: Batch, submissions: Sequence[Submission], statuses: Mapping[str, JobStatus],
          named: Mapping[tuple[str, int], list[JobStatus]], runs: Mapping[str, Mapping[str, Any]]) -> BatchView:
    mine = [sub for sub in submissions if sub.plan == stored.plan.id and batch.number in sub.tasks.values()]
    jobs = [job for sub in sorted(mine, key=lambda s: s.intended, reverse=True) if (job := sub.job_of(batch.number))]
    candidates = [statuses[job] for job in jobs if job in statuses]
    candidates += [status for status in named.get((stored.plan.id, batch.number), []) if status.job not in jobs]
    status = next((s for s in candidates if s.may_act), candidates[0] if candidates else None)
    job = status.job if status else (jobs[0] if jobs else None)
    return BatchView(stored, batch, job, status, runs.get(job or ""), sum(1 for sub in mine if sub.job is not None))


def log_files(workspace: Workspace, view: BatchView) -> list[Path]:
    """A batch's log files, newest last: out, err and the server's log of every start."""
    part = view.stored.part_of(view.batch.number)
    if part is not None and part.offset and view.job is not None:
        pattern = f"judge-batch-*_{view.job}_{view.stored.plan.id}.*"  # named by the task's index
    else:
        pattern = f"judge-batch-{view.batch.number}_*_{view.stored.plan.id}.*"
    return sorted(workspace.logs.glob(pattern), key=lambda path: path.stat().st_mtime)
