"""A model's answers counted: what is there, what is missing, what is wrong with the lines of their file.

Never changes a file; which answers count is decided by `arena.answering`."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from automate.arena.answering.due import AnswerStatus, answer_status
from automate.arena.benchmark import Question, answer_of
from automate.errors import FlockError
from automate.journal import iter_lines, parse_object
from automate.workspace import Workspace

State = Literal["complete", "missing", "incomplete", "invalid", "stale", "unknown"]
"""complete: nothing to do. missing: nothing is recorded. incomplete: some is. invalid: lines that must be mended.
stale: made for something that has changed since. unknown: it can't be told."""


@dataclass(frozen=True)
class AnswersAudit:
    """A model's answers, counted by question: done + missing + stale + given up = wanted.

    `stale`, by reason, have an answer to another text or of other weights; `failed`, by reason, were given up. Of those
    done `empty` hold no text, which is an answer too, `rehearsed` are a rehearsal's, and `unwritten` are in the journal
    but not in the file. Lines of the file: `duplicates` have another answer to the same question, `unknown` answer no
    question of this set, `bad` are no answer, of which `torn` is the last one where its write was cut off.
    `problem`: why nothing can be said.
    """

    model: str
    wanted: int
    done: int = 0
    missing: int = 0
    stale: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, int] = field(default_factory=dict)
    empty: int = 0
    rehearsed: int = 0
    unwritten: int = 0
    duplicates: int = 0
    unknown: int = 0
    bad: int = 0
    torn: int = 0
    problems: tuple[str, ...] = ()
    problem: str | None = None

    @property
    def due(self) -> int:
        """Questions to be asked."""
        return self.missing + sum(self.stale.values())

    @property
    def given_up(self) -> int:
        return sum(self.failed.values())

    @property
    def to_mend(self) -> bool:
        """Whether lines of the file must go that don't count, or answers must be put in."""
        return bool(self.duplicates or self.bad or self.unwritten)

    @property
    def state(self) -> State:
        """What the counts amount to; what is worst comes first."""
        if self.problem:
            return "unknown"
        if self.duplicates or self.bad:
            return "invalid"
        if self.missing == self.wanted:
            return "missing"
        if self.missing or self.given_up or self.unwritten:
            return "incomplete"
        return "stale" if self.stale else "complete"


def audit_answers(workspace: Workspace, questions: Sequence[Question], model: str,
                  limit_questions: int | None = None) -> AnswersAudit:
    """Count a model's answers; of the first `limit_questions` questions only, if that is given."""
    wanted = len(questions[:limit_questions])
    try:
        return _counted(workspace.answer_file(model), answer_status(workspace, questions, model, limit_questions))
    except (FlockError, OSError) as error:
        return AnswersAudit(model, wanted, problem=str(error))


def _counted(path: Path, status: AnswerStatus) -> AnswersAudit:
    bad = sum(problem.startswith(f"{path}:") for problem in status.problems)
    return AnswersAudit(
        status.model, status.wanted, status.done, status.due - status.stale, status.why_stale, status.failed,
        status.empty, status.rehearsed, status.unwritten, status.duplicates, status.unknown, bad,
        int(bad > 0 and _torn(path)), status.problems)


def _torn(path: Path) -> bool:
    """Whether the last line of an answer file has no end and is no answer."""
    for _, line, whole in deque(iter_lines(path), maxlen=1):
        try:
            answer_of(parse_object(line))
        except ValueError:
            return not whole
    return False
