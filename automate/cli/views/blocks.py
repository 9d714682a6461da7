"""Parts of the live view and how they share a terminal's height: titles, tables, rows, and a line for what is left out.

Pure; knows nothing of campaigns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rich.text import Text

from automate.cli.views.cells import Column, cut, row, shortened, widths


@dataclass
class Block:
    """A titled part of the view, `rank` 0 being the most important.

    `rest` sums up the rows that are left out, from the n-th on; `least` rows are shown before a block of lower rank
    shows more than its own least.
    """

    title: Text
    rows: list[Text]
    rank: int
    least: int = 1
    rest: Callable[[int], str] = field(default=lambda shown: "")
    header: Text | None = None

    def wanted(self, rows: int) -> int:
        """Lines that the title, the header and so many rows take, and the line on what is left out."""
        rows = min(rows, len(self.rows))
        return 1 + (self.header is not None and rows > 0) + rows + (0 < rows < len(self.rows))

    def shown(self, room: int) -> list[Text]:
        """The block in at most `room` lines; nothing where there is no room for a row below its title."""
        if not self.rows:
            return [self.title][:room]
        head = [self.title] if self.header is None or room < 3 else [self.title, self.header]
        left = room - len(head)
        if left < 1:
            return []
        if len(self.rows) <= left:
            return [*head, *self.rows]
        if left == 1:
            return [*head, self.rows[0]]
        return [*head, *self.rows[:left - 1], Text("  " + self.rest(left - 1), "dim")]


def fit(blocks: Sequence[Block], width: int, height: int) -> list[Text]:
    """Blocks in their order within `height` lines of at most `width` cells.

    Everyone's least comes first, by rank; then, by rank again, as much as there is room for.
    """
    rooms = [0] * len(blocks)
    by_rank = sorted(range(len(blocks)), key=lambda i: blocks[i].rank)
    left = height
    for whole in (False, True):
        for i in by_rank:
            block = blocks[i]
            wanted = block.wanted(len(block.rows) if whole else block.least)
            more = min(left, max(0, wanted - rooms[i]))
            if rooms[i] + more < min(2, 1 + len(block.rows)):
                continue  # a title without a row says nothing
            rooms[i], left = rooms[i] + more, left - more
    lines = [line for block, room in zip(blocks, rooms, strict=True) for line in block.shown(room)]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def beside(one: list[Text], other: list[Text], width: int, gap: int) -> list[Text]:
    """Two lists of lines next to each other, the first one `width` cells wide."""
    out = []
    for i in range(max(len(one), len(other))):
        line = one[i].copy() if i < len(one) else Text()
        if i < len(other):
            line.append(" " * (width + gap - line.cell_len))
            line.append_text(other[i])
        out.append(line)
    return out


def titled(name: str, count: int, about: str = "", width: int = 10_000) -> Text:
    """A block's title, with how many things it has and a remark."""
    text = Text(f"{name} ({count})" if count else name, "bold")
    if about:
        text.append(cut("  " + about, max(0, width - text.cell_len)), "dim")
    return text


def table(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int) -> tuple[str, list[str]]:
    """A table's title line and rows, two cells in from the left and two between columns."""
    titles = [column.title for column in columns]
    sizes = widths(columns, [titles, *cells], width - 2)
    lines = ["  " + "  ".join(row(columns, sizes, one)).rstrip()
             for one in [titles, *shortened(columns, sizes, cells)]]
    return lines[0], lines[1:]


def ranges(numbers: Sequence[int], most: int = 6) -> str:
    """Numbers as ranges: 1-3, 7, 9."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    parts = ["-".join(map(str, run)) for run in runs]
    return ", ".join(parts[:most]) + (", ..." if len(parts) > most else "")
