"""A module on local files, in its own environment, as an array task would run it: without API, key or spool.

Never reports anything, and keeps nothing: the assignment that it makes up lies in a temporary folder."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from automate.errors import ConfigError, ModuleEnvironmentError, StorageError, visible
from automate.names import name_problem
from automate.validation.assignments import Assignment, DataFile, Snapshot
from automate.validation.catalogue import Source
from automate.validation.inner import files
from automate.validation.inner.files import Outcome, Result
from automate.validation.secrets import without_secrets
from automate.validation_places import ValidationPlaces

ID = "local"
_NO_TASK = "-"
_LONGEST_LINE = 8192
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1", "PYTHONUNBUFFERED": "1"}
_KEYS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "FLOCK_API_KEY", "OPENAI_API_KEY")
Show = Callable[[str], None]


def _show(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def trial(source: Source, places: ValidationPlaces, *, model: Path | None = None, data: Path | None = None,
          base: Path | None = None, fields: Mapping[str, Any] | None = None, task_id: str | None = None,
          environ: Mapping[str, str] | None = None, show: Show = _show) -> Result:
    """What the module makes of local files; its first step only, where it has two.

    `model`: the submission's folder, or a file in it (`model_filename`); `base`: that of the base model. `fields`: what
    the assignment says, over what can be told from the files. `task_id`: whose config is used as well. What the module
    prints goes to `show`, a line each. Raises ConfigError, ModuleEnvironmentError, StorageError.
    """
    from automate.validation import environments

    for path in (model, data, base):
        if path is not None and not path.exists():
            raise ConfigError("there is no such file or folder", where=str(path))
    env = os.environ if environ is None else environ
    with tempfile.TemporaryDirectory(prefix="flock-validation-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        (folder / "scratch").mkdir()
        _prepare(folder, source, places, model, data, base, dict(fields or {}), task_id)
        command, added = environments.inner_call(source, places, [str(folder)], environ=env)
        own = places.settings
        kept = without_secrets(env, (own.api_key_env, own.hf_token_env, *_KEYS))
        began = time.monotonic()
        status, last = _run(command, {**kept, **added, **_OFFLINE, "FLOCK_HPC_SCRATCH": str(folder / "scratch")},
                            folder / "scratch", show)
        result = files.read_result(folder) if status == 0 else None
        return result or _died(source, status, last, time.monotonic() - began)


def _prepare(folder: Path, source: Source, places: ValidationPlaces, model: Path | None, data: Path | None,
             base: Path | None, fields: dict[str, Any], task_id: str | None) -> None:
    """The assignment's files: a reply such as the API gives, and what the inner layer is told."""
    from automate.validation.jobs.one import run_file

    problem = None if task_id is None else name_problem(task_id)
    if problem:
        raise ConfigError(f"{task_id!r} can't be the id of a task: {problem}")
    said: dict[str, Any] = {"revision": "main"}
    if model is not None:
        said["hg_repo_id"] = f"local/{model.resolve().name}"
        said |= {"model_filename": model.name} if model.is_file() else {}
    if data is not None:
        said["validation_set_url"] = data.resolve().as_uri()
    reply = {"id": ID, "status": "validating", "data": {**said, **fields},
             "task_submission": {"task_id": task_id or _NO_TASK, "id": ID, "data": {}}}
    assignment = Assignment(ID, task_id or _NO_TASK, source.name, time.time(), folder,
                            data=_data(data), model=_snapshot(model), base=_snapshot(base))
    try:
        files.write_json(folder / files.REPLY, reply)
        files.write_run(folder, run_file(assignment, places, source.path))
    except ValueError as error:
        raise ConfigError(f"a field is not what JSON can say: {error}") from error
    except OSError as error:
        raise StorageError.of(error, folder, "write the files of a trial") from error


def _data(path: Path | None) -> DataFile | None:
    return None if path is None else DataFile(str(path.resolve()), path.stat().st_size, "")


def _snapshot(path: Path | None) -> Snapshot | None:
    if path is None:
        return None
    folder = path.parent if path.is_file() else path
    return Snapshot(f"local/{folder.resolve().name}", "main", "", str(folder.absolute()))


def _run(command: Sequence[str], environ: Mapping[str, str], folder: Path, show: Show) -> tuple[int, str]:
    """Run the inner layer to its end; returns its status (128 + n after signal n) and the last line it printed."""
    last = ""
    try:
        process = subprocess.Popen(list(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, env=dict(environ), cwd=folder)
    except OSError as error:
        raise ModuleEnvironmentError(f"its program can't be started: {error.strerror}", where=command[0],
                                     todo="build the environment again: flock-hpc validation env create") from error
    try:
        assert process.stdout is not None
        while raw := process.stdout.readline(_LONGEST_LINE):
            line = visible(raw.decode("utf-8", "replace").rstrip("\n"))
            last = line.strip() or last
            show(line)
        status = process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    return status if status >= 0 else 128 - status, last


def _died(source: Source, status: int, last: str, seconds: float) -> Result:
    """A start without a result: never the submission's fault."""
    said = f"; its last words: {last[:200]}" if last else ""
    how = f"signal {status - 128} ended it" if status > 128 else f"it ended with status {status} and no result"
    return Result(ID, Outcome.RECOVERABLE, source.name, cause="crashed", reason=how + said, seconds=round(seconds, 3))
