"""Tiny models with an adapter for the tests of the module `lora`, made once a run."""

from __future__ import annotations

import importlib.util
import json
import shutil
from atexit import register
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from automate.validation.modules.base import Job
from automate.validation.modules.lora import LoraConfig, LoraInput, LoraModule
from automate.validation.modules.lora.figures import LoraMetrics

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "make-tiny-lora.py"
BASE = "Qwen/Qwen2.5-0.5B"
HERE = {"use_cpu": True, "any_version": True}
"""The config keys that tests need: they run on a CPU, under whatever transformers there is."""


@cache
def tiny() -> Path:
    """The folder with `base`, `adapter`, `full` and `rows.jsonl`; not to be changed."""
    spec = importlib.util.spec_from_file_location("make_tiny_lora", SCRIPT)
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    root = Path(mkdtemp(prefix="flock-hpc-tiny-lora-"))
    register(shutil.rmtree, root, ignore_errors=True)
    script.make(root / "made", BASE, 24)
    return root / "made"


def copied(tmp_path: Path, name: str) -> Path:
    """A copy of one of the folders, to be broken."""
    return Path(shutil.copytree(tiny() / name, tmp_path / name))


def wanted(**other: object) -> LoraInput:
    """An assignment's input."""
    fields = {"hg_repo_id": "someone/adapter", "base_model": "yi", "context_length": 4096, "max_params": 10**9,
              "validation_set_url": "https://example.org/set"}
    return LoraInput.model_validate({**fields, **other})


def job(tmp_path: Path, **other: object) -> Job:
    """Where the tiny files lie."""
    places = {"data": tiny() / "rows.jsonl", "model": tiny() / "adapter", "base": tiny() / "base"}
    return Job(tmp_path, **{**places, **other})  # type: ignore[arg-type]


def run(tmp_path: Path, config: dict[str, object] | None = None, fields: dict[str, object] | None = None,
        **places: object) -> LoraMetrics:
    """Metrics of one start."""
    module = LoraModule(LoraConfig.model_validate({**HERE, **(config or {})}))
    try:
        return module.validate(wanted(**(fields or {})), job=job(tmp_path, **places))
    finally:
        module.cleanup()


def change(path: Path, **values: object) -> None:
    """Change keys of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


