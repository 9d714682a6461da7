"""Which file system a path lies on, and whether other machines can see it.

Reads /proc/self/mountinfo; never guesses a type that isn't there."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

SHARED = frozenset({"lustre", "nfs", "nfs4", "gpfs", "mmfs", "wekafs", "beegfs", "ceph", "panfs", "glusterfs", "pvfs2",
                    "orangefs", "afs", "cifs", "smb3", "daos", "vast"})
MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs"})
NODE_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm", "/run", "/local", "/scratch/local", "/localscratch")  # noqa: S108


@dataclass(frozen=True)
class FileSystem:
    """The file system of a path: its type as the kernel names it, and where it is mounted."""

    kind: str
    mount: str
    source: str

    @property
    def shared(self) -> bool:
        """Whether it is of a kind that many machines mount."""
        return self.kind in SHARED or self.kind.partition(".")[2] in SHARED


def parse_mounts(text: str) -> list[FileSystem]:
    """Lines of /proc/self/mountinfo."""
    found = []
    for line in text.split("\n"):
        before, _, after = line.partition(" - ")
        left, right = before.split(" "), after.split(" ")
        if len(left) > 4 and len(right) > 1:
            mount = re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), left[4])
            found.append(FileSystem(right[0], mount, right[1]))
    return found


def of_path(path: Path, mounts: list[FileSystem]) -> FileSystem | None:
    """The file system that a path (which need not be there) lies on; the last mount over a place counts."""
    place = os.path.realpath(path)
    best: FileSystem | None = None
    for entry in mounts:
        inside = place == entry.mount or place.startswith(entry.mount.rstrip("/") + "/")
        if inside and (best is None or len(entry.mount) >= len(best.mount)):
            best = entry
    return best


def read_mounts() -> list[FileSystem]:
    """This machine's mounts; none where the kernel doesn't say."""
    try:
        return parse_mounts(Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape"))
    except OSError:
        return []


def of_one_machine(path: Path) -> str | None:
    """Which folder that every machine has for itself a path lies in, or None."""
    place = os.path.realpath(path)
    return next((folder for folder in NODE_FOLDERS if place == folder or place.startswith(folder + "/")), None)
