"""A row an assignment for `validation status`: its state, age, deadline, metrics, or why it is where it is.

Reads the spool only; never changes it, and never asks the API or Slurm."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from automate.errors import visible
from automate.validation.assignments import Assignment, State
from automate.validation.inner import files
from automate.validation.inner.files import Outcome
from automate.validation.lookups import Reply
from automate.validation.spool import Spool
from automate.validation_places import ValidationPlaces

LOST, REFUSED, WAITING, UNREADABLE = "lost reply", "no assignment", "reply kept", "unreadable"
"""States of what is in the spool and is no assignment."""


@dataclass(frozen=True)
class Line:
    """One row. `age`: seconds since it was fetched; `deadline`: seconds left (below 0: over; None: unknown).

    `metrics`: those of a result, numbers and texts only. `state` is one of `State` or of the words above.
    """

    id: str
    task: str
    module: str
    state: str
    age: float
    deadline: float | None = None
    metrics: Mapping[str, float | str] = field(default_factory=dict)
    cause: str = ""
    problem: str = ""
    job: str = ""
    attempts: int = 0
    unconfirmed: bool = False


def status_table(places: ValidationPlaces, spool: Spool, clock: Callable[[], float] = time.time) -> tuple[Line, ...]:
    """All rows: assignments in the order of their states, the oldest first, then what else the spool holds."""
    now = clock()
    order = {state: number for number, state in enumerate(State)}
    found = sorted(spool.listed(), key=lambda one: (order[one.state], one.fetched_at, one.id))
    return (*(_line(one, now) for one in found), *_others(spool, now))


def _line(one: Assignment, now: float) -> Line:
    result = files.read_result(one.folder) if one.state not in (State.FETCHED, State.RUNNING) else None
    completed = result is not None and result.outcome is Outcome.COMPLETED
    metrics = _metrics(result.metrics if result is not None and completed else None)
    cause, problem = one.cause or "", one.problem or ""
    if result is not None and not completed:
        cause, problem = cause or result.cause, problem or result.reason
    return Line(
        one.id, one.task_id, one.module, one.state.value, max(0.0, now - one.fetched_at),
        None if one.deadline is None else one.deadline - now, metrics,
        visible(cause), visible(problem or _last(one)), one.handed.job if one.handed else "", one.attempts,
        one.unconfirmed,
    )


def _last(one: Assignment) -> str:
    """The last thing that went wrong with one that waits or was given up."""
    if one.state not in (State.FETCHED, State.GIVEN_UP):
        return ""
    return next((event.what for event in reversed(one.history) if event.cause), "")


def _metrics(metrics: Mapping[str, object] | None) -> dict[str, float | str]:
    found: dict[str, float | str] = {}
    for name, value in (metrics or {}).items():
        if isinstance(value, str):
            found[visible(name)] = visible(value)
        elif isinstance(value, int | float) and math.isfinite(value):
            found[visible(name)] = value
    return found


def _others(spool: Spool, now: float) -> list[Line]:
    lookups = spool.lookups
    kinds = [(lookups.waiting(), WAITING, "reply", "its reply is kept; the next fetch makes an assignment of it"),
             (lookups.refused(), REFUSED, "reply", "no assignment can be made of its reply")]
    lines = [_reply(one, now, state, cause, f"{what} ({one.path.name})") for found, state, cause, what in kinds
             for one in found]
    lines += _lost(lookups.lost(now), now)
    for error in spool.unreadable():
        lines.append(Line("?", "", "", UNREADABLE, 0.0, cause="unreadable", problem=f"{error.where}: {error.what}"))
    return lines


def _lost(found: list[Reply], now: float) -> list[Line]:
    """A row for each task with lookups whose reply never came, as old as the last of them."""
    last = {(one.task_id, one.module): one for one in found}
    counts = Counter((one.task_id, one.module) for one in found)
    return [_reply(one, now, LOST, "lost-reply", f"{counts[key]} lookups without a reply: FLock may count assignments"
                   " as yours that are not known here") for key, one in last.items()]


def _reply(one: Reply, now: float, state: str, cause: str, what: str) -> Line:
    return Line("?", visible(one.task_id), visible(one.module), state, max(0.0, now - one.when), cause=cause,
                problem=what)
