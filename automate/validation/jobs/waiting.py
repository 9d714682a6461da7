"""Waits for what was handed in, settling what dies meanwhile.

Never hands anything in, and never ends a job."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from automate.cluster.base import Cluster
from automate.errors import DataError
from automate.validation.assignments import Assignment, State
from automate.validation.jobs.settling import settle
from automate.validation.spool import Spool
from automate.workspace import Workspace

POLL, SETTLE_EVERY = 1.0, 15.0
"""Seconds between two looks at the spool, and between two questions to the cluster."""


@dataclass(frozen=True)
class Progress:
    """How many of the assignments waited for wait for a job, run, are done, and go to a person or back."""

    waiting: int = 0
    running: int = 0
    done: int = 0
    again: int = 0
    given_up: int = 0
    gone: int = 0
    ids: tuple[str, ...] = field(default=(), compare=False)

    @property
    def left(self) -> int:
        """How many are still in the hands of a job."""
        return self.waiting + self.running


def progress(spool: Spool, ids: Collection[str]) -> Progress:
    """Where these assignments are. One that can't be read counts as gone."""
    counts = {"waiting": 0, "running": 0, "done": 0, "again": 0, "given_up": 0, "gone": 0}
    for assignment_id in ids:
        try:
            counts[_kind(spool.find(assignment_id))] += 1
        except DataError:
            counts["gone"] += 1
    return Progress(**counts, ids=tuple(ids))


def _kind(one: Assignment | None) -> str:
    if one is None:
        return "gone"
    if one.state is State.FETCHED:
        return "waiting" if one.handed else "again"
    return {State.RUNNING: "running", State.GIVEN_UP: "given_up"}.get(one.state, "done")


def wait(workspace: Workspace, spool: Spool, cluster: Cluster | None, ids: Collection[str], *,
         show: Callable[[Progress], None] = lambda progress: None, until: float | None = None,
         sleep: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic,
         poll: float = POLL, settle_every: float = SETTLE_EVERY,
         stop: Callable[[], bool] = lambda: False) -> Progress:
    """Wait until no job has any of these assignments any more (`until`: or that moment of `clock` has come; `stop`: or
    it says so). Jobs go on however this ends.

    `show` is called whenever the counts change. Returns the last ones.
    """
    last, settled = progress(spool, ids), clock()
    show(last)
    while last.left and (until is None or clock() < until) and not stop():
        sleep(poll)
        if clock() - settled >= settle_every:
            settle(workspace, spool, cluster)
            settled = clock()
        now = progress(spool, ids)
        if now != last:
            show(now)
        last = now
    return last
