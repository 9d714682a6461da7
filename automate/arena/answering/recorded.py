"""Which answers a model has: rows of its answer file, records of its journal, and which of them count.

Reads files, never writes; whether something counts is decided by `counts_for` alone."""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from automate.arena.answering.candidates import NO_FILE, REHEARSAL
from automate.arena.benchmark import Question
from automate.journal import Record, iter_lines, parse_object, read_journal

ANSWER = "answer"
FAILURES = ("too_long", "refused")
OWN = "flock_hpc"
"""The key of a row under which it says where it comes from."""


def prompt_sha(prompt: str) -> str:
    """A hash of a question's text."""
    return hashlib.sha256(prompt.encode(errors="surrogatepass")).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Due:
    """One question that one model is to be asked. `key` names model, question, its text and the weights."""

    model: str
    uid: str
    category: str
    prompt_sha: str
    key: str


def due_of(model: str, question: Question, weights: str | None) -> Due:
    """The question as this model is asked it."""
    sha = prompt_sha(question.prompt)
    key = hashlib.sha256("\0".join((model, question.uid, sha, weights or "")).encode()).hexdigest()[:32]
    return Due(model, question.uid, question.category, sha, key)


def counts_for(made_with: str | None, weights: str | None) -> bool:
    """Whether an answer made with some weights is one of the model as it is now. None: not known.

    A rehearsed answer counts for a rehearsal only; a rehearsal leaves every real answer as it is.
    """
    if made_with == REHEARSAL:
        return weights == REHEARSAL
    return made_with is None or weights in (None, REHEARSAL) or made_with == weights


@dataclass
class FileRows:
    """An answer file read against the questions: by uid the last line that counts, and what else is there.

    `lines` are without newline and byte order mark (`marked`: there was one); `stale`: why the rows of a uid don't
    count (another text, other weights), with `stale_lines` the last of them; `others`: lines of uids that are no
    question, which are kept; `order`: all lines; `problems`: lines that can't be read.
    """

    lines: dict[str, bytes] = field(default_factory=dict)
    stale: dict[str, str] = field(default_factory=dict)
    stale_lines: dict[str, bytes] = field(default_factory=dict)
    empty: set[str] = field(default_factory=set)
    rehearsed: int = 0
    duplicates: int = 0
    others: list[bytes] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    order: list[bytes] = field(default_factory=list)
    marked: bool = False


def _question_text(row: Mapping[str, Any]) -> str | None:
    """The user message of a row; None where its format has none (v0.1)."""
    messages = row.get("messages")
    found = [one.get("content") for one in messages[:-1] if isinstance(one, dict) and one.get("role") == "user"] \
        if isinstance(messages, list) else []
    return found[-1] if found and isinstance(found[-1], str) else None


def answer_text(row: Mapping[str, Any]) -> str:
    """The answer of a row, of upstream's either format. Raises ValueError."""
    messages, choices = row.get("messages"), row.get("choices")
    try:
        if isinstance(messages, list):
            content = messages[-1]["content"]
            text = content["answer"] if isinstance(content, dict) else content
        else:
            text = choices[0]["turns"][0]["content"]  # type: ignore[index]
    except (IndexError, KeyError, TypeError) as error:
        raise ValueError("no answer text (messages[-1].content.answer)") from error
    if not isinstance(text, str):
        raise ValueError("the answer is not text")
    return text


def weights_of_row(row: Mapping[str, Any]) -> str | None:
    """The weights that a row says it was made with."""
    own = row.get(OWN)
    if not isinstance(own, dict):
        return None
    if own.get("rehearsal"):
        return REHEARSAL
    made = own.get("weights")
    return made if isinstance(made, str) else None


def read_file(path: Path, questions: Sequence[Question], weights: str | None) -> FileRows:
    """Read an answer file; a missing one is an empty one."""
    out, asked = FileRows(), {question.uid: question.prompt for question in questions}
    if path.is_dir():
        out.problems.append(f"{path}: {NO_FILE}")
    if not path.is_file():
        return out
    seen: set[str] = set()
    for number, found, _ in iter_lines(path):
        line = found.removeprefix(codecs.BOM_UTF8)
        out.marked |= line != found
        out.order.append(line)
        try:
            row = parse_object(line)
            uid = str(row.get("uid", row.get("question_id")) or "")
            if not uid:
                raise ValueError("no uid")
            text = answer_text(row)
        except ValueError as error:
            out.problems.append(f"{path}:{number}: {error}")
            continue
        if uid not in asked:
            out.others.append(line)
            continue
        out.duplicates += uid in seen
        seen.add(uid)
        _take(out, uid, line, row, text, asked[uid], weights)
    return out


def _take(out: FileRows, uid: str, line: bytes, row: Mapping[str, Any], text: str, prompt: str,
          weights: str | None) -> None:
    """Count one row that can be read and is to a question of the bench."""
    said, made = _question_text(row), weights_of_row(row)
    why = None
    if said is not None and said != prompt:
        why = "another question text"
    elif not counts_for(made, weights):
        why = "rehearsed" if made == REHEARSAL else "other weights"
    if why is None:
        out.lines[uid] = line
        (out.empty.discard if text.strip() else out.empty.add)(uid)
        out.rehearsed += made == REHEARSAL
    else:
        out.stale[uid], out.stale_lines[uid] = why, line


@dataclass
class Journalled:
    """A model's own records by uid: the first answer that counts, and the failures of this very key."""

    answers: dict[str, Record] = field(default_factory=dict)
    failures: dict[str, list[Record]] = field(default_factory=dict)
    stale: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def failed(self, due: Due, attempts: int) -> str | None:
        """Why a question is given up, or None where it is to be asked (again)."""
        found = [record for record in self.failures.get(due.uid, ()) if record.get("key") == due.key]
        return str(found[-1].get("outcome")) if len(found) >= attempts else None

    def add(self, record: Record, due: Mapping[str, Due], weights: str | None) -> None:
        """Take one record in."""
        uid, outcome = str(record.get("uid")), record.get("outcome")
        wanted = due.get(uid)
        if wanted is None:
            return
        if outcome in FAILURES:
            self.failures.setdefault(uid, []).append(record)
        elif outcome != ANSWER or not isinstance(record.get("answer"), str):
            return
        elif record.get("prompt_sha") != wanted.prompt_sha:
            self.stale.setdefault(uid, "another question text")
        elif not counts_for(record.get("weights"), weights):
            self.stale.setdefault(uid, "rehearsed" if record.get("weights") == REHEARSAL else "other weights")
        else:
            self.answers.setdefault(uid, record)


def read_records(folder: Path, due: Mapping[str, Due], weights: str | None) -> Journalled:
    """A model's journal against what is wanted of it."""
    found, out = read_journal(folder), Journalled()
    out.problems = [str(bad) for bad in found.bad]
    for _, record in found.records:
        out.add(record, due, weights)
    return out
