"""Why a worker ends, how long its requests have then, and whether its job goes on. Pure.

Never acts: the worker does what is decided here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from automate.cluster.own_job import OwnJob
from automate.serving.fleet.records import FleetSpec, Group, WorkerRecord

Kind = Literal["requeue", "slurm", "none"]
TIME_LIMIT, PREEMPTED, CANCELLED, NODE_FAILED, REQUEUED = (
    "time limit", "preempted", "cancelled", "node failed", "requeued")
RETIRED, STOPPED, IDLE, UNUSED, LOST, REPLACED = (
    "retired", "the fleet was stopped", "idle", "nobody uses the fleet", "the fleet's folder is lost",
    "another fleet has taken the name")
SIGNALS = ("SIGTERM", "SIGINT")
UNWANTED = frozenset({RETIRED, STOPPED, IDLE, UNUSED, LOST, REPLACED})
AS_ASKED = frozenset({RETIRED, STOPPED, IDLE, UNUSED, TIME_LIMIT})
STOP_GRACE = 20.0
"""Seconds that requests in flight have after SIGTERM; Slurm's own KillWait is 30 by default."""
MARGIN = 15.0
"""Seconds for the last records and for asking Slurm, at the end of a job."""
STARTS = 20
"""How often one job is started at most."""
OK, FAILED, TOLD = 0, 1, 143
NO_ROOM = "limits.max_gpu_hours leaves no room for another start"


@dataclass(frozen=True)
class Next:
    """What comes after this start."""

    kind: Kind
    why: str

    @property
    def record(self) -> dict[str, str | None]:
        """As it stands in the run's record."""
        return {"kind": self.kind, "why": self.why, "job": None}


def lead_of(group: Group) -> float:
    """Seconds before the time limit in which a worker takes no more requests; the signal in its script is that, too.

    Two minutes and the server's own end let all but the longest replies of a 70B judge finish, as limits.drain does for
    batches; what does not is asked of another worker. At most half of the time limit, so that something is done.
    """
    wanted = max(60.0, 120.0 + group.stop_timeout)
    return max(1.0, min(wanted, (group.time_limit or float("inf")) / 2))


def grace_of(why: str, group: Group, left: float) -> float:
    """Seconds that requests in flight have to finish. `left`: until the time limit."""
    if why in SIGNALS or why == LOST:
        return STOP_GRACE
    return max(1.0, min(group.request_timeout, left - group.stop_timeout - MARGIN))


def why_signalled(own: OwnJob | None, signal: str) -> str:
    """Why Slurm sent a signal, by its own word, or the signal's name."""
    if own is None:
        return signal
    if own.timed_out:
        return TIME_LIMIT
    if own.preempted or (own.requeued and own.notice == "PREEMPTION"):
        return PREEMPTED
    if own.requeued:
        return NODE_FAILED if own.notice == "NODE FAILURE" else REQUEUED
    return CANCELLED if own.ending else signal


def go_on(why: str, own: OwnJob | None, *, starts: int, ever_ready: bool, unwanted: bool) -> Next:
    """Whether the job is put into the queue again.

    `starts`: of this job so far; `ever_ready`: whether its server became ready in this start; `unwanted`: the fleet was
    stopped or is lost, or this worker was retired.
    """
    if unwanted:
        return Next("none", why)
    if own is not None and own.requeued:
        return Next("slurm", f"{why}: Slurm puts it into the queue again by itself")
    if why not in (TIME_LIMIT, PREEMPTED):
        return Next("none", why)
    if why == TIME_LIMIT and not ever_ready:
        return Next("none", "the time limit was over before the server was ready")
    if starts >= STARTS:
        return Next("none", f"{why}; this job was started {starts} times already")
    if own is not None and own.requeue is False:
        return Next("none", f"{why}; requeue is off for this job")
    return Next("requeue", f"{why}: start {starts + 1} of at most {STARTS}")


def held_back(why: str, reason: str) -> Next:
    """No other start, though why it ended would allow one."""
    return Next("none", f"{why}; not put into the queue again: {reason}")


def status_of(why: str | None, step: Next | None, stopped: bool) -> int:
    """The exit status: 0 where it ended as it was asked to, or goes on; 143 where it was told by a signal."""
    if why is None or why in (LOST, REPLACED):
        return FAILED
    if why in AS_ASKED or stopped or (step is not None and step.kind != "none"):
        return OK
    return TOLD


def needless(me: WorkerRecord, quiet: float, alive: Sequence[WorkerRecord], spec: FleetSpec, least: int, *,
             used: bool) -> str | None:
    """Why a worker without requests for `quiet` seconds ends, or None.

    The oldest `least` of a group stay as long as anybody uses the fleet. `alive`: workers that are registered and beat.
    """
    if quiet < spec.idle:
        return None
    if not used:
        return UNUSED
    equal = sorted((one for one in alive if one.group == me.group and one.id != me.id and one.state == "ready"),
                   key=_age)
    older = sum(1 for one in equal if _age(one) < _age(me))
    return IDLE if older >= least else None


def _age(record: WorkerRecord) -> tuple[float, str]:
    return record.since, record.id
