"""The eye of those who only look at fleets: what lies in their folders, read again only where it changed.

Changes no record, drops no worker, and asks nobody: whether a silent worker lives, the registry's watch says."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from automate.errors import DataError, FlockError
from automate.fleet_places import FleetPlaces
from automate.fleets.jobs import fleets_of, fleets_of_others, theirs
from automate.journal import read_json
from automate.serving.fleet.files import age_of, read_or_none
from automate.serving.fleet.files import read as read_record
from automate.serving.fleet.records import FleetSpec, WorkerRecord
from automate.serving.fleet.registry import Life, Seen

Mark = tuple[int, int, int]
_TRIED = b"\0" * 4096


def fleets_here(root: Path, problems: list[str]) -> dict[str, tuple[FleetPlaces, FleetSpec]]:
    """The fleets of a workspace by name; those that can't be read go to `problems`."""
    found = {}
    problems += [theirs(name, user) for name, user in fleets_of_others(root).items()]
    for name in fleets_of(root):
        places = FleetPlaces(root, name)
        try:
            data = read_json(places.spec)
            if data is not None:
                found[name] = places, FleetSpec.of(data, str(places.spec))
        except FlockError as error:
            problems.append(str(error))
    return found


def cant_write(folder: Path) -> str:
    """Why nothing can be written into a folder, as on a full file system; empty where it can. Leaves nothing there."""
    probe = folder / f".room-{secrets.token_hex(4)}"
    try:
        fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(fd, _TRIED)
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        return (error.strerror or str(error)) if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS) else ""
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    return ""


class Records:
    """The JSON files of a folder; a file is read again only where it changed, and forgotten where it is gone.

    `pattern`: which files; `read`: reads one, and says by ValueError or FlockError why it can't be used.
    """

    def __init__(self, folder: Path, pattern: str = "[!.]*.json",
                 read: Callable[[Path], dict[str, Any] | None] = read_or_none) -> None:
        self.folder = folder
        self._pattern, self._read = pattern, read
        self._kept: dict[Path, tuple[Mark, dict[str, Any] | None]] = {}

    def read(self, problems: list[str]) -> dict[Path, dict[str, Any]]:
        """All that can be read, by path; the others go to `problems`."""
        kept: dict[Path, tuple[Mark, dict[str, Any] | None]] = {}
        for path in sorted(self.folder.glob(self._pattern)):
            try:
                stat = path.lstat()
                mark = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
                before = self._kept.get(path)
                kept[path] = before if before and before[0] == mark else (mark, self._read(path))
            except FileNotFoundError:
                continue  # replaced or removed while it was looked at
            except OSError as error:
                problems.append(f"{path}: can't be read: {error.strerror or error}")
            except ValueError as error:
                problems.append(f"{path}: {error}")
            except FlockError as error:
                problems.append(str(error))
        self._kept = kept
        problems += [f"{path}: not a record of flock-hpc" for path, (_, record) in kept.items() if record is None]
        return {path: record for path, (_, record) in kept.items() if record is not None}


@dataclass
class Eye:
    """One fleet's registry and starts. A worker is silent when its heartbeat did not rise for as long as the fleet
    says: by this reader's own clock from the second look on, by the file system's at the first."""

    places: FleetPlaces
    clock: Callable[[], float] = time.monotonic
    _beats: dict[str, tuple[int, float]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._workers = Records(self.places.workers, "[!.]*", read_record)  # as the registry's own watch reads them
        self._runs = Records(self.places.runs)

    def runs(self, problems: list[str]) -> list[dict[str, Any]]:
        """Every start's own record, oldest first."""
        return sorted(self._runs.read(problems).values(), key=_started)

    def workers(self, spec: FleetSpec, problems: list[str]) -> Mapping[str, Seen]:
        """Every worker of the registry, by id. Files that are no worker's record are among the `problems`."""
        found, now = {}, self.clock()
        for path, data in self._workers.read(problems).items():
            try:
                record = WorkerRecord.of(data, str(path))
            except DataError as error:
                problems.append(str(error))
                continue
            if path.name != f"{record.id}.json":
                problems.append(f"{path}: holds the record of a worker of another name ({record.id})")
                continue
            silence = self._silence(record, path, now)
            life: Life = "silent" if silence > spec.stale else "alive"
            found[record.id] = Seen(record, life, silence, "" if life == "silent" else _unfit(record, spec))
        self._beats = {worker: beat for worker, beat in self._beats.items() if worker in found}
        return _without_copies(found)

    def _silence(self, record: WorkerRecord, path: Path, now: float) -> float:
        """Seconds since its beat rose."""
        beat = self._beats.get(record.id)
        if beat is None:
            self._beats[record.id] = record.beat, now - _written(path)
        elif beat[0] != record.beat:
            self._beats[record.id] = record.beat, now
        return max(0.0, now - self._beats[record.id][1])


def _written(path: Path) -> float:
    """Seconds since a file was written, by the file system; 0 where it can't say."""
    try:
        return max(0.0, age_of(path) or 0.0)
    except FlockError:
        return 0.0


def _unfit(record: WorkerRecord, spec: FleetSpec) -> str:
    """Why a worker isn't used, as far as its own record tells."""
    group = next((one for one in spec.groups if one.number == record.group), None)
    if record.fleet != spec.id:
        return "it belongs to another fleet of this name"
    if record.version != spec.version:
        return f"it runs flock-hpc {record.version}, the fleet was made by {spec.version}"
    if group is None or record.model != group.model:
        return f"it serves {record.model}" + (f", and its group {group.model}" if group else ", which no group does")
    return ""


def _without_copies(found: Mapping[str, Seen]) -> dict[str, Seen]:
    """The same; of records of one start under several names, all but the one that beats are said not to be used.

    A copy that does not beat is no silent worker either.
    """
    first = {one.record.nonce: worker for worker, one in sorted(found.items(), key=_by_beat)}
    return {worker: one if first[one.record.nonce] == worker else
            replace(one, life="alive", why=one.why or f"its record is a copy of that of {first[one.record.nonce]}")
            for worker, one in found.items()}


def _by_beat(item: tuple[str, Seen]) -> tuple[bool, int, bool, float, int]:
    """The start's own record comes last: used by its own word, beats most, is older."""
    one = item[1]
    return not one.why, one.record.beat, one.life == "alive", one.silence, -len(item[0])


def _started(run: Mapping[str, Any]) -> float:
    value = run.get("started")
    return float(value) if isinstance(value, int | float) else 0.0
