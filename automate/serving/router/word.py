"""What the running router says of itself in the fleet's folder: its address and process.

Never says a key."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from types import TracebackType
from typing import Self

from automate.errors import StorageError
from automate.fleet_places import FleetPlaces
from automate.journal import read_json, write_json
from automate.processes import process_start
from automate.serving.fleet.records import FleetSpec


class Word:
    """The file of a router while it runs. Context manager: written at once, removed at the end if still its own."""

    def __init__(self, places: FleetPlaces, spec: FleetSpec, url: str) -> None:
        self._path = places.router
        self._word = {"address": url, "fleet": spec.id, "pid": os.getpid(), "host": socket.gethostname(),
                      "process": process_start(os.getpid()), "started": time.time()}

    def write(self) -> None:
        """Write it anew where it is missing. Raises StorageError."""
        if not self._path.parent.is_dir():
            return
        if not self._path.exists():
            write_json(self._path, self._word)

    def __enter__(self) -> Self:
        if self._path.parent.is_dir() and not self._is_of_another():
            write_json(self._path, self._word)
        return self

    def _is_of_another(self) -> bool:
        """Whether a router of this machine that still runs has said its word there."""
        with contextlib.suppress(OSError, StorageError):
            found = read_json(self._path) or {}
            pid, process = found.get("pid"), found.get("process")
            same = all(found.get(name) == self._word[name] for name in ("fleet", "host"))
            return same and isinstance(pid, int) and process is not None and process_start(pid) == process
        return False

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        with contextlib.suppress(OSError, StorageError):
            found = read_json(self._path)
            if found == self._word:
                self._path.unlink()
