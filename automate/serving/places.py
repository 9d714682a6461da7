"""Where a server of this machine can listen: a private folder for a socket, or a free port.

Never opens a port that others can reach."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
import tempfile
import time
from pathlib import Path

from automate.errors import ServerError

PREFIX = "fhpc-"
OLD = 86400.0
"""Seconds after which a folder without a listener is taken to be left over; loading takes less."""
MAX_SOCKET_PATH = 107
"""Bytes that a Unix socket's path may have on Linux."""


def _is_dead(folder: Path, now: float) -> bool:
    """Whether a folder of ours is old and nobody listens in it: its server and guard were killed together."""
    found = folder.lstat()
    if found.st_uid != os.getuid() or now - found.st_mtime < OLD or not stat.S_ISDIR(found.st_mode):
        return False
    for entry in folder.iterdir():
        if not stat.S_ISSOCK(entry.lstat().st_mode):
            return False
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1)
            try:
                probe.connect(str(entry))
            except ConnectionRefusedError:
                continue
            return False
    return True


def sweep_dead(base: Path) -> None:
    """Remove what servers left in `base` that were killed with all around them. Never fails."""
    for folder in base.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if _is_dead(folder, time.time()):
                shutil.rmtree(folder)


def socket_folder() -> Path:
    """A new folder of mode 0700 whose path leaves room for a socket's name."""
    for base in (os.environ.get("TMPDIR"), "/tmp"):  # noqa: S108 - mkdtemp makes it private
        if base and Path(base).is_dir() and len(os.fsencode(base)) < MAX_SOCKET_PATH - 30:
            sweep_dead(Path(base))
            return Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
    raise ServerError("no temporary folder with a short enough path for a socket", where=os.environ.get("TMPDIR"),
                      todo="set TMPDIR to a short path, or judge.server.transport: tcp")


def free_port() -> int:
    """A loopback port that is free now; a clash is found by the server's key and answered with another port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
