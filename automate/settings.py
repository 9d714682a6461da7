"""Typed settings: what a campaign is told to do, and with what.

Never reads files or the environment; `settings_loader` does that."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator

from automate.settings_base import Scalar, Strict, check_variables, one_line, slurm_time
from automate.settings_fleet import Fleet
from automate.settings_generate import Candidate, Generate, GenerateSlurm
from automate.settings_judge import Environment, Judge, Price, Server, Staging
from automate.settings_pools import Pools
from automate.settings_results import Curves, Results
from automate.settings_validation import Validation

__all__ = ["JUDGE_KINDS", "Candidate", "Curves", "Environment", "Fleet", "Generate", "GenerateSlurm", "Gpu", "Judge",
           "Limits", "Pools", "Price", "Results", "Server", "Settings", "Slurm", "Staging", "Validation"]

JUDGE_KINDS = ("vllm", "openai", "rehearsal")
_SBATCH_OPTION = re.compile(r"[a-z][a-z0-9-]*")

_OWN_OPTIONS = frozenset({"job-name", "output", "error", "array", "wrap", "parsable", "test-only", "wait"})


class Slurm(Strict):
    """What a batch job asks Slurm for; `options` takes any other long sbatch option."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    time: str = "02:00:00"
    mem: str | None = "64G"
    cpus_per_task: Annotated[int, Field(ge=1)] | None = 8
    gpus: Annotated[int, Field(ge=0)] = 1
    gres: str | None = None
    exclude: str | None = None
    constraint: str | None = None
    options: dict[str, Scalar] = {}

    _check_time = field_validator("time")(slurm_time)

    @field_validator("partition", "account", "qos", "mem", "gres", "exclude", "constraint")
    @classmethod
    def _plain(cls, value: str | None) -> str | None:
        return None if value is None else one_line(value)

    @field_validator("options")
    @classmethod
    def _options(cls, value: dict[str, Scalar]) -> dict[str, Scalar]:
        for name, item in value.items():
            if not _SBATCH_OPTION.fullmatch(name):
                raise ValueError(f"'{name}' is not a long sbatch option (write it without dashes in front)")
            if name in _OWN_OPTIONS:
                raise ValueError(f"'{name}' is set by flock-hpc and can't be given")
            if name.replace("-", "_") in cls.model_fields or name == "gpus":
                raise ValueError(f"'{name}' has a setting of its own: slurm.{name.replace('-', '_')}")
            one_line(str(item))
        return value


class Gpu(Strict):
    """One GPU of the cluster's partition, as far as it is known; the rates are those of the whole judge server."""

    name: str | None = None
    memory_gb: Annotated[float, Field(gt=0)] | None = None
    prompt_tokens_per_second: Annotated[float, Field(gt=0)] | None = None
    output_tokens_per_second: Annotated[float, Field(gt=0)] | None = None


class Limits(Strict):
    """How often things are tried, and how long they may take."""

    attempts: Annotated[int, Field(ge=1)] = 2
    resubmits: Annotated[int, Field(ge=0)] = 3
    max_parallel: Annotated[int, Field(ge=1)] | None = None
    claim_stale: Annotated[float, Field(gt=0)] = 90.0
    poll: Annotated[float, Field(gt=0)] = 15.0
    requeues: Annotated[int, Field(ge=0)] = 20
    drain: Annotated[float, Field(ge=1)] = 120.0
    stall: Annotated[float, Field(gt=0)] = 2700.0
    max_gpu_hours: Annotated[float, Field(gt=0)] | None = None
    max_submitted: Annotated[int, Field(ge=1)] | None = None
    refill: Literal["wait", "job"] = "wait"
    bad_node_deaths: Annotated[int, Field(ge=1)] = 2


class Settings(Strict):
    """All settings of a workspace. Field names are the keys of flock-hpc.yaml."""

    bench: str = "arena-hard-v2.0"
    arena_hard: str = "arena-hard-auto"
    models_file: str = "arena_hard_models_to_test.txt"
    models_pattern: str = "*"
    baseline: str | dict[str, str] = "llama3.1-8b-instruct"
    honour_rows: Literal["same-prompt", "any-prompt"] = "same-prompt"
    batch_size: Annotated[int, Field(ge=1)] = 10
    array: bool = True
    executor: Literal["auto", "slurm", "local"] = "auto"
    cluster: str = "generic"
    judge: Judge = Judge()
    slurm: Slurm = Slurm()
    environment: dict[str, str] = {}
    gpu: Gpu = Gpu()
    limits: Limits = Limits()
    generate: Generate = Generate()
    fleet: Fleet = Fleet()
    results: Results = Results()
    curves: Curves = Curves()
    validation: Validation = Validation()
    pools: Pools = Pools()

    _check_environment = field_validator("environment")(check_variables)

    @field_validator("bench")
    @classmethod
    def _bench(cls, value: str) -> str:
        from automate.names import check_name

        return check_name(value, "bench")

    @field_validator("baseline")
    @classmethod
    def _baseline(cls, value: str | dict[str, str]) -> str | dict[str, str]:
        from automate.names import check_name

        if isinstance(value, str):
            return check_name(value, "baseline")
        if not value:
            raise ValueError("expected a model's name, or one for each category")
        return {category: check_name(model, "baseline") for category, model in value.items()}
