"""What is written down of a fleet: what it is, what is wished of it, and each worker's word. Pure data.

Never read or written here; a record of another version keeps the keys that this one knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, Self

from automate.claims import Holder
from automate.errors import DataError

State = Literal["ready", "draining"]
Executor = Literal["slurm", "local"]


def _known(cls: type, data: Mapping[str, Any]) -> dict[str, Any]:
    names = {one.name for one in fields(cls)}
    return {name: value for name, value in data.items() if name in names}


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
        return cls(**{**_known(cls, data), "also": tuple(data.get("also", ()))})


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
            return cls(**{**_known(cls, data), "groups": tuple(Group.of(one) for one in data["groups"])})
        except (KeyError, TypeError, AttributeError) as error:
            raise DataError(f"not a fleet of flock-hpc ({error!r})", where=where,
                            todo="stop its jobs, move the folder away, and serve again") from error


@dataclass(frozen=True)
class Wish:
    """How many workers of each group are wanted now (by group number), and whether the fleet is to end."""

    wanted: Mapping[int, int] = field(default_factory=dict)
    stop: bool = False
    changed: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return {"wanted": {str(number): count for number, count in self.wanted.items()}, "stop": self.stop,
                "changed": self.changed}

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        wanted = {int(number): int(count) for number, count in data.get("wanted", {}).items()}
        return cls(wanted, bool(data.get("stop")), float(data.get("changed", 0.0)))


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
    counts heartbeats: a record whose `beat` rises is alive, whatever any clock says. `time` and `until` (the job's time limit)
    are the worker's own clock, epoch seconds. `running`, `waiting`: requests, by the server's metrics; `in_flight`: by
    the relay; `prefix_hits`, `prefix_queries`: tokens so far.
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
            return cls(**{**_known(cls, data), "holder": Holder(**data["holder"]), "also": tuple(data.get("also", ())),
                          "spent": Spent(**data.get("spent", {}))})
        except (KeyError, TypeError, AttributeError) as error:
            raise DataError(f"not a worker of flock-hpc ({error!r})", where=where, todo="remove the file") from error
