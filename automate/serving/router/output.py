"""A log that others can make long: the last few MB of it are kept.

Never lets anybody but its owner read it."""

from __future__ import annotations

import os
from pathlib import Path

LARGEST = 2 << 20


class BoundedLog:
    """Appends to a file; the one that is full becomes FILE.1, and the one before is dropped. `largest`: bytes of each.

    Raises OSError.
    """

    def __init__(self, path: Path, largest: int = LARGEST) -> None:
        self._path, self._largest = path, largest

    def write(self, data: bytes) -> None:
        """Append, and turn over what is full."""
        number = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(number, 0o600)
            os.write(number, data)
            full = os.fstat(number).st_size >= self._largest
        finally:
            os.close(number)
        if full:
            self._path.replace(self._path.with_name(self._path.name + ".1"))
