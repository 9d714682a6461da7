"""Assignments that were handed to a job and not started yet: which job, and whether it will still come to them.

Never takes a job that nobody can ask about for a dead one."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from automate.cluster.arrays import local_alive
from automate.cluster.base import Cluster
from automate.cluster.queue import JobState, JobStatus
from automate.errors import ClaimedError, ClusterError, DataError
from automate.validation.assignments import Assignment, Handed, State
from automate.validation.jobs import outcomes
from automate.validation.spool import Spool

SLURM, LOCAL = "slurm", "local"
KEPT = 14 * 86400.0
"""Seconds for which scripts, pickles and logs of array jobs are kept."""


@dataclass
class Freed:
    """Assignments whose job is gone: `again` can be handed in again, `given_up` were tried often enough.

    `unknown`: those of whose job nobody can say anything, with the reason.
    """

    again: list[Assignment] = field(default_factory=list)
    given_up: list[Assignment] = field(default_factory=list)
    unknown: list[tuple[Assignment, str]] = field(default_factory=list)


def statuses(handed: Iterable[Handed], cluster: Cluster | None) -> dict[str, JobStatus]:
    """The status of each job that assignments were handed to. One question to the cluster for all."""
    jobs = {(one.job, one.executor) for one in handed if one.job}
    slurm = sorted(job for job, executor in jobs if executor == SLURM)
    found = {job: _local(job) for job, executor in jobs if executor != SLURM}
    if not slurm:
        return found
    if cluster is None or cluster.kind != SLURM:
        why = "there is no Slurm on this machine to ask"
        return found | {job: JobStatus(job, JobState.UNKNOWN, why) for job in slurm}
    answer = cluster.look(slurm)
    return found | {job: answer[job] for job in slurm if job in answer}


def _local(job: str) -> JobStatus:
    life = local_alive(job)
    if life is None:
        return JobStatus(job, JobState.UNKNOWN, "it is a process of another machine")
    return JobStatus(job, JobState.RUNNING if life else JobState.COMPLETED, "the process table")


def free(spool: Spool, cluster: Cluster | None, attempts: int) -> Freed:
    """Take what was handed to jobs that are gone back. The caller holds the claim of handing in."""
    waiting = [one for one in spool.listed(State.FETCHED) if one.handed is not None]
    found = Freed()
    if not waiting:
        return found
    waiting = [one for one in waiting if not _nameless(spool, cluster, one, found)]
    known = statuses((one.handed for one in waiting if one.handed), cluster)
    idle = {job for job, status in known.items() if _did_nothing(status)}
    idle -= _at_work(spool) if idle else set()
    for one in waiting:
        if one.handed is None:
            continue
        status = known.get(one.handed.job)
        if status is not None and not status.may_act:
            what = f"job {status.job} ended without starting it ({status.state}, says {status.evidence})"
            _clear(spool, one, one.handed, found, what, status.job in idle, attempts)
        elif status is not None and status.state is JobState.UNKNOWN:
            found.unknown.append((one, status.evidence))
    return found


def _nameless(spool: Spool, cluster: Cluster | None, one: Assignment, found: Freed) -> bool:
    """Settle what was about to be handed over when the command died: by the job's name. True: nothing more to do."""
    handed = one.handed
    if handed is None or handed.job:
        return False
    if handed.executor == SLURM:
        if cluster is None or cluster.kind != SLURM:
            found.unknown.append((one, "there is no Slurm on this machine to ask"))
            return True
        try:
            jobs = cluster.find(handed.name, handed.when - 1)
        except ClusterError as error:
            found.unknown.append((one, error.what))
            return True
        if any(status.may_act for status in cluster.look(jobs).values()):
            return True  # whether or not it comes to this one, it is looked at again when it is gone
    _clear(spool, one, handed, found, "its job was never handed over", counted=False, attempts=0)
    return True


def _did_nothing(status: JobStatus) -> bool:
    """Whether a job ran and ended by itself; it counts as a start where it had not begun with anything."""
    told = (JobState.CANCELLED, JobState.PREEMPTED)
    return status.state.ended and status.state not in told and not status.never_started


def _at_work(spool: Spool) -> set[str]:
    """Jobs that have started an assignment."""
    return {event.job for one in spool.listed() for event in one.history if event.job}


def _clear(spool: Spool, one: Assignment, handed: Handed, found: Freed, what: str, counted: bool,
           attempts: int) -> None:
    try:
        with spool.held(one.id):
            now = spool.find(one.id)
            if now is None or now.state is not State.FETCHED or now.handed != handed:
                return
            freed = replace(now, handed=None, attempts=now.attempts + counted)
            freed = freed.noted(spool.clock(), what, outcomes.NEVER_TAKEN if counted else "", handed.job or None)
            if counted and freed.attempts >= attempts:
                freed = replace(freed, problem=what, cause=outcomes.NEVER_TAKEN)
                found.given_up.append(spool.move(freed, State.GIVEN_UP))
            else:
                found.again.append(spool.save(freed))
    except (ClaimedError, DataError):
        return  # somebody is at work on it, or it is shown as unreadable


def intend(spool: Spool, chosen: Sequence[Assignment], handed: Handed) -> tuple[list[str], dict[str, str]]:
    """Write down that these are about to be handed over: ids of those that are, and why others are not."""
    ready: list[str] = []
    kept: dict[str, str] = {}
    for one in chosen:
        try:
            with spool.held(one.id):
                now = spool.find(one.id)
                if now is None or not now.ready or now.handed is not None:
                    kept[one.id] = "somebody else has changed it meanwhile"
                    continue
                spool.save(replace(now, handed=handed))
                ready.append(one.id)
        except (ClaimedError, DataError) as error:
            kept[one.id] = error.what
    return ready, kept


def write_down(spool: Spool, jobs: Mapping[str, str], handed: Handed) -> None:
    """Write each assignment's job (by id) into it; one that its job has taken already has written that itself."""
    for assignment_id, job in jobs.items():
        try:
            with spool.held(assignment_id):
                now = spool.find(assignment_id)
                if now is not None and now.state is State.FETCHED and now.handed == handed:
                    spool.save(replace(now, handed=replace(handed, job=job) if job else None))
        except (ClaimedError, DataError):
            continue


def sweep(spool: Spool, now: float) -> list[str]:
    """Remove the folders of array jobs that are old and that no assignment is in the hands of; their names."""
    used = {one.handed.name for one in spool.listed(State.FETCHED, State.RUNNING) if one.handed}
    removed = []
    try:
        old = [path for path in spool.places.jobs.iterdir() if path.name not in used and path.is_dir()
               and not path.is_symlink() and now - path.stat().st_mtime > KEPT]
    except OSError:
        return []  # none yet, or one that went away meanwhile
    for path in old:
        shutil.rmtree(path, ignore_errors=True)
        removed.append(path.name)
    return removed
