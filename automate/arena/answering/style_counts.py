"""What style control needs to know of an answer: tokens, headings, list items and bold text, counted as upstream does.

Never decides which tokenizer counts; it is given the number."""

from __future__ import annotations

import re

_FENCED = re.compile(r"```([^`]*)```")
_HEADINGS = {f"h{depth}": re.compile(rf"^#{{{depth}}}\s", re.MULTILINE) for depth in range(1, 7)}
_LISTS = {"ordered": re.compile(r"^\s*\d+\.\s", re.MULTILINE), "unordered": re.compile(r"^\s*[-*+]\s", re.MULTILINE)}
_BOLD = {"**": re.compile(r"\*\*[^*\n]+\*\*"), "__": re.compile(r"__[^_\n]+__")}


def without_code(text: str) -> str:
    """The text without what stands in its fenced blocks, wherever else the same text stands; the fences stay."""
    for inside in _FENCED.findall(text):
        text = text.replace(inside, "")
    return text


def _count(patterns: dict[str, re.Pattern[str]], text: str) -> dict[str, int]:
    return {name: sum(1 for _ in pattern.finditer(text)) for name, pattern in patterns.items()}


def counts(text: str, tokens: int) -> dict[str, object]:
    """The `metadata` of one answer, in upstream's keys and order (lmarena/arena-hard-auto @ 196f6b8)."""
    plain = without_code(text)
    return {"token_len": tokens, "header_count": _count(_HEADINGS, plain), "list_count": _count(_LISTS, plain),
            "bold_count": _count(_BOLD, plain)}
