"""Which questions a bench has, by its questions file: uids and categories, without the texts.

Never fails a leaderboard: without the file, or with another version's, rows are taken as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from automate.errors import StorageError
from automate.results.battles import Battles
from automate.results.reading.folder import BenchFolder


class _Question(msgspec.Struct):
    uid: str | int | None = None
    question_id: str | int | None = None
    category: str | None = None


_QUESTION = msgspec.json.Decoder(_Question)


@dataclass(frozen=True)
class QuestionSet:
    """uids and categories of a questions file (None: it doesn't say), and how many lines could not be used."""

    path: Path
    categories: Mapping[str, str | None]
    unusable: int = 0

    def category(self, uid: str) -> str | None:
        return self.categories.get(uid)

    def known(self, battles: Battles) -> set[str] | None:
        """The questions of `battles` that are in the file; None where none is, so that the file says nothing."""
        known = self.categories.keys() & set(battles.questions)
        return known or None


def read_question_set(folder: BenchFolder) -> QuestionSet | None:
    """The bench's questions, or None where there is no questions file. Raises StorageError."""
    path = folder.questions
    if not path.is_file():
        return None
    found: dict[str, str | None] = {}
    unusable = 0
    try:
        with path.open("rb") as file:
            for line in file:
                if line.isspace():
                    continue
                try:
                    row = _QUESTION.decode(line)
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                    unusable += 1
                    continue
                uid = row.uid if row.uid is not None else row.question_id
                if uid is not None:
                    found[str(uid)] = row.category
    except OSError as error:
        raise StorageError.of(error, path, "read it") from error
    return QuestionSet(path, found, unusable) if found else None
