"""An assignment's folder and a module written on the spot, for tests of the inner layer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from automate.validation import runner
from automate.validation.inner.files import RESULT, Result, read_result

HEAD = '''
from automate.validation.modules.base import *
from automate.validation.modules.base import BaseConfig, BaseInputData, BaseMetrics, BaseValidationModule
import os, sys, pathlib

class Config(BaseConfig):
    rows: int = 3
    name: str = "n"

class Input(BaseInputData):
    max_params: int
    base_model: str = "default"

class Metrics(BaseMetrics):
    score: float

class Module(BaseValidationModule):
    config_schema = Config
    input_data_schema = Input
    metrics_schema = Metrics
    task_type = "test"
    def __init__(self, config, **kwargs):
        self.config = config
    def cleanup(self):
        pathlib.Path({cleaned!r}).open("a").write("cleaned\\n")
    def validate(self, data, **kwargs):
        job = kwargs["job"]
{body}
{more}
MODULE = Module
'''


def module(folder: Path, body: str, more: str = "") -> Path:
    """A module in a file of its own, whose `validate` has `body`; `more` stands in the class below it."""
    path = folder / "mine.py"
    indented = "\n".join(f"        {line}" for line in body.splitlines())
    below = "\n".join(f"    {line}" for line in more.splitlines())
    text = HEAD.replace("{cleaned!r}", repr(str(folder / "cleaned")))
    path.write_text(text.replace("{body}", indented).replace("{more}", below))
    return path


def cleaned(folder: Path) -> int:
    """How many times `cleanup` was called."""
    path = folder / "cleaned"
    return len(path.read_text().splitlines()) if path.exists() else 0


def assignment(folder: Path, *, name: str = "mine", path: Path | None = None, configs: Sequence[Path] = (),
               ours: Mapping[str, object] | None = None, theirs: Mapping[str, object] | None = None,
               **run: Any) -> Path:
    """An assignment's folder: `ours` and `theirs` are the fields of the assignment and of the submission."""
    reply = {"id": 9, "status": "validating", "data": {"max_params": 5} if ours is None else ours,
             "task_submission": {"task_id": 1, "id": 2, "data": theirs or {}}}
    (folder / "reply.json").write_text(json.dumps(reply))
    (folder / "run.json").write_text(json.dumps({
        "assignment_id": "9", "task_id": "1", "module": name, "module_path": path and str(path),
        "config_files": [str(one) for one in configs], **run}))
    return folder


def start(folder: Path, *arguments: str, status: int = 0) -> Result:
    """Run the inner layer in this process; returns its result."""
    (folder / RESULT).unlink(missing_ok=True)
    assert runner.main([str(folder), *arguments]) == status
    result = read_result(folder)
    assert result is not None
    return result


def run_module(folder: Path, body: str, more: str = "", **run: Any) -> Result:
    """A start of a module whose `validate` has this body."""
    return start(assignment(folder, path=module(folder, body, more), **run))
