"""A line for every call of the Flock API: when, which, about what, the hash of what was sent, what came back.

Never holds a secret or a whole body; never stops a call because it can't be written."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from automate.errors import StorageError
from automate.journal import RecordWriter, fresh_name


class Audit:
    """The record file of this process in `folder`, made when the first line comes. Threads may share it.

    `problem` says why lines could not be written; None: all were.
    """

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.folder = folder
        self.clock = clock
        self.problem: StorageError | None = None
        self._lock = threading.Lock()
        self._writer: RecordWriter | None = None
        self._owner = 0

    def ready(self) -> None:
        """Have the file open before a call is made, so that nothing stands between its reply and whoever waits."""
        with self._lock:
            try:
                self._open()
            except StorageError as error:
                self.problem = error

    def line(self, call: str, which: str, *, sent: bytes | None, status: int | None, detail: str, outcome: str,
             reply: bytes | None = None, seconds: float = 0.0, attempt: int = 1) -> None:
        """Note one call. `sent`: its body (None: none); `status`: of HTTP (None: no reply); `reply`: the body."""
        now = self.clock()
        record = {"time": datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds"), "when": now,
                  "call": call, "id": which, "attempt": attempt, "sent": _hash(sent), "status": status,
                  "detail": detail, "outcome": outcome, "reply": _hash(reply),
                  "reply_bytes": None if reply is None else len(reply), "seconds": round(seconds, 3)}
        with self._lock:
            try:
                self._open().append(record)
            except StorageError as error:
                self.problem = error

    def _open(self) -> RecordWriter:
        if self._writer is None or self._owner != os.getpid():
            self._writer, self._owner = RecordWriter(self.folder / f"{fresh_name('api')}.jsonl"), os.getpid()
        return self._writer

    def close(self) -> None:
        """Flush and close; a later line opens a new file."""
        with self._lock:
            try:
                if self._writer is not None and self._owner == os.getpid():
                    self._writer.close()
            except StorageError as error:
                self.problem = error
            self._writer = None


def _hash(body: bytes | None) -> str | None:
    return None if body is None else hashlib.sha256(body).hexdigest()
