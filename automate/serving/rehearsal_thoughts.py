"""The rehearsal judge's thoughts, in each of the forms that servers give them; and what its prefix cache would hold.

Never decides a verdict; every thought names a label that is not the answer's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from automate.serving.rehearsal_behaviour import THOUGHTS, Behaviour
from automate.serving.rehearsal_replies import (
    BYTES_PER_REPLY_TOKEN,
    ChatRequest,
    Reply,
    cut,
    draw,
    pick,
    prompt_key,
    reply_text,
)

THOUGHT = "Suppose the second were better by far: [[B>>A]]. Nothing supports it."
REFUSAL = "This is a rehearsed refusal."
_APART = ("think_apart", "think_cut")
BLOCK = 256
"""Bytes of a prompt that the prefix cache takes for one block."""
MOST_BLOCKS = 200_000


def reply_of(behaviour: Behaviour, request: ChatRequest) -> Reply:
    """What the judge thinks and says, cut to the request's max_tokens."""
    text, most = reply_text(behaviour, request), request.max_tokens
    constrained = bool(request.choices) and not behaviour.ignore_structured
    prompt = prompt_key(request.texts)
    if not (constrained or request.is_probe) and draw(prompt, "refusal of it") < behaviour.refusal:
        return Reply(None, len(REFUSAL) // BYTES_PER_REPLY_TOKEN, "stop", refusal=REFUSAL)
    kind = None if request.is_probe else pick(behaviour, THOUGHTS, draw(prompt, "think"))
    if kind is None or (constrained and kind not in _APART):  # without a parser, a choice is constrained from its start
        return cut(text, most)
    if not (request.thinking or behaviour.think_always):
        plain = cut(text, most)
        misplaced = constrained and behaviour.think_misplaced
        return replace(plain, content=None, reasoning=plain.content) if misplaced else plain
    if kind in _APART:
        return _apart(text, most, endless=kind == "think_cut" and not constrained)
    if kind == "think_unclosed":
        return _endless(Reply(f"<think>\n{THOUGHT}", 0, "length"), most)
    return cut(("<think>" if kind == "think" else "") + f"{THOUGHT}</think>\n{text}", most)


def _apart(text: str, most: int | None, *, endless: bool) -> Reply:
    """A thought in a field of its own, and the answer if there is room for it."""
    thought = cut(THOUGHT, most)
    if endless or (most is not None and thought.tokens >= most):
        return _endless(Reply(None, thought.tokens, "length", reasoning=thought.content), most)
    answer = cut(text, None if most is None else most - thought.tokens)
    return replace(answer, tokens=answer.tokens + thought.tokens, reasoning=thought.content)


def _endless(reply: Reply, most: int | None) -> Reply:
    """A reply that used up all the tokens it was given."""
    return replace(reply, tokens=most or len(THOUGHT) // BYTES_PER_REPLY_TOKEN)


def message_of(behaviour: Behaviour, request: ChatRequest, reply: Reply) -> dict[str, Any]:
    """The reply as a chat message; half of the prompts have thoughts under vLLM's old name for them."""
    prompt = prompt_key(request.texts)
    message: dict[str, Any] = {"role": "assistant", "content": reply.content}
    if reply.content is not None and behaviour.parts and draw(prompt, "parts") < behaviour.parts:
        half = len(reply.content) // 2
        message["content"] = [{"type": "text", "text": part} for part in (reply.content[:half], reply.content[half:])]
    if reply.reasoning is not None:
        message["reasoning_content" if prompt[1] % 2 else "reasoning"] = reply.reasoning
    if reply.refusal is not None:
        message["refusal"] = reply.refusal
    return message


class PrefixCache:
    """Which beginnings of prompts were seen before. `hits`: tokens that a prefix cache would have had, so far."""

    def __init__(self, tokens: int, bytes_per_token: float) -> None:
        self.hits = 0
        self._per_token = bytes_per_token
        self._most = max(1, min(int(tokens * bytes_per_token / BLOCK), MOST_BLOCKS))
        self._blocks: dict[int, None] = {}

    def look(self, texts: Sequence[str]) -> int:
        """Tokens at this prompt's beginning that were there; the whole of it is there from now on."""
        whole, key, known, found = "\0".join(texts), 0, True, 0
        for start in range(0, len(whole) - BLOCK + 1, BLOCK):
            key = hash((key, whole[start : start + BLOCK]))
            known = known and key in self._blocks
            found += known
            self._blocks[key] = None
        while len(self._blocks) > self._most:
            del self._blocks[next(iter(self._blocks))]
        tokens = int(found * BLOCK / self._per_token)
        self.hits += tokens
        return tokens
