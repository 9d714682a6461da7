"""Records without their texts: only what counting needs is decoded.

Never guesses: a line that doesn't look exactly like one that flock-hpc writes is decoded whole."""

from __future__ import annotations

from collections.abc import Callable

import orjson

from automate.arena.counting.board import OWN, OWN_SHORT, Board
from automate.arena.verdict import ACCEPTED
from automate.journal import Record, parse_object

TEXTS = ("judgment", "reasoning", "game")
_TEXT, _AFTER, _THOUGHTS = b',"judgment":"', b'","seconds":', b',"reasoning":"'
_BEGIN, _VERDICT, _SHORT = b'{"source":"engine","key":"', b'","outcome":"verdict","label":"', b',"short":true'
_LABELS = frozenset(f'{label}"{_TEXT.decode()}'.encode() for label in ACCEPTED)
_SHORTER, _LONGER = sorted({len(label) for label in _LABELS})
_TAIL = 300
"""Most bytes that stand behind the text, as a rule."""

Took = Callable[[Record], None]

# Why the marks can't be found in a wrong place: a quote inside a JSON string is written \" , so each of the marks
# begins or ends a string where it stands. It may still stand in an inner object, but then what is cut off there
# has one brace too many or too few, and is not JSON.


def slim_record(line: bytes) -> Record:
    """A record without its texts (`TEXTS`). Raises ValueError where the line is no JSON object."""
    found = _pieces(line)
    if found is None:
        found = parse_object(line)
        for name in TEXTS:
            found.pop(name, None)
    return found


def _pieces(line: bytes) -> Record | None:
    cut = line.find(_TEXT)
    after = _behind(line, cut + len(_TEXT), len(line))
    if cut < 0 or after < 0 or not line.startswith(b'{"source":"engine"'):
        return None
    try:
        head, tail = orjson.loads(line[:cut] + b"}"), tail_of(line, after, len(line))
    except orjson.JSONDecodeError:
        return None
    return {**head, **tail} if isinstance(head, dict) and b"\0" not in line else None


def _behind(data: bytes, start: int, end: int) -> int:
    """Where the quote stands that ends the judge's text, or -1."""
    found = data.rfind(_AFTER, max(start, end - _TAIL), end)
    return found if found >= 0 else data.find(_AFTER, start, end)


def tail_of(data: bytes, after: int, end: int) -> Record:
    """What stands behind the judge's text, without the judge's thoughts. Raises JSONDecodeError."""
    cut = data.find(_THOUGHTS, after, end)
    if cut >= 0 and (data[end - 2:end] != b'"}' or data.find(b'","', cut + len(_THOUGHTS), end) >= 0):
        raise orjson.JSONDecodeError("thoughts that don't end the record", "", 0)
    tail: Record = orjson.loads(b"{" + data[after + 2:end if cut < 0 else cut] + (b"" if cut < 0 else b"}"))
    return tail


def take_lines(board: Board, data: bytes, end: int, took: Took | None = None) -> tuple[int, list[tuple[int, str]]]:
    """Take the lines of `data[:end]` in, which ends with a newline; how many they were, and the bad ones.

    A bad line is (its number among these, counted from 1; why). `took` is called with each record, without its texts.
    """
    quick = took is None and data.find(b"\0", 0, end) < 0
    bad: list[tuple[int, str]] = []
    start = number = 0
    while start < end:
        if quick:
            start, taken = _take_verdicts(board, data, start, end)
            number += taken
            if start >= end:
                break
        number += 1
        stop = data.find(b"\n", start, end)
        try:
            line = data[start:stop].rstrip(b"\r")
            if line.strip():
                record = slim_record(line)
                board.add(record)
                if took is not None:
                    took(record)
        except ValueError as error:
            bad.append((number, str(error)))
        start = stop + 1
    return number, bad


def _take_verdicts(board: Board, data: bytes, start: int, end: int) -> tuple[int, int]:
    """Take lines in that are exactly verdicts of wanted games as flock-hpc writes them; the place of the first one
    that is not, and how many there were before it."""
    find, rfind, starts, slot_of, codes = data.find, data.rfind, data.startswith, board.index.get, board.codes
    labels, verdict, taken, gap = _LABELS, _VERDICT, 0, 0
    while start < end:
        slot = slot_of(data[start + 26:start + 58])
        if slot is None or not starts(_BEGIN, start):
            break
        if not starts(verdict, start + gap):
            gap = find(verdict, start + 58, min(start + 2048, end)) - start
        label = start + gap + len(_VERDICT)
        stop = find(b"\n", label, end)
        if gap < 58 or (data[label:label + _SHORTER] not in labels and data[label:label + _LONGER] not in labels):
            break
        after = rfind(_AFTER, max(label, stop - _TAIL), stop)
        if after < 0:
            after = find(_AFTER, label + _SHORTER, stop)
        if after < 0 or data[stop - 1] != 125 or data[start + 58] != 34 or find(b"{", start + 1, label) >= 0:
            break
        if codes[slot] != OWN and codes[slot] != OWN_SHORT:
            codes[slot] = OWN if find(_SHORT, after, stop) < 0 else OWN_SHORT
        start = stop + 1
        taken += 1
    return start, taken
