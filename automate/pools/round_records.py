"""What a round's files say: lines of work, records of answers and of workers, round.json; to JSON and back.

Never opens a database and never trusts a line that it has not checked."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from automate.errors import DataError
from automate.journal import read_json, read_jsonl
from automate.pool_places import PoolPlaces

METHODS = ("generate", "loglikelihood")
_WORKER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/+-]{0,119}\Z", re.ASCII)
_ADDRESS = re.compile(r"[A-Za-z0-9_-]{43}\Z", re.ASCII)
_LONGEST_TIME = 10**15
LONGEST_PROMPT = 1024 * 1024
"""Of the prompt in a record, in bytes."""


@dataclass(frozen=True)
class Work:
    """One line of work.jsonl. `messages`: the chat; see kinds.base.Asked for method, choices, max_tokens.

    `most_tokens`: how many were paid for, where tokens have a price: no more are asked for, whoever says so.
    `workers`: what setMaxTokens and setSystemPrompt said of workers by address ({"max_tokens", "system_prompt"}) is in
    round.json, as it holds for many lines."""

    reference: str
    model: str
    messages: tuple[Mapping[str, str], ...]
    method: str
    choices: tuple[str, ...]
    max_tokens: int | None
    most_tokens: int | None = None


@dataclass(frozen=True)
class Answer:
    """One record of a job: an answer (`result`, or `error` after the job's own retries), with the worker that gave it.

    scores: log-probabilities of the choices, in their order (loglikelihood only). Times in ms. prompt: the chat that
    was really asked, as JSON, where it is not the line's own (setSystemPrompt)."""

    reference: str
    result: str | None
    worker: str
    started: int
    ended: int
    scores: tuple[float, ...] = ()
    error: str | None = None
    prompt: str | None = None


@dataclass(frozen=True)
class WorkerLine:
    """One record of a job: a server of the fleet, as a worker of `model` (its name), joined or left the round."""

    worker: str
    model: str
    state: Literal["joined", "left"]


@dataclass(frozen=True)
class RoundSpec:
    """round.json. models: name to folder or hub name (the `data_tx`); workers: what is said of workers by address,
    {"model", "max_tokens", "system_prompt"} (absent where nothing was said), which goes before what a line of work
    says: setMaxTokens before its max_tokens, setSystemPrompt before its system message. What a model's every worker
    was told is under the address `<model>/*`."""

    name: str
    made: int
    count: int
    models: Mapping[str, str]
    workers: Mapping[str, Mapping[str, object]]


# --- to JSON ------------------------------------------------------------------------------------------
def work_record(work: Work) -> dict[str, object]:
    """A line of work.jsonl."""
    return asdict(work)


def answer_record(answer: Answer) -> dict[str, object]:
    """A line of a record file: {"kind": "answer", ...the fields of Answer}."""
    return {"kind": "answer"} | asdict(answer)


def worker_record(worker: str, model: str, state: Literal["joined", "left"]) -> dict[str, object]:
    """A line of a record file: {"kind": "worker", "worker", "model", "state"}."""
    return {"kind": "worker", "worker": worker, "model": model, "state": state}


def spec_record(spec: RoundSpec) -> dict[str, object]:
    """What round.json holds."""
    return asdict(spec)


# --- from JSON: each raises ValueError with a short reason ----------------------------------------------
def check_worker(name: object) -> str:
    """A worker's address of a job. Raises ValueError; one that could be a person's or a process's is refused."""
    if not isinstance(name, str) or not _WORKER.match(name):
        raise ValueError("worker is no name of up to 120 letters, digits and ._:@/+-")
    if _ADDRESS.match(name):
        raise ValueError("worker has the shape of a key's or process's address")
    return name


def _text(record: Mapping[str, object], name: str, longest: int) -> str:
    value = record.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} is no text" if name in record else f"no {name}")
    if len(value) > longest:
        raise ValueError(f"{name} is longer than {longest} characters")
    if "\0" in value:
        raise ValueError(f"{name} holds a NUL character")
    return value


def _maybe(record: Mapping[str, object], name: str, longest: int) -> str | None:
    return None if record.get(name) is None else _text(record, name, longest)


