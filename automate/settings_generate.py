"""Settings of answers: where each model comes from, how its server is started, how it is asked.

Never reads files or the environment; `settings_loader` does that."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from automate.settings_base import Scalar, Strict, check_args, one_line, slurm_time
from automate.settings_judge import Environment, Server

TOKENIZERS = ("o200k_base", "cl100k_base")
"""tiktoken's encodings whose files are known."""
_ADAPTERS = frozenset({"--enable-lora", "--lora-modules", "--max-loras", "--max-lora-rank"})


class Candidate(Strict):
    """One model whose answers are generated, where it differs from the others. None: as `generate` says.

    `path` is its folder; with `base`, the folder of a LoRA adapter of the base model in folder `base`.
    """

    path: str | None = None
    base: str | None = None
    chat_template: str | None = None
    system_prompt: str | None = None
    temperature: Annotated[float, Field(ge=0)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    args: list[str] = []

    @field_validator("path", "base", "chat_template")
    @classmethod
    def _paths(cls, value: str | None) -> str | None:
        return None if value is None else one_line(value)

    @field_validator("args")
    @classmethod
    def _args(cls, value: list[str]) -> list[str]:
        return check_args(value, _ADAPTERS)


class GenerateSlurm(Strict):
    """What a generation job asks Slurm for, where it differs from `slurm`. None: as there."""

    partition: str | None = None
    time: str | None = None
    mem: str | None = None
    cpus_per_task: Annotated[int, Field(ge=1)] | None = None
    gpus: Annotated[int, Field(ge=0)] | None = None
    gres: str | None = None

    @field_validator("time")
    @classmethod
    def _time(cls, value: str | None) -> str | None:
        return None if value is None else slurm_time(value)

    @field_validator("partition", "mem", "gres")
    @classmethod
    def _plain(cls, value: str | None) -> str | None:
        return None if value is None else one_line(value)


class Generate(Strict):
    """How the models' answers are generated."""

    kind: Literal["vllm", "rehearsal"] = "vllm"
    path: str | None = None
    models: dict[str, Candidate] = {}
    chat_template: str | None = None
    system_prompt: str | None = None
    temperature: Annotated[float, Field(ge=0)] = 0.0
    max_tokens: Annotated[int, Field(ge=1)] = 4096
    batch_size: Annotated[int, Field(ge=1)] | None = None
    max_loras: Annotated[int, Field(ge=1)] = 8
    tokenizer: str = "o200k_base"
    tokenizer_folder: str | None = None
    concurrency: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    request_timeout: Annotated[float, Field(gt=0)] = 1800.0
    server: Server = Server()
    environment: Environment | None = None
    slurm: GenerateSlurm = GenerateSlurm()
    rehearsal: dict[str, Scalar] = {}

    @field_validator("models")
    @classmethod
    def _models(cls, value: dict[str, Candidate]) -> dict[str, Candidate]:
        from automate.names import check_name

        return {check_name(name): candidate for name, candidate in value.items()}

    @field_validator("path")
    @classmethod
    def _place(cls, value: str | None) -> str | None:
        if value is not None and "{model}" not in value:
            raise ValueError("without {model} in it every model would come from the same folder: write "
                             "/checkpoints/{model}, or give one model's folder as generate.models.<name>.path")
        return None if value is None else one_line(value)

    @field_validator("server")
    @classmethod
    def _server(cls, value: Server) -> Server:
        check_args(value.args, _ADAPTERS)
        return value

    @field_validator("tokenizer")
    @classmethod
    def _tokenizer(cls, value: str) -> str:
        if value not in TOKENIZERS:
            raise ValueError(f"expected one of {', '.join(TOKENIZERS)}")
        return value

    @field_validator("chat_template", "tokenizer_folder")
    @classmethod
    def _plain(cls, value: str | None) -> str | None:
        return None if value is None else one_line(value)
