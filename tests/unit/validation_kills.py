"""One start of fetching, validating and submitting that dies at the n-th file operation or request it makes.

Runs in a process of its own: the hook that kills can't be taken out again."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from automate.errors import ClaimedError
from automate.settings_validation import Validation
from automate.validation.api import FlockApi
from automate.validation.assignments import Assignment, DataFile, State
from automate.validation.audit import Audit
from automate.validation.fetching import Fetcher
from automate.validation.inner import files
from automate.validation.inner.files import Outcome, Result
from automate.validation.replies import merged_input
from automate.validation.spool import Spool
from automate.validation.submitting import submit_all
from automate.validation_places import ValidationPlaces

KILLED = 99
_CHANGES = {"os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass(frozen=True)
class Start:
    """One start: workspace, API, how many operations it lives (0: to its end), how far its clock has gone on."""

    root: str
    base_url: str
    key: str
    tasks: tuple[str, ...]
    most: int
    lives: int
    ahead: float


class _Killer:
    """Ends the process, without any cleaning up, before an operation in the workspace or on the wire."""

    def __init__(self, root: str, lives: int) -> None:
        self.root, self.left = root, lives

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if self._counts(event, args):
            self.left -= 1
            if self.left == 0:
                os._exit(KILLED)

    def _counts(self, event: str, args: tuple[Any, ...]) -> bool:
        if event == "http.client.send":  # a request's head: one that is cut off in its body never counts as sent
            return bytes(args[1]).startswith((b"GET", b"POST"))
        if event == "open" and len(args) == 3:
            return bool((args[2] or 0) & _WRITES) and self._mine(args[0])
        return event in _CHANGES and self._mine(args[0])

    def _mine(self, path: object) -> bool:
        return isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self.root)


def start(given: Start) -> None:
    """Do one start."""
    import time

    settings = Validation(base_url=given.base_url, retries=0, lookup_interval=0.0, min_free_gb=0.0)
    places = ValidationPlaces(Path(given.root), settings)

    def clock() -> float:
        return time.time() + given.ahead

    spool = Spool(places, stale=0.0, clock=clock)
    api = FlockApi(settings, given.key, Audit(places.audit), sleep=lambda _: None)
    if given.lives:
        sys.addaudithook(_Killer(given.root, given.lives))
    settle(spool)
    submit_all(places, spool, api, finish=None, clock=clock, hurry=True)
    Fetcher(places, spool, api, "example", given.tasks, acquire=lambda one: acquire(spool, one), most=given.most,
            clock=clock).turn()
    for assignment in spool.listed(State.FETCHED):
        if assignment.ready:
            validate(spool, assignment)
    submit_all(places, spool, api, finish=None, clock=clock, hurry=True)
    api.close()


def settle(spool: Spool) -> None:
    """What a dead start left in `running` goes back."""
    for assignment in spool.listed(State.RUNNING):
        with spool.held(assignment.id):
            spool.move(replace(assignment, attempts=assignment.attempts + 1), State.FETCHED, "died", "killed")


def acquire(spool: Spool, assignment: Assignment) -> Assignment:
    """A validation set that is always there."""
    with spool.held(assignment.id):
        (assignment.folder / "data").write_text("x")
        return spool.save(replace(assignment, data=DataFile("data", 1, "0"), problem=None, cause=None))


def validate(spool: Spool, assignment: Assignment) -> None:
    """A light module: a number made of the id, or the submission's own fault."""
    try:
        with spool.held(assignment.id):
            running = spool.move(assignment, State.RUNNING, "started")
            files.write_result(running.folder, result_of(assignment.id, (running.folder / files.REPLY).read_bytes()))
            spool.move(running, State.DONE, "finished")
    except ClaimedError:
        return


def result_of(assignment_id: str, reply: bytes) -> Result:
    """What the light module makes of a reply."""
    fields: Mapping[str, Any] = merged_input(json.loads(reply))
    if fields.get("fault") == "submission":
        return Result(assignment_id, Outcome.FAILED, "example", cause="submission", reason="its own fault")
    score = {"score": float(assignment_id)}
    return Result(assignment_id, Outcome.COMPLETED, "example", score, score)
