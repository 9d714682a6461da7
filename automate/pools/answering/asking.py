"""One line of work asked of one model's servers: sent, retried, turned into an answer.

Never blames a line for servers that are gone: without any, it stays without an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt

from automate.pools.answering import requests
from automate.pools.answering.requests import NOTHING, Told
from automate.pools.answering.workers import Roster
from automate.pools.round_records import Answer, Work
from automate.serving.client import JudgeClient, RequestRefused, TransportFailed, pauses

T = TypeVar("T")
REMEMBERED = 4096
"""Options whose tokens are known: most data sets have the same letters in every question."""
ALL = "/*"
"""Ends the address under which stands what was said of all workers of a model."""
LONGEST = 256 * 1024
"""Characters of an answer; more are cut off, as nobody takes them."""


class Servers(Protocol):
    """A fleet's servers of one model (`FleetServing`)."""

    async def ask_worker(self, call: Callable[[JudgeClient, str], Awaitable[T]], question: str | None = None) -> T:
        """One request to a server that is chosen; `call` is told its id."""


@dataclass
class Asker:
    """Asks one model. `told`: what was said of its workers, by address; `default_tokens`: of an answer, where nobody
    says otherwise; `retries`: further tries of a request that got no answer; `now`: milliseconds. `switch`: whether the
    servers take the switch that turns thoughts off; found out by asking."""

    servers: Servers
    roster: Roster
    now: Callable[[], int]
    told: Mapping[str, Told] = field(default_factory=dict)
    default_tokens: int = 1
    retries: int = 6
    longest_wait: float = 30.0
    switch: bool = True
    retried: int = 0
    _options: dict[str, list[int]] = field(default_factory=dict)

    async def answer(self, work: Work) -> Answer:
        """The record of one line, an error where no try came to an answer. Raises ServerError: no server will come."""
        asked = _Asked(self.roster.first, self.now())
        try:
            result, scores = await self._with_retries(work, asked)
        except (TransportFailed, RequestRefused) as error:
            return Answer(work.reference, None, asked.worker, asked.at, self.now(), error=_fit(error.what, 2000),
                          prompt=asked.prompt)
        return Answer(work.reference, _fit(result, LONGEST), asked.worker, asked.at, self.now(), scores,
                      prompt=asked.prompt)

    async def _with_retries(self, work: Work, asked: _Asked) -> tuple[str, tuple[float, ...]]:
        try:
            return await self._once(work, asked)
        except TransportFailed:
            if self.retries == 0:
                raise
        await asyncio.sleep(min(0.2, self.longest_wait))
        retrying = AsyncRetrying(stop=stop_after_attempt(self.retries), wait=pauses(self.longest_wait),
                                 retry=retry_if_exception_type(TransportFailed), reraise=True)
        async for attempt in retrying:
            with attempt:
                self.retried += 1
                return await self._once(work, asked)
        raise TransportFailed("no attempt was made")

    async def _once(self, work: Work, asked: _Asked) -> tuple[str, tuple[float, ...]]:
        switch = self.switch
        try:
            return await self.servers.ask_worker(lambda client, server: self._by(work, asked, client, server, switch))
        except RequestRefused:
            if not switch:
                raise
        found = await self.servers.ask_worker(lambda client, server: self._by(work, asked, client, server, False))
        self.switch = False
        return found

    async def _by(self, work: Work, asked: _Asked, client: JudgeClient, server: str,
                  switch: bool) -> tuple[str, tuple[float, ...]]:
        """Ask the worker that was chosen, as that one is to be asked."""
        asked.worker, asked.at = self.roster.address(server), self.now()
        told = self.told.get(asked.worker) or self.told.get(work.model + ALL) or NOTHING
        messages = requests.messages_of(work, told)
        asked.prompt = requests.asked_otherwise(work, messages)
        if work.method == "loglikelihood":
            scores = await self._scores(client, work, messages, switch)
            return requests.best_of(scores), scores
        reply = await client.chat(
            messages, max_tokens=requests.tokens_of(work, told, self.default_tokens),
            temperature=requests.TEMPERATURE, extra=requests.extra_of(work, switch=switch))
        return requests.said_in(reply, work.choices), ()

    # --- log-likelihood ---------------------------------------------------------------------------
    async def _scores(self, client: JudgeClient, work: Work, messages: list[Mapping[str, str]],
                      switch: bool) -> tuple[float, ...]:
        if not work.choices:
            raise RequestRefused("a question without options has no log-likelihood")
        prefix = requests.read_tokens(await client.post(
            "/tokenize", requests.prefix_request(client.model, messages, switch=switch)))
        options = [await self._tokens(client, text) for text in work.choices]
        answer = await client.post("/v1/completions", requests.scoring_request(client.model, prefix, options))
        return requests.read_scores(answer, len(prefix), options)

    async def _tokens(self, client: JudgeClient, text: str) -> list[int]:
        """An option's tokens. Raises RequestRefused where it has none."""
        found = self._options.get(text)
        if found is None:
            found = requests.read_tokens(await client.post("/tokenize", requests.option_request(client.model, text)))
            if not found:
                raise RequestRefused(f"the option {text!r} has no tokens")
            if len(self._options) >= REMEMBERED:
                self._options.clear()
            self._options[text] = found
        return found


def _fit(text: str, longest: int) -> str:
    """A text as a record may hold it."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")[:longest]


@dataclass
class _Asked:
    """Who was asked last, when, and what, where that is not the line's own chat."""

    worker: str
    at: int
    prompt: str | None = None
