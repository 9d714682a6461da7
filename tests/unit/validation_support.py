"""What tests of the validation circle share: a workspace, finished assignments, an API made of Python."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from automate.errors import ApiError
from automate.validation.assignments import Assignment, State
from automate.validation.inner.files import Outcome, Result, write_result
from automate.validation.spool import Spool
from automate.validation_places import ValidationPlaces
from tests.unit.support import make_workspace

NOW = 1_800_000_000.0
Act = Callable[[], object]


class Clock:
    """A clock that stands still until it is told otherwise; sleeping moves it."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


def make_places(root: Path, **values: Any) -> ValidationPlaces:
    """The places of a workspace whose disk is never too full."""
    return make_workspace(root, validation={"min_free_gb": 0.0, **values}).validation


def make_reply(number: int, task: int = 7, **data: Any) -> bytes:
    """A reply to a lookup, as the API words it."""
    return json.dumps({"id": number, "task_submission": {"task_id": task, "data": {}, "id": number + 1000},
                       "assigned_at": "2026-01-01T00:00:00", "status": "validating", "data": data}).encode()


def admit(spool: Spool, number: str = "1", *, fetched_at: float = NOW, module: str = "example",
          **values: Any) -> Assignment:
    """An assignment in `fetched`."""
    reply = spool.keep(b"{}", "7", module)
    made = Assignment(number, "7", module, fetched_at, Path(), **values)
    return spool.admit(reply, made)


def finished(spool: Spool, number: str = "1", outcome: Outcome = Outcome.COMPLETED, *, payload: Any = None,
             metrics: Any = None, step: int = 1, fetched_at: float = NOW, module: str = "example",
             **values: Any) -> Assignment:
    """An assignment in `done` with a result."""
    made = admit(spool, number, fetched_at=fetched_at, module=module, **values)
    whole = {"score": 1.0} if outcome is Outcome.COMPLETED else None
    write_result(made.folder, Result(number, outcome, module, whole if payload is None else payload,
                                     whole if metrics is None else metrics, "cause", "reason", step))
    return spool.move(made, State.DONE)


def spoil(assignment: Assignment, **values: Any) -> None:
    """Write a result as nobody should: any value under any name."""
    known = json.loads(assignment.result_file.read_text())
    assignment.result_file.write_text(json.dumps({**known, **values}))


class FakeApi:
    """An API made of a script: what each call does, by turns; nothing left: it is accepted (or nothing to validate)."""

    def __init__(self, *acts: BaseException | bytes | Act | None) -> None:
        self.acts = list(acts)
        self.calls: list[tuple[str, str, Any]] = []

    def _act(self) -> object:
        act = self.acts.pop(0) if self.acts else None
        if isinstance(act, BaseException):
            raise act
        return act() if callable(act) else act

    def complete(self, assignment_id: str, payload: Mapping[str, Any]) -> None:
        self.calls.append(("complete", assignment_id, dict(payload)))
        self._act()

    def fail(self, assignment_id: str) -> None:
        self.calls.append(("fail", assignment_id, None))
        self._act()

    def request_assignment(self, task_id: str) -> bytes:
        self.calls.append(("request", task_id, None))
        found = self._act()
        if found is None:
            raise ApiError("the script has ended")
        assert isinstance(found, bytes)
        return found


def nothing_needed(assignment: Assignment) -> Assignment:
    """An `acquire` for assignments that need no files."""
    return replace(assignment)
