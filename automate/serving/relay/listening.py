"""A listening socket of the relay's own, or a plain word on why there is none.

Never takes another address than the one that was asked for."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import socket

from automate.errors import ConfigError

_ENOUGH = 1 << 16


def room() -> int:
    """Connections that this process may have at once, each with one to an upstream; its limit is raised first.

    A quarter of what it may open is left for all else that it does.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    limit = _ENOUGH if soft == resource.RLIM_INFINITY else soft
    return max(8, (limit - max(limit // 4, 32)) // 2)


async def listen(host: str, port: int, setting: str) -> socket.socket:
    """A bound TCP socket. Raises ConfigError; `setting`: the key of the settings that holds `host` and `port`."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM,
                                                             flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise _not_ours(host, setting) from error
    family, kind, protocol, _, address = found[0]
    try:
        return _bind(socket.socket(family, kind, protocol), family, address)
    except (OSError, OverflowError) as error:
        raise _config_error(error, host, port, setting) from error


def _bind(sock: socket.socket, family: int, address: tuple[object, ...]) -> socket.socket:
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen()
    except BaseException:
        sock.close()
        raise
    return sock


def _not_ours(host: str, setting: str) -> ConfigError:
    return ConfigError(f"{host} is not an address of this machine", where=f"{setting}.host",
                       todo="name one of its own addresses there (ip -brief address), or 127.0.0.1")


def _config_error(error: Exception, host: str, port: int, setting: str) -> ConfigError:
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EADDRNOTAVAIL:
        return _not_ours(host, setting)
    if number == errno.EADDRINUSE:
        return ConfigError(f"port {port} of {host} is taken by another program", where=f"{setting}.port",
                           todo="name another port there, or 0 for any that is free (ss -ltnp shows who has it)")
    if number == errno.EACCES:
        return ConfigError(f"this user may not listen at port {port}", where=f"{setting}.port",
                           todo="name a port of at least 1024 there, or 0 for any that is free")
    what = os.strerror(number) if number else str(error)
    return ConfigError(f"can't listen at port {port} of {host}: {what}", where=f"{setting}.port",
                       todo="name another host or port there")
