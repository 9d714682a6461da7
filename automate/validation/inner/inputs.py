"""What an assignment asks for: the submission's fields under the assignment's own, as the module's schema wants them.

Never fetches anything; fields that the schema doesn't know are left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from automate.validation.inner import words
from automate.validation.inner.faults import explain
from automate.validation.modules.base import InvalidConfigValueException

LARGEST = 8 * 2**20
"""Bytes of a reply that are read."""


def merged(reply: Mapping[str, Any]) -> dict[str, Any]:
    """`{**task_submission.data, **data}`: the assignment wins, as in the protocol's clients. Raises ValueError."""
    submission = reply.get("task_submission")
    if not isinstance(submission, Mapping):
        raise ValueError("`task_submission` is missing or no object")
    parts = {"task_submission.data": submission.get("data"), "data": reply.get("data")}
    for name, part in parts.items():
        if not isinstance(part, Mapping):
            raise ValueError(f"`{name}` is missing or no object")
    return {**parts["task_submission.data"], **parts["data"]}  # type: ignore[dict-item]


def _reply(path: Path) -> Mapping[str, Any]:
    if path.stat().st_size > LARGEST:
        raise ValueError(f"it is larger than {LARGEST} bytes")
    value = json.loads(path.read_bytes())
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")
    return value


def read(path: Path, schema: type[BaseModel]) -> BaseModel:
    """The input of one assignment. Raises InvalidConfigValueException (cause `input`) that names the field."""
    try:
        fields = merged(_reply(path))
    except (ValueError, RecursionError) as error:
        raise InvalidConfigValueException(f"the API's reply ({path.name}): {words.of(error)}", cause="input") from None
    try:
        return schema.model_validate(fields)
    except ValidationError as error:
        raise InvalidConfigValueException(f"the assignment's input: {explain(error)}", cause="input") from None
