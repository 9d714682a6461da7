"""Settings of benchmark pools: where their state lies, what clocks and time-outs do, what HTTP may take.

Never reads files or the environment; `settings_loader` does that. Keys are named here, never held."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Annotated

from pydantic import Field, field_validator

from automate.settings_base import Strict, one_line
from automate.settings_generate import GenerateSlurm


class PoolPrice(Strict):
    """What an inference costs its data set, in the token's smallest unit: prompt + token * (words + max tokens)."""

    prompt: Annotated[int, Field(ge=0, le=10**12)] = 0
    token: Annotated[int, Field(ge=0, le=10**12)] = 0


class PoolHttp(Strict):
    """What `pool serve` listens on and takes. Rates are for each client address."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8642
    message_bytes: Annotated[int, Field(ge=1024)] = 8 * 1024 * 1024
    requests_per_second: Annotated[float, Field(gt=0)] = 200.0
    timeout: Annotated[float, Field(gt=0)] = 30.0
    trusted_proxies: list[str] = []

    _check_host = field_validator("host")(one_line)

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, value: list[str]) -> list[str]:
        """Addresses and networks as they are written; everybody ("*", a network of size 0) is not to be trusted."""
        found = [ip_network(one, strict=False) for one in value]
        if not all(one.prefixlen for one in found):
            raise ValueError("a network of all addresses is no proxy")
        return [str(one.network_address) if one.num_addresses == 1 else str(one) for one in found]


class Pools(Strict):
    """Benchmark pools. Times are in seconds unless the name says otherwise; money is in the token's smallest unit."""

    database: str | None = None
    lock_wait: Annotated[float, Field(ge=0)] = 30.0
    days: Annotated[float, Field(gt=0, le=36500)] = 30.0
    min_fund: Annotated[int, Field(ge=1)] = 1
    winners: Annotated[int, Field(ge=1)] = 10
    evaluate_limit: Annotated[int, Field(ge=1)] = 1000
    evaluate_every: Annotated[float, Field(gt=0)] = 3600.0
    leaderboard_every: Annotated[float, Field(gt=0)] = 86400.0
    rewards_every: Annotated[float, Field(gt=0)] = 86400.0
    grace: Annotated[float, Field(ge=0)] = 86400.0
    inference_timeout: Annotated[float, Field(gt=0)] = 7200.0
    attempts: Annotated[int, Field(ge=1)] = 3
    max_waiting: Annotated[int, Field(ge=0)] = 10_000
    max_models: Annotated[int, Field(ge=0)] = 100
    max_tokens: Annotated[int, Field(ge=1)] = 1
    field_bytes: Annotated[int, Field(ge=16)] = 256 * 1024
    kinds: dict[str, str] = {}
    price: PoolPrice = PoolPrice()
    http: PoolHttp = PoolHttp()
    replicas: Annotated[int, Field(ge=1)] = 1
    slurm: GenerateSlurm = GenerateSlurm()

    @field_validator("database")
    @classmethod
    def _plain(cls, value: str | None) -> str | None:
        return None if value is None else one_line(value)

    @field_validator("kinds")
    @classmethod
    def _kinds(cls, value: dict[str, str]) -> dict[str, str]:
        for name, place in value.items():
            one_line(name)
            one_line(place)
        return value
