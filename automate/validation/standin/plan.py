"""What a stand-in of the Flock API holds and how it misbehaves: tasks, limits, a seeded schedule of faults.

Only data and pure functions. The same plan gives the same faults, in whatever order its calls come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Literal

from automate.errors import ConfigError

KINDS = ("example", "lora", "rl", "llm_judge")


class Fault(StrEnum):
    """How one call goes wrong. "Nothing done": the books do not change."""

    ERROR = "error"  # 500 with a JSON body, nothing done
    GATEWAY = "gateway"  # 502 with an HTML page, nothing done
    DROP_BEFORE = "drop-before"  # the connection ends without a reply, nothing done
    HTML = "html"  # 200 with an HTML page, nothing done
    NOT_JSON = "not-json"  # 200 with plain text, nothing done
    WRONG_TYPE = "wrong-type"  # 200 with JSON of another shape, nothing done
    HUGE = "huge"  # 200 with a body that does not end, nothing done
    REDIRECT = "redirect"  # 307 to another host, nothing done
    RATE_LIMIT = "rate-limit"  # says that a limit was reached, nothing done
    NOTHING = "nothing"  # says that there are no submissions, nothing done
    SLOW = "slow"  # done at once, the reply comes late
    DROP_AFTER = "drop-after"  # done, then the connection ends without a reply
    ERROR_AFTER = "error-after"  # done, then 502 with an HTML page
    CUT = "cut"  # done, the reply ends in the middle
    LOST_LEASE = "lost-lease"  # the assignment has expired just before
    DENIED = "denied"  # 403 of the file store, as for a URL that has expired


LIST_FAULTS = (Fault.ERROR, Fault.GATEWAY, Fault.DROP_BEFORE, Fault.HTML, Fault.CUT, Fault.SLOW)
REQUEST_FAULTS = (Fault.ERROR, Fault.GATEWAY, Fault.DROP_BEFORE, Fault.HTML, Fault.RATE_LIMIT, Fault.NOTHING,
                  Fault.SLOW, Fault.DROP_AFTER, Fault.ERROR_AFTER)
UPDATE_FAULTS = (Fault.ERROR, Fault.GATEWAY, Fault.DROP_BEFORE, Fault.HTML, Fault.RATE_LIMIT, Fault.SLOW,
                 Fault.DROP_AFTER, Fault.DROP_AFTER, Fault.ERROR_AFTER, Fault.CUT, Fault.LOST_LEASE)
DATA_FAULTS = (Fault.ERROR, Fault.DROP_BEFORE, Fault.CUT, Fault.SLOW)


class Content(StrEnum):
    """What is odd about an assignment, for as long as it lives."""

    PLAIN = "plain"
    EXTRA = "extra"  # fields that nobody knows
    TEXT_ID = "text-id"  # its ids are text
    OWN_FAULT = "own-fault"  # the submission is at fault: see `submission_data`
    NO_DATA = "no-data"  # `data` is missing
    NO_SUBMISSION = "no-submission"  # `task_submission` is missing
    BAD_URL = "bad-url"  # the validation set's address is none
    BROKEN_ROW = "broken-row"  # a row in the middle of the set is cut off
    EMPTY_SET = "empty-set"  # the set has no bytes
    NO_SET = "no-set"  # the set is not there (404)
    SHORT_URL = "short-url"  # the address has expired when it is given out


GOOD = (Content.PLAIN, Content.EXTRA, Content.TEXT_ID)


@dataclass(frozen=True)
class Trouble:
    """What one assignment meets: its content, and the faults of its calls, one a call until none is left."""

    content: Content = Content.PLAIN
    request: tuple[Fault, ...] = ()
    update: tuple[Fault, ...] = ()
    data: tuple[Fault, ...] = ()

    @property
    def expected(self) -> Literal["submitted", "failed", "lost", "person"]:
        """How it must end, if the rest goes well: `lost` where the lease ends before the update, `person` where only
        a person can go on. An update whose lease was lost after an accepted one is still `submitted`."""
        if self.content not in (*GOOD, Content.OWN_FAULT):
            return "person"
        done = (Fault.DROP_AFTER, Fault.ERROR_AFTER, Fault.CUT, Fault.SLOW)
        first = next((one for one in self.update if one in (*done, Fault.LOST_LEASE)), None)
        if first is Fault.LOST_LEASE:
            return "lost"
        return "failed" if self.content is Content.OWN_FAULT else "submitted"


@dataclass(frozen=True)
class TaskPlan:
    """One task. `submissions`: how many assignments there are to hand out; `rows` of each validation set.

    `repo`: the submissions' repository (None: submissions name none); `metrics`: the fields that a completed update
    must have (empty: any). `data`, `submission`: fields laid over the usual ones.
    """

    id: int
    kind: str = "example"
    submissions: int = 10
    rows: int = 4
    repo: str | None = None
    revision: str | None = "main"
    base_model: str = "qwen1.5"
    context_length: int = 1024
    max_params: int = 10_000_000_000
    metrics: tuple[str, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    submission: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """A whole stand-in. Times are in seconds.

    `key`: the API key it accepts (empty: made up at the start). `rate`: how likely a fault is at each call, and half
    as likely an odd content (0: none). `deal`: beside those, every fault and odd content is dealt out once at least.
    `limit_by`: whether lookups are limited for each task or over all. `lease`: how
    long an assignment lives (None: for ever); one that has expired is handed out anew under another id. `redeliver`:
    an assignment whose reply was lost is given out again at the next lookup. `list_needs_key`: the list of tasks is
    not open to all. `most_faults`: at one place of one assignment. `contents`: odd contents the schedule may choose.
    """

    tasks: tuple[TaskPlan, ...] = (TaskPlan(123),)
    key: str = ""
    seed: int = 0
    rate: float = 0.0
    deal: bool = False
    most_faults: int = 2
    contents: tuple[Content, ...] = tuple(Content)
    lookup_interval: float = 0.0
    limit_by: Literal["task", "key"] = "task"
    lease: float | None = None
    url_expires: int = 3600
    slow: float = 1.0
    redeliver: bool = True
    list_needs_key: bool = False

    def task(self, task_id: str) -> TaskPlan | None:
        """A task by its id."""
        return next((task for task in self.tasks if str(task.id) == task_id), None)


def _of(kind: type, value: object, where: str) -> dict[str, Any]:
    known = {one.name for one in fields(kind)}
    if not isinstance(value, dict) or (unknown := sorted(set(value) - known)):
        what = "expected an object" if not isinstance(value, dict) else f"unknown keys {', '.join(unknown)}"
        raise ConfigError(what, where=where, todo=f"known keys: {', '.join(sorted(known))}")
    return dict(value)


def plan_of(value: object, where: str = "plan") -> Plan:
    """A plan from a JSON document, whose keys are the fields of `Plan` and `TaskPlan`. Raises ConfigError."""
    data = _of(Plan, value, where)
    try:
        if "tasks" in data:
            rows = [_of(TaskPlan, row, f"{where}: task {number}") for number, row in enumerate(data["tasks"], 1)]
            data["tasks"] = tuple(TaskPlan(**{**row, "metrics": tuple(row.get("metrics", ()))}) for row in rows)
        if "contents" in data:
            data["contents"] = tuple(Content(one) for one in data["contents"])
        plan = Plan(**data)
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error), where=where) from error
    if bad := sorted({task.kind for task in plan.tasks} - set(KINDS)):
        raise ConfigError(f"unknown kinds {', '.join(bad)}", where=where, todo=f"known: {', '.join(KINDS)}")
    return plan
