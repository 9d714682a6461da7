"""Rounds of evaluation: what waits at the router goes to the shared file system, and answers come back.

Never runs a model. A job reads `work.jsonl` and appends record files; nobody but this module hands them in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from automate.pool_places import PoolPlaces
from automate.pools.exchange import Exchange


@dataclass(frozen=True)
class Work:
    """One line of work.jsonl. `messages`: the chat; see kinds.base.Asked for method, choices, max_tokens.

    `workers`: what setMaxTokens and setSystemPrompt said of workers by address ({"max_tokens", "system_prompt"}) is in
    round.json, as it holds for many lines."""

    reference: str
    model: str
    messages: tuple[Mapping[str, str], ...]
    method: str
    choices: tuple[str, ...]
    max_tokens: int | None


@dataclass(frozen=True)
class Answer:
    """One record of a job: an answer (`result`, or `error` after the job's own retries), with the worker that gave it.

    scores: log-probabilities of the choices, in their order (loglikelihood only). Times in ms."""

    reference: str
    result: str | None
    worker: str
    started: int
    ended: int
    scores: tuple[float, ...] = ()
    error: str | None = None


@dataclass(frozen=True)
class RoundSpec:
    """round.json. models: name to folder or hub name (the `data_tx`); workers: see Work."""

    name: str
    made: int
    count: int
    models: Mapping[str, str]
    workers: Mapping[str, Mapping[str, object]]


@dataclass(frozen=True)
class HandedIn:
    """answers: taken; strays: not (late, twice, unknown); left: still without an answer."""

    round: str
    answers: int
    strays: int
    left: int


def make_round(exchange: Exchange, places: PoolPlaces, *, limit: int | None = None,
               models: Sequence[str] | None = None) -> RoundSpec | None:
    """Write what waits into a round: files first (fsynced), then `sent` in one transaction; None if nothing waits."""
    raise NotImplementedError


def hand_in(exchange: Exchange, places: PoolPlaces) -> list[HandedIn]:
    """Give every new record of every open round to the router as Inference-Response (via job; ids from the record, so
    twice is once), workers' joining and leaving as Register-Worker and Unregister-Worker. Torn tails are left."""
    raise NotImplementedError


def read_work(places: PoolPlaces, name: str) -> list[Work]:
    """Raises DataError."""
    raise NotImplementedError


def give_up(exchange: Exchange, places: PoolPlaces, name: str) -> int:
    """A round whose job is over: what has no answer goes back to the queue (it is asked again); how many."""
    raise NotImplementedError
