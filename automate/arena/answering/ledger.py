"""A model's answers on disk: the journal, and upstream's answer file, which is made from it and from what lay there.

Writing needs the model's claim. Never deletes an answer: a row that doesn't count any more leaves the answer file, and
the old file is kept under superseded/."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import orjson

from automate import __version__, claims
from automate.arena.answering.author import messages_of
from automate.arena.answering.candidates import Candidate, candidate_of
from automate.arena.answering.due import due_answers
from automate.arena.answering.recorded import OWN, Due, FileRows, Journalled, due_of, read_file, read_records
from automate.arena.answering.style_counts import counts
from automate.arena.apart import keep_old
from automate.arena.benchmark import Question
from automate.cluster.queue import job_alive
from automate.journal import Record, RecordWriter, mend, record_files, replace_file
from automate.serving.messages import Encoded
from automate.workspace import Workspace


def make_row(record: Record, prompt: str) -> bytes:
    """An answer's row, one line: upstream's keys in upstream's order, then where the answer comes from."""
    said: dict[str, object] = {"answer": record["answer"]}
    if record.get("thought"):
        said["thought"] = record["thought"]
    system = [{"role": "system", "content": record["system"]}] if record.get("system") else []
    own = {"version": __version__, "key": record.get("key"), "weights": record.get("weights"),
           "tokenizer": record.get("tokenizer"), "finish_reason": record.get("finish"),
           "temperature": record.get("temperature"), "max_tokens": record.get("max_tokens")}
    if record.get("rehearsal"):
        own["rehearsal"] = True
    row = {
        "uid": record["uid"], "ans_id": record.get("ans_id"), "model": record["model"],
        "messages": [*system, {"role": "user", "content": prompt}, {"role": "assistant", "content": said}],
        "tstamp": record.get("time"), "metadata": counts(record["answer"], int(record.get("token_len") or 0)), OWN: own,
    }
    return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)


