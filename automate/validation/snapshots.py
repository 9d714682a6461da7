"""Repositories on disk: a folder for each repository and commit, shared by the assignments that use it.

Never shows a half-made folder, and never asks the network for anything: files come through a function."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from automate.claims import take
from automate.journal import read_json, write_json
from automate.validation.repositories import RepoFile, is_commit
from automate.validation.troubles import TryLater, of_system

Fetch = Callable[[RepoFile, Path], None]
"""Puts one file of the repository below a folder, under its own name."""
CLAIM_STALE = 90.0
_NOTES = ".cache"
"""Folder in which the hub's library notes what it has of a folder; it goes when the folder is whole."""


def folder_of(models: Path, repo: str, commit: str) -> Path:
    """Where a repository's commit lies below `models`."""
    return models / repo.replace("/", "--") / commit


def manifest_of(folder: Path) -> Path:
    """The file beside a snapshot that says what is in it; its time is that of the last use."""
    return folder.with_name(f"{folder.name}.json")


def aside_of(folder: Path) -> Path:
    """Where files of a snapshot lie until they are whole; what was finished there is not fetched again."""
    return folder.with_name(f".{folder.name}.part")


@contextmanager
def held(models: Path, folder: Path) -> Iterator[None]:
    """Be the only one who changes a snapshot. Raises ClaimedError, naming the holder."""
    claim = take(models / ".claims" / f"{folder.parent.name}--{folder.name}", stale=CLAIM_STALE)
    try:
        yield
    finally:
        claim.release()


def present(folder: Path) -> dict[str, int]:
    """The files of a snapshot that are there with their whole size."""
    listed: Any = (read_json(manifest_of(folder)) or {}).get("files")
    if not isinstance(listed, dict):
        return {}
    return {name: size for name, size in listed.items() if _size(folder / name) == size}


def whole(folder: Path, least: int = 0) -> bool:
    """Whether all that a snapshot's manifest lists is there, and so many bytes at least."""
    listed: Any = (read_json(manifest_of(folder)) or {}).get("files")
    there = present(folder)
    return isinstance(listed, dict) and bool(listed) and len(there) == len(listed) and sum(there.values()) >= least


def touch(folder: Path, now: float | None = None) -> None:
    """Note that a snapshot was used."""
    moment = time.time() if now is None else now
    try:
        os.utime(manifest_of(folder), (moment, moment))
    except OSError:
        return  # it only ages faster


def build(models: Path, repo: str, commit: str, files: Sequence[RepoFile], fetch: Fetch) -> Path:
    """See that these files of a commit are on disk, and return its folder; only what is missing is fetched.

    Raises ClaimedError where somebody else fetches it, TryLater where the disk refuses, and what `fetch` raises.
    """
    if not is_commit(commit):
        raise TryLater("a commit is 40 hex digits", cause="hub", where=repo)
    folder = folder_of(models, repo, commit)
    if _missing(folder, files):
        with held(models, folder):
            try:
                _fill(folder, repo, _missing(folder, files), fetch)
            except OSError as error:
                raise of_system(error, folder, "put a model there") from error
    touch(folder)
    return folder


def _missing(folder: Path, files: Sequence[RepoFile]) -> list[RepoFile]:
    there = present(folder)
    return [one for one in files if there.get(one.name) != one.size]


def _fill(folder: Path, repo: str, missing: Sequence[RepoFile], fetch: Fetch) -> None:
    aside = aside_of(folder)
    aside.mkdir(parents=True, exist_ok=True)
    for one in missing:
        fetch(one, aside)
        _check(one, aside / one.name)
    files = present(folder) | {one.name: one.size for one in missing}
    write_json(manifest_of(folder), {"repo": repo, "commit": folder.name, "files": files, "when": time.time()})
    if not folder.exists():
        aside.rename(folder)
        shutil.rmtree(folder / _NOTES, ignore_errors=True)
        return
    for one in missing:
        target = folder / one.name
        target.parent.mkdir(parents=True, exist_ok=True)
        (aside / one.name).replace(target)
    shutil.rmtree(aside, ignore_errors=True)


def _check(file: RepoFile, path: Path) -> None:
    """Refuse, and remove, a file that is not what the hub's listing says."""
    real = path.is_file() and not path.is_symlink()
    if real and path.stat().st_size == file.size and (file.sha256 is None or _sha256(path) == file.sha256):
        return
    path.unlink(missing_ok=True)
    raise TryLater(f"{file.name} came with other bytes than the hub lists; it is fetched again",
                   cause="hub-file", where=path.parent.name, soon=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
