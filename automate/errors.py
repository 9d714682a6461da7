"""One exception tree: every error says what happened, where, and what to do about it.

Never raised for a bug in this package; those stay ordinary Python exceptions."""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Text that a terminal only shows: control characters, but line breaks and tabs, become `?`."""
    return _CONTROL.sub("?", text.replace("\r\n", "\n"))


class FlockError(Exception):
    """Base of every error that a user can cause or mend.

    `what` is one sentence, `where` a file, line, key or job, `todo` the next step for the reader.
    """

    def __init__(self, what: str, *, where: str | None = None, todo: str | None = None) -> None:
        self.what = visible(what)
        super().__init__(self.what)
        self.where: str | None = where and visible(where)
        self.todo: str | None = todo and visible(todo)

    def __str__(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        return f"{head}\n  -> {self.todo}" if self.todo else head


class ConfigError(FlockError):
    """A setting, profile or YAML file that can't be used as it is."""


class WorkspaceError(FlockError):
    """No workspace here, or one that can't be read or written."""


class DataError(FlockError):
    """A questions, answers, judgments or models file of the wrong shape."""


_SPACE = "make room there (df, quota), then run the same command again; every record written before is whole"
_RIGHTS = "check who may read and write there (ls -l), then run the same command again"
_STORAGE = {errno.ENOSPC: _SPACE, errno.EDQUOT: _SPACE, errno.EFBIG: _SPACE, errno.EACCES: _RIGHTS,
            errno.EPERM: _RIGHTS, errno.EROFS: _RIGHTS, errno.ENOENT: "check that it is there",
            errno.EISDIR: "a folder stands where a file is expected: move it away, or name another file",
            errno.ENOTDIR: "a file stands where a folder is expected: move it away, or name another folder",
            errno.ELOOP: "its links lead in a ring: remove them (ls -l shows where they point)",
            errno.ENAMETOOLONG: "choose a shorter name",
            errno.EIO: "the disk or network failed: tell the cluster's staff, and run the same command again later"}


class StorageError(FlockError):
    """The file system refused: no rights, no space, no such folder."""

    @classmethod
    def of(cls, error: OSError, path: object, doing: str) -> StorageError:
        """Wrap an `OSError` raised while `doing` something with `path`."""
        return cls(f"can't {doing}: {error.strerror or error}", where=str(path), todo=_STORAGE.get(
            error.errno or 0, "put right what the system names here, then run the same command again"))


class ClaimedError(FlockError):
    """Somebody else is at work on this; the holder is named.

    `holder_gone` says that the holder is dead and the claim will be free when its heartbeat has grown old.
    """

    holder_gone: bool = False


class ClusterError(FlockError):
    """A Slurm command failed, or said something that can't be understood."""


class SubmitError(ClusterError):
    """The cluster refused a job; carries Slurm's own words. `unsure` says that it may have taken it all the same."""

    unsure: bool = False


class ServerError(FlockError):
    """A model server didn't start, died, or is not the one that was started.

    `hopeless` says that starting it again in the same way would fail in the same way; `node_fault` that it would on
    this node.
    """

    hopeless: bool = False
    node_fault: bool = False


class ApiError(FlockError):
    """The Flock API or the model hub refused, failed or said nothing; carries no secret."""


class ModuleEnvironmentError(FlockError):
    """A validation module's environment that is not there, can't be built, or needs a manager that is missing."""


class PoolError(FlockError):
    """A message, key, data set or pool that can't be used as it is; raised by a handler it refuses the message."""


class NotReadyError(FlockError):
    """Preflight found something that would make the run fail."""


class ManyErrors(FlockError):
    """Several errors of one kind, reported together instead of the first only."""

    def __init__(self, errors: Sequence[FlockError]) -> None:
        super().__init__(f"{len(errors)} problems")
        self.errors = tuple(errors)

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.errors)
