"""Whether what was fetched for an assignment is still on disk as it was: sizes of models, size and hash of the set.

Never fetches anything; what is not whole is struck off the assignment's record, so that it is fetched again."""

from __future__ import annotations

import errno
import hashlib
from dataclasses import replace
from pathlib import Path

from automate.validation import snapshots
from automate.validation.assignments import Assignment, DataFile, Snapshot

_GONE = (errno.ENOENT, errno.ENOTDIR)


def checked(assignment: Assignment) -> tuple[Assignment, str]:
    """The assignment without the records of what is not whole, and why; the same and "" where all is.

    What can't be looked at just now (an error of the file system) is a reason too, and keeps its record.
    """
    kept, reasons = assignment, []
    if assignment.data is not None:
        lost, why = _data(assignment.folder, assignment.data)
        kept = replace(kept, data=None) if lost else kept
        reasons.append(why)
    for name in ("model", "base"):
        part: Snapshot | None = getattr(assignment, name)
        if part is not None and not snapshots.whole(Path(part.path), part.size):
            kept = replace(kept, model=None, base=None)  # the base is looked up by the model's own files
            reasons.append(f"the {name}'s files are not all there any more: {part.repo} in {part.path}")
    return kept, "; ".join(reason for reason in reasons if reason)


def _data(folder: Path, data: DataFile) -> tuple[bool, str]:
    """Whether the set's record is void, and why it is not the set that was fetched."""
    path = folder / data.path
    try:
        size = path.stat().st_size
        if size == data.size and (len(data.sha256) != 64 or _sha256(path) == data.sha256):
            return False, ""
    except OSError as error:
        return error.errno in _GONE, f"the validation set can't be read: {error.strerror}: {path}"
    return True, f"the validation set on disk is not the one that was fetched: {path}"


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
