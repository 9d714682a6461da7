"""A leaderboard as lines for a terminal or a pipe: what it is, the table, what it can show, what makes it unsafe.

Pure; colours are in the lines, and are dropped where there is no terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.text import Text

from automate.cli.views.board_rows import Row, Signs, axis, picture, rows_of
from automate.cli.views.cells import Column, clean, fold, row, shortened, widths
from automate.results.boards import Agreement, Board, Comparison, Quality
from automate.results.reading.messages import causes, many
from automate.results.scoring.tables import Table, Tables

WIDEST = 110
"""Sentences are folded at this width, where there is more room."""

MOST_SAID = 12
"""Warnings, and remarks on files, that are shown; more of them are counted."""

_PICTURE = (12, 32)
_NAME = 60
"""Cells of a model's name, however much room there is; CSV and JSON have it whole."""
_COLUMNS = (
    Column("", least=1),
    Column("rank", "right"),
    Column("model", least=16, most=_NAME, how="middle"),
    Column("score", "right"),
    Column("interval", "right", drop=2),
    Column("games", "right", drop=4),
    Column("nulls", "right", drop=5),
    Column("flips", "right", drop=3),
)


def lines(found: Tables, width: int, signs: Signs) -> list[Text]:
    """Everything that is said by default."""
    out: list[Text] = []
    for table in found.tables:
        out += [*_table(table, found, width, signs), Text()]
    if found.split:
        out += [*_split(found, width, signs), Text()]
    out += [_folded(text, width) for text in _quality_lines(found.quality)]
    out += [_folded(_agreement(one), width) for one in found.agreement]
    out += _said(found, width)
    return [line for line, before in zip(out, [Text(), *out], strict=False) if line.plain or before.plain]


def _folded(text: str, width: int, first: str = "", style: str = "") -> Text:
    return Text("\n".join(fold(clean(text), min(width, WIDEST), " " * len(first), first)), style)


def heading(table: Table, board: Board) -> str:
    """What a table is of."""
    against = " and ".join(clean(name) for name in board.baselines)
    category = "" if table.category is None else f"category {clean(table.category)}: "
    count = sum(not score.is_baseline for score in board.scores)
    judges = f", judged by {' and '.join(map(clean, board.judges))}" if board.judges else ""
    return f"{category}{many(count, 'model')} against {against}{judges} on {many(table.questions, 'question')}"


def method(board: Board) -> str:
    """How its numbers came to be."""
    options = board.options
    style = f"; style controlled ({' and '.join(options.style)})" if options.style else ""
    return (f"Score in percent, 50: as good as the baseline{style}. Interval: {options.confidence:g}%, "
            f"{options.rounds:,} rounds over questions, seed {options.seed}. Strong verdicts count "
            f"{options.strong_weight:g} times.")


def _table(table: Table, found: Tables, width: int, signs: Signs) -> list[Text]:
    board = table.board
    if board is None:
        what = f"category {clean(table.category)}: " if table.category else ""
        return [_folded(f"{what}no table: {table.problem}", width, "! ", "red")]
    out = [_folded(heading(table, board), width, style="bold"), _folded(method(board), width, style="dim"), Text()]
    if table.comparison is not None:
        return [*out, *_comparison(table.comparison, board.options.confidence, width)]
    out += [*_rows(rows_of(board, found.quality, found.tallies), width, signs), Text()]
    return out + _below(table, board, width)


def _below(table: Table, board: Board, width: int) -> list[Text]:
    """What the table can show, and how it is to be read."""
    out = []
    if table.detectable is None and board.comparable and sum(not score.is_baseline for score in board.scores) > 1:
        out.append(_folded("Smallest difference between neighbours that can be shown: that can't be said from so few "
                           "or such uniform verdicts.", width))
    elif table.detectable is not None:
        out.append(_folded(f"Smallest difference between neighbours that {many(table.questions, 'question')} can "
                           f"show: about {table.detectable:.1f} points (80% power).", width))
    if any(score.rank_high > score.rank_low for score in board.scores):
        out.append(_folded("A range of ranks: these the model may hold; models within a bracket can't all be told "
                           "apart.", width, style="dim"))
    if board.coefficients:
        each = ", ".join(f"{clean(name)} {value:+.2f}" for name, value in board.coefficients.items())
        out.append(_folded(f"Style coefficients: {each}.", width))
    return out


