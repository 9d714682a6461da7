"""Judgment files as Arena-Hard's own program takes them, for what is to be printed as it prints it.

Never stops where that program would: such rows are left out and said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from automate.results.battles import Battles
from automate.results.reading.columns import UNNAMED, Columns
from automate.results.reading.dialects import BadLine, FoundRow, read_row
from automate.results.reading.folder import BenchFolder
from automate.results.reading.lines import BadLines, lines_of
from automate.results.reading.messages import causes, no_file

_STOPS = {"bad_label", "missing_game"}


@dataclass(frozen=True)
class Upstream:
    """Rows as upstream takes them, with those that have a null game or score: it counts and drops them itself.

    `notes`: rows that it would have stopped at (labels that none knows, rows with one game); they are left out.
    `files`: how many were read.
    """

    battles: Battles
    notes: tuple[str, ...]
    files: int = 0


def read_as_upstream(folder: BenchFolder, judges: Sequence[str], models: Collection[str] | None = None, *,
                     baseline: str | None = None) -> Upstream:
    """Every row of every file as it stands: doubles count twice, models are called as the rows say."""
    columns = Columns()
    notes: list[str] = []
    files = 0
    for judge in judges:
        notes += map(no_file, folder.no_files(judge))
        for path in folder.judgment_files(judge):
            bad = BadLines()
            files += 1
            named = [(row, (row.model or path.name.removesuffix(".jsonl")).rpartition("/")[2])
                     for row in _rows(path, bad) if baseline in (None, row.baseline)]
            kept = [(row, model) for row, model in named if models is None or model in models]
            columns.extend([row for row, _ in kept], models=[model for _, model in kept],
                           categories=[row.category or folder.bench for row, _ in kept],
                           baselines=[row.baseline or UNNAMED for row, _ in kept], judge=judge)
            notes += bad.said
    return Upstream(columns.battles(), tuple(notes), files)


def _rows(path: Path, bad: BadLines) -> Iterator[FoundRow]:
    """The rows that upstream would get past."""
    for number, line, whole in lines_of(path):
        try:
            row = read_row(line)
        except BadLine as error:
            bad.add(path, number, str(error), whole)
            continue
        if _STOPS & set(row.causes):
            labels = " ".join(map(repr, row.bad_labels))
            bad.add(path, number, f"{causes(Counter(row.causes))} {labels}".rstrip()
                    + "; Arena-Hard's own program stops at this row")
            continue
        yield row
