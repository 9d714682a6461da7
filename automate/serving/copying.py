"""Copies a model's folder with several threads, and stops in the middle when it is told to.

Never removes anything and never decides where a copy lies."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path

PIECE = 1 << 30
"""Bytes of a file that one thread copies; a single large file is spread over all of them."""
STEP = 16 << 20
THREADS = 4
_NO_SENDFILE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV)
_LEFT_OUT = frozenset({"original"})
"""Subfolders with weights in another form that no server reads."""

Entry = tuple[str, int]
"""A file's path below the folder, and its size in bytes."""


class Stopped(Exception):
    """The copying was told to stop."""


def files_of(folder: Path) -> list[Entry]:
    """What of a model's folder is copied, links followed, largest first; hidden files and `original/` are left out.

    Raises OSError where a file can't be looked at.
    """
    found: list[Entry] = []
    for here, folders, names in os.walk(folder, onerror=_raise):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _LEFT_OUT)
        for name in names:
            path = Path(here) / name
            if not name.startswith(".") and path.is_file():
                found.append((str(path.relative_to(folder)), path.stat().st_size))
    return sorted(found, key=lambda entry: (-entry[1], entry[0]))


def _raise(error: OSError) -> None:
    raise error


def same_sizes(folder: Path, files: Sequence[Entry]) -> bool:
    """Whether a folder has each of these files in its full size, as a plain file."""
    try:
        return all((folder / name).lstat().st_size == size and not (folder / name).is_symlink() for name, size in files)
    except OSError:
        return False


class Copying:
    """One copy of `files` from one folder into another, new one. `copied` counts bytes while it runs."""

    def __init__(self, source: Path, target: Path, files: Sequence[Entry], stop: Callable[[], bool]) -> None:
        self.source, self.target, self.files = source, target, files
        self.copied = 0
        self._stop = stop
        self._lock = threading.Lock()
        self._over = threading.Event()

    def run(self, beat: Callable[[], None], every: float = 1.0) -> None:
        """Copy all; `beat` is called every so many seconds. Raises Stopped, OSError, or what `beat` raises."""
        for name, _ in self.files:
            path = self.target / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        with ThreadPoolExecutor(THREADS, "copy") as pool:
            try:
                self._watch([pool.submit(self._piece, *piece) for piece in self._pieces()], beat, every)
            finally:
                self._over.set()

    def _pieces(self) -> list[tuple[str, int, int]]:
        return [(name, start, min(PIECE, size - start)) for name, size in self.files for start in range(0, size, PIECE)]

    @staticmethod
    def _watch(waiting: Sequence[Future[None]], beat: Callable[[], None], every: float) -> None:
        left = set(waiting)
        while left:
            done, left = wait(left, timeout=every, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
            beat()

    def _piece(self, name: str, start: int, length: int) -> None:
        source = os.open(self.source / name, os.O_RDONLY)
        try:
            target = os.open(self.target / name, os.O_WRONLY | os.O_NOFOLLOW)
            try:
                self._copy(source, target, start, length)
            finally:
                os.close(target)
            with contextlib.suppress(OSError):  # room in the cache for the copy, which is read next
                os.posix_fadvise(source, start, length, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(source)

    def _copy(self, source: int, target: int, start: int, length: int) -> None:
        os.lseek(target, start, os.SEEK_SET)
        done, send = 0, True
        while done < length:
            if self._over.is_set() or self._stop():
                raise Stopped
            step, sent = min(STEP, length - done), 0
            try:
                sent = os.sendfile(target, source, start + done, step) if send else _by_hand(
                    target, source, start + done, step)
            except OSError as error:
                if not send or error.errno not in _NO_SENDFILE:
                    raise
                send = False
                continue
            if not sent:
                raise OSError(errno.EIO, "a file of the original became shorter while it was copied")
            done += sent
            with self._lock:
                self.copied += sent


def _by_hand(target: int, source: int, offset: int, length: int) -> int:
    data = memoryview(os.pread(source, length, offset))
    written = 0
    while written < len(data):
        written += os.write(target, data[written:])
    return written