def _cells(one: Row, signs: Signs) -> list[str]:
    bracket = getattr(signs, one.group) if one.group else ""
    if one.score.is_baseline:
        return [bracket, one.ranks(signs.to), f"{one.model} {signs.mark} baseline", f"{one.score.score:.1f}", "", "",
                "", ""]
    return [bracket, one.ranks(signs.to), one.model, f"{one.score.score:.1f}",
            f"{one.score.low:.1f}{signs.to}{one.score.high:.1f}", f"{one.score.games:,}",
            "" if one.nulls is None else f"{one.nulls:,}", "" if one.flips is None else f"{one.flips:.0%}"]


def _rows(rows: Sequence[Row], width: int, signs: Signs) -> list[Text]:
    """Title and rows, with a picture of the intervals where there is room."""
    cells = [_cells(one, signs) for one in rows]
    titles = [column.title for column in _COLUMNS]
    sizes = widths(_COLUMNS, [titles, *cells], width)
    used = sum(sizes) + 2 * (sum(size > 0 for size in sizes) - 1)
    room = min(_PICTURE[1], width - used - 2)
    bounds = axis([one.score for one in rows])
    out = [Text("  ".join(row(_COLUMNS, sizes, titles)).rstrip(), "bold")]
    for one, texts in zip(rows, shortened(_COLUMNS, sizes, cells), strict=True):
        line = Text("  ".join(row(_COLUMNS, sizes, texts)), "cyan" if one.score.is_baseline else "")
        if room >= _PICTURE[0]:
            shown = Text("  " + picture(one.score, bounds, room, signs))
            shown.highlight_words([signs.dot], "bold green")
            shown.highlight_words([signs.level], "dim")
            line.append_text(shown)
        line.rstrip()
        out.append(line)
    return out


def _split(found: Tables, width: int, signs: Signs) -> list[Text]:
    """Scores of each category side by side, in the order of the table over all."""
    board = found.tables[0].board
    names = [score.model for score in board.scores if not score.is_baseline] if board else list(found.battles.models)
    columns = [Column("model", least=16, most=_NAME, how="middle"),
               *(Column(clean(table.category or ""), "right", least=6) for table in found.split)]
    cells = [[clean(name), *(_split_cell(table, name, signs) for table in found.split)] for name in names]
    titles = [column.title for column in columns]
    sizes = widths(columns, [titles, *cells], width)
    out = [_folded(_split_title(found), width, style="bold"),
           Text("  ".join(row(columns, sizes, titles)).rstrip(), "bold")]
    out += [Text("  ".join(row(columns, sizes, one)).rstrip()) for one in shortened(columns, sizes, cells)]
    return out + [_folded(f"category {table.category}: {table.problem}", width, "! ", "red")
                  for table in found.split if table.problem is not None]


def _split_title(found: Tables) -> str:
    """What the categories' scores are against: one baseline for all, or each its own."""
    baselines = dict.fromkeys(name for table in found.split if table.board for name in table.board.baselines)
    one = all(len(table.board.baselines) == 1 for table in found.split if table.board)
    against = f"against {clean(next(iter(baselines)))}" if len(baselines) == 1 else \
        "each against its own baseline" if one else "against several baselines"
    return f"By category, {against}: score and interval"


def _split_cell(table: Table, model: str, signs: Signs) -> str:
    score = table.board.score_of(model) if table.board else None
    if score is None:
        return signs.none
    return f"{score.score:.1f}" if score.is_baseline else \
        f"{score.score:.1f} ({score.low:.1f}{signs.to}{score.high:.1f})"


