"""What can be wrong with an assignment's files, told apart by who must act: the submitter, a person here, or time.

Never decides by the text of an error; an outage is never anybody's fault."""

from __future__ import annotations

import errno
from collections.abc import Mapping

from automate.errors import ApiError, ClaimedError, FlockError, StorageError
from automate.validation.inner import words

CAUSES = frozenset({"hub", "hub-refused", "hub-file", "hub-token", "offline", "network", "data-url", "url-expired",
                    "data-truncated", "data-empty", "disk", "storage", "waiting", "environment", "check", "gated",
                    "huge", "own-code", "disabled", "base-gone", "stopped", "files-gone"})
"""What `acquire` puts on an assignment, and takes off again once its files are there."""
BOUNDED: Mapping[str, float] = {"url-expired": 0, "data-url": 0, "data-truncated": 0, "data-empty": 0, "hub-file": 0,
                                "hub-refused": 3600}
"""Causes that time alone hardly mends: after `validation.attempts` tries, and so many seconds since the assignment was
fetched, a person decides."""


class Trouble(ApiError):
    """Something about files that an assignment needs. `cause` is a stable word."""

    def __init__(self, what: str, *, cause: str, where: str | None = None, todo: str | None = None) -> None:
        super().__init__(what, where=where, todo=todo)
        self.cause = cause


class TryLater(Trouble):
    """It may be right at the next try: an outage, a full disk, an expired address. `soon`: within seconds."""

    def __init__(self, what: str, *, cause: str, where: str | None = None, todo: str | None = None,
                 soon: bool = False) -> None:
        super().__init__(what, cause=cause, where=where, todo=todo)
        self.soon = soon


class PersonNeeded(Trouble):
    """Nobody's fault, and time won't mend it: a gated repository, a huge one, one with code of its own."""


class SubmissionAtFault(Trouble):
    """The submission's own fault: its assignment is reported as failed."""


_FULL = {errno.ENOSPC, errno.EDQUOT}
SYSTEM = _FULL | {errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.EFBIG, errno.ENOENT, errno.ENOTDIR,
                  errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP, errno.EMFILE, errno.ENFILE, errno.ESTALE}
"""Numbers of errors that come from files, not from a network."""


def of_system(error: OSError, where: object, doing: str) -> TryLater:
    """What a refusal of the file system is."""
    told = StorageError.of(error, where, doing)
    return TryLater(told.what, cause="disk" if error.errno in _FULL else "storage", where=told.where, todo=told.todo)


def passing(error: FlockError) -> TryLater:
    """Any other error as something to be tried again."""
    if isinstance(error, TryLater):
        return error
    if isinstance(error, StorageError) and isinstance(error.__cause__, OSError):
        cause = "disk" if error.__cause__.errno in _FULL else "storage"
    else:
        cause = "waiting" if isinstance(error, ClaimedError) else "environment"
    return TryLater(error.what, cause=cause, where=error.where, todo=error.todo)


def sentence(error: FlockError) -> str:
    """What it says in one line, with what to do."""
    said = f"{error.where}: {error.what}" if error.where else error.what
    return words.plain(f"{said} -> {error.todo}" if error.todo else said)
