"""Which questions a bench has, by its questions file: uids and categories, without the texts.

Never fails a leaderboard: without the file, or with another version's, rows are taken as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from automate.results.battles import Battles
from automate.results.reading.dialects import BadLine
from automate.results.reading.folder import BenchFolder
from automate.results.reading.lines import MOST_NAMED, BadLines, lines_of
from automate.results.reading.messages import many, repeated_question


class _Question(msgspec.Struct):
    uid: str | int | None = None
    question_id: str | int | None = None
    category: str | None = None


_QUESTION = msgspec.json.Decoder(_Question)


@dataclass(frozen=True)
class QuestionSet:
    """uids and categories of a questions file (None: it doesn't say). `unusable`: how many lines can't be read;
    `problems`: these, and questions that stand there twice, each with file and line."""

    path: Path
    categories: Mapping[str, str | None]
    unusable: int = 0
    problems: tuple[str, ...] = ()

    def category(self, uid: str) -> str | None:
        return self.categories.get(uid)

    def known(self, battles: Battles) -> set[str] | None:
        """The questions of `battles` that are in the file; None where none is, so that the file says nothing."""
        known = self.categories.keys() & set(battles.questions)
        return known or None


def read_question_set(folder: BenchFolder) -> QuestionSet | None:
    """The bench's questions, or None where there is no questions file, or none in it. Raises StorageError."""
    path = folder.questions
    if not path.is_file():
        return None
    found: dict[str, str | None] = {}
    first: dict[str, int] = {}
    bad, unusable = BadLines(), 0
    repeated: list[str] = []
    for number, line, whole in lines_of(path):
        try:
            uid, category = _question(line)
        except BadLine as error:
            bad.add(path, number, str(error), whole)
            unusable += 1
            continue
        if uid in found:
            repeated.append(repeated_question(path, uid, number, first[uid]))
        first.setdefault(uid, number)
        found[uid] = category
    more = len(repeated) - MOST_NAMED
    rest = (f"{path}: {many(more, 'more question')} that stand there twice",) if more > 0 else ()
    return QuestionSet(path, found, unusable, (*bad.said, *repeated[:MOST_NAMED], *rest)) if found else None


def _question(line: bytes) -> tuple[str, str | None]:
    """uid and category of a line. Raises BadLine."""
    try:
        row = _QUESTION.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadLine(f"not a question: {error}") from error
    uid = row.uid if row.uid is not None else row.question_id
    if uid is None:
        raise BadLine("not a question: no uid (or question_id)")
    return str(uid), row.category
