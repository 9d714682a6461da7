"""A search for secrets in all that a run left on disk: contents, names, links, pickles, compressed files and archives.

Never runs what it finds (pickles are read by their opcodes), and never passes over a file that can't be read."""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import json
import lzma
import os
import pickletools
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, quote_plus

CHUNK = 1 << 20
DEEPEST = 4
"""Containers inside of containers that are opened."""
LARGEST_PICKLE = 64 << 20
SHORTEST = 6
_DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, ValueError,
            NotImplementedError, RuntimeError)


@dataclass(frozen=True)
class Leak:
    """A secret that was found. `path` on disk; `inside`: the member of an archive, `name` or `link`; `form`: how it was
    written. The secret itself is not shown."""

    path: Path
    inside: str
    form: str


def search_for(secrets: str | Iterable[str], folders: Iterable[Path | str], *,
               skip: Callable[[Path], bool] = lambda path: False) -> list[Leak]:
    """Every place in these folders (or files) where one of the secrets stands, in any of its usual forms.

    Symbolic links are read as text and not followed. Files that vanish meanwhile are passed over; ones that may not be
    read raise OSError. Raises ValueError for secrets too short to search for, and for a folder that isn't there:
    finding nothing in nothing proves nothing.
    """
    wanted = forms([secrets] if isinstance(secrets, str) else list(secrets))
    found: list[Leak] = []
    for folder in map(Path, folders):
        if not os.path.lexists(folder):
            raise ValueError(f"{folder} is not there: nothing was searched")
        for path in _walk(folder):
            if not skip(path):
                found += _entry(path, folder, wanted)
    return found


def forms(secrets: Iterable[str]) -> Mapping[bytes, str]:
    """The ways in which secrets are written down, each with its name. Raises ValueError for a short secret."""
    found: dict[bytes, str] = {}
    for secret in secrets:
        if len(secret) < SHORTEST:
            raise ValueError(f"a secret of less than {SHORTEST} characters would be found anywhere")
        raw = secret.encode()
        for name, form in (("plain", raw), ("url", quote(secret, safe="").encode()), ("url", quote(secret).encode()),
                           ("url", quote_plus(secret).encode()), ("json", json.dumps(secret)[1:-1].encode()),
                           ("json", json.dumps(secret).replace("/", "\\/")[1:-1].encode()),
                           ("repr", repr(secret)[1:-1].encode()), ("hex", raw.hex().encode()),
                           ("hex", raw.hex().upper().encode()), ("utf-16", secret.encode("utf-16-le")),
                           ("utf-16", secret.encode("utf-16-be")), *(("base64", form) for form in _base64(raw))):
            found.setdefault(form, name)
    return found


def _base64(raw: bytes) -> Iterator[bytes]:
    """What stands in base64 text for certain, whatever surrounds the secret: its three alignments without the ends."""
    for before in range(3):
        text = base64.b64encode(b"\0" * before + raw)
        first, last = -(-before * 8 // 6), (before + len(raw)) * 8 // 6
        yield text[first:last]
        yield text[first:last].replace(b"+", b"-").replace(b"/", b"_")


def _walk(folder: Path) -> Iterator[Path]:
    yield folder
    if folder.is_symlink() or not folder.is_dir():
        return

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error
    for at, folders, files in os.walk(folder, onerror=refuse):
        yield from (Path(at, name) for name in (*folders, *files))


def _entry(path: Path, root: Path, wanted: Mapping[bytes, str]) -> Iterator[Leak]:
    name = os.fsencode(path.name if path != root else path)
    yield from (Leak(path, "name", form) for form in _in(name, wanted))
    try:
        kind = path.lstat().st_mode
        if stat.S_ISLNK(kind):
            yield from (Leak(path, "link", form) for form in _in(os.fsencode(path.readlink()), wanted))
        elif stat.S_ISREG(kind):
            with path.open("rb") as file:
                yield from _content(file, path, "", wanted, 0)
    except FileNotFoundError:
        return


def _in(data: bytes, wanted: Mapping[bytes, str]) -> list[str]:
    return sorted({form for text, form in wanted.items() if text in data})


def _content(file: BinaryIO, path: Path, inside: str, wanted: Mapping[bytes, str], depth: int) -> Iterator[Leak]:
    """Leaks in one stream that can be read twice, and in what it contains."""
    longest = max(map(len, wanted))
    seen: set[str] = set()
    head = before = b""
    while chunk := file.read(CHUNK):
        head = head or chunk
        seen.update(_in(before + chunk, wanted))
        before = (before + chunk)[-longest:]
    yield from (Leak(path, inside, form) for form in sorted(seen))
    if depth < DEEPEST:
        for name, inner in _members(file, head):
            yield from _content(inner, path, f"{inside}/{name}" if inside else name, wanted, depth + 1)
            yield from (Leak(path, f"{inside}/{name}", form) for form in _in(name.encode("utf-8", "replace"), wanted))


def _members(file: BinaryIO, head: bytes) -> Iterator[tuple[str, BinaryIO]]:
    """What a container holds, as far as it is whole: a half-written one ends early, and is no reason to stop."""
    for magic, name, opened in ((b"\x1f\x8b", "gz", _gzip), (b"BZh", "bz2", bz2.open), (b"\xfd7zXZ", "xz", lzma.open)):
        if head.startswith(magic):
            file.seek(0)
            yield name, io.BytesIO(_whole(opened(file)))
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        import zstandard

        file.seek(0)
        yield "zst", io.BytesIO(_whole(zstandard.ZstdDecompressor().stream_reader(file)))
    if head.startswith(b"PK"):
        yield from _zip(file)
    if head[257:262] == b"ustar":
        yield from _tar(file)
    strings = _pickled(file, head)
    if strings:
        yield "pickle", io.BytesIO(strings)


def _gzip(file: BinaryIO) -> BinaryIO:
    return gzip.open(file)  # type: ignore[return-value]


def _whole(stream: object) -> bytes:
    data = bytearray()
    try:
        while chunk := stream.read(CHUNK):  # type: ignore[attr-defined]
            data += chunk
    except Exception as error:
        if not isinstance(error, _DAMAGED) and type(error).__name__ != "ZstdError":
            raise
    return bytes(data)


def _zip(file: BinaryIO) -> Iterator[tuple[str, BinaryIO]]:
    try:
        with zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                yield member.filename, io.BytesIO(archive.read(member) if not member.is_dir() else b"")
    except _DAMAGED:
        return


def _tar(file: BinaryIO) -> Iterator[tuple[str, BinaryIO]]:
    file.seek(0)
    try:
        with tarfile.open(fileobj=file) as archive:
            for member in archive:
                inner = archive.extractfile(member) if member.isreg() else None
                yield f"{member.name}{member.linkname}", io.BytesIO(inner.read() if inner else b"")
    except _DAMAGED:
        return


def _pickled(file: BinaryIO, head: bytes) -> bytes:
    """Texts and bytes of a pickle: protocol 0 and byte strings are written in forms of their own."""
    if not head or head[:1] not in b"\x80(cdlN]}SVUXCI\x8c":
        return b""
    file.seek(0)
    data = file.read(LARGEST_PICKLE)
    found: list[bytes] = []
    try:
        for _, value, _ in pickletools.genops(data):
            if isinstance(value, str):
                found.append(value.encode("utf-8", "surrogatepass"))
                found.append(value.encode("latin-1", "replace"))  # how old protocols write bytes
            elif isinstance(value, bytes | bytearray):
                found.append(bytes(value))
    except Exception:  # not a pickle, or a torn one: what came before counts
        return b"\0".join(found)
    return b"\0".join(found)
