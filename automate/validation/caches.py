"""Removes downloaded repositories that nobody used for long, or the oldest above a size.

Never touches what an outstanding assignment uses, in this workspace or in another that shares the folder."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from automate.errors import ClaimedError, FlockError
from automate.journal import fresh_name, replace_file
from automate.validation import snapshots
from automate.validation.assignments import State
from automate.validation.repositories import is_commit
from automate.validation.spool import Spool
from automate.validation_places import ValidationPlaces

GRACE = 3600.0
"""Seconds after its last use in which a snapshot is never removed: an assignment may be about to name it."""
DAY = 86_400.0
GB = 1_000_000_000
_WORKSPACES, _TRASH = ".workspaces", ".trash"


@dataclass(frozen=True)
class Cached:
    """A snapshot, or the files of one that was not finished: folder, bytes, last use (epoch seconds)."""

    folder: Path
    size: int
    used: float

    @property
    def unfinished(self) -> bool:
        return self.folder.name.startswith(".")

    @property
    def whole_folder(self) -> Path:
        """The snapshot's own folder, for the files of an unfinished one too."""
        return self.folder.with_name(self.folder.name[1:].removesuffix(".part")) if self.unfinished else self.folder


@dataclass(frozen=True)
class Cleaned:
    """What was removed, how many bytes that freed, how many are left, and what could not be removed and why."""

    removed: tuple[Path, ...] = ()
    freed: int = 0
    left: int = 0
    problems: tuple[str, ...] = ()


def note_workspace(places: ValidationPlaces) -> None:
    """Say in the models' folder that this workspace uses it. Raises StorageError."""
    name = hashlib.sha256(os.fsencode(places.root)).hexdigest()[:16]
    path = places.models / _WORKSPACES / name
    if not path.exists():
        replace_file(path, os.fsencode(places.root))


def in_use(places: ValidationPlaces, spool: Spool) -> set[Path]:
    """Folders of snapshots that outstanding assignments use, of all workspaces that share the models' folder."""
    spools = [spool]
    folder = places.models / _WORKSPACES
    for mark in sorted(folder.iterdir()) if folder.is_dir() else []:
        root = Path(os.fsdecode(mark.read_bytes()))
        if root != places.root and root.is_absolute():
            spools.append(Spool(ValidationPlaces(root, places.settings)))
    found = set()
    for one in spools:
        for assignment in one.listed(*(state for state in State if state.outstanding)):
            found |= {Path(part.path) for part in (assignment.model, assignment.base) if part is not None}
            found |= _pinned(places.models, assignment.model_commit, assignment.base_commit)
    return found


def _pinned(models: Path, *commits: str | None) -> set[Path]:
    """Snapshots that an assignment has pinned, whole or not yet."""
    return {path for commit in commits if commit and is_commit(commit) for path in models.glob(f"*/{commit}")} \
        | {path.with_name(commit) for commit in commits if commit and is_commit(commit)
           for path in models.glob(f"*/.{commit}.part")}


def cached(models: Path) -> list[Cached]:
    """All that lies in the models' folder, the longest unused first."""
    found = []
    for folder in models.glob("*/*") if models.is_dir() else []:
        name = folder.name[1:].removesuffix(".part") if folder.name.startswith(".") else folder.name
        if is_commit(name) and folder.is_dir() and not folder.parent.name.startswith("."):
            found.append(Cached(folder, _bytes(folder), _used(folder)))
    return sorted(found, key=lambda one: (one.used, str(one.folder)))


def _used(folder: Path) -> float:
    for path in (snapshots.manifest_of(folder), folder):
        with contextlib.suppress(OSError):
            return path.stat().st_mtime
    return 0.0


def _bytes(folder: Path) -> int:
    size = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            size += path.lstat().st_size if not path.is_dir() else 0
    return size


def clean(places: ValidationPlaces, spool: Spool, now: float) -> Cleaned:
    """Remove what is too old, then the longest unused while all together is too large (`validation.models`)."""
    limits = places.settings.models
    there = cached(places.models)
    left = sum(one.size for one in there)
    _empty_trash(places.models)
    if not there or (limits.max_age_days is None and limits.max_gb is None):
        return Cleaned(left=left)
    removed, freed, problems = [], 0, []
    used = in_use(places, spool)
    for one in there:
        old = limits.max_age_days is not None and now - one.used > limits.max_age_days * DAY
        large = limits.max_gb is not None and left > limits.max_gb * GB
        if not (old or large) or one.whole_folder in used or now - one.used < GRACE:
            continue
        problem = _remove(places, spool, one, now)
        if problem:
            problems.append(problem)
            continue
        removed.append(one.folder)
        freed, left = freed + one.size, left - one.size
    return Cleaned(tuple(removed), freed, left, tuple(problems))


def _remove(places: ValidationPlaces, spool: Spool, one: Cached, now: float) -> str:
    """Move a snapshot out of the way under its claim, then delete it; why that could not be done."""
    try:
        with snapshots.held(places.models, one.whole_folder):
            if one.whole_folder in in_use(places, spool) or now - _used(one.folder) < GRACE:
                return f"{one.folder}: it came into use"
            trash = places.models / _TRASH / fresh_name()
            trash.parent.mkdir(exist_ok=True)
            if not one.unfinished:
                snapshots.manifest_of(one.folder).unlink(missing_ok=True)
            one.folder.rename(trash)
        _empty_trash(places.models)
    except ClaimedError:
        return f"{one.folder}: somebody is at work on it"
    except (OSError, FlockError) as error:
        return f"{one.folder}: {error}"
    with contextlib.suppress(OSError):
        one.folder.parent.rmdir()
    return ""


def _empty_trash(models: Path) -> None:
    for path in _trash(models):
        shutil.rmtree(path, ignore_errors=True)


def _trash(models: Path) -> Iterator[Path]:
    folder = models / _TRASH
    yield from folder.iterdir() if folder.is_dir() else ()
