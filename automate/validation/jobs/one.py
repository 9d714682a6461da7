"""One start of one assignment: claimed, moved to running, its module run, moved on by what came out.

Never talks to the API and needs no key; never takes an earlier start's result for this one's."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from automate.claims import Claim
from automate.errors import ClaimedError, FlockError, StorageError
from automate.names import name_problem
from automate.resources import configs_dir
from automate.settings import Settings
from automate.validation import catalogue, ondisk
from automate.validation.assignments import Assignment, Handed, State
from automate.validation.inner import files
from automate.validation.jobs import outcomes, process
from automate.validation.jobs.beats import Beat, beating
from automate.validation.jobs.resources import inner_environment
from automate.validation.spool import Spool
from automate.validation_places import ValidationPlaces

InnerCall = Callable[[Assignment, Sequence[str]], tuple[list[str], dict[str, str]]]
"""The command of an assignment's module with these arguments, and the variables that it needs."""
Say = Callable[[str], None]
KEEP_SCRATCH = "FLOCK_HPC_KEEP_SCRATCH"
"""The variable that has scratch folders left where they are, to be looked at."""
_BEATS = 6


@dataclass
class Stop:
    """Whether this process was told to end, and why; `why` is a cause of `outcomes`. `evidence` asks Slurm."""

    why: str = ""
    evidence: Callable[[], str] | None = None

    def cause(self, patience: float = 3.0) -> str:
        """The cause by Slurm's word, where that comes soon; else what the signal says by itself."""
        found: list[str] = []
        if self.evidence is not None:
            ask = self.evidence
            thread = threading.Thread(target=lambda: found.append(ask()), daemon=True)
            thread.start()
            thread.join(timeout=patience)
        return (found[0] if found else "") or self.why


@dataclass(frozen=True)
class Place:
    """Where a start happens: the settings, the environment, where scratch folders go, and the job's id."""

    settings: Settings
    environ: Mapping[str, str]
    scratch_root: Path
    job: Handed
    inner: InnerCall
    stop: Stop
    say: Say = print
    sleep: Callable[[float], None] = time.sleep


