"""What is wrong with a model's or adapter's files, found by looking at them, for when a library can't load them.

Never takes a library's word for it, but for two complaints: an outdated library complains of good files as well."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from automate.validation.inner import words

ADAPTER = "adapter_config.json"
LARGEST = 200_000_000
"""Bytes of a JSON file that are looked at: larger than any tokenizer's."""
_OBJECTS = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
            "generation_config.json", "added_tokens.json", "vocab.json", "model.safetensors.index.json",
            "pytorch_model.bin.index.json")
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
_TOKENIZERS = ("tokenizer.json", "vocab.*", "*.model", "*.tiktoken", "*.spm", "tokenizer.*")
_SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
          "vocab_size")
_COMPLAINTS = ("size mismatch", "not found in the base model")
"""Words of torch and peft over an adapter or a model whose tensors or layers don't fit."""
_UNMERGEABLE = {"PROMPT_TUNING", "MULTITASK_PROMPT_TUNING", "P_TUNING", "PREFIX_TUNING", "ADAPTION_PROMPT", "CPT"}
"""Kinds of adapters that stand before the input instead of changing weights."""


def misfit(error: BaseException) -> bool:
    """Whether torch or peft say that names or sizes of the tensors don't fit, or that a pickle holds more than them."""
    if any(kind.__name__ == "UnpicklingError" for kind in type(error).__mro__):
        return True
    said = str(error)
    return isinstance(error, (RuntimeError, ValueError)) and any(text in said for text in _COMPLAINTS)


def of_model(folder: Path) -> str | None:
    """What is wrong with a whole model's folder; None where nothing is seen. Raises OSError."""
    return (_files([folder / name for name in _OBJECTS], _json)
            or _files(sorted(folder.glob("model*.safetensors")), tensors)
            or _files(sorted(folder.glob("pytorch_model*.bin")), _pickle)
            or _shards(folder)
            or _sizes(_object(folder / "config.json"))
            or (None if _any(folder, _WEIGHTS) else "it has no weights")
            or (None if _any(folder, _TOKENIZERS) else "it has no tokenizer"))


def of_adapter(folder: Path) -> str | None:
    """What is wrong with an adapter's folder, so that no version of peft can use it; None where nothing is seen.

    Only of the files that peft reads. Raises OSError.
    """
    safe, old = folder / "adapter_model.safetensors", folder / "adapter_model.bin"
    return (_files([folder / ADAPTER], _json) or _files([safe], tensors)
            or (None if safe.is_file() else _files([old], _pickle)) or values(_object(folder / ADAPTER)))


def _any(folder: Path, patterns: tuple[str, ...]) -> bool:
    excluded = {"tokenizer_config.json"}
    return any(path.name not in excluded for pattern in patterns for path in folder.glob(pattern))


def _files(paths: Iterable[Path], look: Callable[[Path], str | None]) -> str | None:
    """The first of the files that are there with which something is wrong, and what."""
    for path in paths:
        if path.is_file() and (wrong := look(path)):
            return f"{words.plain(path.name, 80)} {wrong}"
    return None


def _shards(folder: Path) -> str | None:
    """The first file of weights that an index names and that is not there."""
    for name in (name for name in _OBJECTS if name.endswith(".index.json")):
        named = _object(folder / name).get("weight_map")
        for shard in sorted({str(one) for one in named.values()}) if isinstance(named, dict) else []:
            if not (folder / shard).is_file():
                return f"{name} names {words.plain(shard, 80)}, which it lacks"
    return None


def _json(path: Path) -> str | None:
    if path.stat().st_size > LARGEST:
        return "is too large"
    try:
        return None if isinstance(json.loads(path.read_bytes()), dict) else "is not an object"
    except (ValueError, RecursionError) as error:
        return f"is not JSON ({words.of(error, 100)})"


def _object(path: Path) -> dict[str, Any]:
    """What `_json` found to be one; {} where there is none."""
    found: dict[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {}
    return found


def tensors(path: Path) -> str | None:
    """What is wrong with a file of safetensors: its header, or fewer or more bytes than that says. Raises OSError."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        if len(start) < 8:
            return "is cut off"
        length = struct.unpack("<Q", start)[0]
        if length > min(size - 8, LARGEST):
            return "is cut off, or no file of tensors"
        try:
            header = json.loads(file.read(length))
            ends = [int(one["data_offsets"][1]) for name, one in header.items() if name != "__metadata__"]
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
            return "has a broken header"
    return None if max(ends, default=0) == size - 8 - length else "is cut off, or has other bytes than its header says"


def _pickle(path: Path) -> str | None:
    """Torch writes zip files, and wrote bare pickles before. Of other files of this name nothing is said."""
    with path.open("rb") as file:
        start = file.read(2)
    if start == b"PK":
        return None if zipfile.is_zipfile(path) else "is cut off"
    return None if start[:1] == b"\x80" else "is no file of tensors"


def _whole(value: object, least: int = 1) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _sizes(config: dict[str, Any]) -> str | None:
    for name in _SIZES:
        if config.get(name) is not None and not (_whole(config[name]) or isinstance(config[name], list)):
            return f"`{name}` in config.json is {words.plain(repr(config[name]), 40)}"
    return None


def _names(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(one, str) for one in value))


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_CHECKS: dict[str, Callable[[object], bool]] = {
    "r": _whole, "lora_alpha": _number, "lora_dropout": _number, "target_modules": _names, "modules_to_save": _names,
    "bias": lambda value: isinstance(value, str), "use_dora": lambda value: isinstance(value, bool),
    "use_rslora": lambda value: isinstance(value, bool), "fan_in_fan_out": lambda value: isinstance(value, bool),
    "rank_pattern": lambda value: isinstance(value, dict) and all(map(_whole, value.values())),
    "alpha_pattern": lambda value: isinstance(value, dict) and all(map(_number, value.values())),
}


def values(config: dict[str, Any]) -> str | None:
    """What in an adapter's config is wrong for every version of peft."""
    kind = config.get("peft_type")
    if not isinstance(kind, str):
        return f"{ADAPTER} names no `peft_type`"
    if kind in _UNMERGEABLE:
        return f"an adapter of the kind {kind} can't be merged into its base"
    if kind == "LORA":
        for name, right in _CHECKS.items():
            if config.get(name) is not None and not right(config[name]):
                return f"`{name}` in {ADAPTER} is {words.plain(repr(config[name]), 40)}"
    return None
