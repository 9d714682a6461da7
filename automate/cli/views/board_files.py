"""A leaderboard for other programs: CSV, JSON, Markdown. Pure; numbers are whole, not rounded for show."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import asdict

from automate.cli.views.board_rows import UNICODE, rows_of
from automate.cli.views.board_text import heading, method
from automate.cli.views.cells import clean
from automate.cli.views.files import Json, cell, plain
from automate.results.boards import Comparison
from automate.results.scoring.published import Published
from automate.results.scoring.tables import Table, Tables

CSV_COLUMNS = ("category", "judges", "rank_low", "rank_high", "model", "score", "low", "high", "baseline", "games",
               "questions", "nulls", "flips")


def as_json(found: Tables) -> Json:
    """Everything as one document."""
    return plain({
        "bench": found.folder.bench, "judges": found.judges,
        "tables": [_table_json(table, found) for table in found.tables],
        "by_category": [_table_json(table, found) for table in found.split],
        "quality": [asdict(one) for one in found.quality],
        "agreement": [asdict(one) for one in found.agreement],
        "files": [asdict(one) for one in found.tallies],
        "notes": found.notes,
    })


def _table_json(table: Table, found: Tables) -> dict[str, object]:
    board = table.board
    if board is None:
        return {"category": table.category, "judges": table.judges, "problem": str(table.problem)}
    rows = [{**asdict(row.score), "rank_low": row.score.rank_low or None, "rank_high": row.score.rank_high or None,
             "nulls": row.nulls, "flips": row.flips}
            for row in rows_of(board, found.quality, found.tallies)]
    return {"category": table.category, "judges": board.judges, "baselines": board.baselines,
            "options": asdict(board.options), "questions": table.questions, "detectable": table.detectable,
            "scores": rows, "coefficients": dict(board.coefficients), "warnings": board.warnings,
            "notes": board.notes, "comparison": asdict(table.comparison) if table.comparison else None}


def as_csv(found: Tables) -> str:
    """All tables, one under the other, with their category and judges in each row."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for table in found.tables:
        for row in rows_of(table.board, found.quality, found.tallies) if table.board else ():
            score = row.score
            writer.writerow([
                cell(table.category or "all"), cell("+".join(table.judges)), *row.bounds, cell(score.model),
                f"{score.score:.4f}", f"{score.low:.4f}", f"{score.high:.4f}", int(score.is_baseline), score.games,
                score.questions, row.nulls, "" if row.flips is None else f"{row.flips:.4f}"])
    return out.getvalue()


def published_csv(rows: Sequence[Published]) -> str:
    """The columns of a v0.1 leaderboard, but those that a battles file can't give."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("model", "score", "rating_q025", "rating_q975", "CI"))
    writer.writerows((cell(row.model), row.score, row.low, row.high, row.interval) for row in rows)
    return out.getvalue()


def comparison_csv(comparisons: Sequence[Comparison]) -> str:
    """Comparisons, one a line."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = list(Comparison.__dataclass_fields__)
    writer.writerow(names)
    for one in comparisons:
        values = asdict(one)
        writer.writerow([cell(value) if isinstance(value := values[name], str) else value for name in names])
    return out.getvalue()


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>|#~$])", r"\\\1", clean(text))


def as_markdown(found: Tables) -> str:
    """The tables with their headings, for an issue or a note."""
    out: list[str] = []
    for table in found.tables:
        board = table.board
        if board is None:
            out += [_escaped(f"No table: {table.problem}"), ""]
            continue
        out += [f"**{_escaped(heading(table, board))}**", "", _escaped(method(board)), ""]
        if table.comparison is not None:
            one = table.comparison
            out += [f"{_escaped(one.first)} minus {_escaped(one.second)}: {one.difference:+.1f} points "
                    f"({one.low:+.1f} to {one.high:+.1f}), p = {one.p_value:.2g}, {one.questions:,} questions", ""]
            continue
        out += ["| rank | model | score | interval | games | nulls | flips |",
                "| ---: | --- | ---: | ---: | ---: | ---: | ---: |"]
        for row in rows_of(board, found.quality, found.tallies):
            score = row.score
            rest = ["", "", "", ""] if score.is_baseline else [
                f"{score.low:.1f}–{score.high:.1f}", f"{score.games:,}", "" if row.nulls is None else f"{row.nulls:,}",
                "" if row.flips is None else f"{row.flips:.0%}"]
            name = _escaped(score.model) + (" (baseline)" if score.is_baseline else "")
            out.append("| " + " | ".join([row.ranks(UNICODE.to), name, f"{score.score:.1f}", *rest]) + " |")
        out += ["", *(f"- {_escaped(text)}" for text in board.warnings), ""]
    return "\n".join(out).rstrip() + "\n"
