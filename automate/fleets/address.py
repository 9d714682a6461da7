"""At which address of this machine a worker listens: by its node's name, a host name, an IP address or an interface.

Never listens; an address that is not this machine's, or that means all of them, is refused."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from automate.errors import ConfigError

SIOCGIFADDR = 0x8915
WHERE = "fleet.address"
IF_INET6 = Path("/proc/net/if_inet6")
_LINK_LOCAL = ("169.254.", "fe80")

Resolve = Callable[[str], Sequence[str]]
"""IP addresses of a host name; none where it is unknown."""


@dataclass(frozen=True)
class Place:
    """`host`: what others call and what the certificate is for; `bind`: the IP address to listen on."""

    host: str
    bind: str


@dataclass(frozen=True)
class Machine:
    """What is asked of this machine. `interfaces`: IP addresses of each; `own`: whether an address is its own;
    `routed`: the address from which it speaks to the world, where it does."""

    resolve: Resolve
    interfaces: Callable[[], Mapping[str, Sequence[str]]]
    own: Callable[[str], bool]
    name: Callable[[], str] = socket.gethostname
    routed: Callable[[], str | None] = lambda: None


def resolve(name: str) -> list[str]:
    """IP addresses of a host name, IPv4 first."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    ordered = sorted(found, key=lambda one: one[0] != socket.AF_INET)
    return list(dict.fromkeys(str(one[4][0]) for one in ordered))


def is_own(address: str) -> bool:
    """Whether one can listen at an IP address here."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(family) as probe:
        probe.bind((address, 0))
        return True
    return False


def _ipv4(interface: str) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        asked = struct.pack("256s", interface.encode()[:15])
        try:
            return socket.inet_ntoa(fcntl.ioctl(probe.fileno(), SIOCGIFADDR, asked)[20:24])
        except OSError:
            return None


def _ipv6(text: str) -> list[tuple[str, str]]:
    """(interface, address) of each line of /proc/net/if_inet6."""
    rows = [line.split() for line in text.splitlines()]
    return [(row[5], str(ipaddress.IPv6Address(int(row[0], 16)))) for row in rows if len(row) == 6]


def interfaces() -> dict[str, list[str]]:
    """IP addresses of each network interface of this machine, IPv4 first."""
    found: dict[str, list[str]] = {}
    for _, name in socket.if_nameindex():
        address = _ipv4(name)
        found[name] = [address] if address else []
    with contextlib.suppress(OSError, ValueError):
        for name, address in _ipv6(IF_INET6.read_text()):
            found.setdefault(name, []).append(address)
    return found


def routed() -> str | None:
    """The address of the default route's interface; nothing is sent to find it."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("198.51.100.1", 9))  # an address for documentation: nobody is there
        return str(probe.getsockname()[0])
    return None


THIS = Machine(resolve, interfaces, is_own, routed=routed)


def choose(address: str, environ: Mapping[str, str], machine: Machine = THIS) -> Place:
    """Where to listen for a fleet's `address` setting. Raises ConfigError naming what there is."""
    if address == "auto":
        return _by_name(environ, machine)
    if address in machine.interfaces():
        return _of_interface(address, machine)
    with contextlib.suppress(ValueError):
        return _of_ip(ipaddress.ip_address(address), machine)
    found = [one for one in machine.resolve(address) if machine.own(one)]
    if found:
        return Place(address, _best(found))
    known = "it is no address of this machine" if machine.resolve(address) else "no such host or interface here"
    raise _wrong(f"a worker can't listen at {address!r}: {known}", machine)


def _of_interface(name: str, machine: Machine) -> Place:
    found = [one for one in machine.interfaces()[name] if not one.startswith(_LINK_LOCAL)]
    if not found:
        raise _wrong(f"the interface {name} has no address that others can reach", machine)
    return Place(found[0], found[0])


def _of_ip(address: ipaddress.IPv4Address | ipaddress.IPv6Address, machine: Machine) -> Place:
    if address.is_unspecified or address.is_multicast:
        raise _wrong(f"a worker can't be reached at {address}: it names no single address", machine)
    if not machine.own(str(address)):
        raise _wrong(f"a worker can't listen at {address}: it is no address of this machine", machine)
    return Place(str(address), str(address))


def _by_name(environ: Mapping[str, str], machine: Machine) -> Place:
    """The address that the node's name stands for; else any that others can reach; loopback where nothing else is."""
    names = [name for name in (environ.get("SLURMD_NODENAME"), machine.name()) if name]
    named = [one for name in names for one in machine.resolve(name)]
    cards = sorted((one for found in machine.interfaces().values() for one in found), key=lambda one: ":" in one)
    every = [*named, *filter(None, [machine.routed()]), *cards]
    fit = [one for one in every if not one.startswith(_LINK_LOCAL) and machine.own(one)]
    if not fit:
        raise _wrong("this machine has no address to listen at", machine)
    return Place(_best(fit), _best(fit))


def _best(addresses: Sequence[str]) -> str:
    """One that others can reach, if there is one."""
    return next((one for one in addresses if not ipaddress.ip_address(one).is_loopback), addresses[0])


def _wrong(what: str, machine: Machine) -> ConfigError:
    there = ", ".join(f"{name} ({', '.join(found)})" for name, found in machine.interfaces().items() if found)
    return ConfigError(what, where=WHERE, todo=f"set it to auto, to a host name or IP address of the nodes, or to an "
                                               f"interface that they all have; this node has {there or 'none'}")
