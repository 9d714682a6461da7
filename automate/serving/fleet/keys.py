"""A fleet's secrets: the key that its workers ask for, and the authority by which they are known.

Never used where others could have read them, and never shown."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import re
import secrets
import ssl
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from automate.errors import ConfigError, StorageError
from automate.fleet_places import FleetPlaces
from automate.journal import replace_file
from automate.serving.fleet.records import is_host

_BEFORE = timedelta(days=1)
"""How long before now an authority holds already: clocks that are behind do no harm."""
_HOLDS = timedelta(days=3650)
_KEY = re.compile(r"[A-Za-z0-9_-]{32,128}\Z", re.ASCII)
_LARGEST = 1 << 16
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True)
class Secrets:
    """What proves a fleet's own: `key` goes with each request, `authority` is the certificate file to trust.

    `pem`: that certificate as it was read; no secret.
    """

    key: str
    authority: Path
    pem: str = ""

    def __repr__(self) -> str:
        return "Secrets(...)"


# --- reading ------------------------------------------------------------------------------------------
_NOT_MINE = "use a fleet of your own: 'flock-hpc serve' makes one (ls -l shows whose this is)"
_ANEW = "stop the fleet's jobs, move its folder away, and serve again"


def _refuse(path: Path, found: os.stat_result, kind: str) -> None:
    """Raises ConfigError where what was opened is another user's, or open to others."""
    folder = kind == "folder"
    if not (stat.S_ISDIR if folder else stat.S_ISREG)(found.st_mode):
        raise ConfigError(f"not a {kind}", where=str(path), todo=_ANEW)
    if found.st_uid != os.geteuid():
        raise ConfigError(f"the fleet's {kind} belongs to another user (uid {found.st_uid})", where=str(path),
                          todo=_NOT_MINE)
    if found.st_mode & _OTHERS:
        raise ConfigError(
            f"the fleet's {kind} is open to other users (mode {stat.S_IMODE(found.st_mode):04o})", where=str(path),
            todo=f"chmod {'700' if folder else '600'} '{path}'; where others may have read it, "
                 "stop the fleet and serve again: that makes new keys")


def _unreadable(error: OSError, path: Path) -> ConfigError:
    match error.errno:
        case errno.ELOOP | errno.ENOTDIR | errno.EISDIR:
            return ConfigError("a link or a file of another kind stands where the fleet keeps its secrets",
                               where=str(path), todo=_ANEW)
        case errno.ENOENT:
            return ConfigError("not there: the fleet was removed or moved, or never made", where=str(path),
                               todo="serve again ('flock-hpc serve' makes it), or put the folder back")
        case errno.EACCES | errno.EPERM:
            return ConfigError("only its owner may read it", where=str(path), todo=_NOT_MINE)
    return ConfigError(f"can't read it: {error.strerror or error}", where=str(path),
                       todo="put right what the system names here, then run the same command again")


