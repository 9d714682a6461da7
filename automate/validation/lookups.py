"""What was asked of the API and what it replied, on disk before anything is made of it.

A file is there before the question is sent, so that a reply that never came is known of; never reads what is in one."""

from __future__ import annotations

import calendar
import contextlib
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from automate.errors import StorageError
from automate.journal import parse_object

ROOM = 64 << 10
"""Bytes that a lookup takes on disk before it is made, so that its reply finds room on a disk that fills up."""
FORGET = 86400.0
"""Seconds after which a lookup without reply is no longer shown: no lease lasts so long."""
YOUNG = 120.0
"""Seconds in which a lookup without reply may still be under way."""
ASKING, REPLY, REFUSED = ".asking", ".json", ".refused"


@dataclass(frozen=True)
class Reply:
    """A kept reply: its file, what was asked, and when (epoch seconds)."""

    path: Path
    task_id: str
    module: str
    when: float


@dataclass(frozen=True)
class Lookup:
    """A question that is about to be asked. One of `keep` and `nothing` follows; otherwise its reply is lost."""

    path: Path

    def keep(self, reply: bytes) -> Path:
        """Put the reply into the room that was made for it; returns its file. Raises StorageError."""
        target = self.path.with_name(self.path.name.removesuffix(ASKING) + REPLY)
        try:
            with self.path.open("r+b") as file:
                file.write(reply)
                file.truncate()
                file.flush()
                os.fsync(file.fileno())
            self.path.rename(target)
        except OSError as error:
            raise StorageError.of(error, target, "keep a reply of the API") from error
        return target

    def nothing(self) -> None:
        """There is no assignment to lose: the API said so, or was never reached."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError.of(error, self.path, "remove the note of a lookup") from error

    def lost(self) -> None:
        """No reply came, and there may have been one: the note stays, without the room."""
        with contextlib.suppress(OSError):
            os.truncate(self.path, 0)


class Lookups:
    """The folder of lookups and replies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin(self, task_id: str, module: str, when: float) -> Lookup:
        """Note that this is about to be asked at `when`, and make room for the reply. Raises StorageError."""
        path = self.folder / f"{_stamp(when)}--{_quoted(module)}--{_quoted(task_id)}{ASKING}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                file.write(b" " * ROOM)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            path.unlink(missing_ok=True)
            raise StorageError.of(error, path, "make room for a reply") from error
        return Lookup(path)

    def waiting(self) -> list[Reply]:
        """Replies that no assignment was made of yet, oldest first."""
        return self._named(REPLY)

    def refused(self) -> list[Reply]:
        """Replies that no assignment can be made of; they are kept for a person."""
        return self._named(REFUSED)

    def lost(self, now: float) -> list[Reply]:
        """Lookups whose reply never came: an assignment may be this validator's without being known."""
        return [one for one in self._named(ASKING) if now - one.when > YOUNG]

    def refuse(self, reply: Path) -> Path:
        """Put a reply aside that no assignment can be made of. Raises StorageError."""
        target = reply.with_name(reply.name.removesuffix(REPLY) + REFUSED)
        try:
            return reply.rename(target)
        except OSError as error:
            raise StorageError.of(error, target, "put a reply aside") from error

    def mend(self, now: float) -> None:
        """Finish what a crash cut off between a reply and its name; forget old losses. Nobody may be asking."""
        for one in self._named(ASKING):
            try:
                if _whole(one.path):
                    one.path.rename(one.path.with_name(one.path.name.removesuffix(ASKING) + REPLY))
                elif now - one.when > FORGET:
                    one.path.unlink(missing_ok=True)
            except OSError as error:
                raise StorageError.of(error, one.path, "mend a kept reply") from error

    def _named(self, suffix: str) -> list[Reply]:
        found = []
        for path in sorted(self.folder.glob(f"*{suffix}")) if self.folder.is_dir() else []:
            parts = path.name.removesuffix(suffix).split("--")
            if len(parts) == 3:
                found.append(Reply(path, unquote(parts[2]), unquote(parts[1]), _when(parts[0], path)))
        return found


def _quoted(text: str) -> str:
    """Text as a part of a file name that `--` separates."""
    return quote(text, safe="").replace("-", "%2D")


def _stamp(when: float) -> str:
    """A name that sorts by time and that no other lookup has."""
    start = time.strftime("%Y%m%dT%H%M%S", time.gmtime(when))
    return f"{start}{int(when % 1 * 1000):03d}Z-{secrets.token_hex(4)}"


def _when(stamp: str, path: Path) -> float:
    """The time in a stamp; the file's own where somebody else named it. Epoch seconds."""
    try:
        return calendar.timegm(time.strptime(stamp[:15], "%Y%m%dT%H%M%S")) + int(stamp[15:18]) / 1000
    except ValueError:
        try:
            return path.stat().st_mtime
        except OSError:
            return 0.0


def _whole(path: Path) -> bool:
    try:
        return bool(parse_object(path.read_bytes()))
    except ValueError:
        return False
