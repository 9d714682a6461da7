"""Rows of a file, one by one: JSON lines, a JSON array, or CSV, all UTF-8.

Never holds a whole file, and never leaves a row out without saying so."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import msgspec

from automate.errors import DataError, StorageError
from automate.pools.kinds.arrays import array
from automate.pools.kinds.base import BadRow
from automate.pools.kinds.tables import LINE, table

Row = Mapping[str, object]
_BOM = b"\xef\xbb\xbf"
_FOREIGN = {b"\xff\xfe": "UTF-16 text", b"\xfe\xff": "UTF-16 text", b"\x1f\x8b": "packed by gzip", b"PK": "a zip or "
            "spreadsheet", b"PAR1": "Parquet", b"(\xb5/\xfd": "packed by zstd", b"BZh": "packed by bzip2"}
_DECODER = msgspec.json.Decoder(float_hook=str)
"""Fractions stay the text that they are in the file, so that JSON and CSV mean the same."""


def decoded(text: str | bytes) -> object:
    """JSON; fractions as text. Raises ValueError saying what is wrong where."""
    try:
        return _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(_why(text, error)) from error


def rows(source: Path, delimiter: str | None = None) -> Iterator[Row | BadRow]:
    """See `Kind.read`. `delimiter`: of CSV; a tab in .tsv files and a comma in others unless it is named."""
    try:
        with _opened(source) as file:
            start = _start(file, source)
            ending = source.suffix.lower()
            if delimiter is not None or ending in (".csv", ".tsv") or start not in (b"[", b"{"):
                yield from table(file, source, delimiter or ("\t" if ending == ".tsv" else ","))
            elif start == b"[":
                for number, value in enumerate(array(file, source), 1):
                    yield as_row(value, number)
            else:
                yield from _lines(file)
    except OSError as error:
        raise StorageError.of(error, source, "read the data set") from error


def _opened(source: Path) -> BinaryIO:
    """A plain file only: a pipe would wait for ever, a device would never end."""
    file = os.fdopen(os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=1 << 20)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise DataError("it is no plain file", where=str(source), todo="name a file of rows")
    return file


def _start(file: BinaryIO, source: Path) -> bytes:
    """The first byte that says something; the file stands behind a byte order mark of UTF-8, if there is one."""
    head = file.read(4096)
    for mark, what in _FOREIGN.items():
        if head.startswith(mark):
            raise DataError(f"it is {what}, not UTF-8 text", where=str(source), todo="save it as JSON lines or CSV in "
                            "UTF-8 (iconv -f UTF-16 -t UTF-8, gunzip)")
    file.seek(len(_BOM) if head.startswith(_BOM) else 0)
    said = head.removeprefix(_BOM).lstrip()
    if not said and len(head) < 4096:
        raise DataError("it is empty", where=str(source), todo="name a file that has rows")
    return said[:1]


def _lines(file: BinaryIO) -> Iterator[Row | BadRow]:
    number = line = 0
    while text := file.readline(LINE):
        line += 1
        whole = text.endswith(b"\n") or len(text) < LINE
        while not whole and (rest := file.readline(LINE)) and not rest.endswith(b"\n"):
            pass
        if text.isspace():
            continue
        number += 1
        where = f"line {line}: "
        yield _row(text, number, where) if whole else BadRow(number, f"{where}longer than {LINE} bytes")


def _row(text: bytes, number: int, where: str) -> Row | BadRow:
    try:
        return as_row(decoded(text), number, where)
    except ValueError as error:
        return BadRow(number, f"{where}{error}")


def as_row(value: object, number: int, where: str = "") -> Row | BadRow:
    """A JSON value that should be a row."""
    return value if isinstance(value, dict) else BadRow(number, f"{where}it is no JSON object")


def _why(text: str | bytes, error: Exception) -> str:
    """What is wrong with JSON, with its place: the words of the standard library, which knows columns."""
    try:
        json.loads(text)
    except UnicodeDecodeError as problem:
        return f"not UTF-8: byte {problem.start + 1} of it"
    except json.JSONDecodeError as problem:
        return f"not JSON: {problem.msg.lower()} (line {problem.lineno}, column {problem.colno})"
    except (ValueError, RecursionError) as problem:
        return f"not JSON that can be used: {problem}"
    return f"not JSON: NaN, Infinity, half a Unicode character, or a number too long ({error})"
