"""What every part of the settings is made of: frozen models that refuse what they don't know, and checks of texts.

Never reads files or the environment; `settings_loader` does that."""

from __future__ import annotations

import re
from collections.abc import Collection

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.fields import FieldInfo

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORDS = r"(TOKEN|SECRETS?|PASSWORDS?|PASSWD|CREDENTIALS?|(API|ACCESS|PRIVATE|AUTH)_?KEYS?)"
_SECRET = re.compile(rf"^(?!.*_(PATH|FILE|DIR)$).*(^|_){_WORDS}(_|$)", re.IGNORECASE)
_SECRET_OPTION = re.compile(rf"--(.*_)?{_WORDS}", re.IGNORECASE)  # vLLM has --long-prefill-token-threshold

_TIME = re.compile(r"(\d+-)?\d+(:\d{1,2}){0,2}|UNLIMITED|INFINITE")
_OWN_ARGS = frozenset({"--api-key", "--uds", "--host", "--port", "--served-model-name"})

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


def one_line(value: str) -> str:
    """Text of one line. Raises ValueError for control characters."""
    if any(ord(char) < 32 or ord(char) == 127 for char in value):
        raise ValueError("must be one line without control characters")
    return value


def slurm_time(value: str) -> str:
    """A time limit as Slurm takes it. Raises ValueError."""
    if not _TIME.fullmatch(value):
        raise ValueError("expected a Slurm time such as 02:00:00 or 1-12:00:00")
    return value


def check_args(value: list[str], own: Collection[str] = ()) -> list[str]:
    """Arguments for a job's server. Raises ValueError for options that the job sets itself, `own` among them, and for
    those that carry a secret."""
    for word in value:
        option = word.partition("=")[0]
        name = "--" + option[2:].replace("_", "-") if option.startswith("--") else ""
        if name in _OWN_ARGS or name in own:
            raise ValueError(f"'{option}' is set by the job itself and can't be given")
        if _SECRET_OPTION.fullmatch(f"--{name[2:].replace('-', '_')}"):
            raise ValueError(f"'{option}' carries a secret, and settings are written into the files of jobs: leave it "
                             "out (jobs download nothing), or export it as a variable of the shell that submits")
    return value


def check_variables(value: dict[str, str]) -> dict[str, str]:
    """Environment variables. Raises ValueError for bad names and for what looks like a secret."""
    for name, content in value.items():
        if not VARIABLE.fullmatch(name):
            raise ValueError(f"'{name}' is not a name for an environment variable")
        if _SECRET.search(name):
            raise ValueError(f"'{name}' looks like a secret; secrets stand in no file that jobs are made from "
                             "(for a paid judge name the variable in judge.api_key_env)")
        if "\0" in content:
            raise ValueError(f"the value of '{name}' holds a NUL character")
    return value
