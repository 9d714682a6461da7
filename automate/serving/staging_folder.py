"""Where on a node's disk a judge's weights may be staged, whether that pays, and whose folder it is.

Never copies and never removes; it makes at most this user's own folder."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from automate.errors import FlockError
from automate.settings_judge import Staging

GB = 1e9
SYSTEM = frozenset({0, 65534})
"""Owners of folders that belong to nobody in particular: root, and root as it is seen inside of some containers."""
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")


class NotStaged(FlockError):
    """Why nothing was staged; said in the job's log, never raised to it."""


def pays(staging: Staging, *, rate: float | None, loads: int, there: bool, filesystem: str = "") -> tuple[bool, str]:
    """Whether to stage, and why, in one line.

    `rate`: bytes/s of the original's disk, None where it is not known; `loads`: how often this node is expected to
    load the judge; `there`: whether it has a copy; `filesystem`: why the folder's kind speaks against it, or "".
    """
    if staging.folder is None:
        return False, "judge.staging.folder is not set"
    if staging.when != "auto":
        return staging.when == "always", f"judge.staging.when is {staging.when}"
    if filesystem:
        return False, filesystem
    if there:
        return True, "a copy is on this node already"
    if rate is None:
        return False, "the rate of the weights' disk could not be measured"
    gives = f"the weights' disk gives {rate / GB:.2f} GB/s"
    if rate >= staging.below * GB:
        return False, f"{gives}, not less than judge.staging.below ({staging.below:g})"
    if loads < 2:
        return False, f"{gives}, but this node is expected to load the judge only once"
    return True, f"{gives}, and this node is expected to load the judge about {loads} times"


def expand(folder: str, environ: Mapping[str, str]) -> Path:
    """The setting with the job's $VARIABLES put in. Raises NotStaged for an unknown one and a relative path."""
    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if not environ.get(name):
            raise NotStaged(f"judge.staging.folder is {folder}, and ${name} is not set in this job")
        return environ[name]

    path = Path(_VARIABLE.sub(value, folder)).expanduser()
    if not path.is_absolute():
        raise NotStaged(f"judge.staging.folder ({path}) is not an absolute path")
    return path


def check_folder(folder: Path) -> Path:
    """The staging folder with links resolved. Raises NotStaged where a copy there could be another user's doing."""
    real = folder.resolve()
    if not real.is_dir():
        raise NotStaged(f"there is no folder {folder} on this node")
    found = real.stat()
    if found.st_uid not in {os.geteuid(), *SYSTEM}:
        raise NotStaged(f"{folder} belongs to another user (uid {found.st_uid}), who could change what is loaded")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX:
        raise NotStaged(f"others may rename what lies in {folder}: it is writable for them and has no sticky bit")
    if not os.access(real, os.W_OK | os.X_OK):
        raise NotStaged(f"{folder} can't be written (read-only, or not for this user)")
    return real


def home_of(folder: Path) -> Path:
    """The folder of this user's copies in a checked staging folder; it may not be there yet."""
    return folder / f"flock-hpc-{os.geteuid()}"


def is_own(path: Path) -> bool:
    """Whether a path is a real folder of this user's that nobody else can look into."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def make_home(folder: Path) -> Path:
    """`home_of` a checked staging folder, made where it is not there. Raises NotStaged, OSError."""
    home = home_of(folder)
    with contextlib.suppress(FileExistsError):
        home.mkdir(mode=0o700)
    if not is_own(home):
        raise NotStaged(f"{home} is not a folder of this user's own with mode 700: somebody else may have made it")
    return home


def copy_there(folder: Path, fingerprint: str) -> bool:
    """Whether a copy of this fingerprint seems to lie in a staging folder; `stage` looks closer."""
    home = home_of(folder.resolve())
    return is_own(home) and is_own(home / fingerprint)


def refusal_of(folder: Path, source: Path | None, need: int, free: int | None = None) -> str | None:
    """Why nothing from `source` would be staged to a folder of this machine; None: nothing speaks against it.

    `need`: bytes; `free`: bytes, in place of asking the system.
    """
    try:
        real = check_folder(folder)
        home = home_of(real)
        if os.path.lexists(home) and not is_own(home):
            return f"{home} is not a folder of this user's own with mode 700"
        if source is not None and real.stat().st_dev == source.stat().st_dev:
            return f"{folder} is on the same file system as the weights: a copy would gain nothing"
        room = shutil.disk_usage(real).free if free is None else free
    except NotStaged as problem:
        return problem.what
    except OSError as problem:
        return f"{folder}: {problem.strerror or problem}"
    return None if room >= need else f"{folder} has {room / GB:.1f} GB free, and the weights need {need / GB:.1f} GB"
