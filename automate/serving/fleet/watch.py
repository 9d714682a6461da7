"""Reads a fleet's registry again and again: who lives, who is silent, who is gone, and whom not to use.

Never takes silence alone for death, and trusts no clock but its own and the file system's."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from automate.claims import Holder, JobAlive, alive, myself
from automate.errors import DataError, FlockError, StorageError
from automate.fleet_places import FleetPlaces
from automate.serving.fleet.files import age_of, bury, lost, read_dated
from automate.serving.fleet.records import FleetSpec, WorkerRecord

Life = Literal["alive", "silent", "gone"]
_ASK_EVERY = 15.0
"""Seconds between two questions to Slurm about one silent worker."""

_SKEW = 60.0
"""Seconds by which a worker's clock may differ without a word."""


@dataclass(frozen=True)
class Seen:
    """A worker as a reader sees it. `why`: why it is not used, where it isn't; `silence`: seconds without a beat.

    `skew`: seconds that its clock is ahead of the file system's, as of its last beat (0 where it doesn't say).
    """

    record: WorkerRecord
    life: Life
    silence: float = 0.0
    why: str = ""
    skew: float = 0.0

    @property
    def usable(self) -> bool:
        """Whether requests may be sent to it."""
        return self.life == "alive" and self.record.state == "ready" and not self.why

    @property
    def note(self) -> str:
        """What a user should know of one that is used all the same; empty where nothing."""
        if abs(self.skew) < _SKEW:
            return ""
        way = "ahead of" if self.skew > 0 else "behind"
        return f"its clock is {abs(self.skew):.0f} s {way} the file system's; nothing rests on it"


@dataclass
class _Pulse:
    """What a reader remembers of one worker: its last beat, when that was new here, and Slurm's last word.

    `others`: nonces that stood here under its id, and when they were seen last.
    """

    nonce: str
    beat: int
    at: float
    others: dict[str, float] = field(default_factory=dict)
    asked: float | None = None
    word: bool | None = None


