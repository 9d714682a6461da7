"""The search for secrets finds them wherever a run may leave them; the storm tests rest on it."""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
import zstandard

from tests.rigs.leaks import CHUNK, forms, search_for

SECRET = "flk/T0p-s3cret+k\u00e9y=="


def tarred(data: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        member = tarfile.TarInfo("a/b")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def zipped(data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/b", data)
    return out.getvalue()


def in_sqlite(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("create table t (x)")
        database.execute("insert into t values (?)", (SECRET,))
    database.close()


RAW = f"before {SECRET} after".encode()
PLACES: dict[str, Callable[[Path], object]] = {
    "plain": lambda path: path.write_bytes(RAW),
    "json": lambda path: path.write_text(json.dumps({"key": SECRET})),
    "url": lambda path: path.write_text(f"https://x/?k={quote(SECRET, safe='')}&b=1"),
    "repr": lambda path: path.write_text(repr({"k": SECRET})),
    "hex": lambda path: path.write_text(RAW.hex()),
    "utf-16": lambda path: path.write_bytes(RAW.decode().encode("utf-16")),
    "base64": lambda path: path.write_bytes(base64.b64encode(RAW)),
    "base64 for addresses": lambda path: path.write_bytes(base64.urlsafe_b64encode(b"x" + RAW)),
    "a basic header": lambda path: path.write_bytes(b"Basic " + base64.b64encode(f"u:{SECRET}".encode())),
    "gz": lambda path: path.write_bytes(gzip.compress(RAW)),
    "two gz in one file": lambda path: path.write_bytes(gzip.compress(b"first") + gzip.compress(RAW)),
    "a torn gz": lambda path: path.write_bytes(gzip.compress(RAW + os.urandom(5000))[:-2000]),
    "bz2": lambda path: path.write_bytes(bz2.compress(RAW)),
    "xz": lambda path: path.write_bytes(lzma.compress(RAW)),
    "zst": lambda path: path.write_bytes(zstandard.compress(RAW)),
    "zip": lambda path: path.write_bytes(zipped(RAW)),
    "tar.gz": lambda path: path.write_bytes(gzip.compress(tarred(gzip.compress(RAW)))),
    "pickle 0": lambda path: path.write_bytes(pickle.dumps({"environ": {"K": SECRET}}, protocol=0)),
    "pickle 5": lambda path: path.write_bytes(pickle.dumps([1, {"environ": {"K": f"x{SECRET}"}}], protocol=5)),
    "bytes in pickle 0": lambda path: path.write_bytes(pickle.dumps(RAW, protocol=0)),
    "pickle in gz": lambda path: path.write_bytes(gzip.compress(pickle.dumps({"a": RAW}, protocol=2))),
    "sqlite": in_sqlite,
    "far in a large file": lambda path: path.write_bytes(b"-" * (CHUNK - 5) + RAW),
    "a link": lambda path: path.symlink_to(f"/nowhere/{quote(SECRET, safe='')}"),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_secret_is_found(tmp_path: Path, place: str) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "innocent").write_bytes(gzip.compress(b"nothing to see"))
    target = tmp_path / "deep" / "er" / ".file"
    PLACES[place](target)
    leaks = search_for(SECRET, [tmp_path])
    assert {leak.path for leak in leaks} == {target}
    assert search_for("another-secret", [tmp_path]) == []
    assert search_for(["another-secret", SECRET], [target])


def test_names_of_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / f"run-{quote(SECRET, safe='')}").mkdir()
    (tmp_path / "x-flk-9911.lock").write_bytes(b"")
    assert [(leak.inside, leak.form) for leak in search_for(SECRET, [tmp_path])] == [("name", "url")]
    assert [leak.inside for leak in search_for("flk-9911", [tmp_path])] == ["name"]


def test_names_in_archives(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        link = tarfile.TarInfo("x")
        link.type, link.linkname = tarfile.SYMTYPE, "flk-9911"
        archive.addfile(link)
    assert search_for("flk-9911", [tmp_path])


def test_every_alignment_of_base64(tmp_path: Path) -> None:
    for before in range(6):
        for after in range(6):
            (tmp_path / "f").write_bytes(base64.b64encode(b"\xff" * before + SECRET.encode() + b"\xff" * after))
            assert search_for(SECRET, [tmp_path]), (before, after)


def test_nothing_is_not_searched_silently(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing was searched"):
        search_for(SECRET, [tmp_path / "absent"])
    with pytest.raises(ValueError, match="less than"):
        forms(["key"])


def test_pickles_are_not_run(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "ran"),)
    (tmp_path / "trap.pkl").write_bytes(pickle.dumps([Trap(), SECRET]))
    assert search_for(SECRET, [tmp_path])
    assert not (tmp_path / "ran").exists()


def test_pipes_and_skipped_files_are_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "typed-by-the-user").write_text(SECRET)
    assert search_for(SECRET, [tmp_path], skip=lambda path: path.name.startswith("typed")) == []


def test_a_leak_does_not_show_the_secret(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(SECRET)
    (leak, *_) = search_for(SECRET, [tmp_path / "f"])
    assert SECRET not in repr(leak)
