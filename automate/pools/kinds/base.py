"""What a kind of data set is: Info, loader, prompt template, result retriever, score calculator, evaluator.

Never touches a database or a network; a kind is found by the entry point group `flock_hpc.datasets`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

Method = Literal["generate", "loglikelihood"]
_NAMES = 8
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,30}", re.ASCII)
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


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

    meanings: the settings that this kind knows, each with what it means; others are refused. reading: those of them
    that decide how rows are read (they can't change once there are rows; the rest can't once there are evaluations).
    methods: how answers can be got, the default first. `__init__` raises ValueError for settings that can't be used.
    """

    name: ClassVar[str] = ""
    description: ClassVar[str] = ""
    system_prompt: ClassVar[str] = ""
    methods: ClassVar[tuple[Method, ...]] = ("generate",)
    meanings: ClassVar[Mapping[str, str]] = {"SystemPrompt": "what the model is told first; empty: nothing"}
    reading: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, settings: Mapping[str, object]) -> None:
        self.settings = settings
        self.prompt = text_setting(settings, "SystemPrompt", self.system_prompt)
        method = choice_setting(settings, "Method", self.methods)
        self.method: Method = next(known for known in self.methods if known == method)

    def info(self) -> dict[str, object]:
        """Name, description and what its settings mean."""
        return {"name": self.name, "description": self.description, "methods": list(self.methods),
                "settings": dict(self.meanings)}

    def read(self, source: Path) -> Iterator[Mapping[str, object] | BadRow]:
        """Rows of a file, streamed: JSON lines, a JSON array, or CSV; what can't be read as a row is a BadRow.

        Raises DataError for a file that is none of them, StorageError.
        """
        from automate.pools.kinds.files import rows

        return rows(source)

    def row(self, raw: Mapping[str, object]) -> Question:
        """A question from a row. Raises ValueError saying what is wrong with it."""
        raise NotImplementedError

    def ask(self, question: Question) -> Asked:
        """The prompt template."""
        raise NotImplementedError

    def retrieve(self, text: str, question: Question) -> str:
        """The result retriever: a model's text to what compares with `result`; "0" where it says nothing usable ("" in
        a kind whose right answer may be "0"). With loglikelihood the text is the number of the best choice."""
        raise NotImplementedError

    def correct(self, prediction: str, result: str) -> bool:
        return prediction == result

    def score(self, count: Count) -> tuple[float, float]:
        """Score (of those answered) and progress (answered of all). 0 and 0 where there is none."""
        return (count.correct / count.answered if count.answered else 0.0,
                count.answered / count.total if count.total else 0.0)

    def messages(self, user: str) -> tuple[Mapping[str, str], ...]:
        """The chat: the system prompt, where there is one, and what the user says."""
        system = ({"role": "system", "content": self.prompt},) if self.prompt else ()
        return (*system, {"role": "user", "content": user})


def kinds(extra: Mapping[str, str] | None = None) -> Mapping[str, type[Kind]]:
    """All kinds by name: shipped, of entry points, of `pools.kinds`. Raises ConfigError where two have one name; taking
    one out of it does where that one can't be used."""
    from automate.pools.kinds.finding import Kinds

    return Kinds(extra)


def options_text(options: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Letters A, B, C, ... with their options. Raises ValueError for more than 26."""
    if len(options) > len(LETTERS):
        raise ValueError(f"{len(options)} options: {len(LETTERS)} is the most")
    return zip(LETTERS, options, strict=False)


def text_field(raw: Mapping[str, object], name: str) -> str:
    """A field that must be there and say something: text, or a number as text. Line ends become \\n, nothing else
    changes. Raises ValueError."""
    if name not in raw:
        raise no_field(raw, name)
    return text_of(raw[name], name)


def no_field(raw: Mapping[str, object], name: str) -> ValueError:
    """A row that lacks a field, with those that it has; what is no plain name may be a line of any file, and is not
    told."""
    names = [one for one in list(raw)[:_NAMES] if isinstance(one, str) and _PLAIN.fullmatch(one)]
    more = [f"{len(raw) - len(names)} more"] if len(raw) > len(names) else []
    return ValueError(f"no field {name!r} (it has {', '.join([*names, *more]) or 'none'})")


def text_of(value: object, name: str) -> str:
    """See `text_field`; for a value that comes from elsewhere."""
    if type(value) is int:
        return str(value)
    if not isinstance(value, str):
        raise ValueError(f"{name!r} is {'nothing (null)' if value is None else type(value).__name__}, not text")
    if not value or value.isspace():
        raise ValueError(f"{name!r} is empty")
    return value.replace("\r\n", "\n").replace("\r", "\n") if "\r" in value else value


def text_setting(settings: Mapping[str, object], name: str, default: str) -> str:
    """A setting that is text. Raises ValueError."""
    value = settings.get(name, default)
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text")
    return value


def choice_setting(settings: Mapping[str, object], name: str, choices: Sequence[str]) -> str:
    """A setting that is one of these (a number may be its digits' name), the first by default. Raises ValueError."""
    value = settings.get(name, choices[0])
    if type(value) is int:
        value = str(value)
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r:.80}")
    return value


def whole_setting(settings: Mapping[str, object], name: str, default: int, least: int, most: int) -> int:
    """A setting that is a whole number, or its digits. Raises ValueError."""
    value = settings.get(name, default)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        value = int(value)
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, not {value!r:.80}")
    return value
