"""Settings of the judge: where the model comes from, how its server is started, how it is asked.

Never reads files or the environment; `settings_loader` does that."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from automate.settings_base import VARIABLE, Scalar, Strict, check_args, check_variables, one_line


class Environment(Strict):
    """What the judge's server needs around it on a compute node, entered in this order."""

    modules: list[str] = []
    venv: str | None = None
    conda: str | None = None
    container: str | None = None
    setup: list[str] = []
    variables: dict[str, str] = {}

    _check_variables = field_validator("variables")(check_variables)

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
    load_format: str | None = None

    @field_validator("load_format")
    @classmethod
    def _format(cls, value: str | None) -> str | None:
        return None if value is None else one_line(value)

    @field_validator("args")
    @classmethod
    def _args(cls, value: list[str]) -> list[str]:
        return check_args(value)


class Staging(Strict):
    """Copying the judge's weights to a disk of the node before they are loaded.

    `folder` is on a node-local disk ($VARIABLES of the job are expanded); without it nothing is staged. `auto` stages
    where it pays: the shared file system gives less than `below` GB/s and more than one load a node is expected.
    """

    folder: str | None = None
    when: Literal["auto", "always", "never"] = "auto"
    below: Annotated[float, Field(gt=0)] = 1.0

    @field_validator("folder")
    @classmethod
    def _folder(cls, value: str | None) -> str | None:
        return None if value is None else one_line(value)


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
    expected_output_tokens: Annotated[int, Field(ge=1)] = 700
    concurrency: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    request_timeout: Annotated[float, Field(gt=0)] = 1800.0
    transport_retries: Annotated[int, Field(ge=0)] = 6
    engine: Literal["builtin", "upstream"] = "builtin"
    server: Server = Server()
    environment: Environment = Environment()
    staging: Staging = Staging()
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
        if value is not None and not VARIABLE.fullmatch(value):
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