def _time(record: Mapping[str, object], name: str) -> int:
    value = record.get(name)
    if type(value) is not int or not 0 <= value <= _LONGEST_TIME:
        raise ValueError(f"{name} is no time in milliseconds")
    return value


def _texts(value: object, name: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise ValueError(f"{name} is no list of texts")
    return tuple(value)


def _scores(value: object) -> tuple[float, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or len(value) > 1000 or not all(
            type(one) in (int, float) and math.isfinite(one) for one in value):
        raise ValueError("scores is no list of numbers")
    return tuple(float(one) for one in value)


def answer_of(record: Mapping[str, object], longest: int = 256 * 1024) -> Answer:
    """The Answer of a record; `longest`: characters of result and error."""
    result, error = _maybe(record, "result", longest), _maybe(record, "error", longest)
    if result is None and error is None:
        raise ValueError("neither result nor error")
    return Answer(_text(record, "reference", 200), result, check_worker(record.get("worker")),
                  _time(record, "started"), _time(record, "ended"), _scores(record.get("scores")), error,
                  _maybe(record, "prompt", LONGEST_PROMPT))


def worker_of(record: Mapping[str, object]) -> WorkerLine:
    """The WorkerLine of a record."""
    state = record.get("state")
    if state != "joined" and state != "left":
        raise ValueError("state is neither 'joined' nor 'left'")
    return WorkerLine(check_worker(record.get("worker")), _text(record, "model", 200),
                      "joined" if state == "joined" else "left")


def line_of(record: Mapping[str, object], longest: int = 256 * 1024) -> Answer | WorkerLine:
    """What a record of a job says. Raises ValueError."""
    kind = record.get("kind", "answer")
    if kind == "answer":
        return answer_of(record, longest)
    if kind == "worker":
        return worker_of(record)
    raise ValueError("kind is neither 'answer' nor 'worker'")


def work_of(record: Mapping[str, object]) -> Work:
    """The Work of a line of work.jsonl."""
    chat = record.get("messages")
    if not isinstance(chat, list | tuple) or not chat or not all(
            isinstance(one, dict) and all(isinstance(text, str) for text in one.values()) for one in chat):
        raise ValueError("messages is no chat")
    method = _text(record, "method", 40)
    if method not in METHODS:
        raise ValueError("method is neither 'generate' nor 'loglikelihood'")
    return Work(_text(record, "reference", 200), _text(record, "model", 200), tuple(chat), method,
                _texts(record.get("choices"), "choices"), _tokens(record, "max_tokens"),
                _tokens(record, "most_tokens"))


def _tokens(record: Mapping[str, object], name: str) -> int | None:
    value = record.get(name)
    if value is not None and (type(value) is not int or value < 1):
        raise ValueError(f"{name} is no number from 1 on")
    return value


def spec_of(record: Mapping[str, object] | None) -> RoundSpec:
    """The RoundSpec of round.json."""
    if record is None:
        raise ValueError("no round.json, or not a whole one")
    models, workers = record.get("models"), record.get("workers")
    if not isinstance(models, dict) or not isinstance(workers, dict):
        raise ValueError("models or workers is no object")
    return RoundSpec(_text(record, "name", 200), _time(record, "made"), _time(record, "count"),
                     {str(key): str(value) for key, value in models.items()},
                     {str(key): value for key, value in workers.items() if isinstance(value, dict)})


# --- files ----------------------------------------------------------------------------------------------
_TODO = "give the round up: it was not written by this program, or was changed since"


def read_work(places: PoolPlaces, name: str) -> list[Work]:
    """What a round is to answer. Raises DataError naming the line that can't be used, StorageError."""
    path = places.work(name)
    found = read_jsonl(path)
    if found.bad:
        raise DataError(found.bad[0].why, where=f"{path}:{found.bad[0].line}", todo=_TODO)
    out = []
    for number, record in found.records:
        try:
            out.append(work_of(record))
        except ValueError as error:
            raise DataError(str(error), where=f"{path}:{number}", todo=_TODO) from error
    return out


def read_spec(places: PoolPlaces, name: str) -> RoundSpec:
    """round.json. Raises DataError."""
    path = places.round_spec(name)
    try:
        return spec_of(read_json(path))
    except ValueError as error:
        raise DataError(str(error), where=str(path), todo=_TODO) from error
