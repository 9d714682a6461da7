"""A model's games on disk: the journal, and upstream's rows derived from it.

Reading needs nothing; writing needs the model's claim. Never deletes a record; a row that doesn't count any more
leaves upstream's file, and the old file is kept under superseded/."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from pathlib import Path

from orjson import Fragment

from automate.arena.apart import copy_foreign_rows, keep_old
from automate.arena.benchmark import Answers
from automate.arena.counting.covered import mark_of, stamp_file
from automate.arena.games import Game, Match, Recorded, Slot
from automate.arena.prompts import Message
from automate.arena.records import load
from automate.arena.rows import make_row
from automate.errors import StorageError
from automate.journal import (
    Record,
    RecordWriter,
    iter_lines,
    mend,
    read_json,
    record_files,
    replace_file,
    write_json,
)
from automate.names import baseline_tag
from automate.serving.messages import Encoded
from automate.workspace import Workspace

KEPT = 1024
"""How many games' messages a ledger keeps at most until their rows are written."""
MARK_EVERY = 4 << 20
"""After how many more bytes of upstream's file it is written down that they come from the journal."""


def stamp(rows: Path, games: Sequence[Game], recorded: Recorded, attempts: int) -> str:
    """A hash of what upstream's file at `rows` holds when it is derived from these records."""
    digest = hashlib.sha256("/".join(rows.parts[-3:]).encode())  # holds where the workspace is moved
    for game in games:
        record = recorded.state(game, attempts).record
        if record is not None:
            mark = record.get("key") or record.get("from")
            digest.update(f"\0{game.uid}\0{game.order}\0{mark}\0{record.get('label')}".encode())
    return digest.hexdigest()


def rows_are_current(workspace: Workspace, model: str, games: Sequence[Game], recorded: Recorded) -> bool:
    """Whether upstream's file is what the records say; also where the journal never had a part in it."""
    tag = baseline_tag(workspace.settings.baseline)
    rows = workspace.rows_file(model, tag, workspace.default_baseline)
    if not record_files(workspace.journal(model, tag)):
        return True
    kept = read_json(stamp_file(workspace, model, tag)) or {}
    size = rows.stat().st_size if rows.is_file() else None
    wanted = stamp(rows, games, recorded, workspace.settings.limits.attempts)
    return (kept.get("stamp"), kept.get("bytes")) == (wanted, size)


