"""The books of a stand-in of the Flock API: who was given what, what was accepted, and every breach of the protocol.

The rules alone, under one lock; never talks to anybody. `server.py` is the wire."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from automate.validation.standin.datasets import file_name, validation_set
from automate.validation.standin.plan import Content, Fault, Plan, TaskPlan, Trouble
from automate.validation.standin.protocol import (
    NO_SUBMISSIONS,
    NOT_VALIDATING,
    Reply,
    detail,
    limit_text,
    update_problem,
)
from automate.validation.standin.schedule import Schedule


@dataclass
class Record:
    """One assignment as the stand-in knows it. `status`: validating, completed, failed or expired.

    `accepted` counts results that were taken (never more than one); `payloads` are their `data` (None: failed).
    `posts`: the detail of the reply to each update, `ok` where it was taken. `delivered`: a whole reply with it went
    out. `downloads` of its validation set. `faults` that its calls met.
    """

    id: str
    task_id: str
    number: int
    attempt: int
    trouble: Trouble
    assigned: float
    status: str = "validating"
    accepted: int = 0
    payloads: list[dict[str, Any] | None] = field(default_factory=list)
    posts: list[str] = field(default_factory=list)
    delivered: bool = False
    downloads: int = 0
    faults: list[str] = field(default_factory=list)
    update_faults: deque[Fault] = field(default_factory=deque)
    data_faults: deque[Fault] = field(default_factory=deque)


@dataclass
class _Waiting:
    """A submission that waits for a validator; `record`: it was given out before, and the reply was lost."""

    number: int
    attempt: int
    faults: deque[Fault]
    record: Record | None = None


class Books:
    """The rules. Times are epoch seconds of `clock`."""

    def __init__(self, plan: Plan, clock: Callable[[], float] = time.time) -> None:
        self.plan = plan
        self.schedule = Schedule(plan)
        self.clock = clock
        self.lock = threading.RLock()
        self.assignments: dict[str, Record] = {}
        self.violations: list[str] = []
        self.lookups: dict[str, list[float]] = {str(task.id): [] for task in plan.tasks}
        self.rate_limited: dict[str, int] = {str(task.id): 0 for task in plan.tasks}
        self._last: dict[str, float] = {}
        self._secret = hashlib.sha256(f"stand-in {plan.seed}".encode()).digest()
        self._waiting = {str(task.id): deque(self._first(task.id, number) for number in range(task.submissions))
                         for task in plan.tasks}

    def _first(self, task_id: int, number: int) -> _Waiting:
        return _Waiting(number, 0, deque(self.schedule.trouble(task_id, number).request))

    # --- looking for an assignment ---------------------------------------------------------------
    def next_fault(self, task_id: str) -> Fault | None:
        """The fault that the next lookup of a task meets, taken from the schedule."""
        with self.lock:
            queue = self._waiting.get(task_id)
            if not queue or self._too_early(task_id):
                return None
            return queue[0].faults.popleft() if queue[0].faults else None

    def _too_early(self, task_id: str) -> bool:
        last = self._last.get(self._limited(task_id))
        return last is not None and self.clock() - last < self.plan.lookup_interval

    def _limited(self, task_id: str) -> str:
        return task_id if self.plan.limit_by == "task" else "*"

    def request(self, task_id: str, origin: str) -> tuple[Reply, Record | None]:
        """One lookup: an assignment, or the reason why none."""
        with self.lock:
            task = self.plan.task(task_id)
            if task is None:
                self.violations.append(f"lookup of a task that there is not: {task_id}")
                return detail(404, "Task not found"), None
            self.lookups[task_id].append(self.clock())
            if self._too_early(task_id):
                self.rate_limited[task_id] += 1
                return detail((429, 400)[self.plan.seed % 2], limit_text(self.plan.lookup_interval)), None
            self._last[self._limited(task_id)] = self.clock()
            self._expire()
            queue = self._waiting[task_id]
            while queue and queue[0].record is not None and queue[0].record.status != "validating":
                queue.popleft()
            if not queue:
                return detail((404, 400)[self.plan.seed % 2], NO_SUBMISSIONS), None
            record = self._give(task, queue.popleft())
            return Reply(200, json.dumps(self._body(task, record, origin)).encode()), record

    def left(self) -> dict[str, int]:
        """How many submissions of each task wait for a validator."""
        with self.lock:
            return {task_id: len(queue) for task_id, queue in self._waiting.items()}

    def _give(self, task: TaskPlan, waiting: _Waiting) -> Record:
        if waiting.record is not None:
            return waiting.record
        trouble = self.schedule.trouble(task.id, waiting.number, waiting.attempt)
        record = Record(str(task.id * 100_000 + waiting.number * 10 + waiting.attempt), str(task.id), waiting.number,
                        waiting.attempt, trouble, self.clock(), update_faults=deque(trouble.update),
                        data_faults=deque(trouble.data))
        self.assignments[record.id] = record
        return record

    def lost(self, record: Record) -> None:
        """The reply with an assignment did not go out whole."""
        with self.lock:
            if self.plan.redeliver and not record.delivered and record.status == "validating":
                self._waiting[record.task_id].appendleft(_Waiting(record.number, record.attempt, deque(), record))

    def expire(self, record: Record) -> None:
        """End an assignment's lease; its submission is handed out anew."""
        with self.lock:
            if record.status == "validating":
                record.status = "expired"
                if record.attempt < 9:
                    again = _Waiting(record.number, record.attempt + 1, deque())
                    self._waiting[record.task_id].append(again)

    def _expire(self) -> None:
        if self.plan.lease is not None:
            for record in list(self.assignments.values()):
                if self.clock() - record.assigned >= self.plan.lease:
                    self.expire(record)

    def _body(self, task: TaskPlan, record: Record, origin: str) -> dict[str, Any]:
        content = record.trouble.content
        text = content is Content.TEXT_ID
        ours = {"validation_set_url": self._url(task, record, origin), "max_params": task.max_params, **task.data}
        if task.kind in ("lora", "llm_judge"):
            ours = {"base_model": task.base_model, "context_length": task.context_length, **ours}
        if task.kind == "llm_judge":
            ours = {"eval_args": {"eval_model_list": ["stand-in-judge"]}, **ours}
        if content is Content.BAD_URL:
            ours["validation_set_url"] = "ftp//not an address"
        body: dict[str, Any] = {
            "id": record.id if text else int(record.id),
            "task_submission": {"task_id": str(task.id) if text else task.id, "id": task.id * 100_000 + record.number,
                                "data": submission_data(task, content)},
            "assigned_at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.assigned)) + ".000000",
            "status": "validating", "data": ours}
        if content is Content.EXTRA:
            body |= {"novel_field": {"deep": [1, None]}, "data": {**ours, "another": "\u2028 field"}}
        for gone, name in ((Content.NO_DATA, "data"), (Content.NO_SUBMISSION, "task_submission")):
            if content is gone:
                del body[name]
        return body

    # --- its validation set ------------------------------------------------------------------------
    def _url(self, task: TaskPlan, record: Record, origin: str) -> str:
        now = self.clock() - (2 * self.plan.url_expires if record.trouble.content is Content.SHORT_URL else 0)
        date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
        query = {"X-Amz-Algorithm": "AWS4-HMAC-SHA256", "X-Amz-Credential": f"STANDIN/{date[:8]}/auto/s3/aws4_request",
                 "X-Amz-Date": date, "X-Amz-Expires": str(self.plan.url_expires), "X-Amz-SignedHeaders": "host",
                 "X-Amz-Signature": self.signature(record.id, date, str(self.plan.url_expires))}
        return f"{origin}/data/{record.id}/{file_name(task.kind)}?{urlencode(query)}"

    def signature(self, assignment_id: str, date: str, expires: str) -> str:
        """The signature of a validation set's address; hex."""
        return hmac.new(self._secret, f"{assignment_id} {date} {expires}".encode(), hashlib.sha256).hexdigest()

    def data(self, assignment_id: str, query: Mapping[str, str]) -> tuple[Reply, Record | None]:
        """A validation set, or the file store's refusal."""
        with self.lock:
            record = self.assignments.get(assignment_id)
            date, expires = query.get("X-Amz-Date", ""), query.get("X-Amz-Expires", "")
            if record is None or query.get("X-Amz-Signature") != self.signature(assignment_id, date, expires):
                return Reply.xml(403, "SignatureDoesNotMatch"), None
            made = time.strptime(date, "%Y%m%dT%H%M%SZ")
            if self.clock() - _utc(made) >= int(expires):
                return Reply.xml(403, "AccessDenied", "Request has expired"), record
            task = self.plan.task(record.task_id)
            if task is None or record.trouble.content is Content.NO_SET:
                return Reply.xml(404, "NoSuchKey"), record
            record.downloads += 1
            return Reply(200, validation_set(task, record.number, record.trouble.content),
                         "application/octet-stream"), record

    # --- results -----------------------------------------------------------------------------------
    def update(self, assignment_id: str, body: bytes) -> tuple[Reply, Record | None]:
        """One update: taken, or refused with the reason. Breaches of the protocol are noted."""
        with self.lock:
            record = self.assignments.get(assignment_id)
            if record is None:
                self.violations.append(f"update of an assignment that there is not: {assignment_id}")
                return detail(404, "Validation assignment not found"), None
            self._expire()
            task = self.plan.task(record.task_id)
            value, problem = update_problem(body, task.metrics if task else ())
            if problem is not None:
                self.violations.append(f"assignment {assignment_id}: {problem}")
                record.posts.append(problem)
                return Reply(422, json.dumps({"detail": [{"loc": ["body"], "msg": problem, "type": "value_error"}]}
                                             ).encode()), record
            if record.status != "validating":
                record.posts.append(NOT_VALIDATING)
                return detail(400, NOT_VALIDATING), record
            record.status = value["status"]
            record.accepted += 1
            record.payloads.append(value.get("data"))
            record.posts.append("ok")
            return Reply(200, json.dumps({"id": int(record.id), "status": record.status}).encode()), record


def _utc(moment: time.struct_time) -> float:
    import calendar

    return float(calendar.timegm(moment))


def submission_data(task: TaskPlan, content: Content = Content.PLAIN) -> dict[str, Any]:
    """What the trainer sent. One that is at fault says so in `fault`, and names a repository that is not there."""
    theirs: dict[str, Any] = {"gpu_type": "NVIDIA A100"}
    if task.repo is not None:
        theirs |= {"hg_repo_id": task.repo, "base_model": task.base_model}
    if task.revision is not None and task.repo is not None:
        theirs["revision"] = task.revision
    if task.kind == "rl":
        theirs["model_filename"] = "model.onnx"
    theirs |= task.submission
    if content is Content.OWN_FAULT:
        theirs["fault"] = "submission"
        if task.repo is not None:
            theirs["hg_repo_id"] = f"{task.repo}-gone"
    return theirs
