"""Tables that fit a terminal: names are shortened in the middle and stay apart, lesser columns go first.

Pure but for the console that it prints to; nothing is cut where there is no terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from automate.cli.views.cells import Column, clean, row, shortened, widths

if TYPE_CHECKING:
    from rich.console import Console

Cell = str | tuple[str, str]
"""A text, or a text and its style."""
GAP = 2
WIDE = 10_000


def name(title: str, least: int = 12) -> Column:
    """A column of names."""
    return Column(title, least=least, how="middle")


def number(title: str, drop: int = 0) -> Column:
    """A column of numbers, never cut. drop: the higher, the sooner it goes where room is short; 0 stays."""
    return Column(title, "right", drop)


def word(title: str, drop: int = 0) -> Column:
    """A column of short words or ids, never cut."""
    return Column(title, drop=drop)


def show(console: Console, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
    """Print a table: titles, a line, rows. Texts are cleaned of what a terminal would obey."""
    from rich.text import Text

    texts = [[clean(cell if isinstance(cell, str) else cell[0]) for cell in one] for one in rows]
    titles = [column.title for column in columns]
    width = console.width if console.is_terminal else WIDE
    sizes = widths(columns, [titles, *texts], width, GAP)
    gap = " " * GAP
    console.print(Text(gap.join(row(columns, sizes, titles)).rstrip(), "bold"), soft_wrap=True)
    rule = "─" if console.encoding.lower().startswith("utf") else "-"
    console.print(Text(gap.join(rule * size for size in sizes if size), "dim"), soft_wrap=True)
    for cells, plain in zip(rows, shortened(columns, sizes, texts), strict=True):
        styles = [cell[1] if isinstance(cell, tuple) else "" for cell, size in zip(cells, sizes, strict=True) if size]
        line = Text(gap).join(Text(text, style) for text, style in
                              zip(row(columns, sizes, plain), styles, strict=True))
        line.rstrip()
        console.print(line, soft_wrap=True)
