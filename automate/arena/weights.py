"""What a judge's folder on disk says: a fingerprint of its weights, and what it needs of a GPU.

Never reads the weights themselves; sizes, names and config.json are enough."""

from __future__ import annotations

import hashlib
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automate.journal import parse_object

_WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")
_DTYPE_BYTES = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0, "fp8": 1.0}


@dataclass(frozen=True)
class ModelFolder:
    """A model on disk: bytes of weights, bytes of KV cache a token, context in tokens (None: not said)."""

    path: Path
    weight_bytes: int
    kv_bytes_per_token: int | None
    context: int | None
    heads: int | None
    architecture: str | None


def _files(path: Path) -> list[Path]:
    return sorted(file for file in path.iterdir() if file.suffix in _WEIGHTS and file.is_file())


def _config(path: Path) -> dict[str, Any]:
    config = parse_object((path / "config.json").read_bytes())
    text = config.get("text_config")
    return {**config, **text} if isinstance(text, dict) else config


def _number(config: dict[str, Any], *names: str) -> int | None:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def _kv_bytes(config: dict[str, Any]) -> int | None:
    layers = _number(config, "num_hidden_layers", "n_layer")
    heads = _number(config, "num_attention_heads", "n_head")
    hidden = _number(config, "hidden_size", "n_embd")
    if layers is None or heads is None or hidden is None:
        return None
    kv_heads = _number(config, "num_key_value_heads") or heads
    head_dim = _number(config, "head_dim") or hidden // heads
    width = _DTYPE_BYTES.get(str(config.get("torch_dtype") or config.get("dtype")), 2.0)
    return int(layers * kv_heads * head_dim * 2 * min(width, 2.0))


def read_model_folder(path: Path) -> ModelFolder:
    """Read a model's config.json and file sizes. Raises OSError or ValueError where that can't be done."""
    config = _config(path)
    return ModelFolder(
        path=path, weight_bytes=sum(file.stat().st_size for file in _files(path)), kv_bytes_per_token=_kv_bytes(config),
        context=_number(config, "max_position_embeddings", "n_positions", "max_seq_len"),
        heads=_number(config, "num_attention_heads", "n_head"),
        architecture=next(iter(config.get("architectures") or []), None),
    )


def _safetensors_header(path: Path) -> bytes:
    """The header of a safetensors file: names, shapes and offsets of its tensors, and their metadata."""
    with path.open("rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        return file.read(min(length, 16 << 20))


def fingerprint(path: Path) -> str:
    """A hash that stays when a model's folder is copied elsewhere and changes with another model.

    Over config.json and the name, size and (for safetensors) header of every weights file, plus 64 KiB from the
    middle of each, so that two checkpoints of one training run differ.
    """
    digest = hashlib.sha256()
    config = path / "config.json"
    digest.update(config.read_bytes() if config.is_file() else b"")
    for file in _files(path):
        size = file.stat().st_size
        digest.update(f"{file.name}\0{size}\0".encode())
        try:
            digest.update(_safetensors_header(file) if file.suffix == ".safetensors" else b"")
        except struct.error:
            digest.update(b"?")
        with file.open("rb") as data:
            data.seek(max(0, size // 2), os.SEEK_SET)
            digest.update(data.read(65536))
    return digest.hexdigest()[:32]
