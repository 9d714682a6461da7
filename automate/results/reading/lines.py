"""Lines of files that may be of any size, torn or not JSON at all; and what is said of those that can't be used.

Never holds more than a line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from automate.errors import StorageError, visible
from automate.results.reading.messages import many

MOST_NAMED = 20
"""Lines of a file that are named one by one; more of them are only counted."""

_BUFFER = 1 << 20


def lines_of(path: Path) -> Iterator[tuple[int, bytes, bool]]:
    """(number, line, whether its line break is there) of lines that aren't blank, split at LF only.

    Raises StorageError.
    """
    try:
        with path.open("rb", buffering=_BUFFER) as file:
            for number, line in enumerate(file, 1):
                text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                if not text.isspace():
                    yield number, text, line.endswith(b"\n")
    except OSError as error:
        raise StorageError.of(error, path, "read it") from error


@dataclass
class BadLines:
    """Lines that can't be used: the first of them with file, line and reason, the others counted."""

    named: list[str] = field(default_factory=list)
    more: dict[Path, int] = field(default_factory=dict)

    def add(self, path: Path, number: int, why: str, whole: bool = True) -> None:
        """Count a line; `whole` is false for a last line without its line break."""
        if len(self.named) >= MOST_NAMED:
            self.more[path] = self.more.get(path, 0) + 1
            return
        torn = "" if whole else " (the last line, cut off: its writer was stopped)"
        self.named.append(f"{path}:{number}: left out: {visible(why)}{torn}")

    @property
    def said(self) -> tuple[str, ...]:
        """A sentence for each, and one for the rest of a file."""
        return (*self.named, *(f"{path}: {many(count, 'more line')} left out" for path, count in self.more.items()))
