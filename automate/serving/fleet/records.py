"""What is written down of a fleet: what it is, what is wished of it, and each worker's word. Pure data.

Never read or written here; a record of another version keeps the keys that this one knows."""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self, TypeVar

import orjson
from pydantic import TypeAdapter, ValidationError

from automate.claims import Holder
from automate.errors import DataError

T = TypeVar("T")
State = Literal["ready", "draining"]
Executor = Literal["slurm", "local"]


_HOST = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_][A-Za-z0-9_-]{0,62}(\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*\Z", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,120}\Z", re.ASCII)


def is_host(text: str) -> bool:
    """Whether a text is a host name or an IP address, without port, brackets or zone."""
    try:
        return "%" not in text and bool(ipaddress.ip_address(text))
    except ValueError:
        return bool(_HOST.match(text))


_ADAPTERS: dict[type, TypeAdapter[Any]] = {}


def _of(cls: type[T], data: Mapping[str, Any]) -> T:
    """A record from JSON, every value of its own type; unknown keys are left out. Raises ValueError, TypeError."""
    if cls not in _ADAPTERS:
        _ADAPTERS[cls] = TypeAdapter(cls)
    found: T = _ADAPTERS[cls].validate_json(orjson.dumps(data), strict=True)
    return found


def _why(error: Exception) -> str:
    """What is wrong with a record, in one line, without its values."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        return f"{'.'.join(map(str, first['loc'])) or 'the whole'}: {first['msg']}"
    return str(error)


@dataclass(frozen=True)
class Group:
    """Equal servers of one model: `also` are its LoRA adapters, served by name beside it.

    `script`: the array job's; `least` and `most`: how many there are to be; `gpus`: cards of one server; `time_limit`:
    seconds of one job, None where it has none; `settings`: under which key of flock-hpc.yaml the server's settings
    stand (judge, generate).
    """

    number: int
    model: str
    script: str
    least: int
    most: int
    also: tuple[str, ...] = ()
    gpus: int = 0
    time_limit: float | None = None
    settings: str = "judge"
    load_timeout: float = 3600.0
    stop_timeout: float = 20.0
    restarts: int = 2
    request_timeout: float = 1800.0

    @property
    def names(self) -> tuple[str, ...]:
        """Every model name that its servers answer to."""
        return (self.model, *self.also)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """From JSON. Raises ValueError, TypeError."""
        return _of(cls, data)


@dataclass(frozen=True)
class FleetSpec:
    """What a fleet is. `id` is new each time a fleet of this name is made; `campaign`: the plan that it plays, if any.

    `print`: a hash of all that decides what its servers serve, so that a fleet can be told from another of its name.
    Seconds; `created` in epoch seconds.
    """

    name: str
    id: str
    version: str
    created: float
    user: str
    executor: Executor
    groups: tuple[Group, ...]
    print: str
    heartbeat: float = 5.0
    stale: float = 30.0
    idle: float = 900.0
    patience: float = 600.0
    address: str = "auto"
    campaign: str | None = None

    def group_of(self, model: str) -> Group | None:
        """The group whose servers answer to a model name."""
        return next((group for group in self.groups if model in group.names), None)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, data: Mapping[str, Any], where: str) -> Self:
        """From JSON. Raises DataError."""
        try:
            spec = _of(cls, data)
            numbers = [group.number for group in spec.groups]
            if not numbers or len(set(numbers)) < len(numbers) or min(numbers) < 0:
                raise ValueError("its groups have no numbers of their own")
            if not all(0 < value < math.inf for value in (spec.heartbeat, spec.stale, spec.idle, spec.patience)):
                raise ValueError("a time of it is no number of seconds")
        except (ValueError, TypeError) as error:
            raise DataError(f"not a fleet of flock-hpc ({_why(error)})", where=where,
                            todo="stop its jobs, move the folder away, and serve again") from error
        return spec


@dataclass(frozen=True)
class Wish:
    """How many workers of each group are wanted now (by group number), and whether the fleet is to end.

    `bounds`: least and most of groups for which somebody said so since the fleet was made; `dropped`: jobs whose end
    by scancel has lowered what is wanted. `stopped_by`: who had it stopped (user, engine).
    """

    wanted: Mapping[int, int] = field(default_factory=dict)
    stop: bool = False
    changed: float = 0.0
    bounds: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    stopped_by: str | None = None

    def bounds_of(self, group: Group) -> tuple[int, int]:
        """The least and the most workers of a group."""
        return self.bounds.get(group.number, (group.least, group.most))

    def wanted_of(self, group: Group) -> int:
        """How many workers of a group are wanted; the least where nobody said."""
        return 0 if self.stop else self.wanted.get(group.number, self.bounds_of(group)[0])

    def as_json(self) -> dict[str, Any]:
        return {"wanted": {str(number): count for number, count in self.wanted.items()}, "stop": self.stop,
                "changed": self.changed, "bounds": {str(number): list(two) for number, two in self.bounds.items()},
                "dropped": list(self.dropped), "stopped_by": self.stopped_by}

    @classmethod
    def of(cls, data: Mapping[str, Any], where: str = "wish.json") -> Self:
        """From JSON. Raises DataError."""
        try:
            wish = _of(cls, data)
            counts = [*wish.wanted.values(), *(count for two in wish.bounds.values() for count in two)]
            if min(counts, default=0) < 0:
                raise ValueError("a count that is none")
        except (ValueError, TypeError) as error:
            raise DataError(f"not what is wished of a fleet ({_why(error)})", where=where,
                            todo="remove the file, and say anew what is wanted ('flock-hpc serve --scale')") from error
        return wish


@dataclass(frozen=True)
class Spent:
    """Seconds of one server's job so far, and what they went into; they add up to `total`.

    `load`: from the job's start until its server was ready, restarts included; `work`: at least one request was in
    flight; `idle`: the rest.
    """

    load: float = 0.0
    work: float = 0.0
    idle: float = 0.0

    @property
    def total(self) -> float:
        return self.load + self.work + self.idle

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.load + other.load, self.work + other.work, self.idle + other.idle)


@dataclass(frozen=True)
class WorkerRecord:
    """A registered worker, by its own word. `id` and `nonce` are new at each start of its server.

    `host`, `port`: where its relay listens, by TLS with a certificate of the fleet's authority for `host`. `beat`
    counts heartbeats: a record whose `beat` changes is alive, whatever any clock says. `time`, `since` and `until` (the
    job's time limit) are the worker's own clock, epoch seconds. `running`, `waiting`: requests, by the server's
    metrics; `in_flight`: by the relay; `prefix_hits`, `prefix_queries`: tokens so far.
    """

    id: str
    fleet: str
    group: int
    model: str
    host: str
    port: int
    nonce: str
    version: str
    holder: Holder
    job: str | None
    node: str
    beat: int = 0
    also: tuple[str, ...] = ()
    state: State = "ready"
    context: int | None = None
    since: float = 0.0
    time: float = 0.0
    until: float | None = None
    in_flight: int = 0
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    prefix_hits: float | None = None
    prefix_queries: float | None = None
    served: int = 0
    spent: Spent = Spent()

    @property
    def url(self) -> str:
        """Its base URL, without /v1."""
        return f"https://[{self.host}]:{self.port}" if ":" in self.host else f"https://{self.host}:{self.port}"

    @property
    def names(self) -> tuple[str, ...]:
        """Every model name that it answers to."""
        return (self.model, *self.also)

    def beaten(self, now: float, **values: object) -> WorkerRecord:
        """The record of the next heartbeat."""
        return replace(self, beat=self.beat + 1, time=now, **values)  # type: ignore[arg-type]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, data: Mapping[str, Any], where: str) -> Self:
        """From JSON. Raises DataError."""
        try:
            record = _of(cls, data)
            if not _NAME.match(record.id) or ".." in record.id:
                raise ValueError("id: no name of a worker")
            if not is_host(record.host) or not 0 < record.port < 1 << 16:
                raise ValueError("host, port: no address")
        except (ValueError, TypeError) as error:
            raise DataError(f"not a worker of flock-hpc ({_why(error)})", where=where,
                            todo="remove the file") from error
        return record
