"""What the doctor says of one thing, and the checks that the login node and a compute node share.

Writes nothing but files that it removes at once."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from automate.arena.preflight.machine import nearest
from automate.arena.weights import read_model_folder
from automate.errors import FlockError
from automate.filesystems import FileSystem, of_path, read_mounts
from automate.serving.places import socket_folder
from automate.settings import Judge
from automate.workspace import Workspace

SKEW = 5.0
"""Seconds by which a clock may differ before it is said."""


class Mark(StrEnum):
    """How a check came out; `unknown` is one that could not be made."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    UNKNOWN = "unknown"
    ERROR = "error"


@dataclass(frozen=True)
class Check:
    """One line of the doctor: what was looked at, what was found, and what to do (empty: nothing)."""

    mark: Mark
    subject: str
    what: str
    todo: str = ""

    def as_json(self) -> dict[str, str]:
        """As in the job's file of results."""
        return {**asdict(self), "mark": self.mark.value}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Check:
        """A line of the job's file; one that can't be read is unknown."""
        try:
            return cls(Mark(data["mark"]), str(data["subject"]), str(data["what"]), str(data.get("todo", "")))
        except (KeyError, ValueError, TypeError):
            return cls(Mark.UNKNOWN, "a line of the job", f"can't be read: {data!r}"[:200])


Checks = Iterable[Check]


def ok(subject: str, what: str) -> Check:
    """A check that found nothing wrong."""
    return Check(Mark.OK, subject, what)


def attempt(subject: str, check: Callable[[], Checks]) -> list[Check]:
    """The lines of one check; where it breaks, a line says that it could not be made."""
    found: list[Check] = []
    try:
        found += check()
    except FlockError as error:
        found.append(Check(Mark.UNKNOWN, subject, str(error.what), error.todo or ""))
    except Exception as error:
        found.append(Check(Mark.UNKNOWN, subject, f"could not be checked: {type(error).__name__}: {error}"))
    return found


def size(count: float) -> str:
    """Bytes for a reader."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def folders(workspace: Workspace) -> Iterator[Check]:
    """Whether each folder that jobs write to can be written, and how much room is left there."""
    mounts = read_mounts()
    named = {"scripts": workspace.scripts, "configs": workspace.configs, "logs": workspace.logs,
             "judgments": workspace.judgments, "records": workspace.state}
    for name, folder in named.items():
        place = nearest(folder)
        subject = f"folder: {name}"
        try:
            with tempfile.NamedTemporaryFile(prefix=".flock-hpc-", dir=place) as file:
                file.write(b"written")
                file.flush()
                os.fsync(file.fileno())
            usage = shutil.disk_usage(place)
        except OSError as problem:
            yield Check(Mark.ERROR, subject, f"{folder} can't be written: {problem.strerror or problem}",
                        "check its rights and your quota (ls -ld, df, quota)")
            continue
        what = f"{folder} can be written, {size(usage.free)} free{_kind(of_path(place, mounts))}"
        if usage.free < 1e9:
            yield Check(Mark.WARNING, subject, what, "make room: a model's 1,500 games take about 40 MB")
        else:
            yield ok(subject, what)


def _kind(system: FileSystem | None) -> str:
    return f" on {system.kind}" if system else ""


def clock(workspace: Workspace, now: Callable[[], float] = time.time) -> Iterator[Check]:
    """This machine's clock against that of the file system which the records lie on."""
    place = nearest(workspace.state)
    before = now()
    with tempfile.NamedTemporaryFile(prefix=".flock-hpc-", dir=place) as file:
        file.write(b"now")
        file.flush()
        stamp = os.fstat(file.fileno()).st_mtime
    after = now()
    skew = stamp - after if stamp > after else min(stamp - before, 0.0)
    what = f"differs from the file system's by {abs(skew):.1f} s"
    if abs(skew) > SKEW:
        yield Check(Mark.WARNING, "clock", what, "tell your administrators; ages and finish times are off by that much")
    else:
        yield ok("clock", what)


def sockets() -> Iterator[Check]:
    """A Unix socket in a private folder and a loopback port, as the judge's server opens them."""
    folder = socket_folder()
    try:
        path = folder / "doctor.sock"
        with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
            server.bind(str(path))
            server.listen()
            client.connect(str(path))
        yield ok("Unix socket", f"can be opened in {folder.parent}")
    except OSError as problem:
        yield Check(Mark.ERROR, "Unix socket", f"can't be opened in {folder.parent}: {problem}",
                    "set TMPDIR to a local folder with a short path, or judge.server.transport: tcp")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    try:
        with socket.socket() as server, socket.socket() as client:
            server.bind(("127.0.0.1", 0))
            server.listen()
            client.connect(server.getsockname())
        yield ok("loopback port", "can be opened on 127.0.0.1")
    except OSError as problem:
        yield Check(Mark.WARNING, "loopback port", f"can't be opened on 127.0.0.1: {problem}",
                    "keep judge.server.transport: uds")


def judge_folder(judge: Judge, root: Path) -> Iterator[Check]:
    """Whether the judge's folder is there and each of its weights files can be read."""
    subject = "judge's folder"
    if judge.kind != "vllm":
        yield Check(Mark.NOTE, subject, f"judge.kind is {judge.kind}: no weights are needed")
        return
    if judge.path is None:
        yield Check(Mark.ERROR, subject, "judge.path is not given", "set judge.path to the judge's model folder")
        return
    path = root / Path(judge.path).expanduser()
    if not path.is_dir():
        yield Check(Mark.ERROR, subject, f"{judge.path} is no folder that can be seen from here",
                    "write its full path, on a file system that compute nodes see")
        return
    try:
        model = read_model_folder(path)
        closed = [file.name for file in sorted(path.iterdir()) if not os.access(file, os.R_OK)]
    except (OSError, ValueError) as problem:
        yield Check(Mark.ERROR, subject, f"{path}: {problem}", "check that the download is whole, and its rights")
        return
    if closed:
        yield Check(Mark.ERROR, subject, f"{path}: can't be read: {', '.join(closed[:5])}", "check who may read them")
    else:
        yield ok(subject, f"{path}: {size(model.weight_bytes)} of weights{_kind(of_path(path, read_mounts()))}")