def inner_call_of(places: ValidationPlaces) -> InnerCall:
    """The real one: the module's own environment."""
    def call(assignment: Assignment, arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        from automate.validation import environments

        return environments.inner_call(catalogue.find(assignment.module, places), places, arguments)
    return call


def run_file(assignment: Assignment, places: ValidationPlaces, module_path: Path | None) -> files.RunFile:
    """What the inner layer is told. The workspace's configs win over the shipped ones; a task's over the module's."""
    own = places.settings
    config = f"{assignment.module}.json"
    named = [next((path for path in (places.configs / config, configs_dir() / config) if os.path.lexists(path)), None)]
    if name_problem(assignment.task_id) is None:
        named.append(places.configs / "tasks" / f"{assignment.task_id}.json")
    found = tuple(str(path) for path in named if path is not None and os.path.lexists(path))
    data = None if assignment.data is None else str((assignment.folder / assignment.data.path).absolute())
    model, base = assignment.model, assignment.base
    return files.RunFile(
        assignment_id=assignment.id, task_id=assignment.task_id, module=assignment.module,
        module_path=None if module_path is None else str(module_path), config_files=found, data=data,
        model=model.path if model else None, base=base.path if base else None,
        commit=model.commit if model else None, metrics=own.metrics,
        templates=own.templates and str(places.root / own.templates),
        judge_prompts=own.judge_prompts and str(places.root / own.judge_prompts), remote_code=own.remote_code)


@contextmanager
def patiently(spool: Spool, assignment_id: str, place: Place) -> Iterator[Claim]:
    """Hold an assignment's claim. Raises ClaimedError, naming the holder.

    Waited for are a dead holder's heartbeat, until it is old, and whoever holds it while it is not started: commands
    hold it for a moment, such as the one that writes down to which job it was handed.
    """
    left = spool.stale + 10
    with contextlib.ExitStack() as stack:
        while True:
            try:
                claim = stack.enter_context(spool.held(assignment_id))
                break
            except ClaimedError as error:
                at_work = not error.holder_gone and not _waits(spool, assignment_id)
                if at_work or left <= 0 or place.stop.why:
                    raise
            pause = min(1.0, spool.stale / 4)
            place.sleep(pause)
            left -= pause
        yield claim


def _waits(spool: Spool, assignment_id: str) -> bool:
    found = spool.find(assignment_id)
    return found is not None and found.state is State.FETCHED


def run_one(assignment: Assignment, spool: Spool, place: Place) -> Assignment:
    """One start of `assignment`, if it is still to be had; returns it as it lies then.

    Somebody else's is left alone, and `place.say` says whose. Raises StorageError where the spool can't be written;
    the assignment then stays where it is, for `settle`.
    """
    try:
        with patiently(spool, assignment.id, place) as claim, beating(claim, spool.stale / _BEATS) as beat:
            found = spool.find(assignment.id)
            if found is None:
                place.say(f"{assignment.id}: is not in the spool any more")
                return assignment
            if found.state is State.RUNNING:  # its holder is dead, or the claim were not to be had
                found = outcomes.settle_dead(spool, found, outcomes.KILLED, found.handed.job if found.handed else None,
                                             place.settings.validation.attempts)
            if not found.ready:
                place.say(f"{found.id}: nothing to do: it is {found.state}" + (
                    f" ({found.problem})" if found.problem else ""))
                return found
            return _with_files(found, spool, place) or _start(found, spool, place, beat)
    except ClaimedError as error:
        place.say(f"{assignment.id}: left alone: {error.what}")
        return assignment


def _with_files(assignment: Assignment, spool: Spool, place: Place) -> Assignment | None:
    """None where its files are on disk as they were fetched; else it is put back, to have them fetched again."""
    kept, gone = ondisk.checked(assignment)
    if not gone:
        return None
    moved = outcomes.put_back(spool, kept, outcomes.FILES_GONE, gone, place.job.job,
                              place.settings.validation.attempts)
    place.say(f"{moved.id}: {moved.state}: {moved.history[-1].what}")
    return moved


def _start(assignment: Assignment, spool: Spool, place: Place, beat: Beat) -> Assignment:
    job = place.job.job
    try:
        outcomes.forget_results(assignment)
    except OSError as error:
        raise StorageError.of(error, assignment.folder, "remove an earlier start's result") from error
    running = spool.move(replace(assignment, handed=place.job), State.RUNNING, "started", job=job)
    attempts = place.settings.validation.attempts
    try:
        ended, log = _run(running, spool.places, place, beat)
    except FlockError as error:
        return outcomes.put_back(spool, running, outcomes.NOT_READY, str(error), job, attempts)
    except OSError as error:
        return outcomes.put_back(spool, running, "disk", f"{error.strerror}: {error.filename}", job, attempts)
    if beat.lost:
        place.say(f"{running.id}: the claim was taken over; nothing of this start is kept")
        return running
    moved = _end(running, spool, place, ended, log)
    place.say(f"{moved.id}: {moved.state}: {moved.history[-1].what}")
    return moved


def _run(running: Assignment, places: ValidationPlaces, place: Place, beat: Beat) -> tuple[process.Ended, Path]:
    """Run the module's process. Raises ModuleEnvironmentError, ConfigError, OSError."""
    path = catalogue.find(running.module, places).path
    files.write_run(running.folder, run_file(running, places, path))
    log = next_log(running.folder)
    keep = bool(place.environ.get(KEEP_SCRATCH))
    with scratch(place.scratch_root, keep) as folder:
        if keep:
            place.say(f"{running.id}: scratch folder, which is kept: {folder}")
        command, added = place.inner(running, [str(running.folder)])
        environ = inner_environment(place.settings, place.environ, added, folder)
        limit = place.settings.validation.assignment_timeout
        return process.run(command, environ, folder, log, keep=keep, timeout=limit,
                           stop=lambda: "claim" if beat.lost else place.stop.why), log


def _end(running: Assignment, spool: Spool, place: Place, ended: process.Ended, log: Path) -> Assignment:
    job, attempts = place.job.job, place.settings.validation.attempts
    if ended.status == 128 + 15 and not place.stop.why:
        place.sleep(1.0)  # Slurm's signal reaches a job's processes one after the other
    stopped = ended.stopped or place.stop.why
    result = outcomes.matching(running)
    if stopped:
        cause = stopped if stopped == outcomes.TIMEOUT else place.stop.cause()
        return outcomes.settle_dead(spool, running, cause, job, attempts)
    if result is not None and ended.status == 0:
        return outcomes.conclude(spool, running, result, job, attempts)
    cause, reason = cause_of(ended, process.tail(log))
    with contextlib.suppress(OSError):
        outcomes.forget_results(running)
    return outcomes.put_back(spool, running, cause, reason, job, attempts)


def cause_of(ended: process.Ended, text: str) -> tuple[str, str]:
    """Why a module ended without a result, by the kernel's word, its exit status and the end of its log."""
    last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
    said = f"; its last words: {last[:200]}" if last else ""
    if ended.out_of_memory or "MemoryError" in last or "out of memory" in last.lower():
        return outcomes.OUT_OF_MEMORY, f"{outcomes.WORDS[outcomes.OUT_OF_MEMORY]}{said}"
    if "No space left on device" in last or "Disk quota exceeded" in last:
        return "disk", f"the disk is full{said}"
    if ended.status == 137:
        return outcomes.KILLED, "it was killed (SIGKILL), as by a lack of memory or by somebody"
    if ended.status > 128:
        return outcomes.CRASHED, f"signal {ended.status - 128} ended it{said}"
    return outcomes.CRASHED, f"it ended with status {ended.status} and no result{said}"


def next_log(folder: Path) -> Path:
    """The log of the next start: logs/attempt-N.log."""
    logs = folder / files.LOGS
    number = 1
    while (logs / f"attempt-{number}.log").exists():
        number += 1
    return logs / f"attempt-{number}.log"


@contextmanager
def scratch(root: Path, keep: bool = False) -> Iterator[Path]:
    """A folder of its own for one start, removed at its end unless it is to be kept. Raises OSError."""
    folder = Path(tempfile.mkdtemp(prefix="flock-validation-", dir=root))
    try:
        for name in ("tmp", "work", "hf"):
            (folder / name).mkdir()
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
