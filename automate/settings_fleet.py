"""Settings of fleets: model servers that outlive a batch, the engine over them, and the router before them.

Never reads files or the environment; `settings_loader` does that."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from automate.settings_base import Strict, one_line, slurm_time

Routing = Literal["affinity", "least", "round-robin"]
"""How the engine chooses a worker: by question as long as it isn't overloaded, by least workload, or in turn."""


class EngineSlurm(Strict):
    """What the engine's own job asks Slurm for; it needs no GPU. None: as `slurm` says."""

    partition: str | None = None
    time: str | None = None
    mem: str | None = "8G"
    cpus_per_task: Annotated[int, Field(ge=1)] | None = 2

    @field_validator("time")
    @classmethod
    def _time(cls, value: str | None) -> str | None:
        return None if value is None else slurm_time(value)

    @field_validator("partition", "mem")
    @classmethod
    def _plain(cls, value: str | None) -> str | None:
        return None if value is None else one_line(value)


class Router(Strict):
    """The one address for other programs. `wait`: seconds that a request waits for a worker."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8100
    policy: Literal["cache_aware", "consistent_hash", "power_of_two", "round_robin", "random"] = "consistent_hash"
    wait: Annotated[float, Field(ge=0)] = 600.0

    @field_validator("host")
    @classmethod
    def _plain(cls, value: str) -> str:
        return one_line(value)


class Fleet(Strict):
    """One fleet of model servers. Seconds where not said otherwise.

    `engine`: in a job of its own, or in the job of the first server. `address`: at which a worker listens: a host name,
    an IP address or a network interface; auto: that of its node's name. A worker beats every `heartbeat`; one that has
    not for `stale` is asked after. One that had no request for `idle` ends, unless it is one of the least number.
    `overload`: how many times the least workload the worker of a question may have before another gets its games.
    `patience`: more servers are asked for only while those asked for before start within it.
    """

    engine: Literal["job", "beside"] = "job"
    engine_slurm: EngineSlurm = EngineSlurm()
    address: str = "auto"
    heartbeat: Annotated[float, Field(gt=0)] = 5.0
    stale: Annotated[float, Field(gt=0)] = 30.0
    idle: Annotated[float, Field(gt=0)] = 900.0
    patience: Annotated[float, Field(gt=0)] = 600.0
    routing: Routing = "affinity"
    overload: Annotated[float, Field(ge=1)] = 1.5
    router: Router = Router()

    @field_validator("address")
    @classmethod
    def _plain(cls, value: str) -> str:
        return one_line(value)