class AnswerLedger:
    """Writes one model's answers. Make it under the model's claim, `open()` it, `add()` records, `close()` it."""

    def __init__(self, workspace: Workspace, candidate: Candidate, questions: Sequence[Question],
                 attempts: int) -> None:
        self.workspace = workspace
        self.candidate = candidate
        self.model = candidate.model
        self.attempts = attempts
        self.notes: list[str] = []
        self._prompts = {question.uid: question.prompt for question in questions}
        self._questions = questions
        self._wanted = {question.uid: due_of(self.model, question, candidate.weights) for question in questions}
        self._rows_read = FileRows()
        self._journal = Journalled()
        self._writer: RecordWriter | None = None
        self._rows: RecordWriter | None = None

    @property
    def rows_path(self) -> Path:
        return self.workspace.answer_file(self.model)

    @property
    def _target(self) -> Path:
        """Where the answer file's rows lie: elsewhere where it is a link, which stays one."""
        return Path(os.path.realpath(self.rows_path))

    def due(self, uids: set[str]) -> list[Due]:
        """What of these questions is still to be asked."""
        wanted = {uid: due for uid, due in self._wanted.items() if uid in uids}
        return due_answers(wanted, self._rows_read, self._journal, self.attempts)

    def render(self, uid: str) -> Encoded:
        """The messages of one question."""
        return Encoded.of(messages_of(self.candidate, self._prompts[uid]))

    def open(self, writer_name: str) -> None:
        """Mend what a killed writer left, and make the answer file anew from what counts."""
        self._read()
        self.derive()
        self._writer = RecordWriter(self.workspace.answer_journal(self.model) / f"{writer_name}.jsonl")
        self._rows = RecordWriter(self.rows_path, exclusive=False)

    def mend(self) -> bool:
        """Mend files and take double and broken lines out of the answer file; answers to be replaced stay until they
        are. Whether the answer file changed."""
        self._read()
        return self.derive(keep_stale=True)

    def _read(self) -> None:
        folder = self.workspace.answer_journal(self.model)
        for path in record_files(folder):
            if cut := mend(path):
                self.notes.append(f"{path}: mended: a torn last record of {cut} bytes was cut off; it is due again")
        self._rows_read = read_file(self.rows_path, self._questions, self.candidate.weights)
        self._journal = read_records(folder, self._wanted, self.candidate.weights)
        self.notes += self._journal.problems

    def add(self, item: Due, record: Record) -> None:
        """Keep one question's record; an answer's row is appended to the answer file."""
        if self._writer is None or self._rows is None:
            raise RuntimeError("the ledger is not open")
        self._writer.append(record)
        self._journal.add(record, self._wanted, self.candidate.weights)
        if self._journal.answers.get(item.uid) is record:
            self._rows.append_line(make_row(record, self._prompts[item.uid]))

    def sync(self) -> None:
        """Flush both files to the file system."""
        for one in (self._writer, self._rows):
            if one is not None:
                one.sync()

    def close(self) -> None:
        """Flush and close, and put the answer file's rows into the order of the questions; harmless when not open."""
        writer, rows = self._writer, self._rows
        self._writer = self._rows = None
        for one in (writer, rows):
            if one is not None:
                one.close()
        if rows is not None and rows.path.is_file() and rows.path.stat().st_size == 0:
            self._target.unlink()  # upstream can't read an empty file
        if writer is not None and writer.path.stat().st_size == 0:
            writer.path.unlink()
        elif writer is not None:
            self._rows_read = read_file(self.rows_path, self._questions, self.candidate.weights)
            self.derive(in_order=True)

    def derive(self, *, keep_stale: bool = False, in_order: bool = False) -> bool:
        """Write the answer file from what counts, in the order of the questions; whether that changed it.

        A row that is there and counts stays as it is; what is only in the journal is added; rows of other questions
        are kept at the end. The old file is kept where a line leaves it. Only with `in_order` is a file written anew
        for its order alone.
        """
        lines: list[bytes] = []
        for uid, prompt in self._prompts.items():
            record = self._journal.answers.get(uid)
            if uid in self._rows_read.lines:
                lines.append(self._rows_read.lines[uid])
            elif record is not None:
                lines.append(make_row(record, prompt).rstrip(b"\n"))
            elif keep_stale and uid in self._rows_read.stale_lines:
                lines.append(self._rows_read.stale_lines[uid])
        lines += self._rows_read.others
        old = self._rows_read.order
        same = old == lines if in_order else sorted(old) == sorted(lines)
        if same and not self._rows_read.marked and not (old and _torn(self.rows_path)):
            return False
        if set(old) - set(lines):
            self._keep_old()
        if lines:
            replace_file(self._target, [line + b"\n" for line in lines])
        else:
            self._target.unlink(missing_ok=True)  # upstream can't read an empty file
        return True

    def _keep_old(self) -> None:
        target = keep_old(self.workspace, self.rows_path, Path("model_answer") / self.rows_path.name)
        self.notes.append(f"{self.model}: rows that don't count any more left {self.rows_path.name}; the old file is "
                          f"{target}")


def mend_answers(workspace: Workspace, questions: Sequence[Question], model: str) -> list[str]:
    """Take double and broken lines out of a model's answer file, and put in what only the journal has; what was done.

    Raises ClaimedError where somebody writes that model's answers now.
    """
    limits = workspace.settings.limits
    claim = claims.take(workspace.answer_claim(model), stale=limits.claim_stale, job_alive=job_alive)
    try:
        ledger = AnswerLedger(workspace, candidate_of(workspace, model)[0], questions, limits.attempts)
        changed = ledger.mend()
        return [*ledger.notes, *([f"{model}: {ledger.rows_path} was written anew"] if changed else [])]
    finally:
        claim.release()


def _torn(path: Path) -> bool:
    """Whether a file's last line has no end."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 1))
        return size > 0 and file.read(1) != b"\n"
