"""Settles what dead jobs left: by Slurm's word on each, their assignments are taken, put back, or left to a person.

Unknown is not dead: where nobody can say whether a holder lives, nothing is changed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from automate.cluster.base import Cluster
from automate.cluster.queue import JobState, JobStatus
from automate.errors import ClaimedError, DataError
from automate.validation.assignments import Assignment, State
from automate.validation.jobs import handed, outcomes
from automate.validation.jobs.handing import handing_claim
from automate.validation.spool import Spool
from automate.workspace import Workspace

SLURM_SAYS = 600.0
"""Seconds for which Slurm may not know yet that a job whose processes are gone has ended: it gives nodes up late."""


@dataclass
class Settled:
    """What dead jobs left: results `taken`, assignments put back (`again`), and left to a person (`given_up`).

    `waiting`: those that can't be settled yet, or of which nobody can say anything, with the reason.
    """

    taken: list[Assignment] = field(default_factory=list)
    again: list[Assignment] = field(default_factory=list)
    given_up: list[Assignment] = field(default_factory=list)
    waiting: list[tuple[Assignment, str]] = field(default_factory=list)

    @property
    def changed(self) -> int:
        """How many assignments were changed."""
        return len(self.taken) + len(self.again) + len(self.given_up)


def settle(workspace: Workspace, spool: Spool, cluster: Cluster | None,
           clock: Callable[[], float] = time.time) -> Settled:
    """Settle every assignment whose job is gone. Raises StorageError where the spool can't be written."""
    found, attempts = Settled(), workspace.settings.validation.attempts
    running = spool.listed(State.RUNNING)
    known = handed.statuses((one.handed for one in running if one.handed), cluster)
    for one in running:
        status = known.get(one.handed.job) if one.handed else None
        try:
            _settle(spool, one, status, attempts, found, clock)
        except ClaimedError as error:
            if not status or not status.state.active:
                found.waiting.append((one, error.what))
        except DataError as error:
            found.waiting.append((one, error.what))
    _free(spool, cluster, attempts, found)
    return found


def _settle(spool: Spool, one: Assignment, status: JobStatus | None, attempts: int, found: Settled,
            clock: Callable[[], float]) -> None:
    with spool.held(one.id):
        now = spool.find(one.id)
        if now is None or now.state is not State.RUNNING:
            return
        if status is not None and not _told(now, status, clock()):
            found.waiting.append((now, f"Slurm has not said yet how job {status.job} ended"))
            return
        cause = outcomes.KILLED if status is None else outcomes.cause_of_state(status.state)
        moved = outcomes.settle_dead(spool, now, cause, now.handed.job if now.handed else None, attempts)
        kind = {State.DONE: found.taken, State.FETCHED: found.again}.get(moved.state, found.given_up)
        kind.append(moved)


def _told(now: Assignment, status: JobStatus, clock: float) -> bool:
    """Whether Slurm's word can be had: a job whose processes are gone shows as running until Slurm looks.

    A last event that lies further ahead than that was noted by a clock that was wrong, and is not waited for.
    """
    if status.state not in (JobState.RUNNING, JobState.COMPLETING):
        return True
    return abs(clock - (now.history[-1].when if now.history else 0.0)) > SLURM_SAYS


def _free(spool: Spool, cluster: Cluster | None, attempts: int, found: Settled) -> None:
    """What was handed over and never started; left alone while a command is handing in."""
    if not any(one.handed for one in spool.listed(State.FETCHED)):
        return
    try:
        with handing_claim(spool):
            freed = handed.free(spool, cluster, attempts)
    except ClaimedError:
        return
    found.again += freed.again
    found.given_up += freed.given_up
    found.waiting += freed.unknown
