"""How far answers are: each model's questions that have one and those that lack one, counted again when files change.

Never keeps texts; writes nothing but what spares the next command the reading."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from automate import __version__
from automate.arena.benchmark import Question, read_questions
from automate.errors import FlockError, StorageError
from automate.journal import read_json, write_json
from automate.workspace import Workspace

if TYPE_CHECKING:
    from automate.arena.answering.due import AnswerStatus

Mark = tuple[tuple[str, int, int, int], ...]


def _mark(path: Path) -> Mark:
    try:
        stat = path.stat()
    except OSError:
        return ()
    return ((path.name, stat.st_ino, stat.st_mtime_ns, stat.st_size),)


def mark_of(workspace: Workspace, model: str) -> Mark:
    """What of a model's answer file and its record files changes when somebody writes to them."""
    found = list(_mark(workspace.answer_file(model)))
    try:
        with os.scandir(workspace.answer_journal(model)) as entries:
            names = sorted(entry.name for entry in entries)
    except OSError:
        names = []
    for name in names:
        found += _mark(workspace.answer_journal(model) / name)
    return tuple(found)


class AnswerCounts:
    """Answers of a set of models to the questions `asked`; `refresh()` follows what is written.

    Raises DataError where the questions can't be read. A model whose files can't be read is among `problems`, and has
    all its answers due.
    """

    def __init__(self, workspace: Workspace, models: Sequence[str], limit_questions: int | None = None) -> None:
        self.workspace = workspace
        self.statuses: dict[str, AnswerStatus | None] = dict.fromkeys(models)
        self.problems: dict[str, str] = {}
        self._limit = limit_questions
        self._marks: dict[str, Mark] = {}
        self.asked: list[Question] = read_questions(workspace.questions, workspace.settings.bench)
        self._asked = _mark(workspace.questions)
        self.refresh()

    def refresh(self) -> bool:
        """Count models anew whose files have changed since the last look; True where any had."""
        asked = _mark(self.workspace.questions)
        if asked != self._asked:
            self.asked = read_questions(self.workspace.questions, self.workspace.settings.bench)
            self._asked, self._marks = asked, {}
        changed = False
        for model in self.statuses:
            mark = mark_of(self.workspace, model)
            if self._marks.get(model) != mark:
                changed = True
                self._count(model, mark)
                self._marks[model] = mark
        return changed

    def _count(self, model: str, mark: Mark) -> None:
        from automate.arena.answering.due import answer_status

        self.problems.pop(model, None)
        try:
            key = self._key(model, mark)
            status = self._kept(model, key)
            if status is None:
                status = answer_status(self.workspace, self.asked, model, self._limit)
                self._keep(model, key, status)
            self.statuses[model] = status
        except (FlockError, OSError) as error:
            self.statuses[model] = None
            self.problems[model] = str(error)

    def _key(self, model: str, mark: Mark) -> str:
        """What the counts of a model rest on; empty where they are not to be kept, of some questions only."""
        from automate.arena.answering.candidates import candidate_of

        weights = candidate_of(self.workspace, model)[0].weights
        rests = [__version__, mark, self._asked, self.workspace.settings.limits.attempts, weights]
        return "" if self._limit is not None or not mark else hashlib.sha256(repr(rests).encode()).hexdigest()

    def _kept(self, model: str, key: str) -> AnswerStatus | None:
        """The counts that an earlier look kept, where nothing has changed since."""
        from automate.arena.answering.due import AnswerStatus

        if not key:
            return None
        try:
            data = read_json(self.workspace.answer_counts_file(model)) or {}
            status = AnswerStatus(**{**data["status"], "problems": tuple(data["status"]["problems"])})
        except (FlockError, KeyError, TypeError):
            return None
        return status if data.get("key") == key and status.model == model else None

    def _keep(self, model: str, key: str, status: AnswerStatus) -> None:
        if key:
            with contextlib.suppress(StorageError, OSError):  # somebody who may only look
                write_json(self.workspace.answer_counts_file(model), {"key": key, "status": asdict(status)})

    @property
    def questions(self) -> int:
        """How many questions are asked of each model."""
        return len(self.asked[:self._limit])

    @property
    def due(self) -> dict[str, int]:
        """Answers that are due by model, in the order of the models."""
        return {model: self.questions if status is None else status.due for model, status in self.statuses.items()}

    @property
    def wanted(self) -> int:
        return self.questions * len(self.statuses)

    @property
    def finished(self) -> int:
        return self.wanted - sum(self.due.values())
