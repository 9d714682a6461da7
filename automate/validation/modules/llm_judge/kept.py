"""Judges' replies of one assignment on disk, so that a network lost on the way doesn't make anybody pay for them twice.

One process writes at a time: who holds the assignment's claim. Never holds a key."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE = "judge-replies.jsonl"
"""Name in the assignment's folder; a line a reply: `key`, `model`, `text`."""


def call_key(item: int, attempt: int, requested: str, body: Mapping[str, Any]) -> str:
    """What tells one call from the others: its place and all that is asked, but for the random seed."""
    asked = json.dumps([item, attempt, requested, body], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(asked.encode()).hexdigest()


class KeptReplies:
    """Replies by key. `path` None: in memory only."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._texts: dict[str, str | None] = {}
        self.models: set[str] = set()
        """Judges, by requested name, that answered at least once."""
        torn = self._read() if path is not None and path.exists() else False
        self._before = b"\n" if torn else b""

    def _read(self) -> bool:
        """Take in what is there; whether the last line is torn. Lines that aren't whole are passed over."""
        assert self.path is not None
        raw = self.path.read_bytes()
        for line in raw.split(b"\n"):
            try:
                row = json.loads(line)
                key, model, text = row["key"], row["model"], row["text"]
            except (ValueError, KeyError, TypeError):
                continue
            if isinstance(key, str) and isinstance(model, str) and (text is None or isinstance(text, str)):
                self._texts[key] = text
                self.models.add(model)
        return bool(raw) and not raw.endswith(b"\n")

    def __len__(self) -> int:
        return len(self._texts)

    def __contains__(self, key: str) -> bool:
        with self._lock:
            return key in self._texts

    def text(self, key: str) -> str | None:
        """The text of a reply that is kept; None is a reply without text."""
        with self._lock:
            return self._texts[key]

    def add(self, key: str, model: str, text: str | None) -> None:
        """Keep one reply: whole on disk before it counts. Raises OSError."""
        line = json.dumps({"key": key, "model": model, "text": text}).encode() + b"\n"
        with self._lock:
            if self.path is not None:
                self._append(line)
            self._texts[key] = text
            self.models.add(model)

    def _append(self, line: bytes) -> None:
        assert self.path is not None
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            data = self._before + line
            self._before = b"\n"  # until this line is whole, the next one begins with a line break of its own
            while data:
                data = data[os.write(descriptor, data):]
            os.fsync(descriptor)
            self._before = b""
        finally:
            os.close(descriptor)
