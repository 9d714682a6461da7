"""Which letter a model's text answers with: one that stands alone, the last of several.

Never guesses: lower case, look-alikes of other alphabets and letters inside of words are no answers."""

from __future__ import annotations

import re
import unicodedata

_LETTER = re.compile("[A-Z]")
_JOINS = frozenset(("Lu", "Ll", "Lt", "Lm", "Mn", "Mc", "Me", "Nd", "Nl", "No"))
"""Next to one of these a letter is part of something longer. Letters without case (Lo: Chinese, Arabic, Thai) are not
among them, as such scripts put no space before a letter."""
_LINKS = frozenset("'’-‐‑")
"""Between two letters or digits these make one word: A's, A-level."""


def last_letter(text: str, letters: str) -> str | None:
    """The last of `letters` (capitals) that stands alone in the text; None where none does."""
    found = [match.group() for match in _LETTER.finditer(text)
             if match.group() in letters and _alone(text, match.start())]
    return found[-1] if found else None


def _alone(text: str, at: int) -> bool:
    return not _joined(text, at, -1) and not _joined(text, at, 1)


def _joined(text: str, at: int, step: int) -> bool:
    """Whether what is next to the letter, on the left (-1) or right (1), makes it part of a word or number."""
    near, far = _category(text, at + step), _category(text, at + 2 * step)
    if near in _JOINS:
        return True
    beside = at + step
    return 0 <= beside < len(text) and text[beside] in _LINKS and far in _JOINS


def _category(text: str, at: int) -> str:
    return unicodedata.category(text[at]) if 0 <= at < len(text) else ""
