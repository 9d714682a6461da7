"""Who one is: an Ed25519 key in a file, the address that is derived from it, signatures.

Never prints a private key, and never uses one that others can read."""

from __future__ import annotations

import base64
import binascii
import contextlib
import errno
import hashlib
import os
import secrets
import stat
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from automate.errors import ConfigError, PoolError, StorageError
from automate.pool_places import PoolPlaces
from automate.pools.locking import private_folder
from automate.pools.messages import Message, Via, as_dict, normalised, signed_text

GENESIS = "genesis"
"""Name of the key of the workspace's owner, made with the database: it mints, and may do what the owner may."""
DEFAULT = "default"
"""Name of the key that `pool keygen` makes unless told otherwise, and that commands use."""
ADDRESS_LENGTH = 43
_PRIME = (1 << 255) - 19
_D = -121665 * pow(121666, -1, _PRIME) % _PRIME
_LARGEST = 1 << 14
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
"""What file systems without hard links say."""


# --- bytes and addresses ------------------------------------------------------------------------------
def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: object, size: int, what: str) -> bytes:
    """Bytes of base64url. Raises PoolError where it isn't, or of another size."""
    if isinstance(text, str) and len(text) <= 2 * size:
        with contextlib.suppress(binascii.Error, ValueError):
            data = base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), altchars=b"-_",
                                    validate=True)
            if len(data) == size:
                return data
    raise _unproven(f"{what} is missing or is not {size} bytes as base64url")


def _unproven(what: str) -> PoolError:
    return PoolError(what, where="message", todo="sign it with the key of the address in From ('flock-hpc pool send' "
                                                 "does), and change nothing afterwards")


def _hash(*parts: bytes) -> str:
    return _encoded(hashlib.sha256(b"".join(parts)).digest())


def process_id(*parts: str) -> str:
    """The address of a process: base64url of SHA-256 of its parts; 43 characters."""
    texts = [part.encode("utf-8", "surrogatepass") for part in parts]
    return _hash(b"flock-hpc pools process\0", *(len(text).to_bytes(8, "big") + text for text in texts))


def is_address(text: str) -> bool:
    """Whether text has the shape of an address: 43 characters of base64url that stand for 32 bytes."""
    if len(text) != ADDRESS_LENGTH:
        return False
    try:
        return _encoded(_decoded(text, 32, "address")) == text
    except PoolError:
        return False


# --- a key --------------------------------------------------------------------------------------------
class Key:
    """A private key. `address`: 43 characters (base64url of SHA-256 of the public key, as Arweave's)."""

    address: str

    def __init__(self, private: ed25519.Ed25519PrivateKey) -> None:
        self._private = private
        self._public = private.public_key().public_bytes_raw()
        self.address = _hash(self._public)

    def __repr__(self) -> str:
        return f"Key({self.address})"

    def sign(self, target: str, action: str, data: str = "", tags: Mapping[str, str] | None = None, *,
             anchor: str | None = None, timestamp: int | None = None) -> dict[str, object]:
        """A signed message as JSON for POST /message: `messages.as_dict` with Owner (public key) and Signature.

        Without `anchor` a random one is taken, without `timestamp` this machine's time. Raises PoolError.
        """
        raw = {"From": self.address, "Target": target, "Tags": dict(tags or {}) | {"Action": action}, "Data": data,
               "Anchor": secrets.token_urlsafe(24) if anchor is None else anchor,
               "Timestamp": time.time_ns() // 1_000_000 if timestamp is None else timestamp}
        message = normalised(raw)
        text = signed_text(message)
        message = replace(message, id=_hash(text, self._public))
        return as_dict(message) | {"Owner": _encoded(self._public), "Signature": _encoded(self._private.sign(text))}


def has_small_order(public: bytes) -> bool:
    """Whether a public key is one of the points of order 1, 2, 4 or 8, in whatever encoding: for these one signature
    stands for many messages, and verification as in RFC 8032, section 5.1.7, doesn't refuse them.

    On -x^2 + y^2 = 1 + d x^2 y^2 (RFC 8032, section 5.1) they are the points with y = 1 or -1 (orders 1 and 2), y = 0
    (4), and those whose double has y = 0, that is x^2 = -y^2, so d y^4 + 2 y^2 = 1 (8). The sign of x is the top bit.
    """
    square = pow(int.from_bytes(public, "little") & ((1 << 255) - 1), 2, _PRIME)
    return square in (0, 1) or (_D * square * square + 2 * square - 1) % _PRIME == 0


def verified(raw: Mapping[str, object], via: Via) -> Message:
    """The proven `messages.Message` of a signed one. Raises PoolError: no or a wrong signature, Id or From that don't
    belong to the key (nothing of the message is trusted)."""
    message = normalised(raw, via)
    public = _decoded(raw.get("Owner"), 32, "Owner (the public key)")
    signature = _decoded(raw.get("Signature"), 64, "Signature")
    if message.sender != _hash(public):
        raise _unproven("From is not the address of the key in Owner")
    if has_small_order(public):
        raise _unproven("the key in Owner is one that anybody can sign for")
    text = signed_text(message)
    if message.id != _hash(text, public):
        raise _unproven("Id is not the hash of this message: something in it was changed")
    try:
        ed25519.Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except (InvalidSignature, ValueError):
        raise _unproven("the signature is not that of this message by this key") from None
    return replace(message, via=via)


# --- files --------------------------------------------------------------------------------------------
def _pem(private: ed25519.Ed25519PrivateKey) -> bytes:
    return private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                 serialization.NoEncryption())


