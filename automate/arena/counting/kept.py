"""What was counted of a model's journal, kept: a new process goes on from there instead of reading it again.

Never trusted where anything is in doubt: then the journal, which is the truth, is read from its beginning."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from automate.arena.counting.board import Board
from automate.arena.counting.keys import Signature
from automate.arena.counting.tails import FileTail, JournalTail
from automate.errors import StorageError
from automate.journal import replace_file

VERSION = 1
KEEP_EVERY = 1 << 20
"""After how many more bytes of a journal its counts are kept anew."""
END = 512
"""How many bytes before the place that was read to are hashed: they tell whether it is still the same file."""


@dataclass
class Kept:
    """The counts of one model at `path`; good for one match, one set of answers and one way of counting."""

    path: Path
    match: bytes
    answers_file: Signature | None
    attempts: int
    _bytes: int = field(default=0, init=False)

    def _mark(self) -> str:
        return hashlib.sha256(repr((VERSION, self.match, self.answers_file, self.attempts)).encode()).hexdigest()

    def load(self, board: Board, tail: JournalTail) -> list[str]:
        """Let board and tail go on from what is kept, if it can be trusted; the bad lines that were seen before."""
        try:
            data = self.path.read_bytes()
            digest, _, body = data.partition(b"\n")
            if digest != hashlib.sha256(body).hexdigest().encode():
                return []
            found: dict[str, Any] = orjson.loads(body)
            if found["mark"] != self._mark():
                return []
            files = {name: FileTail(tail.folder / name, *numbers) for name, *numbers, _ in found["files"]}
            if not all(_same(files[name], end) for name, *_, end in found["files"]):
                return []
            bad_lines = [str(line) for line in found["bad_lines"]]
            board.resume(found["board"])
        except (OSError, ValueError, KeyError, TypeError):
            return []
        tail.files = files
        self._bytes = _read_so_far(tail)
        return bad_lines

    def keep(self, board: Board, tail: JournalTail, bad_lines: list[str]) -> None:
        """Keep the counts, if enough was read since they were kept; nothing happens where that can't be done."""
        size = _read_so_far(tail)
        if size - self._bytes < KEEP_EVERY:
            return
        self._bytes = size
        with contextlib.suppress(StorageError, OSError):
            files = [(name, one.inode, one.size, one.mtime, one.offset, one.lines, _end(one.path, one.offset))
                     for name, one in tail.files.items()]
            body = orjson.dumps({"mark": self._mark(), "files": files, "board": board.state(), "bad_lines": bad_lines})
            digest = hashlib.sha256(body).hexdigest().encode()
            replace_file(self.path, digest + b"\n" + body, flush=False)


def _read_so_far(tail: JournalTail) -> int:
    return sum(file.offset for file in tail.files.values())


def _end(path: Path, offset: int) -> str:
    with path.open("rb") as file:
        file.seek(max(0, offset - END))
        return hashlib.sha256(file.read(min(END, offset))).hexdigest()


def _same(file: FileTail, end: str) -> bool:
    """Whether a file begins with what was read of it then: nobody wrote to it since, or it only grew."""
    stat = file.path.stat()
    if stat.st_ino != file.inode or stat.st_size < file.size:
        return False
    if (stat.st_size, stat.st_mtime_ns) == (file.size, file.mtime):
        return True
    return stat.st_size > file.size and _end(file.path, file.offset) == end
