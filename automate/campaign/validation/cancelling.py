"""`validation cancel`: end the jobs that hold assignments; these go back to `fetched` when that is settled.

Never touches a job that holds none of this workspace's assignments."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection

from automate.campaign.validation.circle import Circle
from automate.cluster.arrays import local_alive
from automate.errors import ConfigError
from automate.validation.assignments import Assignment, State


def cancel_jobs(circle: Circle, ids: Collection[str], *, dry_run: bool) -> bool:
    """Cancel the jobs of these assignments (none named: of all); whether all went well. Raises ConfigError."""
    held = [one for one in circle.spool.listed(State.FETCHED, State.RUNNING) if one.handed is not None]
    unknown = sorted(set(ids) - {one.id for one in held})
    if unknown:
        raise ConfigError(f"no job has assignment {', '.join(unknown)}", todo="see 'flock-hpc validation status'")
    chosen = [one for one in held if not ids or one.id in ids]
    if not chosen:
        circle.say("no job has an assignment of this workspace")
        return True
    others = {one.id for one in held} - {one.id for one in chosen}
    by_job: dict[str, list[Assignment]] = {}
    for one in chosen:
        if one.handed is not None and one.handed.job:
            by_job.setdefault(one.handed.job, []).append(one)
    for job, mine in by_job.items():
        shared = sorted(one.id for one in held if one.id in others and one.handed and one.handed.job == job)
        also = f"; it also has {', '.join(shared)}" if shared else ""
        what = "would cancel" if dry_run else "cancelling"
        circle.say(f"{what} job {job}: {', '.join(one.id for one in mine)}{also}")
    problems = [] if dry_run else _cancel(circle, list(by_job))
    for problem in problems:
        circle.say(problem)
    if by_job and not dry_run:
        circle.say("their assignments go back to fetched as soon as the jobs have ended")
    return not problems


def _cancel(circle: Circle, jobs: list[str]) -> list[str]:
    here = [job for job in jobs if ":" in job]
    there = [job for job in jobs if ":" not in job]
    problems = circle.cluster.cancel(there) if there and circle.cluster is not None else []
    return [*problems, *(problem for job in here if (problem := _end_here(job)))]


def _end_here(job: str) -> str:
    """End a worker of this machine; what is in the way, or nothing."""
    alive = local_alive(job)
    if alive is None:
        return f"{job}: runs on another machine: cancel it there"
    if alive:
        try:
            os.kill(int(job.split(":")[-2]), signal.SIGTERM)
        except OSError as error:
            return f"{job}: {error.strerror}"
    return ""
