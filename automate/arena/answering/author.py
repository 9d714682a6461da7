"""One question asked of one model: sized, sent, retried, and turned into a record.

Never blames a question for a server's trouble: no reply is no record."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass

from automate.arena.answering.candidates import REHEARSAL, Candidate
from automate.arena.answering.recorded import ANSWER, Due
from automate.arena.answering.tokens import Counter
from automate.arena.prompts import Message
from automate.arena.referee import Ask, Asker, Serving, TooLong
from automate.arena.verdict import take_apart
from automate.journal import Record
from automate.serving.client import Reply, RequestRefused
from automate.serving.limiter import Limiter
from automate.serving.messages import Encoded

LEAST = 256
"""Tokens that the context must leave for an answer."""
_ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


@dataclass(frozen=True)
class Answer:
    """A reply taken apart: the answer, and what was thought before it. `headless`: it began inside the thought."""

    text: str
    thought: str
    headless: bool = False


def read_reply(reply: Reply, *, headless: bool = False) -> Answer:
    """The answer of a reply; a thought that was never closed leaves an empty one.

    `headless`: this model's replies begin inside a thought, so that one cut off without its end is nothing else.
    """
    said, beside = take_apart(reply.content), (reply.reasoning or "").strip()
    if headless and reply.finish == "length" and not said.thoughts and not beside:
        return Answer("", said.answer.strip(), headless)
    thought = "\n".join(part for part in (beside, said.thoughts) if part)
    if not said.thoughts and not said.unclosed:
        return Answer(reply.content or "", thought)
    return Answer("" if said.unclosed else said.answer, thought, said.headless)


def ask_of(candidate: Candidate, retries: int) -> Ask:
    """How a model is asked."""
    return Ask(candidate.max_tokens, LEAST, candidate.temperature, retries, structured=False, tokenize=True)


def messages_of(candidate: Candidate, prompt: str) -> list[Message]:
    """The messages of one question."""
    system: list[Message] = [{"role": "system", "content": candidate.system_prompt}] if candidate.system_prompt else []
    return [*system, {"role": "user", "content": prompt}]


class Author(Asker):
    """Asks the models of one server; an adapter is asked for by its name."""

    def __init__(self, serving: Serving, limiter: Limiter, models: Mapping[str, Candidate], served: str,
                 retries: int, counter: Counter) -> None:
        super().__init__(serving, ask_of(next(iter(models.values())), retries), limiter)
        self.models = models
        self.served = served
        self.counter = counter
        self._headless: set[str] = set()
        self._asks = {name: ask_of(candidate, retries) for name, candidate in models.items()}

    async def play(self, item: Due, messages: list[Message] | Encoded) -> Record:
        """Ask one question. Raises TransportFailed (it stays due) or ServerError (stop)."""
        began, candidate = time.monotonic(), self.models[item.model]
        ask = self._asks[item.model]
        prompt = messages if isinstance(messages, Encoded) else Encoded.of(messages)
        extra = {"model": item.model} if item.model != self.served else None
        try:
            limit = await self._room(prompt, ask.max_tokens, ask.min_output)
            reply = await self._send(prompt.fragment, limit, extra, ask.temperature)
        except TooLong as error:
            return self._failed(item, "too_long", began, str(error))
        except RequestRefused as error:
            return self._failed(item, "refused", began, error.what)
        return self._answered(item, candidate, reply, limit, began)

    def _failed(self, item: Due, outcome: str, began: float, reason: str) -> Record:
        return {**_head(item), "outcome": outcome, "reason": reason, **_times(began)}

    def _answered(self, item: Due, candidate: Candidate, reply: Reply, limit: int, began: float) -> Record:
        answer = read_reply(reply, headless=item.model in self._headless)
        if answer.headless:
            self._headless.add(item.model)
        if reply.refusal and not answer.text:
            return self._failed(item, "refused", began, f"the model refused: {' '.join(reply.refusal.split())[:300]}")
        record: Record = {
            **_head(item), "outcome": ANSWER, "answer": answer.text, "finish": reply.finish,
            "ans_id": "".join(secrets.choice(_ALPHABET) for _ in range(22)),
            "token_len": self.counter.count(answer.text, reply.output_tokens), "tokenizer": self.counter.name,
            "weights": candidate.weights, "temperature": candidate.temperature, "max_tokens": limit,
            "usage": [reply.prompt_tokens, reply.output_tokens, reply.cached_tokens], **_times(began),
        }
        if answer.thought:
            record["thought"] = answer.thought
        if candidate.system_prompt:
            record["system"] = candidate.system_prompt
        if candidate.weights == REHEARSAL:
            record["rehearsal"] = True
        return record


def _head(item: Due) -> Record:
    return {"source": "engine", "key": item.key, "model": item.model, "uid": item.uid, "category": item.category,
            "prompt_sha": item.prompt_sha}


def _times(began: float) -> Record:
    return {"seconds": round(time.monotonic() - began, 3), "time": round(time.time(), 3)}
