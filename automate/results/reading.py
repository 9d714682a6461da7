"""Judgment and battles files to columns of small numbers, in one pass over the lines; texts are never kept.

Changes no file. What is odd about a file is counted and said, never an error, unless nothing can be read at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from automate.errors import DataError
from automate.results import messages
from automate.results.battles import Battles, Judgments, Style, Tally
from automate.results.dialects import BadLine, FoundRow, read_row
from automate.results.folder import OTHER_BASELINE, BenchFolder, named
from automate.results.reading_battles import BattleRows, read_battles
from automate.results.reading_columns import UNNAMED, Columns, compact
from automate.results.reading_lines import BadLines, lines_of
from automate.results.reading_notes import notes_of_all
from automate.results.reading_questions import QuestionSet, read_question_set
from automate.results.reading_style import read_style, style_notes
from automate.results.reading_upstream import Upstream, read_as_upstream

__all__ = ["UNNAMED", "BattleRows", "Judgments", "Style", "Upstream", "read_as_upstream", "read_battles",
           "read_judgments", "read_style", "style_notes"]


@dataclass
class _File:
    """What was found in the files of one model under one judge."""

    model: str
    judge: str
    path: Path
    rows: dict[tuple[str, str | None], FoundRow] = field(default_factory=dict)
    duplicates: int = 0
    bad: BadLines = field(default_factory=BadLines)
    row_models: Counter[str] = field(default_factory=Counter)
    baselines: Counter[str] = field(default_factory=Counter)
    presumed: int = 0

    def take(self, row: FoundRow, baseline: str | None) -> None:
        """Take a row in. Of several of one question the last with both verdicts counts, else the last."""
        key = (row.uid, baseline)
        before = self.rows.get(key)
        if before is not None:
            self.duplicates += 1
            if before.complete and not row.complete:
                return
            del self.rows[key]
        self.rows[key] = row

    @property
    def left_out(self) -> int:
        return sum(not row.complete for row in self.rows.values())

    def tally(self) -> Tally:
        rows = self.rows.values()
        return Tally(self.model, self.judge, str(self.path), len(rows), self.duplicates,
                     Counter(cause for row in rows for cause in row.causes),
                     Counter(label for row in rows for label in row.bad_labels), self.bad.said)


def _read_file(found: _File, path: Path, baseline: str | None) -> None:
    """Add a file's rows that are against `baseline` (None: against any)."""
    folder = path.parent.name
    here = folder.removeprefix(OTHER_BASELINE) if folder.startswith(OTHER_BASELINE) else baseline
    for number, line, whole in lines_of(path):
        try:
            row = read_row(line)
        except BadLine as error:
            found.bad.add(path, number, str(error), whole)
            continue
        against = row.baseline or here
        found.presumed += row.baseline is None
        found.baselines[against or UNNAMED] += 1
        if baseline is not None and against != baseline:
            continue
        found.row_models[row.model or found.model] += 1
        found.take(row, against)


def _only(battles: Battles, questions: Collection[str]) -> Battles:
    """Rows of these questions."""
    wanted = np.array([uid in questions for uid in battles.questions], bool)
    return compact(battles, wanted[battles.question])


def _found_files(folder: BenchFolder, judge: str, models: Collection[str] | None,
                 baseline: str | None) -> Iterator[_File]:
    """Each model's files read, one model after another."""
    current: _File | None = None
    for path in folder.judgment_files(judge, baseline):
        model = path.name.removesuffix(".jsonl")
        if models is not None and model not in models:
            continue
        if current is not None and current.model != model:
            yield current
            current = None
        current = current or _File(model, judge, path)
        _read_file(current, path, baseline)
    if current is not None:
        yield current


def _file_notes(found: _File, baseline: str | None) -> list[str]:
    tally = found.tally()
    notes = list(tally.problems)
    if not tally.rows:
        return [*notes, messages.without_rows(found.path, found.model, baseline)]
    if found.left_out == tally.rows:
        notes.append(messages.without_verdicts(found.path, found.model, tally.rows, tally.nulls))
    if tally.duplicates:
        notes.append(messages.duplicates(found.path, tally.duplicates))
    others = [name for name in found.row_models if name.rpartition("/")[2] != found.model]
    return [*notes, messages.renamed(found.path, others, found.model)] if others else notes


@dataclass
class _Read:
    """Files read so far: columns, tallies, notes, and which files hold rows of which model's name."""

    columns: Columns = field(default_factory=Columns)
    tallies: list[Tally] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    holders: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    baselines: Counter[str] = field(default_factory=Counter)
    presumed: int = 0
    incomplete: list[tuple[int, Tally]] = field(default_factory=list)

    def add(self, found: _File, folder: BenchFolder, questions: QuestionSet | None, baseline: str | None) -> None:
        self.tallies.append(found.tally())
        if 0 < found.left_out < len(found.rows):
            self.incomplete.append((found.left_out, self.tallies[-1]))
        self.notes += _file_notes(found, baseline)
        self.presumed += found.presumed
        self.baselines += found.baselines
        for name in found.row_models:
            self.holders.setdefault((found.judge, name), []).append(found.path.name)
        for (uid, against), row in found.rows.items():
            category = row.category or (questions.category(uid) if questions else None) or folder.bench
            self.columns.add(row, model=found.model, category=category, baseline=against or UNNAMED, judge=found.judge)


def read_judgments(folder: BenchFolder, judges: Sequence[str], models: Collection[str] | None = None, *,
                   baseline: str | None = None) -> Judgments:
    """All rows of some judges' files, by file name, as columns. A model is called as its file is.

    With a `baseline` only games against it, also of its own folder `compared_with_<baseline>`. A question that stands
    twice in a file counts once. Raises DataError where a judge has no folder or no file, or where no row is against
    `baseline`.
    """
    questions = read_question_set(folder)
    read = _Read()
    for judge in judges:
        for found in _found_files(folder, judge, models, baseline):
            read.add(found, folder, questions, baseline)
    if not read.tallies:
        raise DataError("no judgment files" + (" of the models asked for" if models is not None else ""),
                        where=str(folder.judgments), todo="judge them first, or name another judge with --judge")
    battles = read.columns.battles()
    if baseline is not None and read.baselines and not len(battles):
        there = [*read.baselines, *(name for judge in judges for name in folder.other_baselines(judge))]
        raise DataError(f"no games against baseline '{baseline}'", where=str(folder.judgments),
                        todo=f"baselines that are there: {named(dict.fromkeys(there))}")
    known = questions.known(battles) if questions else None
    notes = [*read.notes, *messages.all_incomplete(read.incomplete)]
    notes += [messages.one_name(name, files) for (_, name), files in read.holders.items() if len(files) > 1]
    if read.presumed:
        notes.append(messages.presumed_baseline(read.presumed, baseline) if baseline is not None
                     else messages.unnamed_baseline(read.presumed))
    kept = battles if known is None else _only(battles, known)
    notes += notes_of_all(folder, battles, kept, questions)
    missing = sorted(set(models or ()) - {tally.model for tally in read.tallies})
    notes += [messages.missing_models(missing, folder.judgments)] if missing else []
    return Judgments(kept, tuple(read.tallies), tuple(notes))
