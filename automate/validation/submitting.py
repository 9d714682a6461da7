"""Finished assignments are reported, each once, whatever happens between: metrics, or the submission's own failure.

Never computes a metric, never sends one that is not finite or not whole, never reports the cluster's faults."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from automate.claims import Claim, take
from automate.errors import ApiError, DataError, FlockError, StorageError
from automate.validation import posts
from automate.validation.api_errors import ApiUnavailable, BadKey, NotValidating, RateLimited
from automate.validation.assignments import Assignment, State
from automate.validation.inner import files
from automate.validation.inner.files import Outcome, Result
from automate.validation.payloads import payload_fit, payload_problem, shipped_fields
from automate.validation.posts import Attempt, Posts
from automate.validation.rates import first_wait, too_early
from automate.validation.room import with_room
from automate.validation.spool import LOST_LEASE, Spool, out_of_space
from automate.validation_places import ValidationPlaces

OUTAGES = 3
"""Failed POSTs in a row after which the API counts as down for this time."""
AGAIN, MOST_AGAIN = 60.0, 3600.0
"""The wait after a refusal or a second step that did not come off; doubled each time, up to a bound."""
SECOND = "second-step"
"""Cause of the events that count tries of a second step."""


class Reports(Protocol):
    """What submitting needs of the API."""

    def complete(self, assignment_id: str, payload: Mapping[str, Any]) -> None:
        """Report metrics. Raises the errors of `api_errors`."""

    def fail(self, assignment_id: str) -> None:
        """Report the submission's own failure. Raises the errors of `api_errors`."""


@dataclass(frozen=True)
class Submitted:
    """What became of finished assignments.

    Metrics `sent`; `reported_failed`; accepted by a POST whose reply was lost (`unconfirmed`); `lost` leases; `kept`
    with the reason. `stopped`: why the rest was not tried; `down`: the API was not there for the last one.
    """

    sent: tuple[Assignment, ...] = ()
    reported_failed: tuple[Assignment, ...] = ()
    unconfirmed: tuple[Assignment, ...] = ()
    lost: tuple[Assignment, ...] = ()
    kept: tuple[tuple[Assignment, str], ...] = ()
    stopped: FlockError | None = None
    down: bool = False


