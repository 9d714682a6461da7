"""Social IQA: a context, a question, three answers, one right; rows have `label`, as the hub has them, or `result`.

Never holds a row of the set itself: no licence of it is known, so rows are loaded at run time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from automate.pools.kinds.base import Asked, Kind, Question, no_field, text_field
from automate.pools.kinds.letters import last_letter

UNSURE = "N"
_NUMBERS = {"A": "1", "B": "2", "C": "3"}
_NO_ANSWER = "0"


class Siqa(Kind):
    """Fields: context, question, answerA, answerB, answerC, and result (or label) that is 1, 2 or 3."""

    name = "siqa"
    description = "Social IQA: which of three answers fits a social situation best"
    system_prompt = ("You are given a short social situation, a question about it and three answers. Decide by the "
                     "context alone which answer fits best. Reply with one letter only: A, B or C, or N if you are not "
                     "sure.")
    methods = ("generate", "loglikelihood")
    meanings: ClassVar[Mapping[str, str]] = {
        **Kind.meanings,
        "Method": "generate (default): one token out of A, B, C, N. loglikelihood: the likeliest of A, B, C",
    }

    def __init__(self, settings: Mapping[str, object]) -> None:
        super().__init__(settings)
        if self.method == "loglikelihood" and "SystemPrompt" not in settings:
            self.prompt = self.system_prompt.replace(", or N if you are not sure", "")

    def row(self, raw: Mapping[str, object]) -> Question:
        context, question = text_field(raw, "context"), text_field(raw, "question")
        options = (text_field(raw, "answerA"), text_field(raw, "answerB"), text_field(raw, "answerC"))
        return Question(context, question, options, _result(raw))

    def ask(self, question: Question) -> Asked:
        """Five lines; one token."""
        first, second, third = question.options
        user = (f"Context: {question.context}\nQuestion: {question.question}\n"
                f"AnswerA: {first}\nAnswerB: {second}\nAnswerC: {third}")
        unsure = (UNSURE,) if self.method == "generate" else ()
        return Asked(self.messages(user), self.method, (*_NUMBERS, *unsure), 1)

    def retrieve(self, text: str, question: Question) -> str:
        """ResultRetriever: A, B, C to 1, 2, 3; N, or no letter that stands alone, is 0."""
        if self.method == "loglikelihood":
            return text if text in _NUMBERS.values() else _NO_ANSWER
        return _NUMBERS.get(last_letter(text, "ABCN") or UNSURE, _NO_ANSWER)


def _result(raw: Mapping[str, object]) -> str:
    """`result`, or `label` as the set itself names it; both where they agree."""
    given = {name: text_field(raw, name).strip() for name in ("result", "label") if name in raw}
    if not given:
        raise no_field(raw, "result")
    if len(set(given.values())) > 1:
        raise ValueError("'result' and 'label' differ")
    name, value = next(iter(given.items()))
    if value not in _NUMBERS.values():
        raise ValueError(f"{name!r} is {value!r:.80}, not 1, 2 or 3")
    return value
