"""Questions whose answer is a word, a name or a number, written out by the model.

Never judges meaning: two answers are the same where they are the same text once both are normalised."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import ClassVar

from automate.pools.kinds.base import Asked, Question, choice_setting, whole_setting
from automate.pools.kinds.columns import Mapped

_NUMBER = re.compile(r"(?<![0-9.])[-\u2212]?(?:\.[0-9]+|[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?")


class ExactMatch(Mapped):
    """The columns question and answer, or those that Columns names."""

    name = "exact-match"
    description = "Questions with one right answer, compared as normalised text or as a number"
    system_prompt = "Answer the question. Reply with the answer alone, without an explanation."
    meanings: ClassVar[Mapping[str, str]] = {
        **Mapped.meanings,
        "Normalise": "text (default): case, width, spaces and punctuation at the ends don't count. exact: spaces at "
                     "the ends don't. number: the last number of the answer counts, and nothing else",
        "MaxTokens": "tokens of an answer, 1 to 4096; 64 by default",
    }

    def __init__(self, settings: Mapping[str, object]) -> None:
        super().__init__(settings)
        self._normal = _NORMALS[choice_setting(settings, "Normalise", tuple(_NORMALS))]
        self._tokens = whole_setting(settings, "MaxTokens", 64, 1, 4096)

    def row(self, raw: Mapping[str, object]) -> Question:
        answer = self.text(raw, "answer")
        if not self._normal(answer):
            raise ValueError(f"{self.column('answer')!r} says nothing that could be compared: {answer!r:.80}")
        return Question(self.context(raw), self.text(raw, "question"), (), answer)

    def ask(self, question: Question) -> Asked:
        context = f"Context: {question.context}\n" if question.context else ""
        return Asked(self.messages(f"{context}Question: {question.question}"), "generate", (), self._tokens)

    def retrieve(self, text: str, question: Question) -> str:
        """The right answer itself where the text is the same as it, else the text as it was compared ("" for nothing).
        """
        said = self._normal(text)
        return question.result if said == self._normal(question.result) else said


def _text(text: str) -> str:
    words = unicodedata.normalize("NFKC", text).casefold().split()
    joined = " ".join(words)
    first, last = 0, len(joined)
    while first < last and _quiet(joined[first]):
        first += 1
    while last > first and _quiet(joined[last - 1]):
        last -= 1
    return joined[first:last]


def _quiet(character: str) -> bool:
    """Spaces and punctuation, but nothing that changes what a number or formula means (% is kept, minus is kept)."""
    return character == " " or (unicodedata.category(character).startswith("P") and character not in "%-#@&")


def _number(text: str) -> str:
    found = _NUMBER.findall(text)
    if not found:
        return ""
    sign = "-" if found[-1][0] in "-\u2212" else ""
    whole, _, fraction = found[-1].lstrip("-\u2212").replace(",", "").partition(".")
    value = (whole.lstrip("0") or "0") + (f".{fraction.rstrip('0')}" if fraction.rstrip("0") else "")
    return "0" if value == "0" else sign + value


_NORMALS: Mapping[str, Callable[[str], str]] = {"text": _text, "exact": str.strip, "number": _number}