@dataclass
class _Turn:
    """One turn over all finished assignments, under the claim of submitting."""

    places: ValidationPlaces
    spool: Spool
    api: Reports
    finish: Callable[[Assignment], Result] | None
    clock: Callable[[], float]
    hurry: bool
    found: dict[str, list[Assignment]] = field(default_factory=dict)
    kept: list[tuple[Assignment, str]] = field(default_factory=list)
    outages: int = 0
    stopped: FlockError | None = None

    def report(self, assignment: Assignment) -> None:
        """Report one; whatever it breaks, the others go on."""
        try:
            with self._held(assignment.id):
                current = self.spool.find(assignment.id)
                if current is not None and current.state is State.DONE:
                    self._report(current)
        except FlockError as error:
            self.kept.append((assignment, error.what))
        except Exception as bug:  # a result is a file that anybody may have written
            self.kept.append((assignment, f"can't be reported: {type(bug).__name__}: {bug}"))

    @contextmanager
    def _held(self, assignment_id: str) -> Iterator[None]:
        """The assignment's claim; without room for one, the claim of submitting is enough: nobody else changes `done`.
        """
        claim: Claim | None = None
        try:
            claim = with_room(self.places.reserve, lambda: self.spool.claim(assignment_id))
        except StorageError as error:
            if not out_of_space(error):
                raise
        try:
            yield
        finally:
            if claim is not None:
                claim.release()

    def _report(self, assignment: Assignment) -> None:
        known = posts.read(assignment.folder)
        result = files.read_result(assignment.folder)
        if result is None and (assignment.folder / files.PARTIAL).is_file():  # a second step was cut off
            result = Result(assignment.id, Outcome.PARTIAL, assignment.module)
        if result is None or result.assignment_id != assignment.id:
            self._keep(assignment, "it has no result that can be read", "result")
        elif known.accepted:
            self._accepted(assignment, result, confirmed=True)
        else:
            self._by_outcome(assignment, result, known)

    def _by_outcome(self, assignment: Assignment, result: Result, known: Posts) -> None:
        second = result.outcome is Outcome.PARTIAL or (result.step == 2 and result.outcome is Outcome.RECOVERABLE)
        if second:
            finished = self._second_step(assignment)
            if finished is None:
                return
            assignment, result = finished
        if result.outcome is Outcome.FAILED:
            self._post(assignment, result, known)
        elif result.outcome is Outcome.COMPLETED:
            problem = payload_problem(result, self.places.settings.metrics, shipped_fields(assignment.module))
            if problem is None:
                self._post(assignment, result, known)
            else:
                self._give_up(assignment, f"it is not sent: {problem}", "payload")
        elif result.outcome is Outcome.UNUSABLE:
            self._give_up(assignment, result.reason or "a person must mend something first", result.cause or "unusable")
        else:
            self._keep(assignment, result.reason or f"its outcome is {result.outcome}", result.cause)

    # --- the second step ------------------------------------------------------------------------
    def _second_step(self, assignment: Assignment) -> tuple[Assignment, Result] | None:
        """The result of the second step, made here where there is network; None where it is not made now."""
        if self.finish is None:
            self._keep(assignment, "its second step was not made yet", SECOND)
            return None
        tries = [event.when for event in assignment.history if event.cause == SECOND]
        if self._too_early(assignment, len(tries), tries[-1] if tries else 0.0):
            return None
        try:
            result = self.finish(assignment)
        except FlockError as error:
            self._again(assignment, error.what)
            return None
        if result.outcome in (Outcome.RECOVERABLE, Outcome.PARTIAL):
            self._again(assignment, result.reason or "its second step did not come off")
            return None
        if files.read_result(assignment.folder) != result and payload_fit(result):
            files.write_result(assignment.folder, result)
        return assignment, result

    def _again(self, assignment: Assignment, reason: str) -> None:
        self._keep(assignment.noted(self.clock(), reason, SECOND), reason, SECOND, changed=True)

    def _too_early(self, assignment: Assignment, times: int, last: float) -> bool:
        """Whether it is kept for now, as it was refused `times` times, the last time at `last`."""
        first = first_wait(AGAIN, self.places.settings.time_sleep)
        wait, now = min(first * 2 ** min(times - 1, 20), MOST_AGAIN), self.clock()
        early = times > 0 and not self.hurry and too_early(last, wait, now)
        if early:
            self.kept.append((assignment, f"{assignment.problem}; tried again in {last + wait - now:.0f} s"))
        return early

    # --- the POST -------------------------------------------------------------------------------
    def _post(self, assignment: Assignment, result: Result, known: Posts) -> None:
        if known.refusals >= self.places.settings.attempts and not self.hurry:
            self._give_up(assignment, f"the API refused it {known.refusals} times: {assignment.problem}", "refused")
            return
        if self._too_early(assignment, known.refusals, known.last):
            return
        failed = result.outcome is Outcome.FAILED
        body = {"status": "failed"} if failed else {"status": "completed", "data": result.payload}
        attempt = Attempt(assignment.folder)
        digest = posts.body_hash(body)
        with_room(self.places.reserve, lambda: attempt.begin(self.clock(), str(body["status"]), digest))
        try:
            if failed:
                self.api.fail(assignment.id)
            else:
                self.api.complete(assignment.id, result.payload or {})
        except ApiError as error:
            self._not_taken(assignment, result, known, attempt, error)
        except DataError as error:
            attempt.end(self.clock(), posts.AWAY, error.what)
            self._give_up(assignment, f"it is not sent: {error.what}", "payload")
        except Exception as bug:  # it may have been sent: the doubt is written down
            attempt.end(self.clock(), posts.UNSURE, type(bug).__name__)
            self._keep(assignment, f"it is not known whether it was sent: {bug}", "unsure")
        else:
            attempt.end(self.clock(), posts.ACCEPTED)
            self.outages = 0
            self._accepted(assignment, result, confirmed=True)

    def _not_taken(self, assignment: Assignment, result: Result, known: Posts, attempt: Attempt,
                   error: ApiError) -> None:
        unsure = bool(getattr(error, "unsure", False))
        if isinstance(error, NotValidating):
            attempt.end(self.clock(), posts.LOST, error.what)
            if known.unsure or unsure:
                self._accepted(assignment, result, confirmed=False)
            else:
                self._lost(assignment, error)
            return
        away = isinstance(error, ApiUnavailable | BadKey | RateLimited)
        attempt.end(self.clock(), posts.UNSURE if unsure else posts.AWAY if away else posts.REFUSED, error.what)
        self.outages = self.outages + 1 if isinstance(error, ApiUnavailable) else 0
        if isinstance(error, BadKey | RateLimited) or self.outages >= OUTAGES:
            self.stopped = error
        self._keep(assignment, error.what, "unsure" if unsure else "away" if away else "refused")

    # --- what became of it ----------------------------------------------------------------------
    def _accepted(self, assignment: Assignment, result: Result, *, confirmed: bool) -> None:
        failed = result.outcome is Outcome.FAILED
        made = replace(assignment, problem=result.reason if failed else None, cause=result.cause if failed else None,
                       unconfirmed=not confirmed)
        what = "reported as failed" if failed else "metrics sent"
        said = what if confirmed else f"{what}: the reply was lost, and the API no longer waits for it"
        moved = self.spool.move(made, State.FAILED if failed else State.SUBMITTED, said, must_save=False)
        self._count("unconfirmed" if not confirmed else "failed" if failed else "sent", moved)

    def _lost(self, assignment: Assignment, error: ApiError) -> None:
        reason = f"its lease was lost before it was reported: {error.what}"
        made = replace(assignment, problem=reason, cause=LOST_LEASE)
        self._count("lost", self.spool.move(made, State.GIVEN_UP, reason, LOST_LEASE, must_save=False))

    def _count(self, name: str, assignment: Assignment) -> None:
        self.found.setdefault(name, []).append(assignment)

    def _give_up(self, assignment: Assignment, reason: str, cause: str) -> None:
        made = replace(assignment, problem=reason, cause=cause)
        self.kept.append((self.spool.move(made, State.GIVEN_UP, reason, cause, must_save=False), reason))

    def _keep(self, assignment: Assignment, reason: str, cause: str, *, changed: bool = False) -> None:
        made = replace(assignment, problem=reason, cause=cause)
        self.kept.append((made, reason))
        if changed or (assignment.problem, assignment.cause) != (reason, cause):
            try:
                self.spool.save(made)
            except StorageError as error:
                if not out_of_space(error):
                    raise


