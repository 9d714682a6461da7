"""A LoRA adapter of the tiny model, small and random, in the format of peft.

Never trained on anything: it only makes the model say something else."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np

PARTS = ("q_proj", "v_proj")


def make_adapter(folder: Path, base: Path, *, rank: int = 8, seed: int = 0, scale: float = 1.0) -> Path:
    """Write an adapter of `base` (a Llama's folder) whose weights are drawn from `seed`."""
    config = json.loads((base / "config.json").read_text())
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    width = config.get("head_dim") or hidden // heads
    sizes = {"q_proj": heads * width, "v_proj": config["num_key_value_heads"] * width}
    random = np.random.default_rng(seed)
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        for part in PARTS:
            name = f"base_model.model.model.layers.{layer}.self_attn.{part}"
            tensors[f"{name}.lora_A.weight"] = random.normal(0, scale, (rank, hidden))
            tensors[f"{name}.lora_B.weight"] = random.normal(0, scale, (sizes[part], rank))
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": str(base), "r": rank,
        "lora_alpha": 2 * rank, "lora_dropout": 0.0, "bias": "none", "target_modules": list(PARTS),
        "inference_mode": True, "fan_in_fan_out": False, "modules_to_save": None}))
    write_safetensors(folder / "adapter_model.safetensors", tensors)
    return folder


def write_safetensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    """Write tensors as 32-bit floats."""
    header, data = {}, b""
    for name, values in tensors.items():
        piece = np.ascontiguousarray(values, dtype="<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(values.shape),
                        "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
