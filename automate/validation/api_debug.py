"""Requests and replies of the Flock API as `--debug` keeps them: whole, but without secrets.

Never holds a key, a token or the signature of an address; never stops a call because it can't be written."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from automate.errors import StorageError
from automate.journal import RecordWriter, fresh_name
from automate.validation.replies import JSON
from automate.validation.secrets import REMOVED, scrub

LARGEST = 64 << 10
"""Characters of a body that are kept."""
_MARGIN = 8 << 10
_HIDDEN = frozenset({"flock-api-key", "authorization", "proxy-authorization", "cookie", "set-cookie"})


class DebugLog:
    """A record file of this process in `folder`; nothing where `folder` is None. `secrets` are taken out."""

    def __init__(self, folder: Path | None, secrets: Iterable[str]) -> None:
        self.folder = folder
        self.problem: StorageError | None = None
        self._secrets = tuple(secrets)
        self._lock = threading.Lock()
        self._writer: RecordWriter | None = None

    @property
    def wanted(self) -> bool:
        """Whether anybody asked for it."""
        return self.folder is not None

    def clean(self, text: str) -> str:
        """Text without the secrets."""
        return scrub(text, self._secrets)

    def body(self, body: bytes | None) -> str | None:
        """A body as text, cut and clean; None where there is none."""
        if body is None:
            return None
        near = body[:LARGEST + _MARGIN].decode("utf-8", errors="replace")  # no secret is cut in two and passed over
        text = self.clean(near)
        return text if len(body) <= LARGEST else f"{text[:LARGEST]}... ({len(body)} bytes)"

    def headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Headers without those that identify anybody."""
        return {name: REMOVED if name.lower() in _HIDDEN else self.clean(value) for name, value in headers.items()}

    def note(self, **record: JSON) -> None:
        """Write one exchange down, if anybody asked for it. Texts in it are cleaned once more."""
        if self.folder is None:
            return
        clean = {name: self.clean(value) if isinstance(value, str) else value for name, value in record.items()}
        with self._lock:
            try:
                if self._writer is None:
                    self._writer = RecordWriter(self.folder / f"{fresh_name('api')}.jsonl")
                self._writer.append({"when": time.time(), **clean})
            except StorageError as error:
                self.problem = error
