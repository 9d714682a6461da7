"""Takes an archive apart into a staging folder, and checks every file of it.

Never writes outside of that folder, and never uses a name of the archive as a path."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import orjson

from automate.campaign.keeping.archive import BLOCK, FORMAT, HEADER, MANIFEST, allowed, decompressor
from automate.errors import DataError, StorageError

MOST_FILES = 2_000_000
SMALL = 512 << 20
"""Bytes that the header or the manifest may have."""
AGAIN = "copy it again from where it was made, and compare the sizes"


@dataclass(frozen=True)
class Staged:
    """An archive's header, its files by name (in the staging folder, under numbers), and their hashes."""

    header: Mapping[str, Any]
    files: Mapping[str, Path]
    sha256: Mapping[str, str]


def stage(archive: Path, folder: Path) -> Staged:
    """Unpack `archive` into `folder` and check it whole. Raises DataError or StorageError; `folder` is the caller's."""
    try:
        with archive.open("rb") as raw, decompressor(archive, raw) as stream, \
                tarfile.open(fileobj=stream, mode="r|") as tar:
            return _members(archive, tar, folder)
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"the archive is cut off or damaged: {error or type(error).__name__}; nothing was changed",
                        where=str(archive), todo=AGAIN) from error
    except OSError as error:
        raise StorageError.of(error, error.filename or archive, "unpack the archive") from error
    except Exception as error:
        if type(error).__name__ != "ZstdError":
            raise
        raise DataError(f"the archive is cut off or damaged: {error}; nothing was changed", where=str(archive),
                        todo=AGAIN) from error


def _members(archive: Path, tar: tarfile.TarFile, folder: Path) -> Staged:
    header: dict[str, Any] | None = None
    manifest: dict[str, Any] | None = None
    files: dict[str, Path] = {}
    hashes: dict[str, str] = {}
    room = shutil.disk_usage(folder).free
    for number, member in enumerate(tar):
        _check_member(archive, member, number, room, files)
        source = tar.extractfile(member)
        if source is None:
            raise _bad(archive, member.name, "has no contents")
        if number == 0:
            header = _document(archive, member, source, HEADER)
        elif member.name == MANIFEST:
            manifest = _document(archive, member, source, MANIFEST)
        elif manifest is not None:
            raise _bad(archive, member.name, "stands after the manifest")
        else:
            files[member.name] = folder / str(number)
            hashes[member.name] = _copy(source, files[member.name])
            room -= member.size
    if header is None or manifest is None:
        raise DataError("the archive is cut off: it has no manifest; nothing was changed", where=str(archive),
                        todo=AGAIN)
    _check_manifest(archive, manifest, files, hashes)
    return Staged(header, files, hashes)


def _bad(archive: Path, name: str, why: str) -> DataError:
    return DataError(f"its file {name[:200]!r} {why}; nothing was changed", where=str(archive),
                     todo="not an archive that flock-hpc has made as it is; don't use it")


def _check_member(archive: Path, member: tarfile.TarInfo, number: int, room: int, files: Mapping[str, Path]) -> None:
    """Refuse what is no plain file of an allowed name, what is there twice, and what is too large."""
    if not member.isreg():
        raise _bad(archive, member.name, "is no plain file (a link, a folder or a device)")
    special = HEADER if number == 0 else MANIFEST
    if member.name != special and not allowed(member.name):
        raise DataError("not an archive of flock-hpc" if number == 0 else
                        f"its file {member.name[:200]!r} has a name that doesn't belong there; nothing was changed",
                        where=str(archive))
    data_filter = getattr(tarfile, "data_filter", None)
    if data_filter is not None:
        data_filter(member, "/nowhere")
    if member.name in files or number > MOST_FILES:
        raise _bad(archive, member.name, "is there twice" if member.name in files else "is one too many")
    if member.size > room:
        raise StorageError(f"no room for {member.size} bytes of {member.name}", where=str(archive),
                           todo="make room (df, quota), then run the same command again; nothing was changed")


def _document(archive: Path, member: tarfile.TarInfo, source: IO[bytes], name: str) -> dict[str, Any]:
    try:
        found = orjson.loads(source.read(SMALL)) if member.size <= SMALL else None
    except orjson.JSONDecodeError:
        found = None
    if member.name != name or not isinstance(found, dict) or not isinstance(found.get("format"), int):
        raise DataError(f"not an archive of flock-hpc: its {name} can't be read", where=str(archive))
    if found["format"] > FORMAT:
        raise DataError(f"the archive was made by a newer flock-hpc ({found.get('flock_hpc')})", where=str(archive),
                        todo="install that version, then run the same command again")
    return found


def _copy(source: IO[bytes], target: Path) -> str:
    digest = hashlib.sha256()
    with target.open("xb") as file:
        while block := source.read(BLOCK):
            digest.update(block)
            file.write(block)
    return digest.hexdigest()


def _check_manifest(archive: Path, manifest: Mapping[str, Any], files: Mapping[str, Path],
                    hashes: Mapping[str, str]) -> None:
    listed = manifest.get("files")
    if not isinstance(listed, dict) or set(listed) != set(files):
        raise DataError("its files are not those of its manifest; nothing was changed", where=str(archive), todo=AGAIN)
    for name, said in listed.items():
        if not isinstance(said, dict) or said.get("sha256") != hashes[name]:
            raise DataError(f"its file {name!r} is not what was put in: another SHA-256; nothing was changed",
                            where=str(archive), todo=AGAIN)
