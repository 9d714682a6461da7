"""Who one is: an Ed25519 key in a file, the address that is derived from it, signatures.

Never prints a private key, and never uses one that others can read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from automate.pool_places import PoolPlaces
from automate.pools.messages import Message

GENESIS = "genesis"
"""Name of the key of the workspace's owner, made with the database: it mints, and may do what the owner may."""
DEFAULT = "default"
"""Name of the key that `pool keygen` makes unless told otherwise, and that commands use."""


class Key:
    """A private key. `address`: 43 characters (base64url of SHA-256 of the public key, as Arweave's)."""

    address: str

    def sign(self, target: str, action: str, data: str = "", tags: Mapping[str, str] | None = None, *,
             anchor: str | None = None, timestamp: int | None = None) -> dict[str, object]:
        """A signed message as JSON for POST /message: `messages.as_dict` with Owner (public key) and Signature."""
        raise NotImplementedError


def make_key(path: Path) -> Key:
    """Write a new key, mode 0600, never over one that is there. Raises StorageError, ConfigError."""
    raise NotImplementedError


def load_key(path: Path) -> Key:
    """Raises ConfigError: not there, not an Ed25519 key in PEM, or readable by others (with what to do)."""
    raise NotImplementedError


def find_key(places: PoolPlaces, name_or_path: str | None) -> Key:
    """The key of this name in the workspace, or in this file (what holds a slash or ends in .pem)."""
    raise NotImplementedError


def verified(raw: Mapping[str, object], via: str) -> Message:
    """The proven `messages.Message` of a signed one. Raises PoolError: no or a wrong signature, Id or From that don't
    belong to the key (nothing of the message is trusted)."""
    raise NotImplementedError


def process_id(*parts: str) -> str:
    """The address of a process: base64url of SHA-256 of its parts; 43 characters."""
    raise NotImplementedError
