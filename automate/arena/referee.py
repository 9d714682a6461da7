"""One game asked of the judge: sized, sent, retried, read, and turned into a record.

Never blames a game for a server's trouble: no answer is no record."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt

from automate.arena.games import Game
from automate.arena.hearing import (
    CONCLUDE_TOKENS,
    CONSTRAINT,
    NO_THINKING,
    THINKER_TOKENS,
    Heard,
    follow_up,
    hear,
    tail,
)
from automate.arena.prompts import Message
from automate.arena.verdict import Verdict
from automate.errors import FlockError
from automate.journal import Record
from automate.serving.client import ChatClient, Messages, Reply, RequestRefused, TransportFailed, pauses
from automate.serving.limiter import Limiter
from automate.serving.messages import Encoded

T = TypeVar("T")

TEMPLATE_MARGIN = 384
"""Tokens that a chat template may add around the messages, at most, in the bytes bound."""


class Serving(Protocol):
    """Where requests go: a job's own server, an address of others', or a fleet."""

    @property
    def context(self) -> int | None:
        """Tokens of its context; None where it doesn't say."""

    async def client(self) -> ChatClient:
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


class Asker:
    """Sends requests that fit the context, and sends them again where the server didn't answer.

    `pace` is awaited before each request (a rate limit, or nothing).
    """

    def __init__(self, serving: Serving, ask: Ask, limiter: Limiter,
                 pace: Callable[[], Awaitable[None]] | None = None) -> None:
        self.serving = serving
        self.ask = ask
        self.limiter = limiter
        self.pace = pace
        self.retried = 0

    async def _room(self, prompt: Encoded, wanted: int | None = None, least: int | None = None) -> int:
        """max_tokens that the context leaves: by the bytes bound, and by /tokenize where that doesn't fit."""
        wanted, least, context = wanted or self.ask.max_tokens, least or self.ask.min_output, self.serving.context
        if context is None or len(prompt.json) + TEMPLATE_MARGIN + wanted <= context:  # no text is longer than its JSON
            return wanted
        bound = bytes_bound(prompt.messages())
        if bound + wanted <= context:
            return wanted
        if not self.ask.tokenize:
            return max(min(wanted, context - bound), min(wanted, least))
        tokens, length = await self._with_retries(lambda client: client.count_tokens(prompt.fragment))
        left = (length or context) - tokens
        if left < min(least, wanted):
            raise TooLong(f"{tokens} prompt tokens leave {max(left, 0)} of the context's {length or context}")
        return min(wanted, left)

    async def _send(self, messages: Messages, max_tokens: int, extra: Mapping[str, object] | None = None,
                    temperature: float | None = None, affinity: str | None = None) -> Reply:
        heat = self.ask.temperature if temperature is None else temperature
        return await self._with_retries(lambda client: client.chat(
            messages, max_tokens=max_tokens, temperature=heat, extra=extra, affinity=affinity))

    async def _once(self, call: Callable[[ChatClient], Awaitable[T]]) -> T:
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

    async def _with_retries(self, call: Callable[[ChatClient], Awaitable[T]]) -> T:
        try:
            return await self._once(call)
        except TransportFailed:
            if self.ask.retries == 0:
                raise
        await asyncio.sleep(min(0.2, self.ask.retry_wait))
        retrying = AsyncRetrying(
            stop=stop_after_attempt(self.ask.retries), wait=pauses(self.ask.retry_wait),
            retry=retry_if_exception_type(TransportFailed), reraise=True)
        async for attempt in retrying:
            with attempt:
                self.retried += 1
                return await self._once(call)
        raise TransportFailed("no attempt was made")


