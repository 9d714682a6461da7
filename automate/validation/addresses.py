"""Which addresses a validation set may be fetched from: https ones of the internet, and this machine's in a rehearsal.

Never shows more of an address than its host; where a proxy resolves names, only what is written can be looked at."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.utils import select_proxy
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

from automate.validation.troubles import PersonNeeded, TryLater

_TODO = "the address comes from the API; ask FLock. Through a proxy (HTTPS_PROXY) a site's own names are its to resolve"


def of_this_machine(url: str) -> bool:
    """Whether an address is written as one of this machine."""
    host = (urlsplit(url).hostname or "").rstrip(".").lower()
    literal = _literal(host)
    return host == "localhost" or (literal is not None and literal.is_loopback)


def host_of(url: str, *, here: bool) -> str:
    """The address's host, after looking at what is written. `here`: addresses of this machine are allowed, with http.

    Raises TryLater for what is no https address, PersonNeeded for one that is not of the internet.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = urlsplit(""), None
    mine = here and host is not None and of_this_machine(url)
    if not host or not (parts.scheme == "https" or (parts.scheme == "http" and mine)):
        raise TryLater("the validation set's address is not https", cause="data-url")
    literal = _literal(host.lower())
    if literal is not None:
        permit(str(literal), host, here=here)
    elif not mine and (host.rstrip(".").lower() == "localhost" or host.rstrip(".").lower().endswith(".localhost")):
        raise _refused(host)
    return host


def permit(address: str, host: str, *, here: bool) -> None:
    """Refuse an IP address that is not of the internet (private, link-local, this machine's). Raises PersonNeeded."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    found = getattr(ip, "ipv4_mapped", None) or getattr(ip, "sixtofour", None) or ip
    if not ((found.is_global and not found.is_multicast) or (here and found.is_loopback)):
        raise _refused(host)


def _refused(host: str) -> PersonNeeded:
    return PersonNeeded(f"the validation set's address ({host[:100]}) is one of this machine or of a private network: "
                        "it is not asked", cause="data-url", todo=_TODO)


def _literal(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The IP address that a host is written as, in the old short forms too (`127.1`, `0x7f000001`)."""
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        return None


def look_up(url: str, session: requests.Session, *, here: bool) -> None:
    """Refuse a host whose name leads to an address that may not be asked. Raises PersonNeeded, OSError (no such name).

    Where a proxy is set for it, nothing is resolved here.
    """
    if proxied(url, session):
        return
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        permit(str(found[4][0]), host, here=here)


def proxied(url: str, session: requests.Session) -> bool:
    """Whether the session goes through a proxy for this address."""
    proxies = session.merge_environment_settings(url, {}, True, None, None)["proxies"]
    return select_proxy(url, proxies) is not None


def guard(session: requests.Session, *, here: bool) -> None:
    """Have the session look at the address that it is connected to before it sends anything. Not through proxies."""
    for scheme in ("https://", "http://"):
        there = session.adapters.get(scheme)
        if not isinstance(there, _Guard) or there.here != here:
            session.mount(scheme, _Guard(here))


class _Guard(HTTPAdapter):
    """Connections of its own, which refuse a peer that is not to be asked."""

    def __init__(self, here: bool) -> None:
        self.here = here
        super().__init__()

    def init_poolmanager(self, *given: Any, **named: Any) -> None:  # noqa: ANN401 - as the base class has it
        super().init_poolmanager(*given, **named)
        self.poolmanager.pool_classes_by_scheme = _pools(self.here)


def _pools(here: bool) -> dict[str, type[HTTPConnectionPool]]:
    class Plain(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return _seen(super()._new_conn(), self.host, here)

    class Encrypted(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return _seen(super()._new_conn(), self.host, here)

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class EncryptedPool(HTTPSConnectionPool):
        ConnectionCls = Encrypted

    return {"http": PlainPool, "https": EncryptedPool}


def _seen(connected: socket.socket, host: str, here: bool) -> socket.socket:
    peer: Sequence[Any] = connected.getpeername()
    try:
        permit(str(peer[0]), host, here=here)
    except PersonNeeded:
        connected.close()
        raise
    return connected
