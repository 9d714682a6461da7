"""Where results are written: a table, a plot or a page, whole and never over what it was computed from.

Refuses anything but regular files; a descriptor of this process (/dev/stdout, /dev/fd/3) is written into as it is."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from automate.errors import DataError, StorageError
from automate.journal import replace_file

_OWN = re.compile(r"/dev/(?:fd/(\d{1,6})|(stdout)|(stderr))|/proc/self/fd/(\d{1,6})")
_INSIDE = ("model_judgment", "model_answer")
_STATE, _OWN_WORKSPACES = ".flock-hpc", "rehearsals"
_ELSEWHERE = "name another file, such as one in 'results/'"


@dataclass(frozen=True)
class Target:
    """A file that may be written. `descriptor`: an open file of this process instead; `makes`: the folder that is not
    there yet and will be made."""

    path: Path
    descriptor: int | None = None
    makes: Path | None = None

    def write(self, content: bytes) -> None:
        """Replace the file whole, or write into the descriptor. Raises StorageError."""
        if self.descriptor is None:
            replace_file(self.path, content)
            return
        try:
            sys.stdout.flush()
            left = memoryview(content)
            while left:
                left = left[os.write(self.descriptor, left):]
        except OSError as error:
            raise StorageError.of(error, self.path, "write it") from error


def target(path: Path, inputs: Iterable[Path] = ()) -> Target:
    """The file that `path` means, links followed, if results may be written there.

    `inputs` are files, and folders with all below them, that results are computed from; so is any folder of judgments
    or answers, and the records of a workspace. Raises DataError for these, for what is no regular file, and where more
    than the last folder would have to be made; StorageError where it can't be told.
    """
    plain = os.path.abspath(path)  # noqa: PTH100 - resolve() would follow it to what it is redirected to
    own = _OWN.fullmatch(plain)
    if own is not None:
        return Target(path, {"stdout": 1, "stderr": 2}.get(own[2] or own[3] or "") or int(own[1] or own[4]))
    try:
        real = path.resolve()
        _check_kind(path, real)
        _check_inputs(path, real, tuple(inputs))
        if not real.parent.parent.is_dir():
            raise DataError(f"can't be written: there is no folder {real.parent.parent}", where=str(path),
                            todo="make it first (mkdir -p); only the last folder is made for you")
        return Target(real, makes=None if real.parent.exists() else real.parent)
    except (OSError, RuntimeError) as error:  # RuntimeError: a ring of links, before Python 3.13
        cause = error if isinstance(error, OSError) else OSError(str(error))
        raise StorageError.of(cause, path, "write it") from error


def _check_kind(path: Path, real: Path) -> None:
    """Only a regular file is replaced, or one made where nothing is; /dev/null would be lost to everyone."""
    if not real.exists() or real.is_file():
        return
    what = "it is a folder" if real.is_dir() else "it is a device, pipe or socket, not a file"
    raise DataError(f"can't be written: {what}", where=str(path),
                    todo="name a file; '-' or /dev/stdout is the screen where an option takes that")


def _check_inputs(path: Path, real: Path, inputs: tuple[Path, ...]) -> None:
    there = [one for one in inputs if one.exists()]
    for folder in (real, *real.parents):
        if not folder.exists():
            continue
        if any(folder.samefile(one) for one in there):
            raise DataError(f"not written: results are computed from {folder}, and would overwrite it"
                            if folder == real else f"not written: it lies in {folder}, which results are computed from",
                            where=str(path), todo=_ELSEWHERE)
        if folder.name in _INSIDE or (folder.parent.name == _STATE and folder.name != _OWN_WORKSPACES):
            what = "judgments or answers" if folder.name in _INSIDE else "records of a workspace"
            raise DataError(f"not written: {folder} is for {what}", where=str(path), todo=_ELSEWHERE)
