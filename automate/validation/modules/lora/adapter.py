"""What a submission is: an adapter over a supported base model, or a whole model; told from its files alone.

Needs no torch. Everything in `adapter_config.json` is the submission's, and believed by nobody."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from automate.validation.modules.base import SubmissionFault

CONFIG = "adapter_config.json"
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
_LARGEST = 10_000_000
_SHOWN = 120


def _config(path: Path) -> dict[str, object]:
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError(f"larger than {_LARGEST} bytes")
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise SubmissionFault(f"{CONFIG} can't be read ({error})"[:300], cause="malformed-adapter") from error
    if not isinstance(value, dict):
        raise SubmissionFault(f"{CONFIG} is not an object", cause="malformed-adapter")
    return value


def base_of(folder: Path, supported: Collection[str]) -> str | None:
    """The base model that the adapter in a folder names; None where the folder holds no adapter.

    Raises SubmissionFault with the cause `malformed-adapter`, `missing-base` or `unsupported-base`.
    """
    path = folder / CONFIG
    if not path.is_file():
        return None
    config = _config(path)
    base = config.get("base_model_name_or_path")
    if not base:
        raise SubmissionFault(f"{CONFIG} names no base model", cause="missing-base")
    if not isinstance(base, str) or base not in supported:
        raise SubmissionFault(f"the adapter's base model {str(base)[:_SHOWN]!r} is not supported",
                              cause="unsupported-base")
    if config.get("megatron_config"):
        raise SubmissionFault(f"{CONFIG} asks for another library to be imported", cause="malformed-adapter")
    return base


def need_weights(folder: Path) -> None:
    """Raises SubmissionFault (`missing-weights`) for an adapter without its tensors."""
    if not any((folder / name).is_file() for name in WEIGHTS):
        raise SubmissionFault(f"the adapter has neither {' nor '.join(WEIGHTS)}", cause="missing-weights")


def need_whole(folder: Path, lora_only: bool) -> None:
    """Raises SubmissionFault for a folder without adapter: where only adapters count, or without a model's config."""
    if lora_only:
        raise SubmissionFault(f"the repository has no {CONFIG}, and only adapters are validated",
                              cause="missing-adapter")
    if not (folder / "config.json").is_file():
        raise SubmissionFault(f"the repository has neither {CONFIG} nor config.json", cause="not-a-model")
