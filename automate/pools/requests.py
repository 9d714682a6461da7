"""Requests for inference: what an Inference message asks for, checked, and what it costs.

Never touches the database; whatever came from outside is refused in words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from automate.errors import PoolError
from automate.pools.round_records import METHODS
from automate.settings_pools import PoolPrice

MOST_PROMPTS = 1000
"""Of one message."""
MOST_WAITING = 10_000
"""Of one requester that is no data set here."""
MOST_TOKENS = 32_768
_LONGEST_ID = 200
_MOST_CHOICES = 256
_MOST_TURNS = 64
_ROLES = ("system", "user", "assistant")
_WORD = re.compile(r"[^\W_]+")
_LONG = 24
"""Bytes of one word; longer runs, as in scripts without spaces, count as several: one for each 4 bytes."""
_SPARSE = 16
"""Bytes for each of which a text has at least one word, whatever it is made of."""

Chat = tuple[Mapping[str, str], ...]


@dataclass(frozen=True)
class Prompt:
    """One prompt of a request. `id` is the requester's own name for it; None: the worker's or the setting's tokens."""

    id: str
    dataset: str
    messages: Chat
    method: str
    choices: tuple[str, ...]
    max_tokens: int | None

    def as_json(self) -> dict[str, object]:
        """The prompt in the spec's shape."""
        return {"id": self.id, "prompt": list(self.messages), "dataset": self.dataset, "method": self.method,
                "choices": list(self.choices), "max_tokens": self.max_tokens}


def price_of(price: PoolPrice, messages: Chat, max_tokens: int) -> int:
    """prompt + token * (words + max_tokens). A word is a run of letters and digits of any script; one of more than 24
    bytes (UTF-8) counts as a word for each 4 bytes, and a text at least as one for each 16 bytes."""
    if not price.token:
        return price.prompt
    words = sum(_words(one.get("content", "")) for one in messages)
    return price.prompt + price.token * (words + max_tokens)


def _words(text: str) -> int:
    sizes = [len(run.encode("utf-8", "replace")) for run in _WORD.findall(text)]
    counted = sum(1 if size <= _LONG else -(-size // 4) for size in sizes)
    return max(counted, len(text.encode("utf-8", "replace")) // _SPARSE)


def tokens_of(value: object, what: str = "max_tokens") -> int:
    """A number of tokens, as a number or its digits. Raises PoolError."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value.strip(), re.ASCII):
        value = int(value)
    if type(value) is not int or not 1 <= value <= MOST_TOKENS:
        raise PoolError(f"{what} is no whole number from 1 to {MOST_TOKENS}")
    return value


def chat_of(prompt: object, where: str | None = None) -> Chat:
    """A prompt as chat messages: text is the user's; a list is of {role, content}. Raises PoolError."""
    if isinstance(prompt, str):
        if not prompt.strip():
            raise PoolError("the prompt is empty", where=where)
        return ({"role": "user", "content": prompt},)
    if not isinstance(prompt, list) or not 1 <= len(prompt) <= _MOST_TURNS:
        raise PoolError(f"the prompt is neither text nor a list of 1 to {_MOST_TURNS} chat messages", where=where)
    for one in prompt:
        if (not isinstance(one, dict) or set(one) != {"role", "content"} or one["role"] not in _ROLES
                or not isinstance(one["content"], str)):
            raise PoolError(f"a chat message is not {{role, content}} with a role of {', '.join(_ROLES)}", where=where)
    return tuple(prompt)


def _name(value: object, what: str, where: str) -> str:
    if type(value) is int:
        value = str(value)
    if not isinstance(value, str) or not 1 <= len(value) <= _LONGEST_ID or "\0" in value:
        raise PoolError(f"{what} is no text of 1 to {_LONGEST_ID} characters", where=where)
    return value


def _choices(value: object, method: str, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > _MOST_CHOICES or not all(isinstance(one, str) for one in value):
        raise PoolError(f"choices is no list of up to {_MOST_CHOICES} texts", where=where)
    if method == "loglikelihood" and not value:
        raise PoolError("loglikelihood needs choices", where=where)
    if "" in value or len(set(value)) != len(value):
        raise PoolError("a choice is empty, or there twice", where=where)
    return tuple(value)


def _prompt(raw: object, number: int, requester: str, longest: int) -> Prompt:
    where = f"prompt {number}"
    if not isinstance(raw, dict):
        raise PoolError("is no object {id, prompt, dataset}", where=where)
    for name in ("id", "prompt"):
        if name not in raw:
            raise PoolError(f"lacks the field {name!r}", where=where)
    method, tokens = raw.get("method", "generate"), raw.get("max_tokens")
    if method not in METHODS:
        raise PoolError(f"method is none of {', '.join(METHODS)}", where=where)
    messages = chat_of(raw["prompt"], where)
    choices = _choices(raw.get("choices") or [], method, where)
    if sum(len(one["content"]) for one in messages) + sum(map(len, choices)) > longest:
        raise PoolError(f"is longer than {longest} characters", where=where)
    return Prompt(_name(raw["id"], "id", where), _name(raw.get("dataset", requester), "dataset", where), messages,
                  method, choices, None if tokens is None else tokens_of(tokens))


def prompts_of(data: Mapping[str, object], requester: str, longest: int) -> list[Prompt]:
    """The prompts of an Inference's Data {model, prompts: [{id, prompt, dataset}]}; further fields of a prompt: method,
    choices, max_tokens. `longest`: characters of one prompt. Raises PoolError naming the prompt."""
    raw = data.get("prompts")
    if not isinstance(raw, list) or not raw:
        raise PoolError("prompts is no list of {id, prompt, dataset}", todo='send {"model": ..., "prompts": [...]}')
    if len(raw) > MOST_PROMPTS:
        raise PoolError(f"{len(raw)} prompts in one message: {MOST_PROMPTS} at most", todo="send several messages")
    prompts = [_prompt(one, number, requester, longest) for number, one in enumerate(raw, 1)]
    seen: set[tuple[str, str]] = set()
    for number, prompt in enumerate(prompts, 1):
        if (prompt.dataset, prompt.id) in seen:
            raise PoolError(f"the id {prompt.id!r} is there twice", where=f"prompt {number}")
        seen.add((prompt.dataset, prompt.id))
    return prompts


def chat_text(messages: Chat) -> str:
    """Chat messages as they are kept."""
    return orjson.dumps(list(messages)).decode()
