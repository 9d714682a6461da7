"""Rows into the table of questions: each once, however often and by whatever way it comes.

Never leaves a row out without a word, and never changes or removes one that is there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

import orjson

from automate.pools.kinds.base import BadRow, Kind, Question
from automate.pools.store import Statements

CHUNK = 2000
"""Rows of one statement."""
SHOWN = 20
"""Bad rows that an answer names."""
_REASON = 300
_MOST_OCCURRENCES = 10**9
_NUL = b"\\u0000"
_INSERT = ("INSERT INTO questions (dataset, digest, context, question, options, result, added) "
           "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (dataset, digest) DO NOTHING")

Row = Mapping[str, object]
_Values = tuple[str, str, str, str, str, str, int]


@dataclass
class Loaded:
    """added: new rows; known: rows that were there; bad: rows that can't be used, in their order."""

    added: int = 0
    known: int = 0
    bad: list[BadRow] = field(default_factory=list)


@dataclass
class Digests:
    """What tells rows apart: their content, and which of several equal ones of a source they are.

    The content is that of the question, not of the file: a row has one digest, whether it came by CSV, JSON or message.
    """

    longest: int
    _counts: dict[bytes, int] = field(default_factory=dict)

    def of(self, question: Question, occurrence: int | None = None) -> str:
        """40 hex digits. `occurrence`: as the sender counted; else counted here. Raises ValueError: a field that is too
        long, no valid Unicode, with a NUL, or of another type than text."""
        body = self._body(question)
        content = blake2b(body, digest_size=20)
        count = occurrence
        if count is None:
            key = content.digest()
            count = self._counts[key] = self._counts.get(key, 0) + 1
        return content.hexdigest() if count == 1 else blake2b(b"%d " % count + body, digest_size=20).hexdigest()

    def _body(self, question: Question) -> bytes:
        try:
            body = orjson.dumps((question.context, question.question, question.options, question.result))
        except TypeError:
            body = b""
        if not body or len(body) > self.longest or _NUL in body or not self._all_text(question):
            self._check(question)
        return body

    @staticmethod
    def _all_text(question: Question) -> bool:
        return {str} == {type(text) for text in (question.context, question.question, question.result,
                                                 *question.options)}

    def _check(self, question: Question) -> None:
        named = [("context", question.context), ("question", question.question), ("result", question.result),
                 *((f"option {number}", text) for number, text in enumerate(question.options, 1))]
        for name, text in named:
            problem = text_problem(text, self.longest)
            if problem:
                raise ValueError(f"the {name} {problem}")


def text_problem(text: object, longest: int) -> str | None:
    """Why a text can't be kept, or None where it can. `longest`: bytes in UTF-8."""
    if not isinstance(text, str):
        return f"is {type(text).__name__}, not text"
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        return f"is not valid Unicode or UTF-8 (character {error.start + 1})"
    if size > longest:
        return f"is {size:,} bytes long; {longest:,} is the most (pools.field_bytes)"
    return f"has a NUL (character {text.index(chr(0)) + 1})" if "\0" in text else None


def take(db: Statements, dataset: str, kind: Kind, rows: Iterable[Row | BadRow], longest: int, *,
         now: int, counted: bool = False) -> Loaded:
    """Insert rows. now: when (ms). counted: a row may say in `occurrence` which of several equal ones it is, as rows of
    a source that comes in several messages must. Raises what `rows` raises; the caller's transaction
    undoes what was inserted."""
    loaded, digests = Loaded(), Digests(longest)
    chunk: list[_Values] = []
    for number, raw in enumerate(rows, 1):
        try:
            question = question_of(kind, raw)
            digest = digests.of(question, _occurrence(raw) if counted else None)
        except ValueError as error:
            loaded.bad.append(raw if isinstance(raw, BadRow) else BadRow(number, str(error)))
            continue
        chunk.append((dataset, digest, question.context, question.question,
                      orjson.dumps(question.options).decode(), question.result, now))
        if len(chunk) == CHUNK:
            _insert(db, chunk, loaded)
            chunk = []
    _insert(db, chunk, loaded)
    return loaded


def _insert(db: Statements, chunk: list[_Values], loaded: Loaded) -> None:
    added = db.executemany(_INSERT, chunk).rowcount if chunk else 0
    loaded.added += added
    loaded.known += len(chunk) - added


def question_of(kind: Kind, raw: Row | BadRow) -> Question:
    """The question of a row. Raises ValueError; a kind that fails in another way fails on this row only."""
    if isinstance(raw, BadRow):
        raise ValueError(raw.reason)
    try:
        question = kind.row(raw)
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(f"the kind {kind.name} fails on it: {type(error).__name__}: {error}") from error
    if not isinstance(question, Question) or not isinstance(question.options, tuple):
        raise ValueError(f"the kind {kind.name} made no Question of it")
    return question


def _occurrence(raw: Row | BadRow) -> int | None:
    value = raw.get("occurrence") if isinstance(raw, Mapping) else None
    if value is not None and (type(value) is not int or not 1 <= value <= _MOST_OCCURRENCES):
        raise ValueError(f"'occurrence' is {value!r:.40}, not a whole number from 1 on")
    return value


def shown(bad: Iterable[BadRow]) -> list[dict[str, object]]:
    """The first bad rows, for an answer."""
    return [{"number": row.number, "reason": row.reason[:_REASON]} for row, _ in zip(bad, range(SHOWN), strict=False)]


def parcels(kind: Kind, source: Path, *, size: int, longest: int, bad: list[BadRow]) -> Iterator[str]:
    """A file as Data of Load-Data messages, each up to `size` bytes unless one row alone is longer; rows carry their
    `occurrence`, so that the parcels together load as the file does. What can't be used is added to `bad`."""
    digests, waiting, total = Digests(longest), list[bytes](), 0
    seen: dict[str, int] = {}
    for number, raw in enumerate(kind.read(source), 1):
        try:
            content = digests.of(question_of(kind, raw), 1)
            row = _row_text(raw, seen.get(content, 0) + 1)
        except ValueError as error:
            bad.append(raw if isinstance(raw, BadRow) else BadRow(number, str(error)))
            continue
        seen[content] = seen.get(content, 0) + 1
        if waiting and total + len(row) > size:
            yield _parcel(waiting)
            waiting, total = [], 0
        waiting.append(row)
        total += len(row) + 1
    if waiting:
        yield _parcel(waiting)


def _row_text(raw: Row | BadRow, occurrence: int) -> bytes:
    try:
        return orjson.dumps({**(raw if isinstance(raw, Mapping) else {}), "occurrence": occurrence})
    except TypeError as error:
        raise ValueError(f"a field of it can't be sent as JSON: {error}") from error


def _parcel(rows: list[bytes]) -> str:
    return (b"[" + b",".join(rows) + b"]").decode()
