"""Assignments come in: tasks are asked by turns, replies are kept, files are had at once.

Never asks more often than a task's limit allows, never holds more than it may, never sleeps."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from automate.claims import take
from automate.errors import ApiError, ConfigError, DataError, FlockError, StorageError
from automate.names import name_problem
from automate.validation import rates, replies, standing
from automate.validation.api_errors import ApiUnavailable, BadKey, NoSubmissions, RateLimited
from automate.validation.assignments import Assignment, State
from automate.validation.lookups import Lookup, Reply
from automate.validation.rates import Rate
from automate.validation.room import keep_reserve
from automate.validation.spool import URL_DIED, URL_LIFE, Spool, out_of_space
from automate.validation_places import ValidationPlaces

OUTSTANDING = tuple(state for state in State if state.outstanding)
LONGEST = 600.0
"""Seconds after which a turn asks for no more, so that finished work is reported meanwhile."""
AGAIN, MOST_AGAIN = 30.0, 600.0
"""The wait before files are tried again that could not be had; doubled each time, up to a bound."""



class Asks(Protocol):
    """What fetching needs of the API."""

    def request_assignment(self, task_id: str) -> bytes:
        """The raw reply. Raises the errors of `api_errors`."""


@dataclass(frozen=True)
class Turn:
    """What a turn did: `admitted` assignments, `waits`: task to the epoch second of its next allowed lookup,
    `problems` in the order in which they came, `full`: as many outstanding as may be, `closed`: tasks that are not
    asked for a standing trouble."""

    admitted: tuple[Assignment, ...] = ()
    waits: Mapping[str, float] = field(default_factory=dict)
    problems: tuple[FlockError, ...] = ()
    full: bool = False
    closed: frozenset[str] = frozenset()


def free_bytes(folder: Path) -> int:
    """Bytes free where a folder lies. Raises StorageError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return shutil.disk_usage(folder).free
    except OSError as error:
        raise StorageError.of(error, folder, "see how much room there is") from error


class Fetcher:
    """Fetches for one module. `acquire` has an assignment's files, under its claim; `stop` is asked between steps."""

    def __init__(self, places: ValidationPlaces, spool: Spool, api: Asks, module: str, task_ids: Sequence[str], *,
                 acquire: Callable[[Assignment], Assignment], most: int, clock: Callable[[], float] = time.time,
                 stop: Callable[[], bool] = lambda: False, free: Callable[[Path], int] = free_bytes) -> None:
        for task in task_ids:
            problem = name_problem(task) or ("it is longer than 60 characters" if len(task) > 60 else None)
            if problem:
                raise ConfigError(f"task id {task!r} can't be used: {problem}", where="--task_ids")
        self.places, self.spool, self.api, self.module = places, spool, api, module
        self.task_ids = tuple(dict.fromkeys(task_ids))
        self.acquire, self.most, self.clock, self.stop, self.free = acquire, most, clock, stop, free
        self._again: dict[str, tuple[float, float, int]] = {}
        """Of each assignment whose files could not be had: when that was, seconds to wait from then, how often."""

    def turn(self) -> Turn:
        """Mend, admit, have files, ask. Raises ClaimedError where another fetches; all else is among the problems."""
        try:
            claim = take(self.places.claim("fetch"), stale=self.spool.stale, job_alive=self.spool.job_alive)
        except StorageError as error:
            return Turn(problems=(error,))
        try:
            return _Turn(self).run()
        finally:
            claim.release()

    # --- files ----------------------------------------------------------------------------------
    def have_files(self, assignment: Assignment) -> FlockError | None:
        """Have one assignment's files; what is in the way, or None. One bad assignment stops no other."""
        try:
            problem = self.acquire(assignment).problem
            error: FlockError | None = None
            if problem is not None:
                error = ApiError(problem, where=f"assignment {assignment.id}")
        except FlockError as trouble:
            error = trouble
        except Exception as bug:  # a reply is hostile: whatever it breaks, the others go on
            error = ApiError(f"its files can't be had: {type(bug).__name__}: {bug}",
                             where=f"assignment {assignment.id}")
        self._count(assignment.id, error)
        return error

    def _count(self, assignment_id: str, error: FlockError | None) -> None:
        if error is None:
            self._again.pop(assignment_id, None)
            return
        times = self._again.get(assignment_id, (0.0, 0.0, 0))[2] + 1
        first = rates.first_wait(AGAIN, self.places.settings.time_sleep)
        self._again[assignment_id] = (self.clock(), min(first * 2 ** min(times - 1, 20), MOST_AGAIN), times)

    def incomplete(self) -> list[Assignment]:
        """Assignments of the spool that wait for their files and may be tried now."""
        now = self.clock()
        return [one for one in self.spool.listed(State.FETCHED)
                if one.handed is None and _wants_files(one)
                and not (one.id in self._again and rates.too_early(*self._again[one.id][:2], now))]

    def outstanding(self) -> int:
        """How many there are, with replies that no assignment was made of yet."""
        return len(self.spool.ids(*OUTSTANDING)) + len(self.spool.lookups.waiting())


