"""Brings to disk all that an assignment needs: its validation set, its repository, the base model of an adapter.

Changes an assignment only under its claim; never puts on the submission what is not its own fault."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import requests

from automate.claims import Claim
from automate.errors import ClaimedError, FlockError, StorageError
from automate.validation.assignments import Assignment, State
from automate.validation.downloads import download, room_problem
from automate.validation.hub import Hub
from automate.validation.inner import files
from automate.validation.inner.files import Outcome, Result
from automate.validation.models import Work, has_model, have_model
from automate.validation.replies import merged_input
from automate.validation.spool import Spool
from automate.validation.troubles import (
    BOUNDED,
    CAUSES,
    PersonNeeded,
    SubmissionAtFault,
    Trouble,
    TryLater,
    of_system,
    passing,
    sentence,
)
from automate.validation.wants import SCORED
from automate.validation_places import ValidationPlaces

Check = Callable[[Assignment], Result | None]
"""Looks at config and input before anything large is downloaded: None, or a result that ends the assignment here."""
JSON = Any


class _LostError(ClaimedError):
    """The claim is not held any more: nothing may be written."""


class _Ended(Exception):
    """`check` gave a result: nothing more is fetched."""

    def __init__(self, result: Result) -> None:
        self.result = result


def acquire(assignment: Assignment, *, spool: Spool, places: ValidationPlaces, hub: Hub, session: requests.Session,
            check: Check | None = None, clock: Callable[[], float] = time.time,
            stop: Callable[[], bool] = lambda: False) -> Assignment:
    """Fetch what is missing of an assignment in `fetched`; returns what it is now.

    Its own fault: a result `failed`, and it moves to `done`. For a person: `given_up`. Anything else that goes wrong
    becomes its `problem` and `cause`, and is tried again by the next call. `session` must carry no key.
    `stop` is asked every few seconds, also within a file: what is there then stays, and the rest waits.
    Raises ClaimedError where somebody else is at work on it, StorageError where the disk is too full for any.
    """
    with spool.held(assignment.id) as claim:
        found = spool.find(assignment.id)
        if found is None or found.state is not State.FETCHED or found.cause == "reply":
            return found or assignment
        work = Work(found, spool, places, hub, clock, partial(_at_work, claim, stop))
        try:
            _fetch(work, session, check)
        except _Ended as ended:
            return _ended(work, ended.result)
        except SubmissionAtFault as fault:
            return _ended(work, _blamed(work.now, fault))
        except PersonNeeded as trouble:
            work.now = replace(work.now, problem=sentence(trouble), cause=trouble.cause)
            return spool.move(work.now, State.GIVEN_UP, sentence(trouble), trouble.cause)
        except _LostError:
            raise
        except FlockError as error:
            later = passing(error)
            _waits(work, later)
            if _hopeless(work, later.cause):
                return spool.move(replace(work.now, fetch_tries=0), State.GIVEN_UP, "its files can't be had",
                                  later.cause)
            _stop_where_full(work)
        else:
            _settled(work)
        return work.now


def _at_work(claim: Claim, stop: Callable[[], bool]) -> None:
    """Show that the holder lives. Raises what ends the work here."""
    if not claim.beat():
        raise _LostError("somebody else has taken this assignment over", where=str(claim.path))
    if stop():
        raise TryLater("told to stop before all its files were there", cause="stopped")


def _fetch(work: Work, session: requests.Session, check: Check | None) -> None:
    try:
        if _complete(work.now):
            return
        fields = _fields(work.now.folder)
        _data(work, session)
        _checked(work, check)
        have_model(work, fields)
    except OSError as error:
        raise of_system(error, work.now.folder, "read the assignment") from error


def _blamed(now: Assignment, fault: SubmissionAtFault) -> Result:
    """The result of a submission that can't be had: failed, or the lowest score where the protocol gives one."""
    score = SCORED.get(now.module)
    return Result(now.id, Outcome.COMPLETED if score else Outcome.FAILED, now.module, cause=fault.cause,
                  payload=dict(score) if score else None, metrics=dict(score) if score else None,
                  reason=sentence(fault), commit=now.model_commit)


def _ended(work: Work, result: Result) -> Assignment:
    """A result that came before any job: the submission's own fault, or one that a person must mend."""
    files.write_result(work.now.folder, result)
    work.now = replace(work.now, problem=None, cause=None)
    if result.outcome in (Outcome.FAILED, Outcome.COMPLETED):
        return work.spool.move(work.now, State.DONE, result.reason, result.cause)
    work.now = replace(work.now, problem=result.reason, cause=result.cause)
    return work.spool.move(work.now, State.GIVEN_UP, result.reason, result.cause)


def _waits(work: Work, trouble: Trouble) -> None:
    said = sentence(trouble)
    if work.now.cause != trouble.cause:
        work.noted(said, trouble.cause)
    tries = work.now.fetch_tries + (trouble.cause in BOUNDED)
    if (work.now.problem, work.now.cause, work.now.fetch_tries) != (said, trouble.cause, tries):
        work.save(problem=said, cause=trouble.cause, fetch_tries=tries)


def _hopeless(work: Work, cause: str) -> bool:
    """Whether it was tried often enough: what is left is for a person, so that it takes up no place for ever."""
    waited = work.clock() - work.now.fetched_at
    return (cause in BOUNDED and work.now.fetch_tries >= work.places.settings.attempts and waited >= BOUNDED[cause])


def _stop_where_full(work: Work) -> None:
    """Raises StorageError where no assignment's files can be had, as the disk is too full for any."""
    for folder in (work.places.models, work.now.folder) if work.now.cause == "disk" else ():
        problem = room_problem(folder, work.places.settings)
        if problem:
            raise StorageError(problem, todo="make room there (df, quota); finished results are still submitted"
                               ) from OSError(errno.ENOSPC, problem)


def _settled(work: Work) -> None:
    """All is there: a trouble of ours is over; a problem that somebody else put there stays."""
    if work.now.cause in CAUSES:
        work.noted("all its files are on disk")
        work.save(problem=None, cause=None, fetch_tries=0)


# --- what the reply says --------------------------------------------------------------------------
def _fields(folder: Path) -> dict[str, JSON]:
    """The module's input. A reply that came later for the same assignment lends its (younger) address."""
    merged = merged_input((folder / files.REPLY).read_bytes())
    for later in sorted(folder.glob("reply-*.json"), reverse=True)[:1]:
        url = merged_input(later.read_bytes()).get("validation_set_url")
        merged |= {"validation_set_url": url} if url else {}
    return merged


def _complete(now: Assignment) -> bool:
    return _has_data(now) and has_model(now)


def _has_data(now: Assignment) -> bool:
    return not now.needs_data or (now.data is not None and _size(now.folder / now.data.path) == now.data.size)


def _data(work: Work, session: requests.Session) -> None:
    now = work.now
    if _has_data(now):
        return
    url = _fields(now.folder).get("validation_set_url")
    if not isinstance(url, str):
        raise TryLater("the reply holds no address of a validation set", cause="data-url")
    data = download(url, now.folder, work.places.settings, session, beat=work.beat)
    work.noted(f"validation set on disk: {data.size} bytes, sha256 {data.sha256}")
    work.save(data=data)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1


def _checked(work: Work, check: Check | None) -> None:
    result = None if check is None or work.now.model is not None else check(work.now)
    if result is None or result.outcome in (Outcome.COMPLETED, Outcome.PARTIAL):
        return
    if result.outcome is Outcome.RECOVERABLE:
        raise TryLater(result.reason, cause="check")
    raise _Ended(result)
