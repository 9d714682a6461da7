"""Names of the files in an assignment's folder, and what stands in them; both layers read them.

Standard library only: the inner layer's environments hold nothing else of this package's dependencies."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

REPLY = "reply.json"
"""The API's reply, byte for byte."""
ASSIGNMENT = "assignment.json"
"""What the outer layer knows of it."""
RUN = "run.json"
"""What the inner layer is told: `RunFile`."""
RESULT = "result.json"
"""What came out: `Result`."""
PARTIAL = "partial.json"
"""What a first step leaves for the second."""
POSTS = "posts.jsonl"
"""Every attempt to report it, one line each."""
DATA = "data"
"""Folder of the validation set."""
LOGS = "logs"
"""Folder of what the module printed, a file a start."""


class Outcome(StrEnum):
    """How a start of a module ended.

    completed: has a payload; partial: a second step is left, where there is network; failed: the submission's own
    fault; recoverable: the validator's trouble, to be tried again; unusable: a person must mend a config, an
    environment or the assignment first.
    """

    COMPLETED = "completed"
    PARTIAL = "partial"
    FAILED = "failed"
    RECOVERABLE = "recoverable"
    UNUSABLE = "unusable"


@dataclass(frozen=True)
class RunFile:
    """What the inner layer is told of one assignment. Paths are absolute.

    `module_path`: the folder or file of a module outside of the package. `config_files`: in the order in which they
    are laid over each other. `data`, `model`, `base`: what lies on disk; None where there is none.
    `metrics`, `templates`, `judge_prompts`, `remote_code`: settings of the same names.
    """

    assignment_id: str
    task_id: str
    module: str
    module_path: str | None = None
    config_files: tuple[str, ...] = ()
    data: str | None = None
    model: str | None = None
    base: str | None = None
    commit: str | None = None
    metrics: str = "current"
    templates: str | None = None
    judge_prompts: str | None = None
    remote_code: bool = False
    schema: int = 1


@dataclass(frozen=True)
class Result:
    """What came out of one start. `payload` is what goes to the API as `data`; `metrics` the module's own, whole.

    `cause` is a stable word (`out-of-memory`, `missing-adapter`, ...), `reason` a sentence, `seconds` how long it took.
    """

    assignment_id: str
    outcome: Outcome
    module: str
    payload: dict[str, Any] | None = None
    metrics: dict[str, Any] | None = None
    cause: str = ""
    reason: str = ""
    step: int = 1
    gpu_type: str = ""
    seconds: float = 0.0
    commit: str | None = None
    notes: tuple[str, ...] = field(default_factory=tuple)
    schema: int = 1


def write_json(path: Path, value: object) -> None:
    """Replace a file with one JSON document, whole, by rename. Raises OSError; ValueError for NaN and infinity."""
    data = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2).encode() + b"\n"
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def write_run(folder: Path, run: RunFile) -> None:
    """Write what the inner layer is told."""
    write_json(folder / RUN, asdict(run))


def write_result(folder: Path, result: Result) -> None:
    """Write what came out."""
    write_json(folder / RESULT, asdict(result))


def _object(path: Path) -> Mapping[str, Any]:
    value = json.loads(path.read_bytes())
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected an object, found {type(value).__name__}")
    return value


def read_run(folder: Path) -> RunFile:
    """What the inner layer is told. Raises OSError and ValueError."""
    value = dict(_object(folder / RUN))
    try:
        value["config_files"] = tuple(value.get("config_files") or ())
        return RunFile(**value)
    except TypeError as error:
        raise ValueError(f"{folder / RUN}: {error}") from error


def read_result(folder: Path) -> Result | None:
    """What came out; None where nothing did, or the file is not whole."""
    try:
        value = dict(_object(folder / RESULT))
        value["outcome"] = Outcome(value["outcome"])
        value["notes"] = tuple(value.get("notes") or ())
        return Result(**value)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def read_partial(folder: Path) -> Mapping[str, Any]:
    """What a first step left. Raises OSError and ValueError."""
    return _object(folder / PARTIAL)
