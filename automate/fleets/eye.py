"""The eye of those who only look at fleets: what lies in their folders, read again only where it changed.

Never writes, drops no worker, and asks nobody: whether a silent worker lives is for the registry's own watch to say."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from automate.errors import DataError, FlockError
from automate.fleet_places import FleetPlaces, fleets_folder
from automate.journal import read_json
from automate.serving.fleet.files import age_of
from automate.serving.fleet.records import FleetSpec, WorkerRecord
from automate.serving.fleet.registry import Life, Seen

Mark = tuple[int, int, int]


def fleets_here(root: Path, problems: list[str]) -> dict[str, tuple[FleetPlaces, FleetSpec]]:
    """The fleets of a workspace by name; those that can't be read go to `problems`."""
    found = {}
    folder = fleets_folder(root)
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        places = FleetPlaces(root, path.name)
        try:
            data = read_json(places.spec)
            if data is not None:
                found[path.name] = places, FleetSpec.of(data, str(places.spec))
        except FlockError as error:
            problems.append(str(error))
    return found


class Records:
    """The JSON files of a folder; a file is read again only where it changed, and forgotten where it is gone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._kept: dict[Path, tuple[Mark, dict[str, Any] | None]] = {}

    def read(self, problems: list[str]) -> dict[Path, dict[str, Any]]:
        """All that can be read, by path; the others go to `problems`."""
        kept: dict[Path, tuple[Mark, dict[str, Any] | None]] = {}
        for path in sorted(self.folder.glob("[!.]*.json")):
            try:
                stat = path.stat()
                mark = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
                before = self._kept.get(path)
                kept[path] = before if before and before[0] == mark else (mark, read_json(path))
            except OSError:
                continue  # replaced or removed while it was looked at
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
        self._workers, self._runs = Records(self.places.workers), Records(self.places.runs)

    def runs(self, problems: list[str]) -> list[dict[str, Any]]:
        """Every start's own record, oldest first."""
        return sorted(self._runs.read(problems).values(), key=_started)

    def workers(self, spec: FleetSpec, problems: list[str]) -> Mapping[str, Seen]:
        """Every worker of the registry, by id."""
        found, now = {}, self.clock()
        for path, data in self._workers.read(problems).items():
            try:
                record = WorkerRecord.of(data, str(path))
            except DataError as error:
                problems.append(str(error))
                continue
            silence = self._silence(record, path, now)
            life: Life = "silent" if silence > spec.stale else "alive"
            found[record.id] = Seen(record, life, silence, "" if life == "silent" else _unfit(record, spec))
        self._beats = {worker: beat for worker, beat in self._beats.items() if worker in found}
        return found

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


def _started(run: Mapping[str, Any]) -> float:
    value = run.get("started")
    return float(value) if isinstance(value, int | float) else 0.0