def _wants_files(one: Assignment) -> bool:
    missing = (one.needs_data and one.data is None) or (one.needs_model and one.model is None)
    return missing or one.problem is not None


class _Turn:
    """One turn, under the claim of fetching."""

    def __init__(self, fetcher: Fetcher) -> None:
        self.fetcher = fetcher
        self.spool, self.clock = fetcher.spool, fetcher.clock
        self.wanted = fetcher.places.settings.lookup_interval
        self.patience = rates.first_wait(rates.OUTAGE, fetcher.places.settings.time_sleep)
        self.rates = rates.load(fetcher.places.rates, self.clock())
        self.admitted: list[Assignment] = []
        self.problems: list[FlockError] = []
        self.order = list(fetcher.task_ids)
        """Tasks, those asked last at the end."""
        self.done: set[str] = set()
        """Tasks that had their turn and brought nothing."""
        self.closed: set[str] = set()

    def run(self) -> Turn:
        fetcher, ends = self.fetcher, self.clock() + LONGEST
        full = False
        try:
            self._room()
            self.spool.tidy()
            for reply in self.spool.lookups.waiting():
                self._admit(reply)
            for assignment in fetcher.incomplete():
                if not fetcher.stop():
                    self._files(assignment)
            while not (full := fetcher.outstanding() >= fetcher.most) and not fetcher.stop() and self.clock() < ends:
                task = rates.due(self.rates, self._left(), self.clock())
                if task is None or not (self._stands(task) or self._ask(task)):
                    break
        except FlockError as error:
            self._note(error)
        waits = {task: self._rate(task).next for task in fetcher.task_ids}
        return Turn(tuple(self.admitted), waits, tuple(self.problems), full, frozenset(self.closed))

    def _room(self) -> None:
        """Room for what is about to come, and a reserve for reporting. Raises StorageError."""
        places = self.fetcher.places
        free, least = self.fetcher.free(places.home), places.settings.min_free_gb * 1e9
        if free < least:
            raise StorageError(f"nothing is fetched: {free / 1e9:.1f} GB are free, and validation.min_free_gb asks for"
                               f" {least / 1e9:g}", where=str(places.home),
                               todo="make room there; what is fetched already goes on, and results are reported")
        keep_reserve(places.reserve)
        for state in State:
            places.state(state).mkdir(parents=True, exist_ok=True)

    def _stands(self, task: str) -> bool:
        """Whether something on this side would have the next assignment given up as the last ones were."""
        few = self.spool.count(State.GIVEN_UP) < standing.MOST
        cause = "" if few else standing.standing(self.spool.listed(), task, self.fetcher.module, self.clock())
        if cause:
            self.done.add(task)
            self.closed.add(task)
            self._note(standing.refusal(task, cause))
        return bool(cause)

    def _left(self) -> tuple[str, ...]:
        return tuple(task for task in self.order if task not in self.done)

    def _rate(self, task: str) -> Rate:
        return self.rates.get(task, Rate())

    def _learn(self, task: str, rate: Rate) -> None:
        self.rates[task] = rate
        rates.save(self.fetcher.places.rates, self.rates)

    def _note(self, error: FlockError | None) -> None:
        if error is not None:
            self.problems.append(error)

    # --- one lookup -----------------------------------------------------------------------------
    def _ask(self, task: str) -> bool:
        """Ask for an assignment of one task; False where nothing more is to be asked. Raises StorageError."""
        self.order.remove(task)
        self.order.append(task)
        lookup = self.spool.lookups.begin(task, self.fetcher.module, self.clock())
        self._learn(task, rates.asked(self._rate(task), self.clock(), self.wanted))
        try:
            body = self.fetcher.api.request_assignment(task)
        except ApiError as error:
            return self._nothing(task, lookup, error)
        path = lookup.keep(body)
        self._learn(task, rates.granted(self._rate(task), self.clock(), self.wanted))
        before = len(self.admitted)
        self._admit(next(reply for reply in self.spool.lookups.waiting() if reply.path == path))
        if len(self.admitted) == before:  # one that is known, or none at all: the same may come at once again
            self.done.add(task)
            self._learn(task, rates.empty(self._rate(task), self.clock(), self.wanted))
        return True

    def _nothing(self, task: str, lookup: Lookup, error: ApiError) -> bool:
        self.done.add(task)
        rate, now = self._rate(task), self.clock()
        if isinstance(error, ApiUnavailable) and error.unsure:
            lookup.lost()
        else:
            lookup.nothing()
        if isinstance(error, NoSubmissions):
            self._learn(task, rates.empty(rate, now, self.wanted))
        elif isinstance(error, RateLimited):
            self._learn(task, rates.limited(rate, now, self.wanted, error.seconds))
        else:
            after = error.retry_after if isinstance(error, ApiUnavailable) else None
            for one in self.fetcher.task_ids if isinstance(error, BadKey) else (task,):
                self._learn(one, rates.outage(self._rate(one), now, self.wanted, after, self.patience))
            self._note(error)
        return not isinstance(error, BadKey)

    # --- one reply ------------------------------------------------------------------------------
    def _admit(self, reply: Reply) -> None:
        try:
            parsed = replies.parse_assignment(reply.path.read_bytes(), reply.task_id, reply.module, reply.when,
                                              self.fetcher.places.settings.lease)
            known = self.spool.find(parsed.id) is not None
            assignment = self.spool.admit(reply.path, parsed)
        except DataError as error:
            self.spool.lookups.refuse(reply.path)
            self._note(error)
        except OSError as error:
            raise StorageError.of(error, reply.path, "read a kept reply") from error
        except StorageError:
            raise
        except FlockError as error:
            self._note(error)
        else:
            self._admitted(assignment, known)

    def _admitted(self, assignment: Assignment, known: bool) -> None:
        if not known:
            self.admitted.append(assignment)
        if not known or (assignment.state is State.FETCHED and _wants_files(assignment)):
            self._files(assignment)

    def _files(self, assignment: Assignment) -> None:
        """Have its files; one whose reply can't be used takes up no place: a person decides. Raises on a full disk."""
        if assignment.cause != "reply":
            error = self.fetcher.have_files(assignment)
        else:
            error = ApiError(assignment.problem or "its reply can't be used", where=f"assignment {assignment.id}")
            with self.spool.held(assignment.id):
                self.spool.move(assignment, State.GIVEN_UP, error.what, "reply")
        if isinstance(error, StorageError) and out_of_space(error):
            raise error
        self._note(error)
        if error is not None:
            self._too_late(assignment.id)

    def _too_late(self, assignment_id: str) -> None:
        """One whose validation set can't be had any more takes up no place: its URL has died."""
        with self.spool.held(assignment_id):
            now = self.spool.find(assignment_id)
            if now is None or now.state is not State.FETCHED or not now.needs_data or now.data is not None:
                return
            if self.clock() > (now.url_expires or now.fetched_at + URL_LIFE):
                reason = f"its validation set could not be had before its URL died: {now.problem or 'not fetched'}"
                self.spool.move(replace(now, problem=reason, cause=URL_DIED), State.GIVEN_UP, reason, URL_DIED)
