"""Reads files that grow from where the last look ended; whole lines only.

Never holds more than a block in memory, and says so where a file is not the one that it was."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from automate.errors import StorageError

BLOCK = 1 << 18


@dataclass
class FileTail:
    """One file: how many bytes and lines of it were read, and what it was then (`mtime` in nanoseconds)."""

    path: Path
    inode: int = 0
    size: int = 0
    mtime: int = 0
    offset: int = 0
    lines: int = 0

    @property
    def torn(self) -> bool:
        """Whether it ended in the middle of a line when it was last read."""
        return self.size > self.offset

    def changed(self, stat: os.stat_result) -> bool | None:
        """Whether it is not as it was when it was read last; None where it is another file, or became shorter."""
        if self.inode and (stat.st_ino != self.inode or stat.st_size < self.offset):
            return None
        return (stat.st_size, stat.st_mtime_ns) != (self.size, self.mtime)

    def blocks(self, until: int | None = None, last: bool = False) -> Iterator[tuple[bytes, int]]:
        """(bytes, end of the last whole line among them) of what was not read yet, up to a size of the file.

        With `last` a last line without a newline is read too, and gets one. Raises StorageError.
        """
        try:
            fd = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            raise StorageError.of(error, self.path, "read it") from error
        try:
            stat = os.fstat(fd)
            self.inode, self.mtime = stat.st_ino, stat.st_mtime_ns
            self.size = stat.st_size if until is None else min(until, stat.st_size)
            yield from self._blocks(fd, last)
        except OSError as error:
            raise StorageError.of(error, self.path, "read it") from error
        finally:
            os.close(fd)

    def _blocks(self, fd: int, last: bool) -> Iterator[tuple[bytes, int]]:
        step = BLOCK
        while self.offset < self.size and (data := os.pread(fd, min(step, self.size - self.offset), self.offset)):
            end = data.rfind(b"\n") + 1
            if end:
                self.offset, step = self.offset + end, BLOCK
                yield data, end
            elif self.offset + len(data) < self.size:
                step *= 2  # a line that is longer than a block
            else:
                break
        if last and self.offset < self.size:
            rest = os.pread(fd, self.size - self.offset, self.offset)
            self.offset += len(rest)
            yield rest + b"\n", len(rest) + 1


@dataclass
class JournalTail:
    """The record files of one folder."""

    folder: Path
    files: dict[str, FileTail] = field(default_factory=dict)

    def grown(self) -> list[FileTail] | None:
        """Files that changed since they were read, oldest first; None where one vanished, was replaced or cut."""
        there: dict[str, os.stat_result] = {}
        try:
            with os.scandir(self.folder) as entries:
                there = {entry.name: entry.stat() for entry in entries if entry.name.endswith(".jsonl")}
        except FileNotFoundError:
            pass
        except OSError as error:
            raise StorageError.of(error, self.folder, "look into it") from error
        if self.files.keys() - there.keys():
            return None
        found: list[FileTail] = []
        for name in sorted(there):
            tail = self.files.get(name) or FileTail(self.folder / name)
            changed = tail.changed(there[name])
            if changed is None:
                return None
            if changed:
                self.files[name] = tail
                found.append(tail)
        return found
