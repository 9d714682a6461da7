"""What `llm_judge` is told, what it computes, what its first step leaves, and the task's own arguments, checked.

Pydantic only; never reads a file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from automate.validation.modules.base import (
    BaseConfig,
    BaseInputData,
    BaseMetrics,
    InvalidConfigValueException,
    RecoverableException,
    Revision,
)

LOWEST_SCORE = -999.0
"""Sent where a submission has too many parameters or can't be loaded."""
NEW_TOKENS = 2048
TOP_P = 0.8
TOP_K = 20
SUPPORTED_BASES = frozenset({
    "Qwen/Qwen3.5-0.8B", "Qwen/Qwen3.5-0.8B-Base", "Qwen/Qwen3.5-2B", "Qwen/Qwen3.5-2B-Base", "Qwen/Qwen3.5-4B",
    "Qwen/Qwen3.5-4B-Base", "Qwen/Qwen3.5-9B", "Qwen/Qwen3.5-9B-Base", "Qwen/Qwen3.5-27B"})
"""Base models of adapters that the protocol takes, compared exactly. Source: FLock-validator ef8368e."""


class LLMJudgeConfig(BaseConfig):
    """Conversations generated at once, conversations judged at once, temperature of the generation."""

    gen_batch_size: Annotated[int, Field(ge=1)] = 1
    eval_batch_size: Annotated[int, Field(ge=1, le=512)] = 16
    gen_temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.7


class LLMJudgeInput(BaseInputData):
    """An assignment. `context_length` and `base_model` are asked for and change nothing, as in the current client."""

    hg_repo_id: str
    revision: Revision
    context_length: int
    max_params: int
    validation_set_url: str
    base_model: str
    eval_args: dict[str, Any]


class LLMJudgeMetrics(BaseMetrics):
    """The mean of score times confidence, over ten."""

    score: Annotated[float, Field(allow_inf_nan=False)]


class Partial(BaseModel):
    """What the first step leaves, a place a row: `answers` holds a list of as many texts for each generation.

    `conversations` are the messages before the answer, the system message first, as the chat template got them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    conversations: list[list[dict[str, Any]]]
    references: list[str | None]
    tools: list[Any]
    answers: list[list[str]]
    eval_args: dict[str, Any] = {}


@dataclass(frozen=True)
class EvalArgs:
    """`eval_args` of a task. `models`: requested names, each once; `prompt`: as it came, see `prompts.py`."""

    models: tuple[str, ...]
    temperature: float
    prompt: Any
    generations: int
    tries: int


def eval_arguments(raw: Mapping[str, Any]) -> EvalArgs:
    """Check a task's `eval_args`. The list of judges is the authority: without one nothing is judged.

    Raises InvalidConfigValueException: another judge than the named ones would give another score than the peers'.
    """
    temperature = raw.get("temperature", 0.1)
    if isinstance(temperature, bool) or not isinstance(temperature, (int, float)) or not math.isfinite(temperature):
        raise _wrong("temperature", "a number")
    return EvalArgs(_models(raw.get("eval_model_list")), temperature, raw.get("prompt_id", 0),
                    _count(raw, "gen_require", 1, least=1), _count(raw, "eval_require", 3, least=0))


def _models(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise _wrong("eval_model_list", "a list of judges' names that is not empty")
    if not all(isinstance(name, str) and name.strip() for name in value):
        raise _wrong("eval_model_list", "names only, none of them blank")
    return tuple(dict.fromkeys(value))


def _count(raw: Mapping[str, Any], name: str, default: int, *, least: int) -> int:
    value = raw.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise _wrong(name, f"a whole number of {least} or more")
    return value


def _wrong(name: str, expected: str) -> InvalidConfigValueException:
    return InvalidConfigValueException(f"the task's eval_args.{name}: expected {expected}; no other judge or count is "
                                       "put in its place", cause="eval-args")


def read_partial(raw: Mapping[str, Any]) -> Partial:
    """What a first step left. Raises RecoverableException where it is not whole."""
    try:
        left = Partial.model_validate(dict(raw))
    except ValidationError as error:
        raise RecoverableException(f"what the first step left is not whole: {error.error_count()} wrong fields",
                                   cause="partial") from error
    rows = len(left.conversations)
    lengths = {len(left.references), len(left.tools), *(len(texts) for texts in left.answers)}
    if lengths != {rows} or not rows or not left.answers:
        raise RecoverableException("what the first step left is not whole: its lists differ in length",
                                   cause="partial")
    return left
