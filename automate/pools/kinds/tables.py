"""The rows of a CSV file with a header, one by one.

Never fills in what a row lacks: a row with more or fewer fields than the header is reported."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO

from automate.errors import DataError
from automate.pools.kinds.base import BadRow

LINE = 64 * 1024 * 1024
"""Characters of the longest line, field, or row of an array, that is read at all."""


def table(file: BinaryIO, source: Path, delimiter: str) -> Iterator[Mapping[str, object] | BadRow]:
    """Rows by the header's names; quotes, and line ends within them, as RFC 4180. Bytes that are not UTF-8 become lone
    surrogates. Raises DataError for a header that can't be used."""
    csv.field_size_limit(LINE)
    text = io.TextIOWrapper(file, "utf-8", errors="surrogateescape", newline="")
    reader = csv.reader(iter(partial(text.readline, LINE), ""), delimiter=delimiter, strict=True)
    header = _header(reader, source)
    number = 0
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            number += 1
            yield BadRow(number, f"up to line {reader.line_num}: not CSV: {_words(error)}")
            continue
        if not row:
            continue
        number += 1
        yield (dict(zip(header, row, strict=True)) if len(row) == len(header) else
               BadRow(number, f"line {reader.line_num}: {len(row)} fields, but the header has {len(header)}"))


def _header(reader: Iterator[list[str]], source: Path) -> list[str]:
    try:
        names = [name.strip() for name in next(reader, [])]
    except csv.Error as error:
        raise DataError(f"its first line is no CSV header: {_words(error)}", where=str(source),
                        todo="write the names of the columns there") from error
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise DataError(f"two columns are named {twice[0]!r}", where=str(source), todo="rename one of them")
    return names


def _words(error: csv.Error) -> str:
    if "unexpected end" in str(error):
        return "the file ends within quotes (a quote was opened and never closed, or the file is cut off)"
    return str(error)
