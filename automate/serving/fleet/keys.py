"""A fleet's secrets: the key that its workers ask for, and the authority by which they are known.

Never used where others could have read them, and never shown."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from automate.fleet_places import FleetPlaces


@dataclass(frozen=True)
class Secrets:
    """What proves a fleet's own: `key` goes with each request, `authority` is the certificate file to trust."""

    key: str
    authority: Path

    def __repr__(self) -> str:
        return "Secrets(...)"


def make_secrets(places: FleetPlaces) -> None:
    """Make the fleet's folder (0700), its key, and its certificate authority (0600). Raises StorageError."""
    raise NotImplementedError


def read_secrets(places: FleetPlaces) -> Secrets:
    """Read them. Raises ConfigError where the folder or a file belongs to another user or others may read it."""
    raise NotImplementedError


def server_context(places: FleetPlaces, host: str) -> ssl.SSLContext:
    """The TLS context of a worker that listens at `host` (a name or an IP address): a fresh certificate for it."""
    raise NotImplementedError


def client_context(secrets: Secrets) -> ssl.SSLContext:
    """The TLS context of those who ask a worker: it trusts the fleet's authority only, and checks the host."""
    raise NotImplementedError
