"""A module's process in its job: started below a guard that ends all of it, watched, its output kept.

Never leaves a process behind, however this one ends; never decides what an end means."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from automate.errors import ModuleEnvironmentError
from automate.processes import descendants

LOG_BYTES = 4_000_000
"""Most bytes that a start's output keeps: the first quarter of them, and the last."""
GRACE = 3.0
"""Seconds that a module has to end when it is told to."""
_POLL = 0.2


@dataclass(frozen=True)
class Ended:
    """How it ended: exit status (128 + n after signal n), why it was ended from here ("": by itself), out of memory."""

    status: int
    stopped: str = ""
    out_of_memory: bool = False
    seconds: float = 0.0


class CappedLog:
    """A log file of bounded size: the beginning stays, of the rest the newest part."""

    def __init__(self, path: Path, most: int = LOG_BYTES, clean: Callable[[str], str] | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.most, self.clean = path, most, clean
        self._file: BinaryIO = path.open("w+b", buffering=0)
        self._head, self._rest = most // 4, b""

    def write(self, data: bytes) -> None:
        """Append; raises OSError where the disk refuses."""
        if self.clean is not None:
            lines, newline, self._rest = (self._rest + data).rpartition(b"\n")
            data = lines + newline
            if len(self._rest) > 65536:
                data, self._rest = data + self._rest, b""
            data = self.clean(data.decode(errors="replace")).encode()
        self._append(data)

    def _append(self, data: bytes) -> None:
        if self._file.tell() + len(data) > self.most:
            tail_from = max(self._head, self._file.tell() - self.most // 2)
            self._file.seek(tail_from)
            kept = (self._file.read() + data)[-(self.most // 2):]
            self._file.seek(self._head)
            self._file.truncate()
            data = b"\n[... the middle of this log was left out ...]\n" + kept
        self._file.write(data)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            if self._rest and self.clean is not None:
                self._append(self.clean(self._rest.decode(errors="replace")).encode())
            self._file.close()


def _drain(source: BinaryIO, log: CappedLog) -> None:
    """Copy output into the log. A full disk loses the log and never stops the module."""
    broken = False
    while data := source.read(65536):
        if not broken:
            try:
                log.write(data)
            except OSError:
                broken = True


def oom_kills() -> int | None:
    """How many processes of this job's cgroup the kernel has killed for memory; None where it doesn't say."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        base = Path("/sys/fs/cgroup")
        file = (base / path.lstrip("/") / "memory.events" if not controllers
                else base / "memory" / path.lstrip("/") / "memory.oom_control")
        if controllers and "memory" not in controllers.split(","):
            continue
        with contextlib.suppress(OSError, ValueError):
            counts = dict(pair.split(" ", 1) for pair in file.read_text().splitlines() if " " in pair)
            if "oom_kill" in counts:
                return int(counts["oom_kill"])
    return None


def tail(path: Path, most: int = 8192) -> str:
    """The end of a log."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - most))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def run(command: Sequence[str], environ: Mapping[str, str], scratch: Path, log: Path, *,
        stop: Callable[[], str], timeout: float | None = None, grace: float = GRACE,
        clean: Callable[[str], str] | None = None, keep: bool = False) -> Ended:
    """Run a command to its end in `scratch`, which is removed with it (not with `keep`); its output goes to `log`.

    `stop()` is asked several times a second; what it says, if anything, ends the command and all below it. Must be
    called by the main thread, as the guard goes when the thread that started it does. `clean` is applied to what is
    logged. Raises ModuleEnvironmentError where it can't be started, OSError where there is no room for a log.
    """
    before, began = oom_kills(), time.monotonic()
    written = CappedLog(log, clean=clean)
    read, write = os.pipe()
    guard = [sys.executable, "-m", "automate.serving.guard", str(read), str(grace),
             "-" if keep else str(scratch)]
    try:
        process = subprocess.Popen([*guard, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, env=dict(environ), cwd=scratch, pass_fds=(read,),
                                   start_new_session=True)
    except OSError as error:
        os.close(write)
        written.close()
        raise ModuleEnvironmentError(f"its program can't be started: {error.strerror}", where=command[0],
                                     todo="build the environment again: flock-hpc validation env create") from error
    finally:
        os.close(read)
    assert process.stdout is not None
    reader = threading.Thread(target=_drain, args=(process.stdout, written), daemon=True)
    reader.start()
    why = _wait(process, stop, None if timeout is None else began + timeout)
    os.close(write)  # where the command runs still, the guard now ends it
    _ended(process, grace)
    reader.join(timeout=5)
    written.close()
    after = oom_kills()
    status = process.returncode if process.returncode >= 0 else 128 - process.returncode
    return Ended(status, why, before is not None and after is not None and after > before,
                 time.monotonic() - began)


def _wait(process: subprocess.Popen[bytes], stop: Callable[[], str], until: float | None) -> str:
    while True:
        try:
            process.wait(timeout=_POLL)
            return ""
        except subprocess.TimeoutExpired:
            why = stop() or ("timeout" if until is not None and time.monotonic() > until else "")
            if why:
                return why


def _ended(process: subprocess.Popen[bytes], grace: float) -> None:
    try:
        process.wait(timeout=grace + 5)
        return
    except subprocess.TimeoutExpired:
        below = descendants(process.pid)
    for pid in (process.pid, *below):
        with contextlib.suppress(OSError):
            os.kill(pid, 9)
    process.wait()