class ModelLedger:
    """Writes one model's games. Make it under the model's claim, `open()` it, `add()` records, `close()` it."""

    def __init__(self, workspace: Workspace, model: str, match: Match, answers: Answers, attempts: int) -> None:
        self.workspace = workspace
        self.model = model
        self.match = match
        self.answers = answers
        self.attempts = attempts
        self.tag = baseline_tag(workspace.settings.baseline)
        self.games = match.wanted(answers)
        self.recorded = Recorded()
        self.notes: list[str] = []
        self._by_uid: dict[str, list[Game]] = {}
        for game in self.games:
            self._by_uid.setdefault(game.uid, []).append(game)
        self._questions = {question.uid: question for question in match.questions}
        self._written: set[str] = set()
        self._asked: dict[Slot, Encoded] = {}
        self._writer: RecordWriter | None = None
        self._rows: RecordWriter | None = None
        self._marked = 0

    @property
    def rows_path(self) -> Path:
        return self.workspace.rows_file(self.model, self.tag, self.workspace.default_baseline)

    def due(self, uids: set[str] | None = None) -> list[Game]:
        """Games to play, of these questions only where `uids` is given."""
        return [game for game in self.games if (uids is None or game.uid in uids)
                and not self.recorded.state(game, self.attempts).done]

    def render(self, uid: str, order: int) -> Encoded:
        """The judge's messages of one game that is about to be played; kept for its row, within limits."""
        encoded = self._asked[uid, order] = Encoded.of(self._messages(uid, order))
        if len(self._asked) > KEPT:
            del self._asked[next(iter(self._asked))]
        return encoded

    def _messages(self, uid: str, order: int) -> list[Message]:
        return self.match.messages(self.answers, self._questions[uid], order)

    def _rendered(self, uid: str, order: int) -> list[Message] | Fragment:
        encoded = self._asked.pop((uid, order), None)
        return encoded.fragment if encoded else self._messages(uid, order)

    def open(self, writer_name: str) -> None:
        """Mend what a killed writer left, take in rows of other programs, and derive upstream's file anew."""
        folder = self.workspace.journal(self.model, self.tag)
        for path in record_files(folder):
            cut = mend(path)
            if cut:
                self.notes.append(f"{path}: mended: a torn last record of {cut} bytes was cut off; its game is due")
        loaded = load(self.workspace, self.answers, self.match, self.tag)
        self.recorded = loaded.recorded
        self.notes += loaded.problems
        if loaded.nulls or loaded.bad_labels:
            self.notes.append(f"{self.model}: {loaded.nulls} null games and {loaded.bad_labels} bad labels in judgment "
                              "files count as not played")
        self._writer = RecordWriter(folder / f"{writer_name}.jsonl")
        wanted = {game.slot: game.prompt_sha for game in self.games}
        for record in loaded.fresh_imports:
            self._writer.append(_compact(record, wanted))
        if loaded.fresh_imports:
            self.notes.append(f"{self.model}: {len(loaded.fresh_imports)} games taken over from judgment files")
        self._writer.sync()
        moved = copy_foreign_rows(self.workspace, self.model, self.rows_path, self.match.baseline_names)
        self.notes += [f"{self.model}: {count} rows judged against '{name}' were set apart" for name, count in
                       moved.items()]
        self._derive_rows()
        self._rows = RecordWriter(self.rows_path, exclusive=False)

    def add(self, game: Game, record: Record) -> None:
        """Keep one game's record; append upstream's row when the question's other game is finished too."""
        if self._writer is None or self._rows is None:
            raise RuntimeError("the ledger is not open")
        self._writer.append(record)
        self.recorded.add(record)
        line = self._row(game.uid)
        if line is not None and game.uid not in self._written:
            self._rows.append_line(line)
            self._written.add(game.uid)

    def sync(self) -> None:
        """Flush both files to the file system."""
        writer, rows = self._writer, self._rows
        written = rows.size if rows is not None else 0
        for one in (writer, rows):
            if one is not None:
                one.sync()
        if rows is not None and written - self._marked >= MARK_EVERY:
            with contextlib.suppress(StorageError, OSError):  # it only saves monitors the reading
                self._mark("", rows, written)

    def _mark(self, stamp: str, rows: RecordWriter, size: int) -> None:
        """Write down that the first `size` bytes of upstream's file come from the journal, unless somebody else wrote
        to it meanwhile; both must be flushed."""
        alone = rows.path.stat().st_size <= rows.size
        if not alone and not stamp:
            return
        self._marked = size
        folder = self.workspace.journal(self.model, self.tag)
        mark = mark_of(rows.path, size, folder, self.match.baseline_names) if alone else {}
        write_json(stamp_file(self.workspace, self.model, self.tag), {"stamp": stamp, "bytes": size, **mark})

    def close(self) -> None:
        """Flush and close; harmless when not open."""
        writer, rows = self._writer, self._rows
        self._writer = self._rows = None
        for one in (writer, rows):
            if one is not None:
                one.close()
        if writer is not None and writer.path.stat().st_size == 0:
            writer.path.unlink()
        if rows is None:
            return
        told, size = stamp(self.rows_path, self.games, self.recorded, self.attempts), rows.path.stat().st_size
        if size:
            self._mark(told, rows, size)
        else:  # upstream can't read an empty file
            rows.path.unlink()
            write_json(stamp_file(self.workspace, self.model, self.tag), {"stamp": told, "bytes": None})

    def _row(self, uid: str) -> bytes | None:
        games = self._by_uid[uid]
        states = [self.recorded.state(game, self.attempts) for game in games]
        if not all(state.done for state in states):
            return None
        baseline = self.match.baseline_answers[games[0].baseline].row_model
        return make_row(games, states, self.match.judge.name, self.answers.row_model, baseline, self._rendered)

    def _derive_rows(self) -> None:
        """Write upstream's file from the records, by rename; keep the old one where a line of it is dropped."""
        lines = {uid: line for uid in self._by_uid if (line := self._row(uid)) is not None}
        self._written = set(lines)
        old = [line for _, line, _ in iter_lines(self.rows_path)] if self.rows_path.is_file() else []
        kept = {line.rstrip(b"\n") for line in lines.values()}
        if set(old) - kept:
            self._keep_old(self.rows_path)
        if old != [line.rstrip(b"\n") for line in lines.values()] or not self.rows_path.is_file():
            replace_file(self.rows_path, lines.values())

    def _keep_old(self, path: Path) -> None:
        target = keep_old(self.workspace, path, path.relative_to(self.workspace.judgments))
        self.notes.append(f"{self.model}: rows that don't count any more left {path.name}; the old file is {target}")


def _compact(record: Record, wanted: dict[Slot, str]) -> Record:
    """An import record without the prompt, where the prompt can be rendered again."""
    sha = record["prompt_sha"]
    if sha is not None and wanted.get((record["uid"], record["order"])) == sha:
        raw = {key: value for key, value in record["game"].items() if key != "prompt"}
        return {**record, "game": raw}
    return record
