"""Whether the process at the other end of a loopback connection is this user's own, by the kernel's word.

Never trusts a port for its number: any user of the machine may listen at it once its owner is gone."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import struct
import sys
from pathlib import Path

TABLE = Path("/proc/net/tcp")
_PATIENCE = 5.0
_PAUSE = 0.005
_SOCK_DIAG, _BY_FAMILY, _ERROR = 4, 20, 2  # linux/netlink.h, linux/sock_diag.h
End = tuple[str, int]


class NotOwnError(ConnectionError):
    """The port belongs to another user's process, or nobody can say whose it is."""


def _address(host: str, port: int) -> bytes:
    number = int.from_bytes(socket.inet_aton(host), sys.byteorder)
    return b"%08X:%04X" % (number, port)


def owner_of(table: bytes, local: End, remote: End) -> int | None:
    """User id of the socket with these ends in the text of /proc/net/tcp; None where no process holds it (yet)."""
    wanted = b" %b %b " % (_address(*local), _address(*remote))
    at = table.find(wanted)
    if at < 0:
        return None
    fields = table[at : table.find(b"\n", at)].split()
    # local, remote, state, queues, timer, retransmissions, uid, timeout, inode
    return int(fields[6]) if len(fields) > 8 and fields[8] != b"0" else None


def asked(local: End, remote: End) -> int | None:
    """The same by a question to the kernel (sock_diag), which takes no longer where there are many sockets.

    Raises OSError where this kernel doesn't answer such questions.
    """
    ends = struct.pack("!HH", local[1], remote[1])
    ends += b"".join(socket.inet_aton(host).ljust(16, b"\0") for host in (local[0], remote[0]))
    body = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF) + ends + struct.pack("=I", 0)
    body += b"\xff" * 8  # whatever its cookie is
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.settimeout(1.0)
        kernel.send(struct.pack("=IHHII", 16 + len(body), _BY_FAMILY, 1, 0, 0) + body)
        said = kernel.recv(8192)
    if struct.unpack_from("=H", said, 4)[0] == _ERROR:
        number = -struct.unpack_from("=i", said, 16)[0]
        if number == errno.ENOENT:  # there is no such socket (yet)
            return None
        raise OSError(number, os.strerror(number))
    uid, inode = struct.unpack_from("=II", said, 16 + 4 + 48 + 12)  # behind family, ends, times and queues
    return int(uid) if inode else None


async def check_own(transport: asyncio.BaseTransport, table: Path | None = None) -> None:
    """Wait until the peer of this IPv4 loopback connection is held by a process. Raises NotOwnError if not by ours.

    `table`: asked instead of the kernel; none: only where the kernel doesn't answer.
    """
    ours, peer = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
    if not (isinstance(ours, tuple) and isinstance(peer, tuple) and peer[0] == "127.0.0.1"):
        raise NotOwnError("only a process at 127.0.0.1 can be known as one's own")
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _PATIENCE
    while (owner := _look(table, peer, ours)) is None:
        if loop.time() > deadline or transport.is_closing():
            raise NotOwnError(f"nobody can say whose process is at 127.0.0.1:{peer[1]}")
        await asyncio.sleep(_PAUSE)
    if owner != os.geteuid():
        raise NotOwnError(f"port {peer[1]} of 127.0.0.1 belongs to a process of another user (id {owner})")


def _look(table: Path | None, local: End, remote: End) -> int | None:
    if table is None:
        with contextlib.suppress(OSError):
            return asked(local, remote)
    try:
        return owner_of((table or TABLE).read_bytes(), local, remote)
    except OSError as error:
        raise NotOwnError(f"{table or TABLE} can't be read: {error.strerror}") from error
