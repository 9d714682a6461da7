"""A judge's text to one of the labels, or to a reason why not.

Never guesses: text without a label is unparsed, whatever it seems to say, and a label in a thought never counts."""

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
_OPENING = re.compile(r"^[ \t]*<think>", re.MULTILINE)
STILL_THINKING = "the judge was still thinking when its reply ended"
EMPTY = "the judge's reply is empty"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`label` is one of ACCEPTED, or None with the `reason`; `short` marks `[[A]]` and `[[B]]`."""

    label: str | None
    short: bool = False
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """A text taken apart. Only `answer` can hold a verdict.

    `unclosed`: it ended inside a thought; `headless`: a thought ended that nothing had opened, as chat templates do
    that begin the reply inside of it.
    """

    answer: str
    thoughts: str = ""
    unclosed: bool = False
    headless: bool = False


def take_apart(text: str | None) -> Said:
    """A judge's text as thoughts (up to the last `</think>`, and from a `<think>` at a line's start on) and answer."""
    if text is None:
        return Said("")
    before, closed, after = text.rpartition(_THINK_END)
    headless = bool(closed) and _THINK_START not in before
    opening = _OPENING.search(after)
    if opening is None:
        return Said(after if not closed else after.lstrip(), _bare(before), headless=headless)
    thoughts = "\n".join(part for part in (_bare(before), after[opening.end():].strip()) if part)
    return Said(after[: opening.start()].strip(), thoughts, unclosed=True, headless=headless)


def _bare(thought: str) -> str:
    return thought.strip().removeprefix(_THINK_START).strip()


def _last(pattern: re.Pattern[str], text: str) -> str | None:
    found = None
    for match in pattern.finditer(text):
        found = match.group(1)
    return found


def read_verdict(text: str | None) -> Verdict:
    """Read a judge's verdict: after the last `</think>`, upper-cased, last match of the first pattern that matches."""
    if text is None or not text.strip():
        return Verdict(None, reason=EMPTY)
    apart = take_apart(text)
    return Verdict(None, reason=STILL_THINKING) if apart.unclosed else read_answer(apart.answer)


def read_answer(text: str) -> Verdict:
    """`read_verdict` of a text that has no thoughts in it."""
    said = text.upper()
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
