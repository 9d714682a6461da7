"""How many of a model's answers are there, and how many are still due: wanted questions minus recorded answers.

Reads files and never writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from automate.arena.answering.candidates import candidate_of
from automate.arena.answering.recorded import Due, FileRows, Journalled, due_of, read_file, read_records
from automate.arena.benchmark import Question
from automate.journal import record_files
from automate.workspace import Workspace


@dataclass(frozen=True)
class AnswerStatus:
    """A model's answers counted, over the wanted questions.

    done: answers that count, of which `empty` are empty texts (real answers), `rehearsed` of a rehearsal and
    `unwritten` in the journal only, so that the answer file lacks them; due: still to be asked, of which `stale` have
    an answer to another text or of other weights; failed: given up after limits.attempts, by reason; duplicates: rows
    more than one to a question; unknown: rows for uids that are no question; problems: lines that can't be read.
    """

    model: str
    wanted: int
    done: int
    due: int
    empty: int = 0
    stale: int = 0
    duplicates: int = 0
    failed: Mapping[str, int] = field(default_factory=dict)
    unknown: int = 0
    problems: tuple[str, ...] = ()
    rehearsed: int = 0
    unwritten: int = 0
    why_stale: Mapping[str, int] = field(default_factory=dict)


def due_answers(wanted: Mapping[str, Due], rows: FileRows, journal: Journalled, attempts: int) -> list[Due]:
    """Wanted questions minus those that have an answer that counts, and those that were given up."""
    return [due for uid, due in wanted.items() if uid not in rows.lines and uid not in journal.answers
            and journal.failed(due, attempts) is None]


def answer_status(workspace: Workspace, questions: Sequence[Question], model: str,
                  limit_questions: int | None = None) -> AnswerStatus:
    """Count a model's answers. `limit_questions` counts the first questions only; rows of the others are known."""
    weights = candidate_of(workspace, model)[0].weights
    rows = read_file(workspace.answer_file(model), questions, weights)
    wanted = {question.uid: due_of(model, question, weights) for question in questions[:limit_questions]}
    folder = workspace.answer_journal(model)
    there = all(uid in rows.lines for uid in wanted) or not record_files(folder)
    journal = Journalled() if there else read_records(folder, wanted, weights)
    attempts = workspace.settings.limits.attempts
    due = due_answers(wanted, rows, journal, attempts)
    answered = [uid for uid in wanted if uid in rows.lines or uid in journal.answers]
    unwritten = [uid for uid in answered if uid not in rows.lines]
    failed = Counter(given_up for uid, one in wanted.items() if uid not in rows.lines and uid not in journal.answers
                     and (given_up := journal.failed(one, attempts)) is not None)
    why = Counter(reason for one in due if (reason := rows.stale.get(one.uid) or journal.stale.get(one.uid)))
    empty = sum(1 for uid in answered if uid in rows.empty
                or (uid not in rows.lines and not journal.answers[uid]["answer"].strip()))
    return AnswerStatus(
        model=model, wanted=len(wanted), done=len(answered), due=len(due), empty=empty, stale=sum(why.values()),
        duplicates=rows.duplicates, failed=dict(failed), unknown=len(rows.others),
        problems=(*rows.problems, *journal.problems), rehearsed=rows.rehearsed, unwritten=len(unwritten),
        why_stale=dict(why))


def given_up(workspace: Workspace, questions: Sequence[Question], model: str) -> dict[str, str]:
    """The questions that a model was asked in vain, as often as `limits.attempts` says: uid and reason of each."""
    folder = workspace.answer_journal(model)
    if not record_files(folder):
        return {}
    weights = candidate_of(workspace, model)[0].weights
    wanted = {question.uid: due_of(model, question, weights) for question in questions}
    journal, attempts = read_records(folder, wanted, weights), workspace.settings.limits.attempts
    return {uid: reason for uid, due in wanted.items()
            if uid not in journal.answers and (reason := journal.failed(due, attempts)) is not None}
