"""The sockets of `pool serve`: one for HTTP, one private, of this user only.

Never removes a socket on which somebody listens, and never opens the private one to others."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from automate.errors import ConfigError, StorageError

BACKLOG = 1024


@contextmanager
def short_name(place: Path) -> Iterator[str]:
    """A name of a socket that fits into its address (107 bytes), however deep its folder lies. Raises OSError."""
    folder = os.open(place.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{place.name}"
    finally:
        os.close(folder)


def connected(place: Path, timeout: float) -> socket.socket:
    """A connection to the private socket. Raises OSError."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.settimeout(timeout)
        with short_name(place) as name:
            made.connect(name)
    except OSError:
        made.close()
        raise
    return made


def answers(place: Path) -> bool:
    """Whether somebody listens on the private socket."""
    try:
        connected(place, 5).close()
    except OSError:
        return False
    return True


def private(place: Path) -> socket.socket:
    """Listen on the private socket, mode 0600; one that a crash left is replaced. The caller holds the database, so
    that nobody else can serve it. Raises StorageError.
    """
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        remove(place)
        mask = os.umask(0o177)
        try:
            with short_name(place) as name:
                made.bind(name)
        finally:
            os.umask(mask)
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        raise StorageError.of(error, place, "listen on the private socket") from error
    made.setblocking(False)
    return made


def remove(place: Path) -> None:
    """Take the private socket away; anything else of that name stays. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(place.lstat().st_mode):
            place.unlink()


def public(host: str, port: int) -> socket.socket:
    """Listen for HTTP. Raises ConfigError: taken, no such address, or not allowed."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        made = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        raise ConfigError(
            f"can't listen there: {'the port is taken by another program' if taken else _words(error)}",
            where=f"{host}:{port}", todo="choose another: --port N, or pools.http.port; 0 for any that is free"
        ) from error
    made.setblocking(False)
    return made


def _words(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def url_of(listening: socket.socket) -> str:
    """The address to open."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def peer_uid(connection: socket.socket) -> int:
    """The user at the other end of a Unix socket, as the kernel says."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], "little")
