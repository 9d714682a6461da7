"""The second step: every answer before every judge, each reply kept at once, then the metric.

Never counts an outage as a score: whatever the network or the provider does, the calls that are left are made later."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Protocol

from automate.validation.modules.base import InvalidConfigValueException
from automate.validation.modules.llm_judge import dataset, scoring
from automate.validation.modules.llm_judge.client import Refused
from automate.validation.modules.llm_judge.kept import KeptReplies, call_key
from automate.validation.modules.llm_judge.prompts import NoPrompt, Prompts
from automate.validation.modules.llm_judge.schemas import EvalArgs, Partial

HIGHEST_SEED = 10_000
MOST_REFUSED = 8
"""Refusals of a judge that answered nothing yet, after which it is not asked any more."""


class Asks(Protocol):
    """What is needed of a client."""

    def ask(self, body: dict[str, Any]) -> str | None:
        """The text of a judge's reply."""


@dataclass(frozen=True)
class Judged:
    """(score, confidence) of the replies over each answer; how many count by default, and why the first does."""

    items: tuple[tuple[tuple[float, float], ...], ...]
    defaults: int
    why: str = ""

    @property
    def score(self) -> float:
        return scoring.final_score(self.items)


@dataclass(frozen=True)
class _Refusal:
    requested: str
    words: str


class Judging:
    """One assignment's answers and judges. `stop` is set by the first trouble: calls under way end, none begins."""

    def __init__(self, client: Asks, kept: KeptReplies, arguments: EvalArgs, prompts: Prompts, *,
                 stop: threading.Event, seeds: random.Random, say: Callable[[str], None] = lambda _: None) -> None:
        self.client, self.kept, self.arguments, self.prompts = client, kept, arguments, prompts
        self._stop, self._seeds, self._say = stop, seeds, say
        self._lock = threading.Lock()
        self._refused: dict[str, int] = {}
        self._done = 0

    def judge(self, left: Partial, *, parallel: int) -> Judged:
        """Judge all answers, `parallel` of them at once.

        Raises what the client raises for outages and configs, after all replies that came were kept, and
        InvalidConfigValueException where a judge refuses everything it is asked.
        """
        cases = [(row, text) for texts in left.answers for row, text in enumerate(texts)]
        pool = ThreadPoolExecutor(max_workers=min(parallel, len(cases)), thread_name_prefix="judge")
        try:
            futures = [pool.submit(self._guarded, number, left, row, text, len(cases))
                       for number, (row, text) in enumerate(cases)]
            wait(futures)
        finally:
            self._stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
        errors = [error for future in futures if (error := future.exception()) is not None]
        for error in sorted(errors, key=lambda one: isinstance(one, Stopped)):
            raise error
        return self._settled([future.result() for future in futures])

    def _guarded(self, number: int, left: Partial, row: int, answer: str,
                 total: int) -> tuple[tuple[float, float], ...] | _Refusal | str:
        try:
            found = self._one(number, left, row, answer)
        except BaseException:
            self._stop.set()
            raise
        with self._lock:
            self._done += 1
            if self._done % 25 == 0 or self._done == total:
                self._say(f"judged {self._done}/{total}")
        return found

    def _one(self, number: int, left: Partial, row: int,
             answer: str) -> tuple[tuple[float, float], ...] | _Refusal | str:
        """(score, confidence) of one answer's replies; a refusal; or why it counts by default."""
        try:
            messages = self.prompts.messages(
                self.arguments.prompt, context=dataset.context(left.conversations[row]), answer=answer,
                reference=left.references[row], tools=left.tools[row])
        except NoPrompt as error:
            return str(error)
        found = []
        for requested in self.arguments.models:
            body = scoring.request_fields(requested, self.arguments.temperature) | {"messages": messages}
            for attempt in range(self.arguments.tries):
                try:
                    found.append(scoring.read_reply(self._reply(number, attempt, requested, body)))
                except scoring.ReplyFault as error:
                    return f"a reply of {requested} breaks the protocol's reading: {error}"
                except Refused as error:
                    return self._refusal(requested, str(error))
        return tuple(found)

    def _reply(self, number: int, attempt: int, requested: str, body: dict[str, Any]) -> str | None:
        key = call_key(number, attempt, requested, body)
        if key in self.kept:
            return self.kept.text(key)
        if self._stop.is_set():
            raise Stopped
        text = self.client.ask(body | {"seed": self._seed()})
        self.kept.add(key, requested, text)
        return text

    def _seed(self) -> int:
        with self._lock:
            return self._seeds.randint(0, HIGHEST_SEED)

    def _refusal(self, requested: str, words: str) -> _Refusal:
        with self._lock:
            self._refused[requested] = self._refused.get(requested, 0) + 1
            many = self._refused[requested] >= MOST_REFUSED
        if many and requested not in self.kept.models:
            raise _refuses(_Refusal(requested, words))
        return _Refusal(requested, words)

    def _settled(self, found: Sequence[tuple[tuple[float, float], ...] | _Refusal | str]) -> Judged:
        """Refusals count by default only where the same judge answered others: then it was for what was asked."""
        for one in found:
            if isinstance(one, _Refusal) and one.requested not in self.kept.models:
                raise _refuses(one)
        odd = [one.words if isinstance(one, _Refusal) else one for one in found if not isinstance(one, tuple)]
        items = tuple(one if isinstance(one, tuple) else (scoring.ITEM_DEFAULT,) for one in found)
        return Judged(items, len(odd), odd[0] if odd else "")


class Stopped(Exception):
    """A call that wasn't begun, since another one met trouble."""


def _refuses(one: _Refusal) -> InvalidConfigValueException:
    return InvalidConfigValueException(f"the judge {one.requested!r} refuses all that it is asked: {one.words}",
                                       cause="judge-refuses")
