"""What a kind of data set is: Info, loader, prompt template, result retriever, score calculator, evaluator.

Never touches a database or a network; a kind is found by the entry point group `flock_hpc.datasets`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

Method = Literal["generate", "loglikelihood"]


@dataclass(frozen=True)
class Question:
    """One row: `options` are texts (2 to N; none for exact match), `result` what is right: a number from "1" on as
    text, or the exact answer. `number`: the row's place in its source, from 1 on, for messages to a person."""

    context: str
    question: str
    options: tuple[str, ...]
    result: str


@dataclass(frozen=True)
class BadRow:
    """A row that can't be a question, and why."""

    number: int
    reason: str


@dataclass(frozen=True)
class Asked:
    """How a question is put to a model: chat messages, and how the answer is got.

    generate: up to `max_tokens` tokens, only one of `choices` where there are any. loglikelihood: the sum of token
    log-probabilities of each of `choices` as the assistant's answer; the answer is the best one's number, as text.
    """

    messages: tuple[Mapping[str, str], ...]
    method: Method
    choices: tuple[str, ...]
    max_tokens: int


@dataclass(frozen=True)
class Count:
    """What became of a model's questions."""

    total: int
    answered: int
    correct: int
    failed: int


class Kind:
    """Base of all kinds; subclass and override. `settings`: the data set's own, such as SystemPrompt, Method, Columns.
    """

    name: ClassVar[str] = ""
    description: ClassVar[str] = ""
    system_prompt: ClassVar[str] = ""

    def __init__(self, settings: Mapping[str, object]) -> None:
        self.settings = settings

    def info(self) -> dict[str, object]:
        """Name, description and what its settings mean."""
        raise NotImplementedError

    def read(self, source: Path) -> Iterator[Mapping[str, object]]:
        """Rows of a file, streamed: JSON lines, a JSON array, or CSV. Raises DataError for a file that is neither."""
        raise NotImplementedError

    def row(self, raw: Mapping[str, object]) -> Question:
        """A question from a row. Raises ValueError saying what is wrong with it."""
        raise NotImplementedError

    def ask(self, question: Question) -> Asked:
        """The prompt template."""
        raise NotImplementedError

    def retrieve(self, text: str, question: Question) -> str:
        """The result retriever: a model's text to what compares with `result`; "0" where it says nothing usable."""
        raise NotImplementedError

    def correct(self, prediction: str, result: str) -> bool:
        return prediction == result

    def score(self, count: Count) -> tuple[float, float]:
        """Score (of those answered) and progress (answered of all). 0 and 0 where there is none."""
        raise NotImplementedError


def kinds(extra: Mapping[str, str] | None = None) -> Mapping[str, type[Kind]]:
    """All kinds by name: shipped, of entry points, of `pools.kinds`. Raises ConfigError for one that can't be used."""
    raise NotImplementedError


def options_text(options: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Letters A, B, C, ... with their options."""
    raise NotImplementedError
