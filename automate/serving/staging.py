"""Copies a judge's weights to a disk of this node, once for all jobs there, before a server loads them.

Never fails a job (what goes wrong is one line, and the original is loaded), never takes what another user could have
put there, and removes nothing but copies of this user's own making."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from automate import claims
from automate.durations import in_words
from automate.errors import ClaimedError, FlockError
from automate.serving.copying import Copying, Entry, Stopped, files_of, same_sizes
from automate.serving.staging_folder import GB, NotStaged, check_folder, expand, home_of, is_own, make_home

Say = Callable[[str], None]
MARGIN = 1.05
OLD = 7 * 86400.0
_COPY = re.compile(r"[0-9a-f]{16,64}")
_PART = re.compile(r"[0-9a-f]{16,64}\.part-[0-9a-f]+")


@dataclass(frozen=True)
class Staged:
    """A verified copy: its folder, bytes that this job copied (0: it was there), seconds, waiting included."""

    path: Path
    copied_bytes: int
    seconds: float
    reused: bool


@dataclass(frozen=True)
class Node:
    """What staging asks of the machine, and its patience in seconds; tests put their own in place."""

    job_alive: claims.JobAlive = claims.no_jobs
    device: Callable[[Path], int] = lambda path: path.stat().st_dev
    free: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free
    stale: float = 30.0
    patience: float = 300.0
    poll: float = 1.0


class _Place:
    """Where one judge's copy lies, or will."""

    def __init__(self, home: Path, source: Path, fingerprint: str, verify: Callable[[Path], bool]) -> None:
        self.home, self.source, self.verify = home, source, verify
        self.final = home / fingerprint
        self.claim = home / f"{fingerprint}.claim"
        self.files: list[Entry] = files_of(source)
        self.bytes = sum(size for _, size in self.files)

    def usable(self) -> bool:
        """Whether the whole copy is there; if so it counts as used now."""
        try:
            if not (is_own(self.final) and same_sizes(self.final, self.files) and self.verify(self.final)):
                return False
            os.utime(self.final)
        except (OSError, ValueError):
            return False
        return True

    def parts(self) -> list[Path]:
        return [path for path in self.home.glob(f"{self.final.name}.part-*") if _PART.fullmatch(path.name)]

    def part_bytes(self) -> int:
        total = 0
        for part in self.parts():
            for name, _ in self.files:
                with contextlib.suppress(OSError):
                    total += (part / name).stat().st_blocks * 512
        return total


def stage(source: Path, folder: str, fingerprint: str, say: Say, stop: Callable[[], bool], *,
          verify: Callable[[Path], bool], environ: Mapping[str, str] | None = None,
          node: Node | None = None) -> Staged | None:
    """A copy of `source` on this node's disk, made, waited for or found; None: load the original.

    Blocks for as long as copying takes; `stop` is asked about once a second and ends it. `verify` tells whether a
    folder holds the weights of this fingerprint. Never raises for what a machine or another user can do.
    """
    began = time.monotonic()
    try:
        if not _COPY.fullmatch(fingerprint):
            raise NotStaged(f"'{fingerprint}' is not a fingerprint of weights")
        real = check_folder(expand(folder, os.environ if environ is None else environ))
        copied = _stage(source, real, fingerprint, say, stop, verify, node or Node())
    except Stopped:
        say("weights not staged: the job was told to stop")
        return None
    except (FlockError, OSError, ValueError) as error:
        why = error.what if isinstance(error, FlockError) else _reason(error)
        say(f"weights not staged: {why}; the judge is loaded from {source}")
        return None
    seconds, path = time.monotonic() - began, home_of(real) / fingerprint
    if copied:
        say(f"weights staged: {copied / GB:.1f} GB copied to {path} in {in_words(seconds)}")
    else:
        say(f"weights staged: the copy at {path} is used")
    return Staged(path, copied, seconds, reused=not copied)


def _reason(error: Exception) -> str:
    if not isinstance(error, OSError):
        return str(error)
    return f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")


def _stage(source: Path, folder: Path, fingerprint: str, say: Say, stop: Callable[[], bool],
           verify: Callable[[Path], bool], node: Node) -> int:
    """Bytes that were copied: 0 where a whole copy was there or came."""
    home = make_home(folder)
    place = _Place(home, source, fingerprint, verify)
    if not place.bytes:
        raise NotStaged(f"there are no weights in {source}")
    if node.device(home) == node.device(source / place.files[0][0]):
        raise NotStaged(f"{folder} is on the same file system as the weights: a copy would gain nothing")
    if place.usable():
        return 0
    claim = _alone(place, say, stop, node)
    if claim is None:
        return 0
    try:
        if place.usable():
            return 0
        _clear(place, say)
        _make_room(place, say, node)
        return _copy(place, claim, say, stop)
    finally:
        claim.release()


