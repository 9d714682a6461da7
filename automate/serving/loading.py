"""How fast a judge's weights come from their disk, and how long servers took to load them.

Never fails a job: what can't be measured is None."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MEMORY = frozenset({"tmpfs", "ramfs"})
"""File systems that are memory: what lies there counts against a job's own."""

SHARED = frozenset({"nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "wekafs", "panfs", "pvfs2",
                    "afs", "9p", "virtiofs", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.juicefs"})
"""File systems that other machines see too."""

READ = 8 << 20
STRETCH = 256 << 20
"""Bytes that are read in a row before the next file's turn."""
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Loading:
    """One load: its judge, the file system it came from, seconds until ready, bytes, bytes/s of that disk."""

    judge: str
    filesystem: str | None
    seconds: float
    weights: int | None
    disk_rate: float | None
    staged: bool


def known_loads(runs: Iterable[Mapping[str, Any]], judge: str) -> list[Loading]:
    """All loads of this judge that run records tell of, in their order; what can't be read is left out."""
    found = []
    for run in runs:
        entries = run.get("load")
        for entry in entries if isinstance(entries, list) and run.get("judge") == judge else []:
            loading = _loading(entry, judge) if isinstance(entry, dict) else None
            found += [loading] if loading is not None else []
    return found


def _loading(entry: Mapping[str, Any], judge: str) -> Loading | None:
    seconds = _number(entry.get("seconds"))
    if seconds is None:
        return None
    weights, filesystem = _number(entry.get("weights")), entry.get("filesystem")
    return Loading(judge, filesystem if isinstance(filesystem, str) else None, seconds,
                   None if weights is None else int(weights), _number(entry.get("disk_rate")),
                   entry.get("staged") is True)


def _number(value: object) -> float | None:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf")
    return float(value) if good else None  # type: ignore[arg-type]


def _unescape(text: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)


def filesystem_of(path: Path, mountinfo: str | None = None) -> str:
    """Type and mount point of the file system that a path lies on, such as "lustre /lustre"; "unknown" if untold."""
    try:
        real = os.path.realpath(path)
        text = Path("/proc/self/mountinfo").read_text(errors="surrogateescape") if mountinfo is None else mountinfo
    except OSError:
        return "unknown"
    best, found = -1, "unknown"
    for line in text.split("\n"):
        before, dash, after = line.partition(" - ")
        fields = before.split(" ")
        if not dash or len(fields) < 5:
            continue
        point = _unescape(fields[4])
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:  # a later mount at the same place covers the earlier one
            best, found = len(point), f"{after.split(' ')[0]} {point}"
    return found


def kind_of(filesystem: str) -> str:
    """The type alone of what `filesystem_of` says."""
    return filesystem.partition(" ")[0]


def largest_file(folder: Path) -> Path | None:
    """The largest file directly in a folder, or None."""
    files = _by_size(folder)
    return files[0][1] if files else None


def _by_size(folder: Path) -> list[tuple[int, Path]]:
    found = []
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            with contextlib.suppress(OSError):
                if path.is_file() and path.stat().st_size:
                    found.append((path.stat().st_size, path))
    return sorted(found, key=lambda item: (-item[0], item[1].name))


def disk_rate(folder: Path, seconds: float = 3.0, most: int = 2_000_000_000) -> float | None:
    """Bytes per second at which one reader gets a folder's largest files, or None where nothing could be read.

    Reads at most `most` bytes for about `seconds`. Before a part is read, the system is asked to drop its pages from
    the cache. It does not drop pages that are dirty or mapped by another process (a server that loads the same
    weights), and it can't drop what the file system caches elsewhere: on its servers, or in a pool of its own as GPFS
    does. So the rate may be too high for weights that were read a short while ago; it is never too low for one reader.
    """
    read, began = 0, time.monotonic()
    for size, path in _by_size(folder):
        with contextlib.suppress(OSError):
            read += _read_part(path, min(size, STRETCH, most - read), began + seconds)
        if read >= most or time.monotonic() - began >= seconds:
            break
    spent = time.monotonic() - began
    return read / spent if read and spent > 0 else None


def _read_part(path: Path, length: int, until: float) -> int:
    """Read the first `length` bytes of a file, until a moment; how many there were."""
    read, buffer = 0, bytearray(READ)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            os.posix_fadvise(descriptor, 0, length, os.POSIX_FADV_DONTNEED)
        while read < length:
            got = os.readv(descriptor, [memoryview(buffer)[: min(READ, length - read)]])
            read += got
            if not got or time.monotonic() >= until:
                break
    finally:
        os.close(descriptor)
    return read
