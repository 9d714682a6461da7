"""Typed settings: what a campaign is told to do, and with what.

Never reads files or the environment; `settings_loader` does that."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.fields import FieldInfo

JUDGE_KINDS = ("vllm", "openai", "rehearsal")
_TIME = re.compile(r"(\d+-)?\d+(:\d{1,2}){0,2}|UNLIMITED|INFINITE")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET = re.compile(
    r"^(?!.*_(PATH|FILE|DIR)$).*(^|_)"
    r"(TOKEN|SECRETS?|PASSWORDS?|PASSWD|CREDENTIALS?|(API|ACCESS|PRIVATE|AUTH)_?KEYS?)(_|$)", re.IGNORECASE)
_SBATCH_OPTION = re.compile(r"[a-z][a-z0-9-]*")

_OWN_OPTIONS = frozenset({"job-name", "output", "error", "array", "wrap", "parsable", "test-only", "wait"})

Scalar = str | int | float | bool | None


def _whole(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _fit(value: object, field: FieldInfo | None) -> object:
    wanted = field.annotation if field is not None else None
    if value is None and isinstance(wanted, type) and issubclass(wanted, BaseModel):
        return {}
    if wanted == dict[str, str]:
        return {key: _whole(item) for key, item in value.items()} if isinstance(value, dict) else value
    return _whole(value) if wanted in (str, str | None) else value


class Strict(BaseModel):
    """A frozen model that refuses keys it doesn't know."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _as_written(cls, data: object) -> object:
        """Whole numbers where text is wanted are text; an empty section is one with nothing in it."""
        if not isinstance(data, dict):
            return data
        return {name: _fit(value, cls.model_fields.get(str(name))) for name, value in data.items()}


def _one_line(value: str) -> str:
    if any(ord(char) < 32 or ord(char) == 127 for char in value):
        raise ValueError("must be one line without control characters")
    return value


def _variables(value: dict[str, str]) -> dict[str, str]:
    for name, content in value.items():
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"'{name}' is not a name for an environment variable")
        if _SECRET.search(name):
            raise ValueError(f"'{name}' looks like a secret; secrets stand in no file that jobs are made from "
                             "(for a paid judge name the variable in judge.api_key_env)")
        if "\0" in content:
            raise ValueError(f"the value of '{name}' holds a NUL character")
    return value


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

    @field_validator("time")
    @classmethod
    def _time(cls, value: str) -> str:
        if not _TIME.fullmatch(value):
            raise ValueError("expected a Slurm time such as 02:00:00 or 1-12:00:00")
        return value

    @field_validator("partition", "account", "qos", "mem", "gres", "exclude", "constraint")
    @classmethod
    def _plain(cls, value: str | None) -> str | None:
        return None if value is None else _one_line(value)

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
            _one_line(str(item))
        return value


class Environment(Strict):
    """What the judge's server needs around it on a compute node, entered in this order."""

    modules: list[str] = []
    venv: str | None = None
    conda: str | None = None
    container: str | None = None
    setup: list[str] = []
    variables: dict[str, str] = {}

    _check_variables = field_validator("variables")(_variables)

    @model_validator(mode="after")
    def _one_home(self) -> Environment:
        if sum(item is not None for item in (self.venv, self.conda, self.container)) > 1:
            raise ValueError("give one of venv, conda, container")
        return self


class Server(Strict):
    """How the judge's server is started, and how long it may take."""

    command: list[str] = ["vllm", "serve"]
    args: list[str] = []
    transport: Literal["uds", "tcp"] = "uds"
    tensor_parallel_size: Annotated[int, Field(ge=1)] | None = None
    max_model_len: Annotated[int, Field(ge=1)] | None = None
    load_timeout: Annotated[float, Field(gt=0)] = 3600.0
    stop_timeout: Annotated[float, Field(ge=0)] = 20.0
    restarts: Annotated[int, Field(ge=0)] = 2

    @field_validator("args")
    @classmethod
    def _args(cls, value: list[str]) -> list[str]:
        for word in value:
            name = word.partition("=")[0]
            if name in {"--api-key", "--uds", "--host", "--port"}:
                raise ValueError(f"'{name}' is set by the job itself and can't be given")
        return value


class Price(Strict):
    """What a paid judge costs, in any one currency per million tokens."""

    input_per_million: Annotated[float, Field(ge=0)] = 0.0
    output_per_million: Annotated[float, Field(ge=0)] = 0.0


class Judge(Strict):
    """The judge model: where it comes from and how it is asked."""

    kind: Literal["vllm", "openai", "rehearsal"] = "vllm"
    name: str = "neuralmagic-llama3.1-70b-instruct-fp8"
    path: str | None = None
    temperature: Annotated[float, Field(ge=0)] = 0.0
    max_tokens: Annotated[int, Field(ge=1)] = 4096
    min_output_tokens: Annotated[int, Field(ge=1)] = 256
    concurrency: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    request_timeout: Annotated[float, Field(gt=0)] = 1800.0
    transport_retries: Annotated[int, Field(ge=0)] = 6
    engine: Literal["builtin", "upstream"] = "builtin"
    server: Server = Server()
    environment: Environment = Environment()
    rehearsal: dict[str, Scalar] = {}
    base_url: str | None = None
    model: str | None = None
    api_key_env: str | None = None
    context: Annotated[int, Field(ge=1)] | None = None
    requests_per_minute: Annotated[float, Field(gt=0)] | None = None
    price: Price = Price()
    max_cost: Annotated[float, Field(gt=0)] | None = None

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        from automate.names import check_name

        return check_name(value, "judge")

    @field_validator("api_key_env")
    @classmethod
    def _key_name(cls, value: str | None) -> str | None:
        if value is not None and not _VARIABLE.fullmatch(value):
            raise ValueError("expected the NAME of an environment variable, never the key itself")
        return value

    @model_validator(mode="before")
    @classmethod
    def _never_a_real_name(cls, data: object) -> object:
        """A rehearsal's rows must never lie where a real judge's lie, nor carry its name."""
        if isinstance(data, dict) and data.get("kind") == "rehearsal":
            name = data.get("name", cls.model_fields["name"].default)
            if isinstance(name, str) and "rehearsal" not in name:
                return {**data, "name": f"{name}-rehearsal"}
        return data

    @model_validator(mode="after")
    def _kind_needs(self) -> Judge:
        if self.kind == "openai" and not self.base_url:
            raise ValueError("judge.kind openai needs judge.base_url, for example https://host/v1")
        if self.max_cost and not (self.price.input_per_million or self.price.output_per_million):
            raise ValueError("judge.max_cost needs judge.price (input_per_million, output_per_million)")
        if self.kind != "vllm" and self.engine == "upstream" and self.kind != "rehearsal":
            raise ValueError("judge.engine upstream needs a server of the job's own (kind vllm)")
        return self


class Gpu(Strict):
    """One GPU of the cluster's partition, as far as it is known."""

    name: str | None = None
    memory_gb: Annotated[float, Field(gt=0)] | None = None


class Limits(Strict):
    """How often things are tried, and how long they may take."""

    attempts: Annotated[int, Field(ge=1)] = 2
    resubmits: Annotated[int, Field(ge=0)] = 3
    max_parallel: Annotated[int, Field(ge=1)] | None = None
    claim_stale: Annotated[float, Field(gt=0)] = 90.0
    poll: Annotated[float, Field(gt=0)] = 15.0


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

    _check_environment = field_validator("environment")(_variables)

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