def _alone(place: _Place, say: Say, stop: Callable[[], bool], node: Node) -> claims.Claim | None:
    """The right to copy; None where another job's copy is whole. Waits for a copier that lives and moves."""
    moved, seen, told = time.monotonic(), -1, float("-inf")
    while not stop():
        try:
            return claims.take(place.claim, stale=node.stale, job_alive=node.job_alive)
        except ClaimedError as error:
            holder = error
        if place.usable():
            return None
        now, bytes_there = time.monotonic(), place.part_bytes()
        if bytes_there != seen or holder.holder_gone:
            moved, seen = now, bytes_there
        if now - moved > node.patience:
            raise NotStaged(f"another copy of them to this node has stood still for {in_words(now - moved)}: "
                            f"{holder.what}")
        if now - told >= 30:
            told = now
            say(f"weights: waiting for another job's copy to {place.final}, {bytes_there / GB:.1f} of "
                f"{place.bytes / GB:.1f} GB so far ({holder.what})")
        time.sleep(node.poll)
    raise Stopped


def _clear(place: _Place, say: Say) -> None:
    """Remove what dead copiers left, and a copy that is not whole; called by the claim's holder only."""
    for part in place.parts():
        shutil.rmtree(part, ignore_errors=True)
        say(f"weights: removed {part}, which a job that ended while it copied had left")
    if os.path.lexists(place.final):
        _remove(place.final)
        say(f"weights: removed {place.final}, a copy that is not whole or is another model's")


def _remove(copy: Path) -> None:
    """Remove a copy at once, as far as others can see."""
    aside = copy.with_name(f"{copy.name.partition('.')[0]}.part-{secrets.token_hex(8)}")
    copy.rename(aside)
    if aside.is_dir() and not aside.is_symlink():
        shutil.rmtree(aside, ignore_errors=True)
    else:
        aside.unlink(missing_ok=True)


def _make_room(place: _Place, say: Say, node: Node) -> None:
    need = int(place.bytes * MARGIN)
    for copy in _unused(place.home):
        if node.free(place.home) >= need:
            break
        with contextlib.suppress(OSError):
            _remove(copy)
            say(f"weights: removed {copy}, a copy of another judge that nobody has used for a week, to make room")
    free = node.free(place.home)
    if free < need:
        raise NotStaged(f"{place.home} has {free / GB:.1f} GB free, and the weights need {need / GB:.1f} GB")


def _unused(home: Path) -> list[Path]:
    """Copies, whole or not, that no job has used for a week, oldest first."""
    found = []
    for path in home.iterdir():
        if (_COPY.fullmatch(path.name) or _PART.fullmatch(path.name)) and is_own(path):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < time.time() - OLD:
                    found.append((path.stat().st_mtime, path))
    return [path for _, path in sorted(found)]


def _copy(place: _Place, claim: claims.Claim, say: Say, stop: Callable[[], bool]) -> int:
    part = place.final.with_name(f"{place.final.name}.part-{secrets.token_hex(8)}")
    copying = Copying(place.source, part, place.files, stop)
    told = time.monotonic()

    def beat() -> None:
        nonlocal told
        if not claim.beat():
            raise NotStaged("another job has taken the copying over")
        if time.monotonic() - told >= 30:
            told = time.monotonic()
            say(f"weights: {copying.copied / GB:.1f} of {place.bytes / GB:.1f} GB copied to {part.parent}")

    try:
        part.mkdir(mode=0o700)
        say(f"weights: copying {place.bytes / GB:.1f} GB to {part.parent}")
        copying.run(beat)
        if not same_sizes(part, place.files) or not place.verify(part):
            raise NotStaged("the copy differs from the original, which may have changed meanwhile")
        part.rename(place.final)
    except BaseException as error:
        shutil.rmtree(part, ignore_errors=True)
        if isinstance(error, OSError):
            far = f"{copying.copied / GB:.1f} of {place.bytes / GB:.1f} GB"
            raise NotStaged(f"{_reason(error)}, when {far} were copied to {part.parent}") from error
        raise
    return copying.copied