def _order(assignment: Assignment) -> tuple[int, float, float]:
    """Those that were tried least come first, then the nearest deadline: one that never goes through bars no other."""
    try:
        tries = posts.read(assignment.folder).tries
    except StorageError:
        tries = 0
    return tries, math.inf if assignment.deadline is None else assignment.deadline, assignment.fetched_at


def submit_all(places: ValidationPlaces, spool: Spool, api: Reports, *, finish: Callable[[Assignment], Result] | None,
               clock: Callable[[], float] = time.time, claim: Claim | None = None, hurry: bool = False,
               stop: Callable[[], bool] = lambda: False) -> Submitted:
    """Report all that is done. `finish` makes a second step; `claim`: that of submitting where it is held already.

    `hurry`: waits and bounds after refusals are left out. `stop` is asked before each.
    Raises ClaimedError where another submits, StorageError where the disk is so full that no claim can be made.
    """
    waiting = spool.listed(State.DONE)
    if not waiting:
        return Submitted()
    held = claim or with_room(places.reserve, lambda: take(places.claim("submit"), stale=spool.stale,
                                                           job_alive=spool.job_alive))
    turn = _Turn(places, spool, api, finish, clock, hurry)
    try:
        for assignment in sorted(waiting, key=_order):
            if turn.stopped is not None or stop():
                break
            turn.report(assignment)
    finally:
        if claim is None:
            held.release()
    found = {name: tuple(values) for name, values in turn.found.items()}
    return Submitted(found.get("sent", ()), found.get("failed", ()), found.get("unconfirmed", ()),
                     found.get("lost", ()), tuple(turn.kept), turn.stopped, turn.outages > 0)