def _write_new(path: Path, data: bytes) -> None:
    """A new file, whole or not at all; never over one that is there. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            os.fchmod(fd, 0o600)
            file.write(data)
            file.flush()
            os.fsync(fd)
        _publish(temporary, path, data)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _publish(temporary: Path, path: Path, data: bytes) -> None:
    """Give a whole file its name, which no other may have. Raises OSError."""
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


def make_key(path: Path) -> Key:
    """Write a new key, mode 0600, never over one that is there. Raises StorageError, ConfigError."""
    private = ed25519.Ed25519PrivateKey.generate()
    private_folder(path.parent)
    try:
        _write_new(path, _pem(private))
    except FileExistsError:
        raise ConfigError("there is a key already, and it is never written over", where=str(path),
                          todo="use it, or choose another name") from None
    except OSError as error:
        raise StorageError.of(error, path, "write the key") from error
    return load_key(path)


def _unreadable(error: OSError, path: Path) -> ConfigError:
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR:
            return ConfigError("no such key", where=str(path), todo="make one: 'flock-hpc pool keygen'")
        case errno.ELOOP:
            return ConfigError("a link stands where a key is expected", where=str(path), todo="name the file itself")
    return ConfigError(f"can't read it: {error.strerror or error}", where=str(path),
                       todo="use a key of your own: 'flock-hpc pool keygen'")


def _refuse(path: Path, found: os.stat_result) -> None:
    """Raises ConfigError where a key file is no file, another user's, or open to others."""
    if not stat.S_ISREG(found.st_mode):
        raise ConfigError("not a file", where=str(path), todo="name a key file: 'flock-hpc pool keygen' makes one")
    if found.st_uid != os.geteuid():
        raise ConfigError(f"this key belongs to another user (uid {found.st_uid})", where=str(path),
                          todo="use a key of your own: 'flock-hpc pool keygen'")
    if found.st_mode & _OTHERS:
        raise ConfigError(f"this key is open to other users (mode {stat.S_IMODE(found.st_mode):04o})", where=str(path),
                          todo=f"chmod 600 '{path}'; where others may have read it, make a new one and move your "
                               "tokens to its address")


def load_key(path: Path) -> Key:
    """Raises ConfigError: not there, not an Ed25519 key in PEM, or readable by others (with what to do)."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
            _refuse(path, os.fstat(file.fileno()))
            data = file.read(_LARGEST)
    except OSError as error:
        raise _unreadable(error, path) from error
    try:
        private = serialization.load_pem_private_key(data, None)
    except Exception:  # the library has many, and their words may quote what was read
        private = None
    if not isinstance(private, ed25519.Ed25519PrivateKey):
        raise ConfigError("not an Ed25519 key in PEM without a password", where=str(path),
                          todo="make one: 'flock-hpc pool keygen'") from None
    return Key(private)


def find_key(places: PoolPlaces, name_or_path: str | None) -> Key:
    """The key of this name in the workspace, or in this file (what holds a slash or ends in .pem)."""
    name = DEFAULT if name_or_path is None else name_or_path
    if "\0" in name:
        raise ConfigError("a key's name holds a NUL character", where="key")
    if "/" in name or name.endswith(".pem"):
        return load_key(places.root / Path(name).expanduser())
    try:
        return load_key(places.key(name))
    except ValueError as error:
        raise ConfigError(str(error), where="key", todo="name a key, or its file") from None
