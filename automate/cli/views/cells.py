"""Texts in a terminal's cells: cleaned of what a terminal would obey, cut, padded, folded, put into columns.

Pure; a wide character takes two cells, and no line is ever wider than it was asked to be."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from rich.cells import cell_len, set_cell_size

T = TypeVar("T")
ELLIPSIS = "…"
_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def clean(text: str) -> str:
    """One line without control characters, escapes, text direction marks and the like; they become `?`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join("?" if unicodedata.category(char) in _UNSEEN and char not in "\n\t" else char
                   for char in text).replace("\n", " ").replace("\t", " ")


def writable(signs: T, plain: T, encoding: str) -> T:
    """`signs`, a dataclass of characters, or `plain` where the encoding can't write them."""
    try:
        "".join(vars(signs).values()).encode(encoding)
    except (UnicodeError, LookupError):
        return plain
    return signs


def cut(text: str, width: int, ellipsis: str = ELLIPSIS) -> str:
    """At most `width` cells, with an ellipsis at the end where something is left out."""
    if cell_len(text) <= width:
        return text
    room = width - cell_len(ellipsis)
    return set_cell_size(text, room).rstrip() + ellipsis if room >= 0 else ""


def middle(text: str, width: int, ellipsis: str = ELLIPSIS) -> str:
    """At most `width` cells, with an ellipsis in the middle: names often differ at both ends."""
    if cell_len(text) <= width:
        return text
    room = width - cell_len(ellipsis)
    if room < 2:
        return cut(text, width, ellipsis)
    tail = room * 3 // 5
    back = set_cell_size(text[::-1], tail)[::-1]
    return set_cell_size(text, room - tail) + ellipsis + back


def apart(names: Sequence[str], width: int, ellipsis: str = ELLIPSIS) -> list[str]:
    """Names in at most `width` cells each, different ones staying different where there is room for that.

    Shortened in the middle; where that makes several alike, what they have in common is left out instead, and what is
    still alike is numbered.
    """
    found = {name: middle(name, width, ellipsis) for name in names}
    alike: dict[str, list[str]] = {}
    for name, short in found.items():
        alike.setdefault(short, []).append(name)
    for group in alike.values():
        if len(group) > 1:
            found.update(zip(group, _different(group, width, ellipsis), strict=True))
    return [found[name] for name in names]


def _different(names: Sequence[str], width: int, ellipsis: str) -> list[str]:
    """Short forms of names that are alike when shortened in the middle: the part that differs stays whole."""
    start = _common(names)
    end = _common([name[start:][::-1] for name in names])
    cores = [name[start:len(name) - end] for name in names]
    room = width - max(map(cell_len, cores))
    if room < 1:
        return [cut(core, width - len(f" {place}"), ellipsis) + f" {place}" for place, core in enumerate(cores, 1)]
    first, last = names[0][:start], names[0][len(names[0]) - end:]
    head = cut(first, max(room // 2, room - cell_len(last)), ellipsis)
    left = room - cell_len(head)
    tail = last if cell_len(last) <= left else (ellipsis + set_cell_size(last[::-1], left - 1)[::-1]) if left else ""
    return [head + core + tail for core in cores]


def _common(names: Sequence[str]) -> int:
    """How many characters all of them begin with."""
    return next((at for at, chars in enumerate(zip(*names, strict=False)) if len(set(chars)) > 1), min(map(len, names)))


def pad(text: str, width: int, align: Literal["left", "right"] = "left") -> str:
    """Exactly `width` cells, where the text is not wider already."""
    space = " " * max(0, width - cell_len(text))
    return space + text if align == "right" else text + space


def fold(text: str, width: int, indent: str = "", first: str | None = None) -> list[str]:
    """Words on lines of at most `width` cells; lines begin with `indent`, the first with `first`. Long words are cut
    into pieces."""
    lines, line, empty = [], first if first is not None else indent, True
    words = text.split()[::-1]
    while words:
        word = words.pop()
        if cell_len(line) + cell_len(word) + (not empty) <= width:
            line, empty = line + ("" if empty else " ") + word, False
            continue
        if empty:
            piece = _piece(word, max(2, width - cell_len(line)))
            line, word = line + piece, word[len(piece):]
        lines.append(line)
        line, empty = indent, True
        words += [word] if word else []
    return [*lines, line] if not empty else lines


def _piece(word: str, width: int) -> str:
    """The beginning of a word that fits into `width` cells; at least one character."""
    count = 1
    while count < len(word) and cell_len(word[:count + 1]) <= width:
        count += 1
    return word[:count]


@dataclass(frozen=True)
class Column:
    """A column of a table. Columns of the highest `drop` go first where room is short; 0 stays."""

    title: str
    align: Literal["left", "right"] = "left"
    drop: int = 0
    least: int = 0
    most: int = 10_000
    how: Literal["cut", "middle"] = "cut"


def shortened(columns: Sequence[Column], sizes: Sequence[int], rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Rows whose names, in columns that are shortened in the middle, fit and stay apart."""
    shown = [list(one) for one in rows]
    for at, (column, size) in enumerate(zip(columns, sizes, strict=True)):
        if column.how == "middle" and size:
            for one, text in zip(shown, apart([one[at] for one in rows], size), strict=True):
                one[at] = text
    return shown


def widths(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int, gap: int = 2) -> list[int]:
    """A width for each column, 0 for one that is dropped, so that all fit into `width` cells.

    Columns shrink to their `least` before any is dropped; the widest of those that can shrink shrinks first.
    """
    wanted = [min(column.most, max([cell_len(column.title), *(cell_len(row[i]) for row in rows)]))
              for i, column in enumerate(columns)]
    kept = set(range(len(columns)))
    for drop in [None, *sorted({column.drop for column in columns if column.drop}, reverse=True)]:
        kept -= {i for i in kept if drop is not None and columns[i].drop == drop}
        least = sum(min(wanted[i], columns[i].least or wanted[i]) for i in kept) + gap * (len(kept) - 1)
        if least <= width:
            break
    found = [wanted[i] if i in kept else 0 for i in range(len(columns))]
    while sum(found) + gap * (len(kept) - 1) > width:
        slack = [(found[i] - (columns[i].least or found[i]), i) for i in kept]
        most, place = max(slack)
        if most <= 0:
            most, place = max((found[i], i) for i in kept)  # too narrow for anything: cut the widest
            if most <= 1:
                break
        found[place] -= 1
    return found


def row(columns: Sequence[Column], sizes: Sequence[int], cells: Sequence[str]) -> list[str]:
    """A row's cells, cut and padded to their sizes; dropped columns are left out."""
    out = []
    for column, size, cell in zip(columns, sizes, cells, strict=True):
        if size:
            short = middle(cell, size) if column.how == "middle" else cut(cell, size)
            out.append(pad(short, size, column.align))
    return out
