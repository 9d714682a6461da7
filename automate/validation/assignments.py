"""One assignment as the spool keeps it: what the API said, what lies on disk for it, what became of it.

Only data and its form on disk; moving and listing is `spool.py`'s."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from automate.errors import DataError
from automate.journal import parse_object, write_json
from automate.validation.inner import files


class State(StrEnum):
    """Where an assignment is; the name of its parent folder.

    fetched: waits for its files or for a job; running: a job has it; done: has a result that was not reported yet;
    submitted: its metrics were accepted; failed: reported as failed for its own fault; given_up: a person decides.
    """

    FETCHED = "fetched"
    RUNNING = "running"
    DONE = "done"
    SUBMITTED = "submitted"
    FAILED = "failed"
    GIVEN_UP = "given_up"

    @property
    def outstanding(self) -> bool:
        """Whether it still takes up a place of `validation.max_outstanding`."""
        return self in (State.FETCHED, State.RUNNING, State.DONE)


@dataclass(frozen=True)
class DataFile:
    """The validation set on disk: `path` relative to the assignment's folder, size in bytes, sha256 in hex."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Snapshot:
    """A repository on disk: asked `revision`, pinned `commit` (40 hex digits), its folder (absolute), bytes."""

    repo: str
    revision: str
    commit: str
    path: str
    size: int = 0


@dataclass(frozen=True)
class Event:
    """One thing that happened to an assignment. `cause` is a stable word, `what` a sentence; `when` epoch seconds."""

    when: float
    what: str
    cause: str = ""
    job: str | None = None


@dataclass(frozen=True)
class Handed:
    """The array task that it was handed to: id as squeue prints it (`12_3`), the job's name, who runs it, when."""

    job: str
    name: str
    executor: str
    when: float


@dataclass(frozen=True)
class Assignment:
    """An assignment in the spool. Ids are text here, whatever the wire says; times are epoch seconds.

    `folder` and `state` say where it lies. `needs_data`, `needs_model`: what must be on disk before a job may have it.
    `deadline` is the earliest of what is known of it (None: unknown); `url_expires` that of the presigned URL.
    `attempts` counts starts that ended through no fault of the submission. `problem` says why it waits.
    `unconfirmed`: it was accepted by a POST whose reply was lost. `model_commit`, `base_commit`: what was pinned
    when it was first looked up; a download that is taken up again gets the same. `fetch_tries` counts those of its
    files that no outage explains.
    """

    id: str
    task_id: str
    module: str
    fetched_at: float
    folder: Path = field(compare=False)
    state: State = State.FETCHED
    assigned_at: str | None = None
    deadline: float | None = None
    url_expires: float | None = None
    needs_data: bool = False
    needs_model: bool = False
    data: DataFile | None = None
    model: Snapshot | None = None
    base: Snapshot | None = None
    attempts: int = 0
    problem: str | None = None
    cause: str | None = None
    handed: Handed | None = None
    unconfirmed: bool = False
    model_commit: str | None = None
    base_commit: str | None = None
    fetch_tries: int = 0
    history: tuple[Event, ...] = ()

    @property
    def ready(self) -> bool:
        """Whether all that a job needs of it lies on disk."""
        return (self.state is State.FETCHED and self.problem is None and (not self.needs_data or self.data is not None)
                and (not self.needs_model or self.model is not None))

    @property
    def result_file(self) -> Path:
        return self.folder / files.RESULT

    def noted(self, when: float, what: str, cause: str = "", job: str | None = None) -> Assignment:
        """The same with one more event."""
        return replace(self, history=(*self.history, Event(when, what, cause, job)))


_PLACE = {"folder", "state"}
_KNOWN = {one.name for one in fields(Assignment)}
_PARTS: dict[str, type] = {"data": DataFile, "model": Snapshot, "base": Snapshot, "handed": Handed}


def save(assignment: Assignment) -> None:
    """Write `assignment.json`; only who holds the assignment's claim may. Raises StorageError."""
    data = asdict(assignment)
    write_json(assignment.folder / files.ASSIGNMENT, {name: data[name] for name in data if name not in _PLACE})


def read(folder: Path, state: State) -> Assignment:
    """The assignment in a folder of the spool. Raises DataError where its file can't be understood."""
    path = folder / files.ASSIGNMENT
    try:
        data: dict[str, Any] = parse_object(path.read_bytes())
        known = {name: value for name, value in data.items() if name in _KNOWN - _PLACE}
        for name, kind in _PARTS.items():
            if isinstance(known.get(name), dict):
                known[name] = kind(**known[name])
        known["history"] = tuple(Event(**one) for one in known.get("history") or ())
        return Assignment(folder=folder, state=state, **known)
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"not an assignment of the spool: {error}", where=str(path),
                        todo="its raw reply lies beside it; ask again with the same command, or move the folder away"
                        ) from error