def _comparison(found: Comparison, confidence: float, width: int) -> list[Text]:
    one, two = clean(found.first), clean(found.second)
    sure = found.low > 0 or found.high < 0
    better = one if found.difference > 0 else two
    verdict = f"{better} is better." if sure else "They can't be told apart."
    if not math.isfinite(found.difference):
        return [_folded(f"{one} minus {two}: no difference can be given on {many(found.questions, 'question')}.",
                        width, style="bold")]
    power = f"They can show a difference of about {found.detectable:.1f} points (80% power)." \
        if found.detectable is not None else ("Which difference they can show can't be said from so few or such "
                                              "uniform verdicts.")
    return [
        _folded(f"{one} minus {two}: {found.difference:+.1f} points, {confidence:g}% interval {found.low:+.1f} to "
                f"{found.high:+.1f}, p = {found.p_value:.2g}. {verdict}", width, style="bold"),
        _folded(f"Of {many(found.questions, 'question')} that both have, {one} is ahead on {found.wins:,}, {two} on "
                f"{found.losses:,}, level on {found.ties:,}. {power}", width)]


def _quality_lines(quality: Sequence[Quality]) -> list[str]:
    """One line a judge."""
    out = []
    for one in quality:
        if one.model is None and one.games:
            length = "" if one.length_correlation is None else (
                f"; verdicts and length correlate at {one.length_correlation:+.2f}")
            nulls = causes(one.nulls)
            orders = "" if not one.questions else (
                f"the two orders agree on {one.agreement:.1%} of questions, flip on {one.flips:.1%}; ")
            out.append(f"Judge {one.judge}: {orders}of {many(one.games, 'game')} the first place wins "
                       f"{one.first_wins:.1%}, the second {one.second_wins:.1%}, ties {one.ties:.1%}; "
                       + (f"without a verdict: {nulls}" if nulls else "none without a verdict") + length + ".")
    return out


def _agreement(one: Agreement) -> str:
    if not one.games:
        return f"Judges {one.first} and {one.second} have judged no game in common."
    return (f"Judges {one.first} and {one.second} name the same winner in {one.agreement:.1%} of "
            f"{many(one.games, 'game')} (kappa {one.kappa:.2f}).")


def _said(found: Tables, width: int) -> list[Text]:
    """Warnings, then notes, each once; files by their place in the bench's folder."""
    boards = [table.board for table in (*found.tables, *found.split) if table.board is not None]
    warnings = dict.fromkeys([text for board in boards for text in board.warnings]
                             + [text for one in found.quality for text in one.warnings])
    notes = dict.fromkeys(text.replace(f"{found.folder.path}/", "")
                          for text in (*found.notes, *(text for board in boards for text in board.notes)))
    out = [Text(), *_listed(list(warnings), "! ", "yellow", "warning", width)] if warnings else []
    if notes:
        out += [Text(), _folded(f"Read from {found.folder.path}:", width, style="dim")]
        out += _listed(list(notes), "- ", "dim", "remark", width)
    return out


def _listed(texts: Sequence[str], first: str, style: str, what: str, width: int) -> list[Text]:
    """The first texts, and how many more there are."""
    more = len(texts) - MOST_SAID
    rest = [f"and {many(more, f'more {what}')}; --json has all of them"] if more > 0 else []
    return [_folded(text, width, first, style) for text in [*texts[:MOST_SAID], *rest]]


def tally_lines(found: Tables, width: int) -> list[Text]:
    """What was read of each model, for where there is no score to show."""
    columns = (Column("model", least=16, most=_NAME, how="middle"), Column("judge", least=8), Column("rows", "right"),
               Column("games without a verdict", least=12))
    cells = [[clean(one.model), clean(one.judge), f"{one.rows:,}", causes(one.nulls) or "none"]
             for one in found.tallies]
    titles = [column.title for column in columns]
    sizes = widths(columns, [titles, *cells], width)
    return [Text("  ".join(row(columns, sizes, one)).rstrip(), "bold" if one is titles else "")
            for one in [titles, *shortened(columns, sizes, cells)]]