@contextlib.contextmanager
def _home(places: FleetPlaces) -> Iterator[int]:
    """The fleet's folder, opened and found to be this user's alone."""
    try:
        fd = os.open(places.home, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise _unreadable(error, places.home) from error
    try:
        _refuse(places.home, os.fstat(fd), "folder")
        yield fd
    finally:
        os.close(fd)


def _read(home: int, path: Path) -> bytes:
    """A secret file of the folder that is open as `home`; never through a link."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with open(path.name, "rb", opener=lambda name, _: os.open(name, flags, dir_fd=home)) as file:
            _refuse(path, os.fstat(file.fileno()), "file")
            return file.read(_LARGEST)
    except OSError as error:
        raise _unreadable(error, path) from error


def _damaged(path: Path) -> ConfigError:
    return ConfigError("damaged: not what flock-hpc wrote there", where=str(path), todo=_ANEW)


def _certificate(pem: bytes, path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise _damaged(path) from error


def read_secrets(places: FleetPlaces) -> Secrets:
    """Read them. Raises ConfigError where the folder or a file belongs to another user or others may read it."""
    with _home(places) as home:
        _read(home, places.authority_key)
        key, pem = _read(home, places.key), _read(home, places.authority)
    _certificate(pem, places.authority)
    text = key.decode("ascii", "replace").strip()
    if not _KEY.match(text):
        raise _damaged(places.key)
    return Secrets(text, places.authority, pem.decode("ascii", "replace"))


# --- making -------------------------------------------------------------------------------------------
def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _usage(allowed: Literal["sign", "serve"]) -> x509.KeyUsage:
    sign = allowed == "sign"
    return x509.KeyUsage(digital_signature=not sign, content_commitment=False, key_encipherment=False,
                         data_encipherment=False, key_agreement=False, key_cert_sign=sign, crl_sign=sign,
                         encipher_only=False, decipher_only=False)


def _pem(key: ec.EllipticCurvePrivateKey, password: bytes | None = None) -> bytes:
    locked: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password:
        locked = serialization.BestAvailableEncryption(password)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)


def _certify(subject: x509.Name, key: ec.EllipticCurvePrivateKey, usage: Literal["sign", "serve"],
             ) -> x509.CertificateBuilder:
    """What the authority's certificate and a worker's have in common."""
    ca = usage == "sign"
    return (x509.CertificateBuilder().subject_name(subject).public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .add_extension(x509.BasicConstraints(ca=ca, path_length=0 if ca else None), critical=True)
            .add_extension(_usage(usage), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False))


def _authority(now: datetime) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"flock-hpc fleet {secrets.token_hex(8)}")
    built = (_certify(name, key, "sign").issuer_name(name)
             .not_valid_before(now - _BEFORE).not_valid_after(now + _HOLDS)
             .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False))
    return key, built.sign(key, hashes.SHA256())


def make_secrets(places: FleetPlaces) -> None:
    """Make the fleet's folder (0700), its key, and its certificate authority (0600), in the place of older ones.

    Raises StorageError; ConfigError where a folder of that name is another user's or open to others, or where the file
    system doesn't keep a file from them.
    """
    try:
        places.home.parent.mkdir(parents=True, exist_ok=True)
        _make_folder(places.home)
        with _home(places):
            for folder in (places.workers, places.gone, places.retired("x").parent, places.users, places.runs):
                _make_folder(folder)
            key, certificate = _authority(datetime.now(UTC))
            replace_file(places.authority_key, _pem(key), 0o600)
            replace_file(places.authority, certificate.public_bytes(serialization.Encoding.PEM), 0o600)
            replace_file(places.key, f"{secrets.token_urlsafe(32)}\n".encode(), 0o600)
    except OSError as error:
        raise StorageError.of(error, places.home, "make the fleet's folder") from error
    read_secrets(places)


def _make_folder(folder: Path) -> None:
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)


def _subject(host: str) -> x509.GeneralName:
    if not is_host(host):
        raise ConfigError(f"{host!r} is neither a host name nor an IP address", where="fleet.address",
                          todo="name the host, IP address or network interface at which the servers of a fleet listen")
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _issue(places: FleetPlaces, host: str, password: bytes) -> bytes:
    """A fresh certificate for `host` with its key, locked with `password`; it holds as long as the authority does."""
    subject = _subject(host)
    with _home(places) as home:
        signer_pem, pem = _read(home, places.authority_key), _read(home, places.authority)
    authority = _certificate(pem, places.authority)
    try:
        signer = serialization.load_pem_private_key(signer_pem, None)
    except (ValueError, TypeError):
        raise _damaged(places.authority_key) from None
    if not isinstance(signer, ec.EllipticCurvePrivateKey) or signer.public_key() != authority.public_key():
        raise _damaged(places.authority_key)
    key = ec.generate_private_key(ec.SECP256R1())
    built = (_certify(_name("flock-hpc worker"), key, "serve").issuer_name(authority.subject)
             .not_valid_before(authority.not_valid_before_utc).not_valid_after(authority.not_valid_after_utc)
             .add_extension(x509.SubjectAlternativeName([subject]), critical=False)
             .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
             .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False))
    return built.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM) + _pem(key, password)


def server_context(places: FleetPlaces, host: str) -> ssl.SSLContext:
    """The TLS context of a worker that listens at `host` (a name or an IP address): a fresh certificate for it.

    Raises ConfigError as `read_secrets`, or for a host that is none; StorageError where no temporary file can be made.
    """
    password = secrets.token_hex(16).encode()
    pem = _issue(places, host, password)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["http/1.1"])
    try:
        with tempfile.NamedTemporaryFile(prefix="flock-hpc-", suffix=".pem") as file:  # 0600; gone when it is loaded
            file.write(pem)
            file.flush()
            context.load_cert_chain(file.name, password=password)
    except ssl.SSLError as error:
        raise _damaged(places.authority) from error
    except OSError as error:
        raise StorageError.of(error, tempfile.gettempdir(), "make a temporary file") from error
    return context


def client_context(secrets: Secrets) -> ssl.SSLContext:
    """The TLS context of those who ask a worker: it trusts the fleet's authority only, and checks the host."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    try:
        context.load_verify_locations(cadata=secrets.pem or secrets.authority.read_text())
    except (OSError, ValueError) as error:
        raise _damaged(secrets.authority) from error
    return context
