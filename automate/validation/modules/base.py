"""What a validation module is: its schemas, its life, and how it says what went wrong.

Needs pydantic only. Modules import their heavy parts inside functions, so that their schemas can be read anywhere."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict

Revision = Annotated[str, BeforeValidator(lambda value: "main" if value is None else value)]
"""A repository's revision in an input; null is `main`."""


class BaseConfig(BaseModel):
    """A module's config: `configs/<module>.json` under `configs/tasks/<task_id>.json`. Unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class BaseInputData(BaseModel):
    """What an assignment says; fields of the submission under those of the assignment. Unknown ones are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())


class BaseMetrics(BaseModel):
    """What a module computes. All fields are finite numbers, or the assignment is never sent."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class RecoverableException(Exception):
    """The validator's own trouble: nothing is reported, the assignment is tried again later. `cause`: a stable word."""

    cause: str = "recoverable"

    def __init__(self, reason: str, *, cause: str = "recoverable") -> None:
        super().__init__(reason)
        self.cause = cause


class InvalidConfigValueException(RecoverableException):
    """A config or setting that a person must mend: nothing is reported, and it is not tried again by itself."""

    cause: str = "config"

    def __init__(self, reason: str, *, cause: str = "config") -> None:
        super().__init__(reason, cause=cause)


class SubmissionFault(Exception):
    """The submission's own fault: the assignment is reported as failed. `cause`: a stable word.

    Raised while the machine's own trouble (memory, GPU, disk, network) is handled, it counts as that trouble;
    `raise SubmissionFault(...) from None` says that it has nothing to do with it.
    """

    cause: str = "submission"

    def __init__(self, reason: str, *, cause: str = "submission") -> None:
        super().__init__(reason)
        self.cause = cause


@dataclass(frozen=True)
class Job:
    """What a module finds around it: the assignment's files and the settings that concern modules.

    `data`: the validation set; `model`, `base`: folders of the submission's repository and of its base model (None:
    not fetched). `scratch`: a folder of its own, removed afterwards. `metrics`: `current` or `old` names for the wire.
    `templates`, `judge_prompts`: the user's checkouts. `remote_code`: whether a repository's own code may run.
    `notes`: remarks for the result, added by `note`. `folder`: the assignment's own folder, which outlives a start.
    """

    scratch: Path
    data: Path | None = None
    model: Path | None = None
    base: Path | None = None
    commit: str | None = None
    metrics: str = "current"
    templates: Path | None = None
    judge_prompts: Path | None = None
    remote_code: bool = False
    notes: list[str] = field(default_factory=list, compare=False)
    folder: Path | None = None

    def note(self, text: str) -> None:
        """Keep a remark with the result; it is shown, and never sent."""
        self.notes.append(text)

    def need(self, what: str) -> Path:
        """`data`, `model` or `base`. Raises RecoverableException where it is not on disk, or not whole."""
        found = {"data": self.data, "model": self.model, "base": self.base}[what]
        if found is None:
            raise RecoverableException(f"the {what} of this assignment is not on disk: fetch it first",
                                       cause=f"no-{what}")
        if gone := _gone(found):
            raise RecoverableException(f"the {what} of this assignment is not whole on disk any more: {gone}",
                                       cause="files-gone")
        return found


def _gone(path: Path) -> str | None:
    """What of a file or folder is not there: itself, all in it, or a file of the list that lies beside a snapshot."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return str(path)
    try:
        listed = json.loads(path.with_name(f"{path.name}.json").read_bytes())["files"].items()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return next((str(path / name) for name, size in listed if not _has(path / name, size)), None)


def _has(path: Path, size: object) -> bool:
    return path.is_file() and path.stat().st_size == size


class BaseValidationModule(ABC):
    """A module: one instance a start. `MODULE` in its file or package names the class.

    `two_steps`: `validate` returns a JSON object instead of metrics, and `finish` makes metrics of it where there is
    network (the login node).
    """

    config_schema: ClassVar[type[BaseConfig]]
    input_data_schema: ClassVar[type[BaseInputData]]
    metrics_schema: ClassVar[type[BaseMetrics]]
    task_type: ClassVar[str]
    two_steps: ClassVar[bool] = False

    @abstractmethod
    def __init__(self, config: Any, **kwargs: Any) -> None:
        """`config` is of `config_schema`; `job` among the keywords is a `Job`."""

    @abstractmethod
    def validate(self, data: Any, **kwargs: Any) -> BaseMetrics | Mapping[str, Any]:
        """Metrics of `metrics_schema` for an input of `input_data_schema`; a JSON object where there are two steps.

        `job` among the keywords is a `Job`. Raises RecoverableException for the validator's own trouble,
        SubmissionFault for the submission's. Anything else is told by `inner/classify.py`: memory, GPU, disk and
        network are the validator's; the rest is the submission's, but of this package's own modules, where it is taken
        for a mistake of theirs and tried again.
        """

    def finish(self, data: Any, partial: Mapping[str, Any], **kwargs: Any) -> BaseMetrics:
        """The second step, of what the first one left."""
        raise NotImplementedError("this module has one step")

    def payload(self, metrics: Any, *, job: Job, gpu_type: str) -> dict[str, Any]:
        """What goes to the API as `data`."""
        dumped: dict[str, Any] = metrics.model_dump()
        return dumped

    @abstractmethod
    def cleanup(self) -> None:
        """Called once at the end, however it ended."""
