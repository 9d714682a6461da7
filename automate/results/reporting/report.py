"""Writes the report: one HTML page with leaderboard, categories, curves, quality of the judge and the games themselves.

Reads a bench folder and writes one file; asks no network, and the same data and settings give the same page."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from automate.errors import FlockError, StorageError
from automate.results.battles import Battles, Judgments, Style
from automate.results.boards import Board, Comparison, Options
from automate.results.reading.folder import BenchFolder
from automate.results.reading.judgments import read_judgments
from automate.results.reading.style import read_style
from automate.results.reporting.content import Content, CurvesPart, FileHash, PackedGames, Provenance
from automate.results.reporting.curves import curves_part
from automate.results.reporting.facts import statistics
from automate.results.reporting.output import target
from automate.results.reporting.pack import ROOM, Sources, pack_games
from automate.results.reporting.page import render
from automate.results.reporting.summary import contenders, summarize, warn
from automate.results.scoring.compare import compare, ranked
from automate.results.scoring.intervals import chosen
from automate.results.scoring.quality import judge_agreement, judge_quality
from automate.results.scoring.scores import Scored, scored
from automate.settings_results import Curves

STYLES = ("length", "markdown")


@dataclass(frozen=True)
class Extent:
    """What of the data goes into a page, beside what the options say.

    `games`: at most so many questions a model, None for all; `room`: bytes that their texts may take in the page, None
    for no bound. `style`: features of the style-controlled board, empty for none. `baseline`: only games against it.
    `models`: only these, None for all that were judged.
    """

    games: int | None = None
    room: int | None = ROOM
    style: tuple[str, ...] = STYLES
    baseline: str | None = None
    models: tuple[str, ...] | None = None
    curves: Curves = field(default_factory=Curves)


def write_report(folder: BenchFolder, judges: Sequence[str], output: Path, options: Options,
                 provenance: Provenance | None = None, *, extent: Extent | None = None,
                 made: datetime | None = None) -> Path:
    """Write the page to `output` (replaced whole) and return that path.

    `made` is the date that the page shows (now). Raises DataError where no judgment can be read, the category is
    unknown or `output` is what the page is made from or no file, StorageError where the page can't be written.
    """
    goal = target(output, (folder.path,))
    content = report_content(folder, judges, options, provenance or Provenance(), extent or Extent(),
                             made or datetime.now(UTC))
    goal.write(render(content).encode())
    return output


def report_content(folder: BenchFolder, judges: Sequence[str], options: Options, provenance: Provenance,
                   extent: Extent, made: datetime) -> Content:
    """All that the page says, read and computed."""
    judgments = read_judgments(folder, judges, extent.models, baseline=extent.baseline)
    battles = judgments.battles
    chosen(battles, options)  # an unknown category is an error, not an empty page
    style = read_style(folder, [*battles.models, *battles.baselines], battles.questions)
    plain, why = _scored(battles, replace(options, style=()), None)
    board = plain.board
    styled, styled_why = _styled(battles, replace(options, style=extent.style), style, board)
    quality = judge_quality(_of_category(battles, options), style, () if options.category else judgments.tallies)
    by_category = {} if options.category else _by_category(battles, options)
    comparison = _compare(battles, board, options)
    curves, curves_why = _curves(battles, options, extent.curves, plain)
    return Content(
        bench=folder.bench, made=f"{made:%-d %B %Y, %H:%M %Z}".strip(), board=board, styled=styled,
        summary=summarize(board, comparison, styled, by_category), styled_why=styled_why, by_category=by_category,
        warnings=(*([why] if why else []), *warn([one for one in (board, styled) if one], quality)), quality=quality,
        agreement=judge_agreement(battles) if len(battles.judges) > 1 else (), comparison=comparison, curves=curves,
        curves_why=curves_why, games=_games(folder, judgments, board, options, extent),
        provenance=replace(provenance, groups=(*provenance.groups, *statistics(options, extent.style, styled))),
        files=hashes(folder, judges, battles.models, extent.baseline), notes=_notes(folder, board, judgments))


def _notes(folder: BenchFolder, board: Board, judgments: Judgments) -> tuple[str, ...]:
    """What was odd, with files named below the bench's folder: the page is read elsewhere."""
    told = dict.fromkeys((*board.notes, *judgments.notes))
    return tuple(note.replace(f"{folder.path}/", "") for note in told)


