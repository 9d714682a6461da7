"""Conversations to tokens: which tokens a row has, and which of them count, as the current client has it.

Pure but for reading the validation set; needs no torch. A broken row is the validator's trouble, never a score."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from automate.validation.modules.base import RecoverableException
from automate.validation.modules.lora.templates import Template
from automate.validation.modules.lora.tools import calls_text, tools_text


class Tokenizer(Protocol):
    """What is asked of a tokenizer of transformers."""

    eos_token: str

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Tokens of a text."""

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Text of tokens."""


@dataclass(frozen=True)
class Row:
    """Tokens of a conversation, cut at the context length; `mask` has 1 for each that is a target."""

    ids: tuple[int, ...]
    mask: tuple[int, ...]

    @property
    def targets(self) -> tuple[int, ...]:
        """The tokens that are targets, one at the first position included."""
        return tuple(token for token, mark in zip(self.ids, self.mask, strict=True) if mark)

    @property
    def predicted(self) -> int:
        """How many targets a model predicts: one at the first position has nothing before it."""
        return sum(self.mask[1:])


@dataclass(frozen=True)
class Counts:
    """Targets of a whole set: tokens, and bytes of UTF-8 after decoding them without special tokens."""

    tokens: int
    bytes: int


def _turns(conversations: Iterable[Mapping[str, Any]], template: Template, eos: str) -> Iterable[tuple[str, bool]]:
    """Pieces of text with whether they are targets. What follows the last answer is left out."""
    before = ""
    for turn in conversations:
        role, content = turn["role"], turn["content"].strip()
        if role == "assistant":
            yield before, False
            yield template.assistant.format(content=content, stop_token=eos), True
            before = ""
        elif role == "user":
            before += template.user.format(content=content, stop_token=eos)
        elif role == "function_call":
            before += template.call.format(content=calls_text(json.loads(content)))
        elif role == "observation":
            before += template.observation.format(content=content)


def _pieces(row: Mapping[str, Any], template: Template, eos: str,
            prompt: Callable[[], str]) -> Iterable[tuple[str, bool]]:
    if template.system is not None:
        system = row["system"].strip() if "system" in row else template.default_system
        if system is not None:
            yield template.system.format(content=system), False
    if row.get("tools"):
        yield template.tool.format(content=tools_text(json.loads(row["tools"]), prompt())), False
    yield from _turns(row["conversations"], template, eos)


def encode(row: Mapping[str, Any], template: Template, tokenizer: Tokenizer, context_length: int,
           prompt: Callable[[], str]) -> Row:
    """One conversation as tokens: each piece on its own, without special tokens, joined, then cut.

    `prompt` gives the format of the tools' text, and is called for rows with tools only.
    """
    ids: list[int] = []
    mask: list[int] = []
    for text, target in _pieces(row, template, tokenizer.eos_token, prompt):
        tokens = tokenizer.encode(text, add_special_tokens=False)
        ids += tokens
        mask += [int(target)] * len(tokens)
    return Row(tuple(ids[:context_length]), tuple(mask[:context_length]))


def _parsed(line: str) -> Mapping[str, Any]:
    value = json.loads(line)
    if not isinstance(value, dict):
        raise TypeError(f"expected an object, found {type(value).__name__}")
    return value


def read_rows(path: Path, template: Template, tokenizer: Tokenizer, context_length: int,
              prompt: Callable[[], str]) -> list[Row]:
    """All rows of a validation set (JSON lines), in its order.

    Raises RecoverableException with the row's number for a broken one, and for an empty set.
    """
    rows = []
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                rows.append(_row(number, line, template, tokenizer, context_length, prompt))
    except UnicodeDecodeError as error:
        raise RecoverableException(f"the validation set is not UTF-8 after row {len(rows)}", cause="data") from error
    if not rows:
        raise RecoverableException("the validation set has no rows", cause="data")
    return rows


def _row(number: int, line: str, template: Template, tokenizer: Tokenizer, context_length: int,
         prompt: Callable[[], str]) -> Row:
    try:
        row = encode(_parsed(line), template, tokenizer, context_length, prompt)
        if not row.ids:
            raise ValueError("there is nothing to score in it: no system text and no answer")
        return row
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        what = f"{type(error).__name__}: {error}"[:200]
        raise RecoverableException(f"the validation set's row {number} is broken ({what})", cause="data") from error


def count(rows: Iterable[Row], tokenizer: Tokenizer) -> Counts:
    """Target tokens and target bytes of the set, after cutting."""
    tokens = size = 0
    for row in rows:
        if targets := row.targets:
            tokens += len(targets)
            size += len(tokenizer.decode(list(targets), skip_special_tokens=True).encode("utf-8"))
    return Counts(tokens, size)
