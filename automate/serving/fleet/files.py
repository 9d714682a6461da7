"""Small files of a fleet's registry: put by rename, read with care, moved to those that are gone.

Never makes a folder that was lost, and never follows a link."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import time
from pathlib import Path
from typing import Any

import orjson

from automate.errors import StorageError
from automate.fleet_places import FleetPlaces
from automate.journal import Record, parse_object
from automate.serving.fleet.records import WorkerRecord

LARGEST = 1 << 16
"""Bytes of the largest record that is read."""
_KEPT = 500
"""How many last words of workers are kept."""


def lost(folder: Path) -> StorageError:
    """The error of a registry that isn't there any more."""
    return StorageError("the fleet's registry is lost: the folder was moved or removed", where=str(folder),
                        todo="put the folder back where it was, or stop the fleet's jobs (scancel) and serve again")


def put(path: Path, value: object, tag: str) -> None:
    """Put a JSON document in its place by rename, in a folder that must be there. Raises StorageError.

    `tag`: the writer's own, so that what it leaves behind when it is killed is written over by itself.
    """
    temporary = path.with_name(f".{path.stem}.{tag}.tmp")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE))
        temporary.replace(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise lost(path.parent) from error
    except OSError as error:
        raise StorageError.of(error, path, "write it") from error


def read(path: Path) -> Record:
    """A record that this user wrote. Raises FileNotFoundError, OSError, and ValueError with the reason."""
    return read_dated(path)[0]


def read_or_none(path: Path) -> Record | None:
    """As `read`, without a reason: None for what is no record of this user. Raises OSError where it can't be opened."""
    try:
        return read(path)
    except ValueError:
        return None


def read_dated(path: Path) -> tuple[Record, float]:
    """As `read`, with the time at which it was put there by the file system's clock, epoch seconds."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("not a file")
        if found.st_uid != os.geteuid():
            raise ValueError(f"belongs to another user (uid {found.st_uid})")
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError("too large for a record")
    return parse_object(data), found.st_mtime


def age_of(path: Path) -> float | None:
    """Seconds since the file was put there, by the file system's own clock; None where it has gone.

    Raises StorageError where the folder can't be written or is lost.
    """
    probe = path.parent / f".clock-{secrets.token_hex(4)}"
    try:
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        now = probe.stat().st_mtime
    except (FileNotFoundError, NotADirectoryError) as error:
        raise lost(path.parent) from error
    except OSError as error:
        raise StorageError.of(error, path.parent, "write there") from error
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    try:
        return now - path.stat().st_mtime
    except OSError:
        return None


def bury(places: FleetPlaces, record: WorkerRecord, why: str) -> None:
    """Move a worker's record to those that are gone, with the reason; nothing where it isn't registered any more.

    A newer registration under its id stays. Raises StorageError.
    """
    path = places.worker(record.id)
    try:
        if read(path).get("nonce") != record.nonce:
            return
    except (OSError, ValueError):
        return
    word: dict[str, Any] = {**record.as_json(), "why": why[:2000], "gone": time.time()}
    with contextlib.suppress(StorageError):  # a full disk must not keep it registered
        put(places.gone / f"{record.id}.json", word, record.nonce[:16])
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError.of(error, path, "remove it") from error
    _keep_few(places.gone)


def _keep_few(folder: Path) -> None:
    """Remove the oldest of the last words where there are too many."""
    with contextlib.suppress(OSError):
        found = sorted((path.stat().st_mtime, path) for path in folder.glob("*.json"))
        for _, path in found[:-_KEPT]:
            path.unlink(missing_ok=True)
