"""The second step of a two-step module, on the machine that has network; the judge's key is in its environment only.

Never loses what the first step found: where the second one fails, that result stands again."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from automate.errors import DataError, FlockError, StorageError
from automate.settings import Settings
from automate.validation.assignments import Assignment
from automate.validation.inner import files
from automate.validation.inner.files import Outcome, Result
from automate.validation.jobs import outcomes, process
from automate.validation.jobs.one import InnerCall, cause_of, inner_call_of, next_log, scratch
from automate.validation.jobs.resources import JUDGE_KEY, JUDGE_URL, inner_environment, scratch_root
from automate.validation.secrets import scrub
from automate.validation_places import ValidationPlaces

FIRST = "result-step1.json"
"""The first step's result, while the second one runs."""


def second_step(assignment: Assignment, places: ValidationPlaces, environ: Mapping[str, str], *,
                inner: InnerCall | None = None, settings: Settings | None = None) -> Result:
    """Finish an assignment whose first step is done; returns what came out, and leaves a final result in its folder.

    A recoverable end leaves the first step's result in its place, to be tried again. The caller holds the claim.
    Raises DataError where there is no first step, StorageError.
    """
    own = settings or Settings(validation=places.settings)
    first = _first(assignment)
    try:
        found = _run(assignment, places, environ, inner or inner_call_of(places), own, first)
    except FlockError as error:
        found = _recoverable(first, outcomes.NOT_READY, str(error))
    except OSError as error:
        found = _recoverable(first, "disk", error.strerror or str(error))
    if found.outcome in (Outcome.RECOVERABLE, Outcome.PARTIAL):
        _put(assignment.folder / FIRST, assignment.folder / files.RESULT)
    else:
        with contextlib.suppress(OSError):
            (assignment.folder / FIRST).unlink(missing_ok=True)
    return found


def _first(assignment: Assignment) -> Result:
    """Set the first step's result aside; one that a dead command had set aside counts."""
    folder = assignment.folder
    there = outcomes.matching(assignment)
    if (there is None or there.outcome is not Outcome.PARTIAL) and (folder / FIRST).is_file():
        _put(folder / FIRST, folder / files.RESULT)
        there = outcomes.matching(assignment)
    if there is None or there.outcome is not Outcome.PARTIAL or not (folder / files.PARTIAL).is_file():
        raise DataError("there is no first step to finish", where=str(folder),
                        todo="let it be validated again: move its folder to 'fetched'")
    _put(folder / files.RESULT, folder / FIRST)
    return there


def _put(source: Path, target: Path) -> None:
    try:
        source.replace(target)
    except OSError as error:
        raise StorageError.of(error, target, "keep the first step's result") from error


def _run(assignment: Assignment, places: ValidationPlaces, environ: Mapping[str, str], inner: InnerCall,
         settings: Settings, first: Result) -> Result:
    log = next_log(assignment.folder)
    with scratch(scratch_root(environ)) as folder:
        command, added = inner(assignment, [str(assignment.folder), "--step", "2"])
        around = inner_environment(settings, environ, added, folder)
        judge = {name: environ[name] for name in (JUDGE_KEY, JUDGE_URL) if environ.get(name)}
        secret = [judge[JUDGE_KEY]] if JUDGE_KEY in judge else []
        ended = process.run(command, around | judge, folder, log, stop=lambda: "",
                            timeout=settings.validation.assignment_timeout,
                            clean=lambda text: scrub(text, secret))
    with contextlib.suppress(OSError):
        os.chmod(log, 0o600)  # noqa: PTH101
    found = outcomes.matching(assignment)
    if found is not None and ended.status == 0 and not ended.stopped and found.step == 2:
        return found
    cause, reason = (ended.stopped, outcomes.WORDS[ended.stopped]) if ended.stopped else cause_of(
        ended, process.tail(log))
    return _recoverable(first, cause, reason)


def _recoverable(first: Result, cause: str, reason: str) -> Result:
    return replace(first, outcome=Outcome.RECOVERABLE, cause=cause, reason=reason, step=2)
