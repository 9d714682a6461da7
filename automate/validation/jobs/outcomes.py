"""What a start's end makes of an assignment: done, back to be tried again, or left to a person.

Never reports anything, and never makes a fault of the cluster one of the submission. The caller holds the claim."""

from __future__ import annotations

import contextlib
import stat
from dataclasses import replace

from automate.cluster.queue import JobState
from automate.errors import visible
from automate.validation import ondisk
from automate.validation.assignments import Assignment, State
from automate.validation.inner import files
from automate.validation.inner.files import Outcome, Result
from automate.validation.spool import Spool

TIMEOUT, TIME_LIMIT, PREEMPTED, CANCELLED = "timeout", "time-limit", "preempted", "cancelled"
NODE_FAILURE, OUT_OF_MEMORY, KILLED, CRASHED, STOPPED = ("node-failure", "out-of-memory", "killed", "crashed",
                                                        "stopped")
NEVER_TAKEN, NOT_READY, FILES_GONE = "never-started", "environment", "files-gone"
"""Causes: stable words."""

WORDS = {
    TIMEOUT: "it took longer than validation.assignment_timeout", TIME_LIMIT: "the job's time limit was reached",
    PREEMPTED: "the job was preempted", CANCELLED: "the job was cancelled", NODE_FAILURE: "its node failed",
    OUT_OF_MEMORY: "the job's memory was not enough", KILLED: "its processes were killed",
    STOPPED: "it was told to stop", CRASHED: "it ended without a result",
    NEVER_TAKEN: "its job ended without starting it", FILES_GONE: "its files are not on disk any more",
}
_OF_STATE = {
    JobState.TIMEOUT: TIME_LIMIT, JobState.DEADLINE: TIME_LIMIT, JobState.PREEMPTED: PREEMPTED,
    JobState.NODE_FAIL: NODE_FAILURE, JobState.BOOT_FAIL: NODE_FAILURE, JobState.OUT_OF_MEMORY: OUT_OF_MEMORY,
    JobState.CANCELLED: CANCELLED,
}
SENTINELS = frozenset({999.0, -999.0})
"""Figures that the protocol gives a submission which can't be scored."""
_FINISHED = (Outcome.COMPLETED, Outcome.PARTIAL)
_LONGEST = 500
LARGEST = 16_000_000
"""Bytes of a result that are read."""


def cause_of_state(state: JobState) -> str:
    """The cause that Slurm's word on an ended job stands for."""
    return _OF_STATE.get(state, KILLED)


def matching(assignment: Assignment) -> Result | None:
    """The result that lies in an assignment's folder, where it is whole and of this assignment and module."""
    try:
        there = assignment.result_file.lstat()
    except OSError:
        return None
    if not stat.S_ISREG(there.st_mode) or there.st_size > LARGEST:
        return None
    result = files.read_result(assignment.folder)
    if result is None or result.assignment_id != assignment.id or result.module != assignment.module:
        return None
    return result


def forget_results(assignment: Assignment) -> None:
    """Remove what an earlier start left, so that it is never taken for the next one's. Raises OSError."""
    for name in (files.RESULT, files.PARTIAL):
        (assignment.folder / name).unlink(missing_ok=True)
        for torn in assignment.folder.glob(f".{name}.*.tmp"):
            torn.unlink(missing_ok=True)


def conclude(spool: Spool, assignment: Assignment, result: Result, job: str | None, attempts: int) -> Assignment:
    """Move a running assignment by its result. `attempts`: how many starts may end recoverably.

    What speaks against the submission is believed only while its files are on disk as they were fetched.
    """
    reason = _plain(result.reason)
    if _against(result):
        kept, gone = ondisk.checked(assignment)
        if gone:
            with contextlib.suppress(OSError):
                forget_results(assignment)
            return put_back(spool, kept, FILES_GONE, f"{gone}; so this is not believed: {reason or 'a sentinel'}", job,
                            attempts)
    if result.outcome in (*_FINISHED, Outcome.FAILED):
        what = {Outcome.COMPLETED: "validated", Outcome.PARTIAL: "first step done",
                Outcome.FAILED: f"the submission's own fault: {reason}"}[result.outcome]
        done = replace(assignment, problem=None, cause=result.cause or None)
        return spool.move(done, State.DONE, what, result.cause, job)
    if result.outcome is Outcome.UNUSABLE:
        cause = result.cause or "unusable"
        return spool.move(replace(assignment, problem=reason, cause=cause, handed=None), State.GIVEN_UP,
                          f"a person decides: {reason}", cause, job)
    return put_back(spool, assignment, result.cause or "recoverable", reason, job, attempts)


def _against(result: Result) -> bool:
    """Whether it costs the submission: a failure, or a sentinel among its figures."""
    figures = [*(result.payload or {}).values(), *(result.metrics or {}).values()]
    return result.outcome is Outcome.FAILED or (result.outcome in _FINISHED and any(
        isinstance(one, int | float) and one in SENTINELS for one in figures))


def put_back(spool: Spool, assignment: Assignment, cause: str, reason: str, job: str | None,
             attempts: int) -> Assignment:
    """Let it be tried again, or leave it to a person after so many starts."""
    reason = _plain(reason) or WORDS.get(cause, cause)
    tried = replace(assignment, attempts=assignment.attempts + 1, cause=cause, handed=None, problem=None)
    if tried.attempts >= attempts:
        return spool.move(replace(tried, problem=reason), State.GIVEN_UP,
                          f"given up after {tried.attempts} starts: {reason}", cause, job)
    return spool.move(tried, State.FETCHED, f"to be tried again: {reason}", cause, job)


def settle_dead(spool: Spool, assignment: Assignment, cause: str, job: str | None, attempts: int) -> Assignment:
    """A running assignment whose holder is dead: its result is taken where one is there, else it is put back.

    A failure that was found while the job was being ended is not believed.
    """
    result = matching(assignment)
    if result is not None and result.outcome in _FINISHED:
        return conclude(spool, assignment, result, job, attempts)
    with contextlib.suppress(OSError):
        forget_results(assignment)
    return put_back(spool, assignment, cause, "", job, attempts)


def _plain(text: str) -> str:
    """A reason on one line, of a length that can be shown."""
    line = " ".join(visible(text).split())
    return line if len(line) <= _LONGEST else line[:_LONGEST - 3] + "..."