class Referee(Asker):
    """Plays single games."""

    def __init__(self, serving: Serving, ask: Ask, limiter: Limiter,
                 pace: Callable[[], Awaitable[None]] | None = None) -> None:
        super().__init__(serving, ask, limiter, pace)
        self._thinks = False  # whether this judge has been seen to think
        self._headless = False  # whether its replies begin inside a thought
        self._switchable = True  # whether the server takes NO_THINKING

    async def play(self, game: Game, messages: list[Message] | Encoded) -> Record:
        """Play one game to a record. Raises TransportFailed (the game stays due) or ServerError (stop)."""
        began = time.monotonic()
        prompt = messages if isinstance(messages, Encoded) else Encoded.of(messages)
        try:
            limit = await self._room(prompt)
            reply = await self._send(prompt.fragment, limit, affinity=game.uid)
        except TooLong as error:
            return self._record(game, "too_long", began, reason=str(error))
        except RequestRefused as error:
            return self._record(game, "refused", began, reason=error.what)
        heard = [self._hear(reply)]
        verdict, reason = heard[0].verdict, heard[0].verdict.reason
        if verdict.label is None:
            verdict, more = await self._conclude(prompt.messages(), heard[0], game.uid)
            heard, reason = heard + more, verdict.reason or reason
        outcome = "unparsed" if verdict.label is None else "verdict"
        return self._record(game, outcome, began, verdict=verdict, heard=heard, reason=reason)

    def _hear(self, reply: Reply, constrained: bool = False) -> Heard:
        heard = hear(reply, headless=self._headless, constrained=constrained)
        self._headless = self._headless or heard.headless
        self._thinks = self._thinks or heard.thinks
        return heard

    async def _conclude(self, messages: list[Message], first: Heard,
                        affinity: str | None = None) -> tuple[Verdict, list[Heard]]:
        """Ask once more, for the label only; constrained where the server can, and without thoughts where it can."""
        wanted = min(self.ask.max_tokens, THINKER_TOKENS) if self._thinks else CONCLUDE_TOKENS
        try:
            asked, limit = await self._question(messages, tail(first), wanted)
            reply = await self._last_word(asked, limit, affinity)
        except (RequestRefused, TooLong) as error:
            what = error.what if isinstance(error, RequestRefused) else str(error)
            return Verdict(None, reason=f"{first.verdict.reason}; asked to conclude: {what}"), []
        second = self._hear(reply, constrained=self.ask.structured)
        verdict = second.verdict
        if verdict.label is None:
            verdict = Verdict(None, reason=f"{first.verdict.reason}; asked to conclude: {verdict.reason}")
        return verdict, [second]

    async def _question(self, messages: list[Message], said: str, wanted: int) -> tuple[Encoded, int]:
        """The follow-up and its room; without what was said where that doesn't fit. Raises TooLong."""
        if said:
            with contextlib.suppress(TooLong):
                asked = Encoded.of(follow_up(messages, said))
                return asked, await self._room(asked, wanted, CONCLUDE_TOKENS)
        asked = Encoded.of(follow_up(messages, ""))
        return asked, await self._room(asked, wanted, CONCLUDE_TOKENS)

    async def _last_word(self, asked: Encoded, limit: int, affinity: str | None = None) -> Reply:
        """Send a follow-up. A server that doesn't know the switch for thoughts is asked without it from then on."""
        extra = CONSTRAINT if self.ask.structured else None
        if not (self._thinks and extra and self._switchable):
            return await self._send(asked.fragment, limit, extra, affinity=affinity)
        try:
            return await self._send(asked.fragment, limit, {**extra, **NO_THINKING}, affinity=affinity)
        except RequestRefused:
            reply = await self._send(asked.fragment, limit, extra, affinity=affinity)
        self._switchable = False
        return reply

    def _record(self, game: Game, outcome: str, began: float, *, verdict: Verdict | None = None,
                heard: Sequence[Heard] = (), reason: str | None = None) -> Record:
        replies = [one.reply for one in heard]
        record: dict[str, Any] = {
            "source": "engine", "key": game.key, "model": game.model, "uid": game.uid, "order": game.order,
            "baseline": game.baseline, "category": game.category, "prompt_sha": game.prompt_sha,
            "outcome": outcome, "label": verdict.label if verdict else None,
            "judgment": "\n".join(one.answer for one in heard if one.answer),
            "seconds": round(time.monotonic() - began, 3), "time": round(time.time(), 3),
        }
        if verdict and verdict.short:
            record["short"] = True
        if reason:
            record["reason"] = reason
        if len(replies) > 1:
            record["asked_twice"] = True
        if replies:
            record["finish"] = replies[0].finish
            record["usage"] = [sum(r.prompt_tokens for r in replies), sum(r.output_tokens for r in replies),
                               sum(r.cached_tokens for r in replies)]
        thoughts = "\n".join(one.thoughts for one in heard if one.thoughts)
        if thoughts:
            record["reasoning"] = thoughts
        return record


def is_fatal(error: FlockError) -> bool:
    """Whether an error means that no game can be played any more."""
    return not isinstance(error, (TransportFailed, RequestRefused))
