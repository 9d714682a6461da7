"""Assignments on disk: a folder each, whose parent folder is its state; a state changes by rename only.

Never talks to the API or to Slurm; the raw reply is on disk before anything is made of it."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from automate.claims import Claim, JobAlive, no_jobs, take
from automate.errors import DataError, StorageError
from automate.journal import fresh_name, parse_object, replace_file
from automate.names import name_problem
from automate.validation import assignments
from automate.validation.assignments import Assignment, State
from automate.validation.inner import files
from automate.validation.lookups import Lookups
from automate.validation_places import ValidationPlaces

CLAIM_STALE = 90.0
"""Seconds without a heartbeat after which a dead holder's claim of an assignment is free."""

URL_LIFE = 3600.0
"""Seconds that a presigned URL lives where it does not say so itself."""
URL_DIED, LOST_LEASE = "url-died", "lost-lease"
"""Causes for which an assignment was given up that the API may give out again."""
NOT_TAKEN, MOST_REPORTS = "report-not-taken", 2
"""Cause of the events that count how often the API gave out again what was reported without its word; how often that
leads to one more report."""
KEPT_REPLIES = 4
"""How many later replies for an assignment are kept; the youngest ones."""


class Spool:
    """The spool of one workspace."""

    def __init__(self, places: ValidationPlaces, *, stale: float = CLAIM_STALE, job_alive: JobAlive = no_jobs,
                 clock: Callable[[], float] = time.time) -> None:
        self.places = places
        self.stale = stale
        self.job_alive = job_alive
        self.clock = clock
        self.lookups = Lookups(places.incoming)

    # --- replies come in ------------------------------------------------------------------------
    def keep(self, reply: bytes, task_id: str, module: str) -> Path:
        """Put a raw reply on disk before anything else happens to it; returns the file. Raises StorageError."""
        return self.lookups.begin(task_id, module, self.clock()).keep(reply)

    def incoming(self) -> list[tuple[Path, str, str]]:
        """(file, task id, module) of replies that no assignment was made of yet, oldest first."""
        return [(reply.path, reply.task_id, reply.module) for reply in self.lookups.waiting()]

    def admit(self, reply: Path, assignment: Assignment) -> Assignment:
        """Make a folder in `fetched` of a kept reply; `assignment.folder` is set here.

        An id that is in the spool already is not taken twice: the new reply is kept beside the old one (its URL is
        younger), and the assignment that is there is returned; one given up for want of a URL or a lease goes on.
        Raises DataError for an id that can't be a folder, ClaimedError where somebody is at work on it, StorageError.
        """
        problem = name_problem(assignment.id)
        if problem is not None:
            raise DataError(f"an assignment's id can't be used: {problem}", where=str(reply),
                            todo="look at the reply in this file; it is kept")
        with self.held(assignment.id):
            old = self._look(assignment.id)
            return self._build(reply, assignment) if old is None else self._again(reply, old, assignment)

    def _build(self, reply: Path, assignment: Assignment) -> Assignment:
        target = self.places.assignment(State.FETCHED, assignment.id)
        building = self.places.spool / ".new" / f"{assignment.id}-{fresh_name()}"
        try:
            building.mkdir(parents=True)
            replace_file(building / files.REPLY, reply.read_bytes())
            made = replace(assignment, folder=building, state=State.FETCHED)
            assignments.save(made)
            self._rename(building, target)
            reply.unlink(missing_ok=True)
        except OSError as error:
            shutil.rmtree(building, ignore_errors=True)
            raise StorageError.of(error, target, "put an assignment into the spool") from error
        except StorageError:
            shutil.rmtree(building, ignore_errors=True)
            raise
        return replace(made, folder=target)

    def _again(self, reply: Path, old: Assignment, new: Assignment) -> Assignment:
        """Keep another reply with an id that is there; the caller holds its claim, so its folder stands still."""
        unanswered = old.unconfirmed and old.state in (State.SUBMITTED, State.FAILED) and _validating(reply)
        self._rename(reply, old.folder / f"reply-{fresh_name()}.json")
        for older in sorted(old.folder.glob("reply-*.json"))[:-KEPT_REPLIES]:
            with contextlib.suppress(OSError):
                older.unlink()
        if unanswered and new.cause != "reply":
            return self._report_again(old, new)
        back = {URL_DIED: State.FETCHED, LOST_LEASE: State.DONE}.get(old.cause or "")
        if old.state is State.GIVEN_UP and back is not None and new.cause != "reply":
            told = replace(old, problem=None, cause=None, deadline=new.deadline,
                           url_expires=new.url_expires or new.fetched_at + URL_LIFE)
            return self.move(told, back, "the API gave it out again")
        if old.state is State.FETCHED and old.data is None and new.cause != "reply":
            return self.save(replace(old, url_expires=new.url_expires))
        return old

    def _report_again(self, old: Assignment, new: Assignment) -> Assignment:
        """Its report was not taken after all: one more, a bounded number of times."""
        if sum(event.cause == NOT_TAKEN for event in old.history) >= MOST_REPORTS:
            return old
        told = replace(old, unconfirmed=False, problem=None, cause=None, deadline=new.deadline,
                       url_expires=new.url_expires or new.fetched_at + URL_LIFE)
        return self.move(told, State.DONE, "its report was not taken: the API gave it out again; it is reported again",
                         NOT_TAKEN)

    def tidy(self) -> None:
        """Mend what a crash left among the replies and half-built folders; the caller holds the claim of fetching."""
        self.lookups.mend(self.clock())
        for folder in (self.places.spool / ".new").glob("*"):
            shutil.rmtree(folder, ignore_errors=True)

    # --- what is there --------------------------------------------------------------------------
    def find(self, assignment_id: str) -> Assignment | None:
        """The assignment with this id, wherever it is; None where there is none. Raises DataError."""
        if name_problem(assignment_id) is not None:
            return None
        for left in (2, 1, 0):  # it may be renamed between two looks
            found = self._look(assignment_id)
            if found is not None or not left:
                return found
            time.sleep(0.01)
        return None

    def _look(self, assignment_id: str) -> Assignment | None:
        """One look through the states."""
        for state in State:
            folder = self.places.assignment(state, assignment_id)
            if folder.is_dir():
                try:
                    return assignments.read(folder, state)
                except DataError:
                    if folder.is_dir():
                        raise
        return None

    def listed(self, *states: State) -> list[Assignment]:
        """Assignments in these states (all: none given), oldest first; ones that can't be read are left out."""
        found = []
        for state in states or tuple(State):
            for folder in self._folders(state):
                try:
                    found.append(assignments.read(folder, state))
                except DataError:
                    continue
        return sorted(found, key=lambda one: (one.fetched_at, one.id))

    def unreadable(self) -> list[DataError]:
        """What lies in the spool and can't be understood."""
        found = []
        for state in State:
            for folder in self._folders(state):
                try:
                    assignments.read(folder, state)
                except DataError as error:
                    if folder.is_dir():
                        found.append(error)
        return found

    def count(self, *states: State) -> int:
        """How many folders there are in these states."""
        return sum(len(self._folders(state)) for state in states)

    def ids(self, *states: State) -> set[str]:
        """Ids of the folders in these states: two looks, as one may be renamed between two states meanwhile."""
        return {folder.name for _ in range(2) for state in states for folder in self._folders(state)}

    def _folders(self, state: State) -> list[Path]:
        folder = self.places.state(state)
        try:
            return sorted(path for path in folder.iterdir() if not path.name.startswith(".") and path.is_dir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StorageError.of(error, folder, "list the spool") from error

    # --- changes ---------------------------------------------------------------------------------
    @contextmanager
    def held(self, assignment_id: str) -> Iterator[Claim]:
        """Hold an assignment's claim while changing it. Raises ClaimedError, naming the holder."""
        claim = self.claim(assignment_id)
        try:
            yield claim
        finally:
            claim.release()

    def claim(self, assignment_id: str) -> Claim:
        """An assignment's claim, to be released by the caller. Raises ClaimedError and StorageError."""
        return take(self.places.assignment_claim(assignment_id), stale=self.stale, job_alive=self.job_alive)

    def save(self, assignment: Assignment) -> Assignment:
        """Write what is known of an assignment where it lies. The caller holds its claim."""
        assignments.save(assignment)
        return assignment

    def move(self, assignment: Assignment, to: State, what: str = "", cause: str = "",
             job: str | None = None, *, must_save: bool = True) -> Assignment:
        """Change its state by one rename, with an event in its history. The caller holds its claim.

        What is known is written before the rename, so that a reader of the new state finds it. Raises StorageError;
        without `must_save` a full disk costs the event only, and the rename is made all the same.
        """
        if what:
            assignment = assignment.noted(self.clock(), what, cause, job)
        try:
            assignments.save(assignment)
        except StorageError as error:
            if must_save or not out_of_space(error):
                raise
        target = self.places.assignment(to, assignment.id)
        self._rename(assignment.folder, target)
        return replace(assignment, folder=target, state=to)

    def _rename(self, source: Path, target: Path) -> None:
        """Rename; only folders of states are made for it, never an assignment's own, which may have moved on."""
        try:
            if target.parent.parent == self.places.spool:
                target.parent.mkdir(parents=True, exist_ok=True)
            source.rename(target)
            _flush(target.parent)
        except OSError as error:
            raise StorageError.of(error, target, f"move {source.name} there") from error


def out_of_space(error: StorageError) -> bool:
    """Whether the disk, a quota or a file's size limit refused."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _validating(reply: Path) -> bool:
    """Whether a kept reply itself says that its assignment is still to be validated."""
    try:
        return parse_object(reply.read_bytes()).get("status") == "validating"
    except (OSError, ValueError):
        return False


def _flush(folder: Path) -> None:
    """Ask the file system to keep a rename; some don't take that for folders."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        return
    finally:
        os.close(descriptor)
