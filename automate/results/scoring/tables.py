"""From a bench folder to what a leaderboard command shows: boards by category and judge, quality, comparison.

Never prints; where one table can't be computed, it says why and the others stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from automate.errors import DataError, FlockError
from automate.results.battles import Battles, Style, Tally
from automate.results.boards import Agreement, Board, Comparison, Options, Quality
from automate.results.reading.battle_rows import read_battles
from automate.results.reading.columns import compact
from automate.results.reading.folder import BenchFolder
from automate.results.reading.judgments import read_judgments
from automate.results.reading.style import read_style, style_notes
from automate.results.scoring.compare import compare, neighbours, standing
from automate.results.scoring.published import table as battles_table
from automate.results.scoring.quality import judge_agreement, judge_quality
from automate.results.scoring.scores import FEW, FEW_QUESTIONS, few_questions, leaderboard, scored


@dataclass(frozen=True)
class Request:
    """What is asked for. `judges` empty: the only one there is; `models` None: all; `apart`: a table for each judge.

    `categories` empty: all together, and split beside it.
    """

    options: Options
    judges: tuple[str, ...] = ()
    models: tuple[str, ...] | None = None
    baseline: str | None = None
    categories: tuple[str, ...] = ()
    apart: bool = False
    quality: bool = True
    compare: tuple[str, str] | None = None


@dataclass(frozen=True)
class Table:
    """One leaderboard, or the reason why there is none. `detectable`: the typical smallest difference in points that
    can be shown between neighbours (80 % power); `questions` that the scores are of."""

    category: str | None
    judges: tuple[str, ...]
    board: Board | None
    problem: FlockError | None = None
    detectable: float | None = None
    questions: int = 0
    comparison: Comparison | None = None


@dataclass(frozen=True)
class Tables:
    """All of an answer. `split`: a board for each category where there are several and all are in one table."""

    folder: BenchFolder
    judges: tuple[str, ...]
    tables: tuple[Table, ...]
    split: tuple[Table, ...]
    quality: tuple[Quality, ...]
    agreement: tuple[Agreement, ...]
    tallies: tuple[Tally, ...]
    notes: tuple[str, ...]
    battles: Battles
    style: Style | None = None


def make_tables(folder: BenchFolder, request: Request) -> Tables:
    """Read, score, compare. Raises DataError where no file can be read at all or a name is unknown."""
    judges = folder.chosen_judges(request.judges)
    read = read_judgments(folder, judges, request.models, baseline=request.baseline)
    battles = read.battles
    _known_categories(battles, request.categories)
    style = read_style(folder, [*battles.models, *battles.baselines], battles.questions) \
        if request.options.style or (request.quality and folder.answers.is_dir()) else None
    asked = [replace(request.options, category=category) for category in request.categories or (None,)]
    parts = [(number,) for number in range(len(battles.judges))] if request.apart else [None]
    tables = tuple(_table(_of_judges(battles, part), options, style, request.compare)
                   for part in parts for options in asked)
    split = () if request.categories or request.apart or request.compare or len(battles.categories) < 2 else tuple(
        _scored(battles, replace(request.options, category=category), style) for category in battles.categories)
    tables, split = _without_repeats(tables, split)
    quality = judge_quality(battles, style, read.tallies) if request.quality else ()
    notes = read.notes + (style_notes(folder, style) if style is not None and request.options.style else ())
    return Tables(folder, judges, tables, split, quality, judge_agreement(battles) if len(judges) > 1 else (),
                  read.tallies, notes, battles, style)


def _without_repeats(tables: tuple[Table, ...], split: tuple[Table, ...]) -> tuple[tuple[Table, ...],
                                                                                    tuple[Table, ...]]:
    """The same tables, with one warning where categories and all together have few questions of the same models."""
    whole = tables[0].board if tables else None
    few = [_few(table.board) for table in split]
    if whole is None or not _few(whole):
        return tables, split
    same = [number for number, found in enumerate(few) if list(found) == list(_few(whole))]
    if not same:
        return tables, split
    text = few_questions([(None, _few(whole)), *((split[number].category, few[number]) for number in same)])
    told = _retold(tables[0], text)
    return (told, *tables[1:]), tuple(_retold(table) if number in same else table for number, table in enumerate(split))


def _few(board: Board | None) -> dict[str, int]:
    """Models with few questions, by name."""
    return dict(sorted((score.model, score.questions) for score in board.scores
                       if 0 < score.questions < FEW_QUESTIONS)) if board else {}


def _retold(table: Table, *texts: str) -> Table:
    """A table with these texts in place of its own warning of few questions."""
    if table.board is None:
        return table
    rest = [text for text in table.board.warnings if not text.startswith(FEW)]
    return replace(table, board=replace(table.board, warnings=(*texts, *rest)))


def battles_tables(path: Path, options: Options) -> Tables:
    """The table of a v0.1 battles file: no judge, no categories, no quality. Raises DataError, StorageError."""
    rows = read_battles(path)
    board, power = battles_table(rows, options)
    table = Table(None, (), board, detectable=power, questions=len(rows.questions))
    names, nothing, none = (), np.zeros(0, np.int32), np.zeros(0, np.int8)
    empty = Battles(names, names, names, names, names, nothing, nothing, nothing, nothing, nothing, none, none)
    return Tables(BenchFolder(path.parent), (), (table,), (), (), (), (), rows.problems, empty)


def _known_categories(battles: Battles, categories: Sequence[str]) -> None:
    unknown = [category for category in categories if category not in battles.categories]
    if unknown:
        raise DataError(f"no judgment is of category {', '.join(map(repr, unknown))}",
                        todo=f"categories that are there: {', '.join(battles.categories) or 'none'}")


def _of_judges(battles: Battles, judges: tuple[int, ...] | None) -> Battles:
    return battles if judges is None else compact(battles, np.isin(battles.judge, judges))


def _table(battles: Battles, options: Options, style: Style | None, pair: tuple[str, str] | None) -> Table:
    """A board with ranks and what it can show, or the comparison of two models.

    Without style control, and saying so, where that can't be had.
    """
    if options.style:
        try:
            return _ranked(battles, options, style, pair)
        except DataError as error:
            return _plain(_table(battles, replace(options, style=()), None, pair), error)
    try:
        return _ranked(battles, options, None, pair)
    except DataError as error:
        if pair is not None and battles.complete.any():
            raise  # the names that were typed
        return Table(options.category, _names(battles), None, error)


def _scored(battles: Battles, options: Options, style: Style | None) -> Table:
    """A board alone; as `_table` without style control where that can't be had."""
    try:
        board = leaderboard(battles, options, style)
    except DataError as error:
        if options.style:
            return _plain(_scored(battles, replace(options, style=()), None), error)
        return Table(options.category, _names(battles), None, error)
    return Table(options.category, _names(battles), board, questions=_most_questions(board))


def _plain(table: Table, error: DataError) -> Table:
    """A table without style control, that says why."""
    if table.board is None:
        return table
    said = f"without style control, as it can't be had: {error.what}"
    return replace(table, board=replace(table.board, warnings=(said, *table.board.warnings)))


def _ranked(battles: Battles, options: Options, style: Style | None, pair: tuple[str, str] | None) -> Table:
    found = scored(battles, options, style)
    table = Table(options.category, _names(battles), found.board, questions=_most_questions(found.board))
    if pair is not None:
        return replace(table, comparison=compare(battles, *pair, options, style))
    board, found_pairs = standing(found.board, battles, options, style, whole=found)
    places = [place for place, score in enumerate(board.scores) if not score.is_baseline and score.questions > 1]
    power = neighbours(found_pairs, places, options.confidence) if board.comparable else None
    return replace(table, board=board, detectable=power)


def _names(battles: Battles) -> tuple[str, ...]:
    return tuple(battles.judges[number] for number in np.unique(battles.judge))


def _most_questions(board: Board) -> int:
    return max((score.questions for score in board.scores), default=0)
