"""One game asked of the judge: sized, sent, retried, read, and turned into a record.

Never blames a game for a server's trouble: no answer is no record."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from automate.arena.games import Game
from automate.arena.prompts import Message
from automate.arena.verdict import LABELS, Verdict, read_verdict
from automate.errors import FlockError
from automate.journal import Record
from automate.serving.client import JudgeClient, Messages, Reply, RequestRefused, TransportFailed
from automate.serving.limiter import Limiter
from automate.serving.messages import Encoded

T = TypeVar("T")

TEMPLATE_MARGIN = 384
"""Tokens that a chat template may add around the messages, at most, in the bytes bound."""

CONCLUDE = "State your final verdict now: reply with one of these labels and nothing else: " + ", ".join(
    f"[[{label}]]" for label in LABELS)
CONCLUDE_TAIL = 6000
CONCLUDE_TOKENS = 16


class Serving(Protocol):
    """Where requests go: a job's own server, or an address of others'."""

    context: int | None

    async def client(self) -> JudgeClient:
        """The client of a ready server. Raises ServerError when there will be none."""

    def suspect(self) -> None:
        """A request failed: look whether the server still lives."""


@dataclass(frozen=True)
class Ask:
    """How every game is asked. Token counts; seconds."""

    max_tokens: int
    min_output: int
    temperature: float
    retries: int
    structured: bool
    tokenize: bool
    retry_wait: float = 30.0


class TooLong(Exception):
    """The prompt leaves too little of the context for an answer; its text says how little."""


def bytes_bound(messages: Sequence[Message]) -> int:
    """An upper bound on prompt tokens: a token covers at least one UTF-8 byte of text."""
    return sum(len(message["content"].encode()) for message in messages) + TEMPLATE_MARGIN


def _wait(limit: float) -> Callable[[RetryCallState], float]:
    backoff = wait_random_exponential(multiplier=0.25, max=limit)

    def seconds(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        asked = error.retry_after if isinstance(error, TransportFailed) else None
        return backoff(state) + min(asked or 0.0, 4 * limit)

    return seconds


class Referee:
    """Plays single games. `pace` is awaited before each request (a rate limit, or nothing)."""

    def __init__(self, serving: Serving, ask: Ask, limiter: Limiter,
                 pace: Callable[[], Awaitable[None]] | None = None) -> None:
        self.serving = serving
        self.ask = ask
        self.limiter = limiter
        self.pace = pace
        self.retried = 0

    async def play(self, game: Game, messages: list[Message] | Encoded) -> Record:
        """Play one game to a record. Raises TransportFailed (the game stays due) or ServerError (stop)."""
        began = time.monotonic()
        prompt = messages if isinstance(messages, Encoded) else Encoded.of(messages)
        try:
            limit = await self._room(prompt)
            reply = await self._send(prompt.fragment, limit)
        except TooLong as error:
            return self._record(game, "too_long", began, reason=str(error))
        except RequestRefused as error:
            return self._record(game, "refused", began, reason=error.what)
        verdict = read_verdict(reply.content)
        replies = [reply]
        if verdict.label is None:
            verdict, replies = await self._conclude(prompt.messages(), reply, verdict)
        outcome = "unparsed" if verdict.label is None else "verdict"
        return self._record(game, outcome, began, verdict=verdict, replies=replies, reason=verdict.reason)

    async def _room(self, prompt: Encoded) -> int:
        """max_tokens that the context leaves: by the bytes bound, and by /tokenize where that doesn't fit."""
        wanted, context = self.ask.max_tokens, self.serving.context
        if context is None or len(prompt.json) + TEMPLATE_MARGIN + wanted <= context:  # no text is longer than its JSON
            return wanted
        bound = bytes_bound(prompt.messages())
        if bound + wanted <= context:
            return wanted
        if not self.ask.tokenize:
            return max(min(wanted, context - bound), min(wanted, self.ask.min_output))
        tokens, length = await self._with_retries(lambda client: client.count_tokens(prompt.fragment))
        left = (length or context) - tokens
        if left < min(self.ask.min_output, wanted):
            raise TooLong(f"{tokens} prompt tokens leave {max(left, 0)} of the context's {length or context}")
        return min(wanted, left)

    async def _send(self, messages: Messages, max_tokens: int, extra: Mapping[str, object] | None = None) -> Reply:
        return await self._with_retries(
            lambda client: client.chat(messages, max_tokens=max_tokens, temperature=self.ask.temperature, extra=extra))

    async def _once(self, call: Callable[[JudgeClient], Awaitable[T]]) -> T:
        client = await self.serving.client()
        if self.pace is not None:
            await self.pace()
        try:
            return await call(client)
        except TransportFailed as error:
            if error.status is None:
                self.serving.suspect()
            if error.status in (429, 503):
                self.limiter.told_to_wait()
            raise

    async def _with_retries(self, call: Callable[[JudgeClient], Awaitable[T]]) -> T:
        try:
            return await self._once(call)
        except TransportFailed:
            if self.ask.retries == 0:
                raise
        await asyncio.sleep(min(0.2, self.ask.retry_wait))
        retrying = AsyncRetrying(
            stop=stop_after_attempt(self.ask.retries), wait=_wait(self.ask.retry_wait),
            retry=retry_if_exception_type(TransportFailed), reraise=True)
        async for attempt in retrying:
            with attempt:
                self.retried += 1
                return await self._once(call)
        raise TransportFailed("no attempt was made")

    async def _conclude(self, messages: list[Message], reply: Reply, first: Verdict) -> tuple[Verdict, list[Reply]]:
        """Ask once more, for the label only; constrained where the server can."""
        said = (reply.content or reply.reasoning or "").rpartition("</think>")[2][-CONCLUDE_TAIL:]
        follow_up: list[Mapping[str, object]] = [*messages]
        if said.strip():
            follow_up.append({"role": "assistant", "content": said})
            follow_up.append({"role": "user", "content": CONCLUDE})
        else:
            follow_up[-1] = {"role": "user", "content": messages[-1]["content"] + "\n\n" + CONCLUDE}
        choices = [f"[[{label}]]" for label in LABELS]
        extra = {"structured_outputs": {"choice": choices}} if self.ask.structured else None
        try:
            second = await self._send(follow_up, CONCLUDE_TOKENS, extra)
        except RequestRefused as error:
            return Verdict(None, reason=f"{first.reason}; asked to conclude: {error.what}"), [reply]
        verdict = read_verdict(second.content)
        if verdict.label is None:
            verdict = Verdict(None, reason=f"{first.reason}; asked to conclude: {verdict.reason}")
        return verdict, [reply, second]

    def _record(self, game: Game, outcome: str, began: float, *, verdict: Verdict | None = None,
                replies: Sequence[Reply] = (), reason: str | None = None) -> Record:
        record: dict[str, Any] = {
            "source": "engine", "key": game.key, "model": game.model, "uid": game.uid, "order": game.order,
            "baseline": game.baseline, "category": game.category, "prompt_sha": game.prompt_sha,
            "outcome": outcome, "label": verdict.label if verdict else None,
            "judgment": "\n".join(reply.content for reply in replies if reply.content),
            "seconds": round(time.monotonic() - began, 3), "time": round(time.time(), 3),
        }
        if verdict and verdict.short:
            record["short"] = True
        if reason and outcome != "verdict":
            record["reason"] = reason
        if len(replies) > 1:
            record["asked_twice"] = True
        if replies:
            record["finish"] = replies[0].finish
            record["usage"] = [sum(r.prompt_tokens for r in replies), sum(r.output_tokens for r in replies),
                               sum(r.cached_tokens for r in replies)]
        if replies and replies[0].reasoning:
            record["reasoning"] = replies[0].reasoning
        return record


def is_fatal(error: FlockError) -> bool:
    """Whether an error means that no game can be played any more."""
    return not isinstance(error, (TransportFailed, RequestRefused))
