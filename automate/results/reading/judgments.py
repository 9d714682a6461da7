"""Judgment and battles files to columns of small numbers, in one pass over the lines; texts are never kept.

Changes no file. What is odd about a file is counted and said, never an error, unless nothing can be read at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path

import numpy as np

from automate.errors import DataError
from automate.results.battles import Battles, Judgments, Tally
from automate.results.reading import messages
from automate.results.reading.columns import UNNAMED, Columns, compact
from automate.results.reading.dialects import BadLine, FoundRow, read_row
from automate.results.reading.folder import OTHER_BASELINE, BenchFolder, named
from automate.results.reading.lines import BadLines, lines_of
from automate.results.reading.notes import notes_of_all
from automate.results.reading.questions import QuestionSet, read_question_set


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

    def take(self, rows: Sequence[FoundRow], here: str | None) -> None:
        """Take rows in, against `here` where they don't say. Of several of one question the last with both verdicts
        counts, else the last."""
        keyed = {(row.uid, row.baseline or here): row for row in rows}
        if len(keyed) == len(rows) and self.rows.keys().isdisjoint(keyed):
            self.rows.update(keyed)
            return
        for row in rows:
            self._take_one((row.uid, row.baseline or here), row)

    def _take_one(self, key: tuple[str, str | None], row: FoundRow) -> None:
        before = self.rows.get(key)
        if before is not None:
            self.duplicates += 1
            if before.complete and not row.complete:
                return
            del self.rows[key]
        self.rows[key] = row

    def left_out(self) -> list[FoundRow]:
        """The rows without both verdicts."""
        return [row for row in self.rows.values() if row.causes]

    def tally(self) -> Tally:
        rows = self.left_out()
        return Tally(self.model, self.judge, str(self.path), len(self.rows), self.duplicates,
                     Counter(cause for row in rows for cause in row.causes),
                     Counter(label for row in rows for label in row.bad_labels), self.bad.said)


def _read_file(found: _File, path: Path, baseline: str | None) -> None:
    """Add a file's rows that are against `baseline` (None: against any)."""
    folder = path.parent.name
    here = folder.removeprefix(OTHER_BASELINE) if folder.startswith(OTHER_BASELINE) else baseline
    rows = []
    for number, line, whole in lines_of(path):
        try:
            rows.append(read_row(line))
        except BadLine as error:
            found.bad.add(path, number, str(error), whole)
    found.presumed += sum([row.baseline is None for row in rows])
    found.baselines.update([row.baseline or here or UNNAMED for row in rows])
    if baseline is not None:
        rows = [row for row in rows if (row.baseline or here) == baseline]
    found.row_models.update([row.model or found.model for row in rows])
    found.take(rows, here)


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


def _file_notes(found: _File, tally: Tally, left_out: int, baseline: str | None) -> list[str]:
    notes = list(tally.problems)
    if not tally.rows:
        return [*notes, messages.without_rows(found.path, found.model, baseline)]
    if left_out == tally.rows:
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
        tally, left_out = found.tally(), len(found.left_out())
        self.tallies.append(tally)
        if 0 < left_out < len(found.rows):
            self.incomplete.append((left_out, tally))
        self.notes += _file_notes(found, tally, left_out, baseline)
        self.presumed += found.presumed
        self.baselines += found.baselines
        for name in found.row_models:
            self.holders.setdefault((found.judge, name), []).append(found.path.name)
        rows = list(found.rows.values())
        categories = [row.category or (questions.category(row.uid) if questions else None) or folder.bench
                      for row in rows]
        self.columns.extend(rows, models=repeat(found.model), categories=categories, judge=found.judge,
                            baselines=[against or UNNAMED for _, against in found.rows])


def _nothing(folder: BenchFolder, judges: Sequence[str], models: Collection[str] | None,
             there: Sequence[str]) -> DataError:
    """No file was read: what was asked for, and what there is."""
    where = ", ".join(str(folder.judgments / judge) for judge in judges)
    if models is None or not there:
        return DataError("no judgment files", where=where,
                         todo="judge models first, or name another judge with --judge")
    asked = sorted(models)
    return DataError(f"no judgments of {named(asked)}{messages.nearest(asked, there)}", where=where,
                     todo=f"models that are there: {named(sorted(there))}")


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
        read.notes += map(messages.no_file, folder.no_files(judge, baseline))
        for found in _found_files(folder, judge, models, baseline):
            read.add(found, folder, questions, baseline)
    there = list(dict.fromkeys(path.name.removesuffix(".jsonl") for judge in judges
                               for path in folder.judgment_files(judge, baseline)))
    if not read.tallies:
        raise _nothing(folder, judges, models, there)
    battles = read.columns.battles()
    if baseline is not None and read.baselines and not len(battles):
        others = [*read.baselines, *(name for judge in judges for name in folder.other_baselines(judge))]
        raise DataError(f"no games against baseline '{baseline}'", where=str(folder.judgments),
                        todo=f"baselines that are there: {named(dict.fromkeys(others))}")
    known = questions.known(battles) if questions else None
    notes = [*read.notes, *messages.all_incomplete(read.incomplete)]
    notes += [messages.one_name(name, files) for (_, name), files in read.holders.items() if len(files) > 1]
    if read.presumed:
        notes.append(messages.presumed_baseline(read.presumed, baseline) if baseline is not None
                     else messages.unnamed_baseline(read.presumed))
    kept = battles if known is None else _only(battles, known)
    notes += notes_of_all(folder, battles, kept, questions)
    missing = sorted(set(models or ()) - {tally.model for tally in read.tallies})
    notes += [messages.missing_models(missing, folder.judgments, there)] if missing else []
    return Judgments(kept, tuple(read.tallies), tuple(notes))
