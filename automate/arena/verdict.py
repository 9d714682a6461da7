"""A judge's text to one of the labels, or to a reason why not.

Never guesses: text without a label is unparsed, whatever it seems to say."""

from __future__ import annotations

import re
from dataclasses import dataclass

LABELS = ("A>>B", "A>B", "A=B", "B>A", "B>>A")
"""The five labels that a judge is asked for."""

ACCEPTED = frozenset((*LABELS, "B=A", "A<B", "A<<B", "B<A", "B<<A"))
"""The ten spellings that upstream's leaderboard can score."""

SHORT = {"A": "A>B", "B": "B>A"}
"""What `[[A]]` and `[[B]]` in double brackets count as."""

PATTERNS = (r"\[\[([AB<>=]+)\]\]", r"\[([AB<>=]+)\]")
"""Upstream's patterns (arena-hard-v2.0.yaml), tried in this order on upper-cased text."""

_DOUBLE, _SINGLE = (re.compile(pattern) for pattern in PATTERNS)
_THINK_START, _THINK_END = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`label` is one of ACCEPTED, or None with the `reason`; `short` marks `[[A]]` and `[[B]]`."""

    label: str | None
    short: bool = False
    reason: str | None = None


def _last(pattern: re.Pattern[str], text: str) -> str | None:
    found = None
    for match in pattern.finditer(text):
        found = match.group(1)
    return found


def read_verdict(text: str | None) -> Verdict:
    """Read a judge's verdict: after the last `</think>`, upper-cased, last match of the first pattern that matches."""
    if text is None or not text.strip():
        return Verdict(None, reason="the judge's reply is empty")
    end = text.rfind(_THINK_END)
    if end < 0 and text.lstrip().startswith(_THINK_START):
        return Verdict(None, reason="the judge was still thinking when its reply ended")
    said = (text[end + len(_THINK_END):] if end >= 0 else text).upper()
    double = _last(_DOUBLE, said)
    if double is not None:
        if double in SHORT:
            return Verdict(SHORT[double], short=True)
        if double in ACCEPTED:
            return Verdict(double)
        return Verdict(None, reason=f"[[{double}]] is not a label")
    single = _last(_SINGLE, said)
    if single is None:
        return Verdict(None, reason="no label in the judge's reply")
    if single in ACCEPTED:
        return Verdict(single)
    return Verdict(None, reason=f"[{single}] in single brackets is not a label")
