"""Assignments on disk: a folder each, whose parent folder is its state; a state changes by rename only.

Never talks to the API or to Slurm; the raw reply is on disk before anything is made of it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from automate.claims import Claim, JobAlive, no_jobs, take
from automate.errors import DataError, StorageError
from automate.journal import fresh_name, replace_file
from automate.names import name_problem
from automate.validation import assignments
from automate.validation.assignments import Assignment, State
from automate.validation.inner import files
from automate.validation_places import ValidationPlaces

CLAIM_STALE = 90.0
"""Seconds without a heartbeat after which a dead holder's claim of an assignment is free."""


class Spool:
    """The spool of one workspace."""

    def __init__(self, places: ValidationPlaces, *, stale: float = CLAIM_STALE, job_alive: JobAlive = no_jobs) -> None:
        self.places = places
        self.stale = stale
        self.job_alive = job_alive

    # --- replies come in ------------------------------------------------------------------------
    def keep(self, reply: bytes, task_id: str, module: str) -> Path:
        """Put a raw reply on disk before anything else happens to it; returns the file. Raises StorageError."""
        name = f"{fresh_name()}--{module}--{task_id}.json"
        path = self.places.incoming / name
        replace_file(path, reply)
        return path

    def incoming(self) -> list[tuple[Path, str, str]]:
        """(file, task id, module) of replies that no assignment was made of yet, oldest first."""
        folder = self.places.incoming
        found = []
        for path in sorted(folder.glob("*.json")) if folder.is_dir() else []:
            parts = path.stem.split("--")
            if len(parts) == 3:
                found.append((path, parts[2], parts[1]))
        return found

    def admit(self, reply: Path, assignment: Assignment) -> Assignment:
        """Make a folder in `fetched` of a kept reply; `assignment.folder` is set here.

        An id that is in the spool already is not taken twice: the new reply is kept beside the old one (its URL may be
        younger), and the assignment that is there is returned. Raises StorageError.
        """
        old = self.find(assignment.id)
        if old is not None:
            target = old.folder / f"reply-{fresh_name()}.json"
            self._rename(reply, target)
            return old
        target = self.places.assignment(State.FETCHED, assignment.id)
        building = self.places.spool / ".new" / f"{assignment.id}-{fresh_name()}"
        try:
            building.mkdir(parents=True)
            shutil.copyfile(reply, building / files.REPLY)
            made = replace(assignment, folder=building, state=State.FETCHED)
            assignments.save(made)
            target.parent.mkdir(parents=True, exist_ok=True)
            building.rename(target)
            reply.unlink(missing_ok=True)
        except OSError as error:
            shutil.rmtree(building, ignore_errors=True)
            raise StorageError.of(error, target, "put an assignment into the spool") from error
        return replace(made, folder=target)

    # --- what is there --------------------------------------------------------------------------
    def find(self, assignment_id: str) -> Assignment | None:
        """The assignment with this id, wherever it is; None where there is none. Raises DataError."""
        if name_problem(assignment_id) is not None:
            return None
        for _ in range(3):  # it may be renamed between two looks
            for state in State:
                folder = self.places.assignment(state, assignment_id)
                if folder.is_dir():
                    try:
                        return assignments.read(folder, state)
                    except DataError:
                        if folder.is_dir():
                            raise
            time.sleep(0.01)
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
        claim = take(self.places.assignment_claim(assignment_id), stale=self.stale, job_alive=self.job_alive)
        try:
            yield claim
        finally:
            claim.release()

    def save(self, assignment: Assignment) -> Assignment:
        """Write what is known of an assignment where it lies. The caller holds its claim."""
        assignments.save(assignment)
        return assignment

    def move(self, assignment: Assignment, to: State, what: str = "", cause: str = "",
             job: str | None = None) -> Assignment:
        """Change its state by one rename, with an event in its history. The caller holds its claim.

        What is known is written before the rename, so that a reader of the new state finds it. Raises StorageError.
        """
        if what:
            assignment = assignment.noted(time.time(), what, cause, job)
        assignments.save(assignment)
        target = self.places.assignment(to, assignment.id)
        self._rename(assignment.folder, target)
        return replace(assignment, folder=target, state=to)

    def _rename(self, source: Path, target: Path) -> None:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            source.rename(target)
            _flush(target.parent)
        except OSError as error:
            raise StorageError.of(error, target, f"move {source.name} there") from error


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
