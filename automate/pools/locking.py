"""One process at a time on one machine: the lock beside the database, the note that tells other machines where it is.

Never breaks a lock: the kernel gives it back when its holder ends."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from automate.errors import ClaimedError, ConfigError, StorageError
from automate.filesystems import FileSystem, of_path, read_mounts
from automate.journal import read_json, replace_file
from automate.pool_places import PoolPlaces

_POLL = 0.05
_REMOTE = frozenset({"fuse.sshfs", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse", "fuse.juicefs", "smbfs", "ncpfs",
                     "ocfs2", "gfs2", "coda"})
"""Kinds that lie elsewhere, or that many machines mount, beyond filesystems.SHARED."""


def private_folder(folder: Path, *, enforce: bool = False) -> None:
    """Make a folder that is this user's alone (0700) where there is none; `enforce` mends one that is there.

    Raises StorageError.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            found = folder.stat()
            if not stat.S_ISDIR(found.st_mode):
                raise
            if enforce and found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) != 0o700:
                folder.chmod(0o700)
    except OSError as error:
        raise StorageError.of(error, folder, "make the folder") from error


def check_folder(folder: Path) -> None:
    """Raises ConfigError where others could put files beside the database: SQLite would take a log of theirs for its
    own."""
    try:
        found = folder.stat()
    except OSError as error:
        raise StorageError.of(error, folder, "look at the folder") from error
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        whose = f"belongs to another user (uid {found.st_uid})" if found.st_uid != os.geteuid() else \
            f"may be written by others (mode {stat.S_IMODE(found.st_mode):04o})"
        raise ConfigError(f"the database's folder {whose}", where=str(folder),
                          todo="set pools.database to a file in a folder of your own, mode 700, on a local disk")


def check_local(path: Path, mounts: Sequence[FileSystem] | None) -> None:
    """Raises ConfigError where a database would lie on a network file system."""
    found = of_path(path.parent, list(read_mounts() if mounts is None else mounts))
    if found is not None and (found.shared or found.kind in _REMOTE):
        raise ConfigError(
            f"the database of benchmark pools can't lie on a network file system ({found.kind}, mounted at "
            f"{found.mount}): its locks and the order of its writes can't be trusted, and money could be lost",
            where=str(path),
            todo="set pools.database to a file on a local disk of one machine, such as "
                 f"/var/tmp/pools-{os.geteuid()}/pools.sqlite, and keep copies of it; the rest "  # noqa: S108
                 "of the workspace may stay where it is")


# --- the lock -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Lock:
    """The lock, held. `release` gives it back; so does the end of this process."""

    path: Path
    fd: int

    def release(self) -> None:
        os.ftruncate(self.fd, 0)
        os.close(self.fd)


def _holder(path: Path) -> str:
    """Who the lock file names."""
    try:
        found = read_json(path)
    except StorageError:
        found = None
    if not found:
        return "another process of this machine"
    return f"process {found.get('pid')} on {found.get('host')} ({found.get('command')})"


def _describe(fd: int) -> None:
    """Say in the lock file who holds it. The command without its arguments: these may say more than others should know.
    """
    words = [Path(sys.argv[0]).name if sys.argv else "python", *sys.argv[1:3]]
    command = " ".join(word for word in words if word.replace("-", "").isalnum() or word == words[0])
    text = orjson.dumps({"pid": os.getpid(), "host": socket.gethostname(), "command": command[:100]})
    os.ftruncate(fd, 0)
    os.pwrite(fd, text + b"\n", 0)


def take_lock(path: Path, wait: float) -> Lock:
    """Take the lock, waiting up to `wait` seconds. Raises ClaimedError naming the holder, StorageError."""
    end = time.monotonic() + wait
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise StorageError.of(error, path, "open the lock") from error
    try:
        while not _locked(fd):
            if time.monotonic() >= end:
                raise ClaimedError(f"the database of benchmark pools is in use by {_holder(path)}", where=str(path),
                                   todo="wait until it ends, or send messages to it where it is 'flock-hpc pool serve'")
            time.sleep(min(_POLL, max(0.0, end - time.monotonic())))
        _describe(fd)
    except OSError as error:
        os.close(fd)
        raise StorageError.of(error, path, "lock it") from error
    except BaseException:
        os.close(fd)
        raise
    return Lock(path, fd)


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# --- the note -----------------------------------------------------------------------------------------
def check_note(places: PoolPlaces, database: str | None) -> None:
    """Compare the workspace's note with what is here: `database`, the id in the file, None where there is no file.

    Raises ConfigError: the workspace's database is on another machine, at another path, or gone.
    """
    note = read_json(places.note)
    if not note or note.get("id") == database:
        return
    host, path = str(note.get("host")), str(note.get("path"))
    if host != socket.gethostname():
        what = f"the database of this workspace's pools is on {host}, at {path}"
        todo = f"run this on {host}; or bring the file here (with those that begin with its name), set pools.database"
        raise ConfigError(what, where=str(places.note), todo=todo)
    if database is not None:
        raise ConfigError(f"not the database of this workspace's pools: that is {path}", where=str(places.database),
                          todo="set pools.database to it; or, to go on with this one, remove "
                               f"{places.note} by hand")
    if path != str(places.database):
        raise ConfigError(f"pools.database names a file that isn't there; the database is {path}",
                          where=str(places.database), todo="set pools.database back, or move the database there")
    raise ConfigError("the database of this workspace's pools is gone; all money and answers were in it",
                      where=path, todo="put it back from a copy; only to start anew with nothing, remove "
                                       f"{places.note} by hand")


def write_note(places: PoolPlaces, database: str) -> None:
    """Tell other machines where the database is. Raises StorageError."""
    told = {"host": socket.gethostname(), "path": str(places.database), "id": database}
    if read_json(places.note) != told:
        private_folder(places.home)
        replace_file(places.note, orjson.dumps(told, option=orjson.OPT_APPEND_NEWLINE), 0o600)
