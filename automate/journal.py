"""Append-only record files: whole records, torn tails mended, one writer a file.

Never locks, never rewrites a record, never guesses what a broken line meant."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from automate.errors import StorageError

Record = dict[str, Any]


@dataclass(frozen=True)
class BadLine:
    """A line that holds no record: where it stands, and why."""

    path: Path
    line: int
    why: str
    torn: bool = False

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.why}"


@dataclass
class Lines:
    """What was read from a JSON-lines file: records with their line numbers, and the bad lines."""

    records: list[tuple[int, Record]] = field(default_factory=list)
    bad: list[BadLine] = field(default_factory=list)


def parse_object(line: bytes) -> Record:
    """One JSON object. Raises ValueError with a short reason; text that can't be encoded is refused."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        try:
            value = json.loads(line)
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeError as bad:
            raise ValueError(f"not valid UTF-8 text: {bad.reason if hasattr(bad, 'reason') else bad}") from bad
        except (ValueError, RecursionError):
            raise ValueError(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, found {type(value).__name__}")
    return value


def iter_lines(path: Path) -> Iterator[tuple[int, bytes, bool]]:
    """(line number, bytes, whole) for each line that isn't blank; lines end at a newline byte only."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line.rstrip(b"\r\n"), line.endswith(b"\n")
    except OSError as error:
        raise StorageError.of(error, path, "read it") from error


def read_jsonl(path: Path, *, need_newline: bool = True) -> Lines:
    """Read a JSON-lines file whole. A last line without newline is torn when `need_newline`."""
    out = Lines()
    for number, line, whole in iter_lines(path):
        if not whole and need_newline:
            out.bad.append(BadLine(path, number, "torn last line: the write was cut off", torn=True))
            continue
        try:
            out.records.append((number, parse_object(line)))
        except ValueError as error:
            why = f"torn last line: {error}" if not whole else str(error)
            out.bad.append(BadLine(path, number, why, torn=not whole))
    return out


def record_files(folder: Path) -> list[Path]:
    """The record files of a journal folder, oldest first (their names sort by start time)."""
    return sorted(folder.glob("*.jsonl")) if folder.is_dir() else []


def read_journal(folder: Path) -> Lines:
    """All records of a journal folder, in order of their files."""
    out = Lines()
    for path in record_files(folder):
        found = read_jsonl(path)
        out.records += found.records
        out.bad += found.bad
    return out


def mend(path: Path) -> int:
    """Cut a torn last line off a record file whose writer is gone; returns how many bytes were cut."""
    try:
        with path.open("rb+") as file:
            size = file.seek(0, os.SEEK_END)
            keep, step = size, 1 << 16
            while keep > 0:
                start = max(0, keep - step)
                file.seek(start)
                cut = file.read(keep - start).rfind(b"\n")
                if cut >= 0:
                    keep = start + cut + 1
                    break
                keep = start
            if keep < size:
                file.truncate(keep)
            return size - keep
    except OSError as error:
        raise StorageError.of(error, path, "mend its torn last line") from error


def fresh_name(tag: str = "") -> str:
    """A file name that sorts by time and that no other process makes."""
    now = time.time()
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now)) + f"{int(now % 1 * 1000):03d}Z"
    return f"{stamp}-{tag + '-' if tag else ''}{secrets.token_hex(4)}"


class RecordWriter:
    """Appends whole records to a file of its own; each record is one write."""

    def __init__(self, path: Path, *, exclusive: bool = True) -> None:
        self.path = path
        self._size = 0
        self._dirty = False
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_EXCL if exclusive else 0)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, flags, 0o664)
            self._size = os.fstat(self._fd).st_size
        except OSError as error:
            raise StorageError.of(error, path, "make a record file") from error

    @property
    def size(self) -> int:
        """Bytes of the file as far as this writer knows: what it found there, and what it wrote."""
        return self._size

    def append(self, record: Mapping[str, Any]) -> None:
        """Append one record. On a full disk the part that was written is taken back and StorageError raised."""
        self.append_line(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))

    def append_line(self, line: bytes) -> None:
        """Append one line that ends in a newline."""
        try:
            done = os.write(self._fd, line)
            while done < len(line):
                done += os.write(self._fd, line[done:])
        except OSError as error:
            self._take_back()
            raise StorageError.of(error, self.path, "append a record") from error
        self._size += len(line)
        self._dirty = True

    def _take_back(self) -> None:
        try:
            os.ftruncate(self._fd, self._size)
        except OSError:
            return  # readers drop the torn tail

    def sync(self) -> None:
        """Ask the file system to keep what was written, if anything was since the last call."""
        if self._dirty:
            self._dirty = False
            try:
                os.fsync(self._fd)
            except OSError as error:
                raise StorageError.of(error, self.path, "flush records") from error

    def close(self) -> None:
        """Flush and close; a second call does nothing."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            try:
                os.fsync(fd)
            except OSError as error:
                raise StorageError.of(error, self.path, "flush records") from error
            finally:
                os.close(fd)


def replace_file(path: Path, data: bytes | Iterable[bytes], mode: int = 0o664, *, flush: bool = True) -> None:
    """Replace a file whole: written beside it, flushed, renamed over it. Raises StorageError.

    Without `flush` it may be torn after a crash of the machine: for what can be made again and tells that it is whole.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(fd, "wb") as file:
            file.writelines([data] if isinstance(data, bytes) else data)
            file.flush()
            if flush:
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise StorageError.of(error, path, "write it") from error


def write_json(path: Path, value: object) -> None:
    """Replace a file with one JSON document."""
    replace_file(path, orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def read_json(path: Path) -> Record | None:
    """A JSON document written by `write_json`; None where the file is absent or not a whole document."""
    try:
        return parse_object(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError.of(error, path, "read it") from error
    except ValueError:
        return None