def _scored(battles: Battles, options: Options, style: Style | None) -> tuple[Scored, str]:
    """The leaderboard with ranks, or an empty one and the reason why there is none."""
    try:
        found = scored(battles, options, style)
        return replace(found, board=ranked(found, battles, options, style)), ""
    except FlockError as error:
        return Scored(Board((), options, battles.baselines, battles.judges), np.zeros((0, 0))), error.what


def _styled(battles: Battles, options: Options, style: Style, plain: Board) -> tuple[Board | None, str]:
    if not options.style or not plain.scores:
        return None, ""
    if not any(np.isfinite(style.counts[model]).any() for model in battles.models):
        return None, "No style-controlled scores: the answers' metadata (lengths, markdown) are not in the data."
    found, why = _scored(battles, options, style)
    board = found.board
    return (board, "") if board.scores else (None, f"No style-controlled scores: {why}.")


def _of_category(battles: Battles, options: Options) -> Battles:
    if options.category not in battles.categories:
        return battles
    return battles.take(battles.category == battles.categories.index(options.category))


def _by_category(battles: Battles, options: Options) -> dict[str, Board]:
    """A board for each category that has scores, where there are several."""
    names = [battles.categories[index] for index in np.unique(battles.category)]
    if len(names) < 2:
        return {}
    boards = {name: _scored(battles, replace(options, category=name, style=()), None)[0].board for name in names}
    return {name: board for name, board in boards.items() if board.scores}


def _compare(battles: Battles, board: Board, options: Options) -> Comparison | None:
    """The best model and the second."""
    scores = contenders(board)
    if len(scores) < 2 or not board.comparable:
        return None
    try:
        return compare(battles, scores[0].model, scores[1].model, replace(options, style=()))
    except FlockError:
        return None


def _curves(battles: Battles, options: Options, settings: Curves, plain: Scored) -> tuple[CurvesPart | None, str]:
    if not plain.board.scores:
        return None, ""
    try:
        return curves_part(battles, replace(options, style=()), settings, plain), ""
    except FlockError as error:
        return None, f"No curves: {error.what}"


def _games(folder: BenchFolder, judgments: Judgments, board: Board, options: Options, extent: Extent) -> PackedGames:
    """Games of all models, in the board's order."""
    battles = judgments.battles
    order = [score.model for score in board.scores]
    models = [*(name for name in order if name in battles.models),
              *(name for name in battles.models if name not in order)]
    files = {model: [(place, path) for place, judge in enumerate(battles.judges)
                     for path in folder.judgment_files(judge, extent.baseline) if path.name == f"{model}.jsonl"]
             for model in models}
    baselines = tuple(name for name in battles.baselines if folder.answer_file(name))
    sources = Sources(folder, battles.judges, files, baselines, extent.baseline, options.category)
    return pack_games(sources, extent.games, extent.room)


def hashes(folder: BenchFolder, judges: Sequence[str], models: Sequence[str],
           baseline: str | None = None) -> tuple[FileHash, ...]:
    """Names, sizes and SHA-256 of the files that the numbers of these models come from. Raises StorageError."""
    judged = [path for judge in judges for path in folder.judgment_files(judge, baseline)
              if path.name.removesuffix(".jsonl") in models]
    answers = [path for name in models if (path := folder.answer_file(name)) is not None]
    there = [path for path in (folder.questions, *answers, *judged) if path.is_file()]
    return tuple(_hash(path, folder.path) for path in there)


def _hash(path: Path, top: Path) -> FileHash:
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
            return FileHash(str(path.relative_to(top)), file.tell(), digest.hexdigest())
    except OSError as error:
        raise StorageError.of(error, path, "read it") from error
