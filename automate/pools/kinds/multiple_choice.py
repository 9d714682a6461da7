"""Any multiple-choice set: a question, 2 to 26 options, one of them right; columns by setting.

Never holds a set's own rules: what differs between sets is a setting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from automate.pools.kinds import options as rows_options
from automate.pools.kinds.base import LETTERS, Asked, Question, choice_setting, options_text
from automate.pools.kinds.columns import Column, Mapped
from automate.pools.kinds.letters import last_letter

_NO_ANSWER = "0"


class MultipleChoice(Mapped):
    """By default the columns question, choices (a list of options) and answer (a letter)."""

    name = "multiple-choice"
    description = "Multiple choice with 2 to 26 options, from JSON lines, a JSON array or CSV"
    system_prompt = ("You are given a question and its options, each with a letter. Exactly one option is right. Reply "
                     "with the letter of that option only.")
    methods = ("generate", "loglikelihood")
    defaults: ClassVar[Mapping[str, Column]] = {"question": "question", "options": "choices", "answer": "answer"}
    meanings: ClassVar[Mapping[str, str]] = {
        **Mapped.meanings,
        "Columns": "which column is what: {question, options, answer, context}; options: one column that has a list, "
                   "or a list of columns",
        "Answer": "how the answer is given: letter (default), 0 or 1 (a number from there on), text, label",
        "Order": "of options: given (default), or shuffled (by the row's content, for sets whose right one is always "
                 "in the same place)",
        "Method": "generate (default): one token out of the letters. loglikelihood: the likeliest choice",
        "Choices": "what loglikelihood compares: letters (default), or texts (the options themselves, which the prompt "
                   "then doesn't list)",
    }
    reading = frozenset({*Mapped.reading, "Answer", "Order", "Choices"})

    def __init__(self, settings: Mapping[str, object]) -> None:
        super().__init__(settings)
        self._texts = choice_setting(settings, "Choices", ("letters", "texts")) == "texts"
        if self._texts and self.method == "generate":
            raise ValueError("Choices texts goes with Method loglikelihood only")
        if self._texts and "SystemPrompt" not in settings:
            self.prompt = "Answer the question in a few words."
        self._answer = choice_setting(settings, "Answer", rows_options.ANSWERS)
        self._shuffle = choice_setting(settings, "Order", ("given", "shuffled")) == "shuffled"

    def row(self, raw: Mapping[str, object]) -> Question:
        context, question, column = self.context(raw), self.text(raw, "question"), self.columns["options"]
        options = rows_options.checked(rows_options.of_column(raw, column) if isinstance(column, str)
                                       else rows_options.of_columns(raw, column))
        if self._texts and len(set(options.texts)) < len(options.texts):
            raise ValueError("two options are the same text, which Choices texts can't tell apart")
        texts, right = options.texts, rows_options.place(self.text(raw, "answer"), options, self._answer)
        if self._shuffle:
            texts, right = rows_options.shuffled(question, texts, right)
        return Question(context, question, texts, str(right + 1))

    def ask(self, question: Question) -> Asked:
        lines = [f"Context: {question.context}"] if question.context else []
        lines.append(f"Question: {question.question}")
        if self._texts:
            return Asked(self.messages("\n".join(lines)), self.method, question.options, 1)
        lettered = list(options_text(question.options))
        lines += [f"{letter}: {text}" for letter, text in lettered]
        return Asked(self.messages("\n".join(lines)), self.method, tuple(letter for letter, _ in lettered), 1)

    def retrieve(self, text: str, question: Question) -> str:
        """The last letter of an option that stands alone, as a number from 1 on; none is 0."""
        count = len(question.options)
        if self.method == "loglikelihood":
            return text if text in {str(number) for number in range(1, count + 1)} else _NO_ANSWER
        letter = last_letter(text, LETTERS[:count])
        return _NO_ANSWER if letter is None else str(LETTERS.index(letter) + 1)
