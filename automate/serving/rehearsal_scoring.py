"""The rehearsal judge's tokens and log-probabilities, in the forms of vLLM's /tokenize and /v1/completions.

Never reads a clock or a random number: every number is a hash of the model, the tokens before it and its own."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import Any
from zlib import crc32

from automate.serving.rehearsal_replies import (
    TOKENS_PER_MESSAGE,
    TOKENS_PER_PROMPT,
    RequestRefusedError,
    read_object,
)

LOWEST = 8.0
"""No token is less likely than e to the minus this."""
_VOCABULARY = 1 << 20
_STEPS = 1 << 32


def tokens_of(text: str, bytes_per_token: float) -> list[int]:
    """A text's tokens: so many bytes each, the same bytes always the same token."""
    data = text.encode("utf-8", "replace")
    cuts = [int(number * bytes_per_token) for number in range(math.ceil(len(data) / bytes_per_token))]
    return [crc32(data[start:end]) % _VOCABULARY for start, end in pairwise([*cuts, len(data)])]


def chat_tokens(texts: Sequence[str], bytes_per_token: float) -> list[int]:
    """The tokens of these messages, with those of a template around them."""
    template = TOKENS_PER_MESSAGE * len(texts) + TOKENS_PER_PROMPT
    return [*tokens_of("".join(texts), bytes_per_token), *range(template)]


@dataclass(frozen=True, slots=True)
class Completion:
    """What matters of one completion request: its prompts as tokens; whether their log-probabilities are asked for."""

    prompts: tuple[tuple[int, ...], ...]
    max_tokens: int
    scored: bool
    model: str


def read_completion(body: bytes, model: str, also: Collection[str], bytes_per_token: float) -> Completion:
    """A request for this model, or for one that is served beside it; a prompt is text, or a list of token ids."""
    payload = read_object(body)
    asked = payload.get("model", model)
    if asked != model and asked not in also:
        raise RequestRefusedError(f"The model `{asked}` does not exist.", "model", 404)
    most = payload.get("max_tokens", 16)
    if not isinstance(most, int) or most < 0:
        raise RequestRefusedError(f"max_tokens must be a number of at least 0, not {most}", "max_tokens")
    given = payload.get("prompt")
    single = isinstance(given, str) or (isinstance(given, list) and bool(given) and isinstance(given[0], int))
    prompts = [given] if single else given
    if not isinstance(prompts, list) or not prompts:
        raise RequestRefusedError("prompt must be text, token ids, or a list of such", "prompt")
    return Completion(tuple(_prompt(one, bytes_per_token) for one in prompts), most,
                      payload.get("prompt_logprobs") is not None, str(asked))


def _prompt(given: object, bytes_per_token: float) -> tuple[int, ...]:
    if isinstance(given, str):
        return tuple(tokens_of(given, bytes_per_token))
    if isinstance(given, list) and given and all(type(token) is int and token >= 0 for token in given):
        return tuple(given)
    raise RequestRefusedError("a prompt must be text or a list of token ids", "prompt")


def log_probabilities(tokens: Sequence[int], model: str) -> list[dict[str, Any] | None]:
    """What prompt_logprobs gives of a prompt: nothing of the first token, then each one's own."""
    key, found = blake2b(model.encode("utf-8", "replace"), digest_size=8).digest(), list[dict[str, Any] | None]()
    for token in tokens:
        key = blake2b(key + token.to_bytes(8, "little"), digest_size=8).digest()
        value = -LOWEST * (int.from_bytes(key[:4], "little") / _STEPS)
        found.append({str(token): {"logprob": value, "rank": 1, "decoded_token": ""}} if found else None)
    return found


def choices_of(asked: Completion) -> list[dict[str, Any]]:
    """The choices of a completion's reply, one for each prompt."""
    return [{"index": number, "text": "." * asked.max_tokens, "logprobs": None, "finish_reason": "length",
             "stop_reason": None, "prompt_logprobs": log_probabilities(prompt, asked.model) if asked.scored else None}
            for number, prompt in enumerate(asked.prompts)]
