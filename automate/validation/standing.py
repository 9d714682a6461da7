"""Standing troubles: a cause on this side for which one assignment after the other of a task is given up.

Only looks at the spool; what is done about it, fetching decides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from automate.errors import ApiError
from automate.validation.assignments import Assignment, State

MOST = 3
"""Assignments in a row given up for one cause, after which no more of their task are asked for."""
DAY = 86400.0
"""Seconds after which a given-up assignment says nothing any more, so that one is tried again."""
THEIRS = frozenset({"reply", "data", "data-url", "data-empty", "data-truncated", "url-expired", "url-died",
                    "lost-lease", "taken-back"})
"""Causes of single assignments: the next one may be sound."""


def cause_of(one: Assignment) -> str:
    """Why an assignment was given up, in a word."""
    return one.cause or next((event.cause for event in reversed(one.history) if event.cause), "")


def standing(listed: Iterable[Assignment], task_id: str, module: str, now: float) -> str:
    """The cause for which the last assignments of a task were all given up; "" where there is none."""
    mine = sorted((one for one in listed if one.task_id == task_id and one.module == module
                   and now - one.fetched_at < DAY), key=lambda one: (one.fetched_at, one.id))
    last: Sequence[Assignment] = mine[-MOST:]
    causes = {cause_of(one) if one.state is State.GIVEN_UP else "" for one in last}
    cause = causes.pop() if len(last) == MOST and len(causes) == 1 else ""
    return "" if cause in THEIRS else cause


def refusal(task_id: str, cause: str) -> ApiError:
    """What is told of a task that is not asked any more."""
    return ApiError(f"the last {MOST} assignments were given up for the same cause ({cause}): no more are asked for",
                    where=f"task {task_id}",
                    todo="see 'flock-hpc validation status'; mend the cause, then 'flock-hpc validation retry ID'")
