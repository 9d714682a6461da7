"""Whose fault an exception is: the machine's, the config's, the submission's.

A submission is never blamed where anything in the chain of exceptions is the machine's. Never raises, never imports
the libraries whose exceptions it knows."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from automate.validation.inner import faults, symptoms, words
from automate.validation.inner.files import Outcome
from automate.validation.modules.base import InvalidConfigValueException, RecoverableException, SubmissionFault

LONGEST_CHAIN = 64
"""Exceptions of a chain that are looked at."""
UNEXPECTED = "unexpected"
"""The cause of exceptions that nobody foresaw in a module of this package."""
EXCEPTION = "exception"
"""The cause of other exceptions of other modules."""


@dataclass(frozen=True)
class Verdict:
    """How a start ended by an exception. `cause` is a stable word, `reason` one line without secrets."""

    outcome: Outcome
    cause: str
    reason: str


def chain(error: BaseException, *, context: bool = True) -> Iterator[BaseException]:
    """An exception, then what it was raised from, and (`context`) while what it was raised; members of groups too."""
    waiting, seen = [error], set[int]()
    while waiting and len(seen) < LONGEST_CHAIN:
        one = waiting.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        if symptoms.hub(one) is not None:
            continue  # raised from an HTTP error that says no more
        waiting += one.exceptions if isinstance(one, BaseExceptionGroup) else ()
        if one.__cause__ is not None:
            waiting.append(one.__cause__)
        elif context and one.__context__ is not None and not one.__suppress_context__:
            waiting.append(one.__context__)


def classify(error: BaseException, *, shipped: bool, model: Path | None = None,
             schemas: Collection[str] = ()) -> Verdict:
    """The verdict over what a module raised.

    `shipped`: one of this package's own modules, which name a submission's fault as SubmissionFault: whatever else
    comes out of them is taken for a fault of theirs, recoverable, and ends at a person. Of other modules it is the
    submission's. `model`: the folder of the submission's files. `schemas`: names of the module's own schemas.
    """
    everything, direct = list(chain(error)), list(chain(error, context=False))
    found = _said(everything) or _machine(everything) or _absent(direct, model) or _named(everything) or _hub(direct)
    return found or _library(direct, schemas) or _other(error, shipped)


def _verdict(outcome: Outcome, cause: str, error: BaseException) -> Verdict:
    return Verdict(outcome, words.plain(cause, 60) or outcome.value, f"{_name(error)}{words.of(error)}")


def _name(error: BaseException) -> str:
    ours = isinstance(error, (RecoverableException, SubmissionFault))
    return "" if ours else f"{type(error).__name__}: "


def _said(errors: list[BaseException]) -> Verdict | None:
    """What the module itself calls the validator's trouble."""
    for one in errors:
        if isinstance(one, InvalidConfigValueException):
            return _verdict(Outcome.UNUSABLE, one.cause, one)
        if isinstance(one, RecoverableException):
            return _verdict(Outcome.RECOVERABLE, one.cause, one)
    return None


def _machine(errors: list[BaseException]) -> Verdict | None:
    for one in errors:
        if not isinstance(one, SubmissionFault):
            cause = symptoms.machine(one)
            if cause is not None:
                return _verdict(Outcome.RECOVERABLE, cause, one)
    return None


def _absent(errors: list[BaseException], model: Path | None) -> Verdict | None:
    """A file that is not there: the validator's trouble, but where it should be among the submission's files."""
    if any(isinstance(one, SubmissionFault) for one in errors):
        return None
    for one in errors:
        path = symptoms.absent(one)
        if path is not None and Path(path).is_absolute():
            inside = model is not None and Path(path).is_relative_to(model)
            return None if inside else _verdict(Outcome.RECOVERABLE, "missing-path", one)
    return None


def _named(errors: list[BaseException]) -> Verdict | None:
    for one in errors:
        if isinstance(one, SubmissionFault):
            return _verdict(Outcome.FAILED, one.cause, one)
    return None


def _hub(errors: list[BaseException]) -> Verdict | None:
    for one in errors:
        found = symptoms.hub(one)
        if found is not None:
            cause, status = found
            if cause == "gated":
                return _verdict(Outcome.UNUSABLE, cause, one)
            refused = status is not None and status != 404
            return _verdict(Outcome.RECOVERABLE if refused else Outcome.FAILED, cause, one)
    return None


def _library(errors: list[BaseException], schemas: Collection[str]) -> Verdict | None:
    """Libraries that the environment lacks, and metrics or configs that their schema refuses."""
    for one in errors:
        if isinstance(one, ImportError):
            return _verdict(Outcome.UNUSABLE, "environment", one)
        if isinstance(one, AssertionError) and "not compiled with CUDA" in words.of(one):
            return _verdict(Outcome.UNUSABLE, "environment", one)
        if isinstance(one, ValidationError) and one.title in schemas:
            return Verdict(Outcome.UNUSABLE, "schema", f"{words.plain(one.title, 80)}: {faults.explain(one)}")
    return None


def _other(error: BaseException, shipped: bool) -> Verdict:
    if not isinstance(error, Exception):
        return _verdict(Outcome.RECOVERABLE, "exit", error)
    return _verdict(Outcome.RECOVERABLE if shipped else Outcome.FAILED, UNEXPECTED if shipped else EXCEPTION, error)
