"""The values of a JSON array in a file, decoded one by one.

Never reads on behind a break: no next value could be found there, so the file is refused as a whole."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NoReturn

from automate.errors import DataError
from automate.pools.kinds.tables import LINE

_WINDOW = 1 << 20
_SPACE = " \t\n\r"


def array(file: BinaryIO, source: Path) -> Iterator[object]:
    """The values, in order; fractions as text, bytes that are not UTF-8 as lone surrogates.

    Raises DataError saying where the array is broken.
    """
    window = _Window(file, source)
    window.take("[")
    if window.next() != "]":
        yield window.value()
        while window.next() == ",":
            window.take(",")
            yield window.value()
    window.take("]")
    if window.next():
        window.broken("something follows its end")


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


class _Window:
    """The part of the text that is in memory, and where in it the next value starts."""

    def __init__(self, file: BinaryIO, source: Path) -> None:
        self._file = io.TextIOWrapper(file, "utf-8", errors="surrogateescape", newline="")
        self._source = source
        self._decode = json.JSONDecoder(parse_float=str, parse_constant=_constant).raw_decode
        self._text, self._at, self._passed, self._ended = "", 0, 0, False

    def next(self) -> str:
        """The next character that is no space; empty at the end."""
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in _SPACE:
                    return self._text[self._at]
                self._at += 1
            if not self._more(_WINDOW):
                return ""

    def take(self, character: str) -> None:
        found = self.next()
        if found != character:
            self.broken(f"{character!r} was expected, not {found!r}" if found else f"it ends before {character!r}")
        self._at += 1

    def value(self) -> object:
        """The value that starts next. One that reaches the end of what is in memory may go on: more is read."""
        self.next()
        while True:
            problem = "a value goes on to the end"
            try:
                value, end = self._decode(self._text, self._at)
                if end < len(self._text) or self._ended:
                    self._at = end
                    return value
            except json.JSONDecodeError as error:
                problem = error.msg.lower()
            except (ValueError, RecursionError) as error:
                self.broken(str(error))
            if len(self._text) - self._at > LINE or not self._more(max(_WINDOW, len(self._text))):
                if self._ended and problem.startswith("a value"):
                    continue
                self.broken(problem)

    def _more(self, size: int) -> bool:
        """Read on, and let go of what was taken; whether there was more."""
        read = self._file.read(size)
        self._passed += self._at
        self._text, self._at = self._text[self._at:] + read, 0
        self._ended = not read
        return bool(read)

    def broken(self, what: str) -> NoReturn:
        raise DataError(f"a JSON array that is broken: {what} (near character {self._passed + self._at + 1})",
                        where=str(self._source), todo="mend it, or write one row a line (JSON lines)")
