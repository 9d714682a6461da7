"""One start: a module is loaded, configured, given its input, run and cleaned up, and what came out is a `Result`.

Every exception becomes a result, but for the order to stop. Never writes the result itself."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from automate.validation.inner import configuration, faults, inputs, loading, numbers, words
from automate.validation.inner.classify import EXCEPTION, UNEXPECTED, classify
from automate.validation.inner.files import PARTIAL, REPLY, Outcome, Result, RunFile, read_partial, write_json
from automate.validation.inner.stopping import Stop, Stopped, listening
from automate.validation.modules.base import (
    BaseValidationModule,
    InvalidConfigValueException,
    Job,
    RecoverableException,
)

SCRATCH = "FLOCK_HPC_SCRATCH"
"""The variable that names the scratch folder of this start; who sets it removes the folder."""
MOST_NOTES = 20
Say = Callable[[str], None]


@dataclass
class Start:
    """One start of the module that `run.json` names, over the assignment in `folder`. `step` is 1 or 2.

    `judging`: the module is at work on the submission, so that what it raises may be the submission's fault.
    """

    folder: Path
    run: RunFile
    step: int
    environ: Mapping[str, str]
    say: Say
    loaded: loading.Loaded | None = None
    model: Path | None = None
    judging: bool = False

    def check(self) -> None:
        """Load the module, its config and its input. Raises what they raise."""
        self._ready()

    def work(self) -> Result:
        """All of it. Raises Stopped where it was told to stop, and nothing else."""
        began = time.monotonic()
        with listening() as stop:
            result = self._guarded(stop)
            stop.closed = True
            if stop.number is not None and result.outcome not in (Outcome.COMPLETED, Outcome.PARTIAL):
                raise Stopped(stop.number)
        return replace(result, seconds=round(time.monotonic() - began, 3), gpu_type=gpu_type())

    def _guarded(self, stop: Stop) -> Result:
        try:
            with scratch(self.environ) as place, chdir(place):
                return self._through(self._job(place))
        except BaseException as error:
            if stop.number is not None:  # whatever the module made of it
                raise Stopped(stop.number) from None
            return self.verdict(error)

    def _through(self, job: Job) -> Result:
        kind, config, data = self._ready()
        module: BaseValidationModule | None = None
        try:
            module = kind(config, job=job)
            return self._outcome(module, data, job)
        finally:
            if module is not None:
                self._clean(module)

    def _ready(self) -> tuple[type[BaseValidationModule], BaseModel, BaseModel]:
        outside = self.run.module_path
        self.loaded = loading.load(self.run.module, Path(outside) if outside else None)
        kind = self.loaded.kind
        config = configuration.load([Path(name) for name in self.run.config_files], kind.config_schema,
                                    self.run.module)
        return kind, config, inputs.read(self.folder / REPLY, kind.input_data_schema)

    def _job(self, place: Path) -> Job:
        run = self.run
        self.model = _path(run.model)
        return Job(scratch=place, data=_path(run.data), model=self.model, base=_path(run.base), commit=run.commit,
                   metrics=run.metrics, templates=_path(run.templates), judge_prompts=_path(run.judge_prompts),
                   remote_code=run.remote_code, folder=self.folder)

    def _outcome(self, module: BaseValidationModule, data: BaseModel, job: Job) -> Result:
        left = self._left(module) if self.step == 2 else None
        self.judging = True
        found = module.validate(data, job=job) if left is None else module.finish(data, left, job=job)
        self.judging = False
        if left is None and module.two_steps and not isinstance(found, BaseModel):
            return self._partial(found, job)
        return self._completed(module, found, job)

    def _left(self, module: BaseValidationModule) -> Mapping[str, Any]:
        if not module.two_steps:
            raise InvalidConfigValueException(f"the module {self.run.module!r} has one step", cause="module")
        try:
            return read_partial(self.folder)
        except (OSError, ValueError) as error:
            raise RecoverableException(f"what the first step left can't be read: {words.of(error)}",
                                       cause="no-partial") from None

    def _partial(self, found: object, job: Job) -> Result:
        if not isinstance(found, Mapping):
            return self._refused(f"the first step returned {type(found).__name__}, not an object", job)
        try:
            write_json(self.folder / PARTIAL, numbers.sendable(found))
        except numbers.Unsendable as error:
            return self._refused(f"what the first step left: {error}", job)
        return replace(self._result(Outcome.PARTIAL), notes=_notes(job))

    def _completed(self, module: BaseValidationModule, found: object, job: Job) -> Result:
        schema = module.metrics_schema
        try:
            metrics = found if isinstance(found, schema) else schema.model_validate(found)
        except ValidationError as error:
            return self._refused(f"the metrics: {faults.explain(error)}", job, found)
        whole = metrics.model_dump()
        try:
            payload = numbers.sendable(module.payload(metrics, job=job, gpu_type=gpu_type()))
            if not isinstance(payload, dict) or not payload:
                return self._refused("there are no metrics to send", job, whole)
            return replace(self._result(Outcome.COMPLETED), payload=payload, metrics=_shown(whole), notes=_notes(job))
        except numbers.Unsendable as error:
            return self._refused(str(error), job, whole)

    def _refused(self, reason: str, job: Job, metrics: object = None) -> Result:
        """Metrics that must not be sent: shown to a person."""
        seen = None
        with suppress(Exception):
            seen = _shown(metrics)
        return replace(self._result(Outcome.UNUSABLE, "metrics", words.plain(reason)), metrics=seen, notes=_notes(job))

    def _clean(self, module: BaseValidationModule) -> None:
        try:
            module.cleanup()
        except BaseException as error:  # the result stands, even where the order to stop came just now
            self.say(f"cleanup() of {self.run.module} failed: {type(error).__name__}: {words.of(error)}")

    def verdict(self, error: BaseException) -> Result:
        """The result that an exception stands for; an unforeseen one is printed with where it came from."""
        kind = self.loaded.kind if self.loaded else None
        schemas = {one.__name__ for one in (kind.config_schema, kind.input_data_schema, kind.metrics_schema)
                   } if kind else set()
        found = classify(error, shipped=self.loaded is None or self.loaded.shipped, model=self.model, schemas=schemas)
        if found.cause in (UNEXPECTED, EXCEPTION, "exit"):
            self.say(_trace(error))
        if found.cause == EXCEPTION and not self.judging:  # before or after its work on the submission
            return self._result(Outcome.UNUSABLE, "module", found.reason)
        todo = f"; flock-hpc validation env create {self.run.module}" if found.cause == "environment" else ""
        return self._result(found.outcome, found.cause, found.reason + todo)

    def _result(self, outcome: Outcome, cause: str = "", reason: str = "") -> Result:
        return Result(assignment_id=self.run.assignment_id, outcome=outcome, module=self.run.module, step=self.step,
                      commit=self.run.commit, cause=cause, reason=reason)


def _path(name: str | None) -> Path | None:
    return Path(name) if name else None


def _shown(metrics: object) -> dict[str, Any] | None:
    found = numbers.shown(metrics)
    return found if isinstance(found, dict) else None


def _notes(job: Job) -> tuple[str, ...]:
    return tuple(words.plain(str(note), 300) for note in job.notes[:MOST_NOTES])


def _trace(error: BaseException) -> str:
    """Where an exception came from, for the log: the last lines, each made plain."""
    try:
        lines = "".join(traceback.format_exception(error, limit=-12)).splitlines()[-60:]
    except Exception:
        lines = [type(error).__name__]
    return "\n".join(line[:len(line) - len(line.lstrip())] + words.plain(line, 300) for line in lines)


@contextmanager
def scratch(environ: Mapping[str, str]) -> Iterator[Path]:
    """The folder that FLOCK_HPC_SCRATCH names, or a temporary one that is removed at the end. Raises OSError."""
    named = environ.get(SCRATCH)
    if named:
        Path(named).mkdir(parents=True, exist_ok=True)
        yield Path(named)
        return
    made = Path(tempfile.mkdtemp(prefix="flock-validation-", dir=environ.get("TMPDIR") or None))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def gpu_type() -> str:
    """What ran: the GPU's name by torch where a module loaded it, else `cpu`."""
    torch = sys.modules.get("torch")
    try:
        if torch is not None and torch.cuda.is_available():
            return words.plain(str(torch.cuda.get_device_name(0)), 100)
    except Exception:
        return "cpu"
    return "cpu"