class Watch:
    """Reads the registry again and again; remembers beats by its own steady clock, so that no clock of others counts.

    `job_alive`: Slurm's word on a job (asked seldom, and only of silent workers). `bad`: files of the registry that are
    no worker's record, by name, with the reason; as of the last look.
    """

    def __init__(self, places: FleetPlaces, spec: FleetSpec, job_alive: JobAlive, *, version: str,
                 clock: Callable[[], float] = time.monotonic, me: Holder | None = None) -> None:
        self._places = places
        self._spec = spec
        self._job_alive = job_alive
        self._version = version
        self._clock = clock
        self._me = me or myself()
        self._pulses: dict[str, _Pulse] = {}
        self._skews: dict[str, float] = {}
        self.bad: dict[str, str] = {}

    def look(self) -> Mapping[str, Seen]:
        """Every worker of the registry now, by id; those found gone are dropped from it. Raises StorageError (lost).

        One that is dropped is shown once more, as gone. Slow where Slurm must be asked: call it in a thread.
        """
        records = {record.id: record for record in self._records()}
        self._pulses = {worker: pulse for worker, pulse in self._pulses.items() if worker in records}
        self._skews = {worker: skew for worker, skew in self._skews.items() if worker in records}
        seen = {worker: self._seen(record, _newer(record, records.values())) for worker, record in records.items()}
        return {worker: replace(one, skew=self._skews[worker]) for worker, one in seen.items()}

    def _records(self) -> list[WorkerRecord]:
        folder = self._places.workers
        try:
            paths = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise lost(folder) from error
        except OSError as error:
            raise StorageError.of(error, folder, "read the registry") from error
        self.bad = {}
        found = [self._record(path) for path in paths]
        return [record for record in found if record]

    def _record(self, path: Path) -> WorkerRecord | None:
        """The record of a file; None where it has gone or is none, which is kept in `bad`."""
        try:
            found, written = read_dated(path)
            record = WorkerRecord.of(found, str(path))
            if path.name != f"{record.id}.json":
                raise ValueError(f"holds the record of a worker of another name ({record.id})")
        except FileNotFoundError:
            return None
        except DataError as error:
            self.bad[path.name] = error.what
        except ValueError as error:
            self.bad[path.name] = str(error)
        except OSError as error:
            self.bad[path.name] = f"can't be read: {error.strerror or error}"
        else:
            self._skews[record.id] = record.time - written if record.time > 0 else 0.0
            return record
        return None

    def _seen(self, record: WorkerRecord, newer: WorkerRecord | None) -> Seen:
        now = self._clock()
        pulse = self._pulse(record, now)
        silence = max(0.0, now - pulse.at)
        if newer and newer.holder.restart > record.holder.restart:
            return self._drop(record, silence, f"{_who(record)} was started again, and registered as {newer.id}")
        if silence < self._spec.stale:
            return Seen(record, "alive", silence, self._unfit(record, pulse))
        if newer:
            return self._drop(record, silence, f"{_who(record)} registered anew as {newer.id}")
        word = self._word(record, pulse, now)
        if word is False:
            return self._drop(record, silence, f"no heartbeat for {silence:.0f} s, and {_who(record)} is gone")
        tells = f"{_who(record)} lives" if word else f"nobody here can tell whether {_who(record)} lives"
        return Seen(record, "silent", silence, f"no heartbeat for {silence:.0f} s; {tells}")

    def _pulse(self, record: WorkerRecord, now: float) -> _Pulse:
        """What is remembered of a worker, with this record's beat; at first sight its age is the file's."""
        pulse = self._pulses.get(record.id)
        if pulse is None or pulse.nonce != record.nonce:
            others = {**pulse.others, pulse.nonce: now} if pulse else {}
            pulse = _Pulse(record.nonce, record.beat, now - self._age(record), others)
            self._pulses[record.id] = pulse
        elif pulse.beat != record.beat:
            pulse.beat, pulse.at, pulse.asked = record.beat, now, None
        return pulse

    def _age(self, record: WorkerRecord) -> float:
        """Seconds since a record was put there, by the file system; 0 where it comes from the future or can't say."""
        try:
            return max(0.0, age_of(self._places.worker(record.id)) or 0.0)
        except StorageError:
            return 0.0

    def _word(self, record: WorkerRecord, pulse: _Pulse, now: float) -> bool | None:
        """Whether a silent worker lives, by the process table or Slurm; asked again after a while only."""
        if pulse.asked is None or now - pulse.asked >= _ASK_EVERY:
            pulse.asked = now
            try:
                pulse.word = alive(record.holder, self._me, self._job_alive)
            except FlockError:
                pulse.word = None
        return pulse.word

    def _drop(self, record: WorkerRecord, silence: float, why: str) -> Seen:
        with contextlib.suppress(StorageError):  # where it can't be removed it is found again, and said again
            bury(self._places, record, why)
        self._pulses.pop(record.id, None)
        return Seen(record, "gone", silence, why)

    def _unfit(self, record: WorkerRecord, pulse: _Pulse) -> str:
        """Why a worker that lives isn't used; empty where it may be."""
        group = next((one for one in self._spec.groups if one.number == record.group), None)
        back = pulse.others.get(record.nonce)
        if back is not None and self._clock() - max(pulse.others.values()) < self._spec.stale:
            return "two workers register under this name"
        if record.fleet != self._spec.id:
            return "it belongs to another fleet of this name, made before or after"
        if record.version != self._version:
            return f"it runs flock-hpc {record.version}, this is {self._version}"
        if group is None:
            return f"the fleet has no group {record.group}"
        if record.model != group.model or not set(record.also) <= set(group.also):
            return f"it serves {', '.join(record.names)}; its group is to serve {', '.join(group.names)}"
        return ""


def _who(record: WorkerRecord) -> str:
    return f"its job {record.holder.job}" if record.holder.job else f"its process {record.holder.pid}"


def _newer(record: WorkerRecord, every: Iterable[WorkerRecord]) -> WorkerRecord | None:
    """A later registration by the same job after it was started again, or else by the same process."""
    mine = record.holder
    again = [one for one in every if one.id != record.id and one.holder.job == mine.job]
    restarted = [one for one in again if mine.job and one.holder.restart > mine.restart]
    same = [one for one in again if one.holder == mine and one.since > record.since]
    return next(iter([*restarted, *same]), None)
