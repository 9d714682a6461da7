"""Where a server of this machine can listen: a private folder for a socket, or a free port.

Never opens a port that others can reach."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

from automate.errors import ServerError

MAX_SOCKET_PATH = 107
"""Bytes that a Unix socket's path may have on Linux."""


def socket_folder() -> Path:
    """A new folder of mode 0700 whose path leaves room for a socket's name."""
    for base in (os.environ.get("TMPDIR"), "/tmp"):  # noqa: S108 - mkdtemp makes it private
        if base and Path(base).is_dir() and len(os.fsencode(base)) < MAX_SOCKET_PATH - 30:
            return Path(tempfile.mkdtemp(prefix="fhpc-", dir=base))
    raise ServerError("no temporary folder with a short enough path for a socket", where=os.environ.get("TMPDIR"),
                      todo="set TMPDIR to a short path, or judge.server.transport: tcp")


def free_port() -> int:
    """A loopback port that is free now; a clash is found by the server's key and answered with another port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
