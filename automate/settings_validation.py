"""Settings of Flock AI Arena validation: the API, the spool, the modules' environments, what array jobs ask for.

Never reads files or the environment; `settings_loader` does that. Keys and tokens are named here, never held."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from automate.settings_base import VARIABLE, Strict, one_line
from automate.settings_generate import GenerateSlurm

BASE_URL = "https://fed-ledger-prod.flock.io/api/v1"
MANAGERS = ("auto", "conda", "mamba", "micromamba", "uv", "venv", "current")
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}


def _address(value: str) -> str:
    """An http(s) address without a trailing slash. Raises ValueError; plain http only towards this machine."""
    parts = urlsplit(one_line(value))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected an address such as https://fed-ledger-prod.flock.io/api/v1")
    if parts.username or parts.password:
        raise ValueError("an address must not hold a name or password")
    if parts.query or parts.fragment:
        raise ValueError("an address must not hold a query or fragment")
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise ValueError("the key would travel unencrypted: use https (http is for 127.0.0.1 only)")
    return value.rstrip("/")


class ModelCache(Strict):
    """Where models for validation lie, and how long. None: no such limit; `folder` None: inside the workspace."""

    folder: str | None = None
    max_gb: Annotated[float, Field(gt=0)] | None = None
    max_age_days: Annotated[float, Field(gt=0)] | None = 14.0

    @field_validator("folder")
    @classmethod
    def _plain(cls, value: str | None) -> str | None:
        return None if value is None else one_line(value)


class Validation(Strict):
    """Flock AI Arena validation. Times are in seconds unless the name says otherwise."""

    base_url: str = BASE_URL
    api_key_env: str = "FLOCK_API_KEY"
    hf_token_env: str = "HF_TOKEN"  # noqa: S105 - the name of a variable
    hub_url: str | None = None
    connect_timeout: Annotated[float, Field(gt=0)] = 10.0
    read_timeout: Annotated[float, Field(gt=0)] = 60.0
    retries: Annotated[int, Field(ge=0)] = 4
    lookup_interval: Annotated[float, Field(ge=0)] = 180.0
    time_sleep: Annotated[float, Field(ge=0)] = 180.0
    max_outstanding: Annotated[int, Field(ge=1)] = 8
    attempts: Annotated[int, Field(ge=1)] = 3
    per_task: Annotated[int, Field(ge=1)] = 1
    local_parallel: Annotated[int, Field(ge=1)] = 1
    lease: Annotated[float, Field(gt=0)] | None = None
    assignment_timeout: Annotated[float, Field(gt=0)] | None = None
    manager: Literal["auto", "conda", "mamba", "micromamba", "uv", "venv", "current"] = "auto"
    python: str | None = None
    environments: str | None = None
    module_folders: list[str] = []
    templates: str | None = None
    judge_prompts: str | None = None
    metrics: Literal["current", "old"] = "current"
    remote_code: bool = False
    max_download_gb: Annotated[float, Field(gt=0)] = 200.0
    min_free_gb: Annotated[float, Field(ge=0)] = 5.0
    models: ModelCache = ModelCache()
    slurm: GenerateSlurm = GenerateSlurm()
    module_slurm: dict[str, GenerateSlurm] = {}

    @field_validator("base_url", "hub_url")
    @classmethod
    def _addresses(cls, value: str | None) -> str | None:
        return None if value is None else _address(value)

    @field_validator("api_key_env", "hf_token_env")
    @classmethod
    def _variables(cls, value: str) -> str:
        if not VARIABLE.fullmatch(value):
            raise ValueError("expected the name of an environment variable, not the key itself")
        return value

    @field_validator("python", "environments", "templates", "judge_prompts")
    @classmethod
    def _plain(cls, value: str | None) -> str | None:
        return None if value is None else one_line(value)

    @field_validator("module_folders")
    @classmethod
    def _folders(cls, value: list[str]) -> list[str]:
        return [one_line(item) for item in value]
