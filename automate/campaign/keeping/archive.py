"""The archive of a campaign: which files belong in it, their names there, and how it is written.

Never holds claims, or what the folder of secrets holds; settings are in as they are; a file that
grows while it is read is cut at its last whole line."""

from __future__ import annotations

import gzip
import hashlib
import importlib
import io
import os
import secrets
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import orjson

from automate import __version__
from automate.campaign.keeping.redact import Redactor, suspicious_lines
from automate.campaign.state import BatchView, look
from automate.errors import ConfigError, FlockError, StorageError
from automate.workspace import Workspace

FORMAT = 1
HEADER, MANIFEST = "flock-hpc-archive.json", "manifest.json"
SETTINGS, MODELS = "settings/flock-hpc.yaml", "settings/models.txt"
CHECKOUT = "checkout"
GROWING = frozenset({".jsonl"})
BLOCK = 1 << 20
_SEARCHED = frozenset({"settings", "profiles", "templates", "plans", "submissions", "runs", "nodes"})


@dataclass(frozen=True)
class Entry:
    """A file of the archive: its name there, where it lies, and whether secrets are taken out of it."""

    name: str
    path: Path
    clean: bool = False


@dataclass
class Written:
    """What an archive holds: its entries by name, its size, and what is to be said of it.

    `suspects` says which files seem to hold secrets.
    """

    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    bytes: int = 0
    active: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)
    suspects: list[str] = field(default_factory=list)


def folders_of(workspace: Workspace) -> dict[str, Path]:
    """Folders that are kept whole, by their name in the archive. The checkout's files have rules of their own."""
    return {
        "profiles": workspace.profiles, "templates": workspace.templates, "plans": workspace.plans,
        "submissions": workspace.submissions, "runs": workspace.runs, "nodes": workspace.nodes,
        "superseded": workspace.superseded, "journal": workspace.journals,
        "answers": workspace.answer_journal("any").parent.parent,
    }


def allowed(name: str) -> bool:
    """Whether an archive may hold a file of this name."""
    parts = name.split("/")
    plain = all(part not in ("", ".", "..") and "\\" not in part and "\0" not in part for part in parts)
    if not plain or any(part.endswith(".tmp") for part in parts):
        return False
    if name in (SETTINGS, MODELS):
        return True
    if parts[0] == CHECKOUT:
        return _in_checkout(parts[1:])
    return len(parts) > 1 and parts[0] in _FOLDERS


_FOLDERS = frozenset({"profiles", "templates", "plans", "submissions", "runs", "nodes", "superseded", "journal",
                      "answers"})


def _in_checkout(parts: Sequence[str]) -> bool:
    match list(parts):
        case ["data", _, "model_judgment", _, *_, last] | ["data", _, "model_answer", last] | ["data", _, last]:
            return last.endswith(".jsonl") and (len(parts) > 3 or last == "question.jsonl")
        case ["config", last]:
            return last.endswith((".yaml", ".yml"))
        case ["utils", last]:
            return last == "judge_utils.py"
    return False


def entries(workspace: Workspace, *, answers: bool) -> Iterator[Entry]:
    """The files of an archive. Rows come before the journal, so that no row is newer than its records."""
    yield from _plain(SETTINGS, workspace.settings_file)
    yield from _plain(MODELS, workspace.models_file)
    yield from _tree(f"{CHECKOUT}/{_inside(workspace, workspace.judgments)}", workspace.judgments)
    for name, folder in folders_of(workspace).items():
        yield from _tree(name, folder)
    if answers:
        for path in (workspace.questions, workspace.judge_utils):
            yield from _plain(f"{CHECKOUT}/{_inside(workspace, path)}", path)
        yield from _tree(f"{CHECKOUT}/{_inside(workspace, workspace.answers)}", workspace.answers, deep=False)
        for path in (workspace.api_config, workspace.bench_settings):
            yield from _plain(f"{CHECKOUT}/{_inside(workspace, path)}", path, clean=True)


def _inside(workspace: Workspace, path: Path) -> str:
    return path.relative_to(workspace.arena_hard).as_posix()


def _plain(name: str, path: Path, clean: bool = False) -> Iterator[Entry]:
    if path.is_file():
        yield Entry(name, path, clean)


def _tree(name: str, folder: Path, deep: bool = True) -> Iterator[Entry]:
    for here, below, files in os.walk(folder):
        below[:] = sorted(below) if deep else []
        for file in sorted(files):
            path = Path(here, file)
            full = f"{name}/{path.relative_to(folder).as_posix()}"
            if path.is_file() and allowed(full) and not file.startswith("."):
                yield Entry(full, path)


def pack_workspace(workspace: Workspace, target: Path, *, answers: bool = False,
                   now: Callable[[], float] = time.time) -> Written:
    """Write a workspace's archive to `target`, under another name until it is whole. Raises StorageError."""
    if target.exists():
        raise StorageError("there is a file of this name already", where=str(target), todo="give another name")
    done = Written(active=_active(workspace))
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o664)
        with os.fdopen(fd, "wb") as raw:
            with _compressor(target.name, raw) as packed, tarfile.open(
                    fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as tar:
                _add(tar, HEADER, orjson.dumps({
                    "format": FORMAT, "flock_hpc": __version__, "made": now(), "bench": workspace.settings.bench,
                    "judge": workspace.settings.judge.name, "models_file": workspace.settings.models_file,
                    "arena_hard": workspace.settings.arena_hard, "root": str(workspace.root)}))
                for entry in entries(workspace, answers=answers):
                    _add_entry(tar, entry, done)
                _add(tar, MANIFEST, orjson.dumps({"format": FORMAT, "flock_hpc": __version__, "active": done.active,
                                                  "files": done.files}, option=orjson.OPT_INDENT_2))
            raw.flush()
            os.fsync(raw.fileno())
        done.bytes = temporary.stat().st_size
        temporary.replace(target)
    except OSError as error:
        raise StorageError.of(error, target, "write the archive") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    return done


def _active(workspace: Workspace) -> tuple[str, ...]:
    """Jobs that may write while this reads."""
    try:
        views: Sequence[BatchView] = look(workspace).active
    except FlockError:
        return ("unknown",)
    return tuple(view.job or "?" for view in views)


def _compressor(name: str, raw: IO[bytes]) -> AbstractContextManager[IO[bytes]]:
    """What packs into `raw`, by the archive's name. Raises ConfigError for a name that says nothing."""
    if name.endswith((".tar.gz", ".tgz")):
        return closing(cast(IO[bytes], gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0)))
    if name.endswith(".tar.zst"):
        stream: AbstractContextManager[IO[bytes]] = _zstandard(name).ZstdCompressor(level=6).stream_writer(
            raw, closefd=False)
        return stream
    raise ConfigError("an archive's name ends in .tar.gz or .tar.zst", where=name)


def _zstandard(name: str) -> Any:  # noqa: ANN401 - an optional package without types here
    try:
        return importlib.import_module("zstandard")
    except ImportError as error:
        raise ConfigError(".tar.zst needs the package 'zstandard'", where=name,
                          todo="pip install 'flock-hpc[archive]', or name the archive .tar.gz") from error


def decompressor(path: Path, raw: IO[bytes]) -> AbstractContextManager[IO[bytes]]:
    """What unpacks an archive, by its first bytes. Raises ConfigError where it is no archive of ours."""
    start = raw.read(4)
    raw.seek(0)
    if start[:2] == b"\x1f\x8b":
        return closing(cast(IO[bytes], gzip.GzipFile(fileobj=raw, mode="rb")))
    if start == b"\x28\xb5\x2f\xfd":
        stream: AbstractContextManager[IO[bytes]] = _zstandard(path.name).ZstdDecompressor().stream_reader(
            raw, closefd=False)
        return stream
    raise ConfigError("not an archive of flock-hpc: neither gzip nor zstandard", where=str(path))


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), 0o644
    tar.addfile(info, io.BytesIO(data))


def _add_entry(tar: tarfile.TarFile, entry: Entry, done: Written) -> None:
    """Add one file as it is at this moment; one that has gone meanwhile is left out."""
    try:
        entry.name.encode()
        data = entry.path.read_bytes()
    except FileNotFoundError:
        return
    except UnicodeEncodeError:
        done.notes.append(f"left out, as its name is not valid text: {entry.path!r}")
        return
    if entry.path.suffix in GROWING and not data.endswith(b"\n") and not _whole(data):
        data = data[:data.rfind(b"\n") + 1]
        done.notes.append(f"{entry.name}: its last line was being written and is not in")
    if entry.clean:
        redact = Redactor(set())
        data = redact(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        if redact.count:
            done.notes.append(f"{entry.name}: {redact.count} keys were taken out")
    elif entry.name.split("/")[0] in _SEARCHED:
        _suspect(entry.name, data, done)
    _add(tar, entry.name, data)
    done.files[entry.name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _suspect(name: str, data: bytes, done: Written) -> None:
    """Note that a file seems to hold a secret."""
    lines = suspicious_lines(data[:BLOCK].decode("utf-8", "replace"))
    if lines:
        done.suspects.append(f"{name} seems to hold a secret (line {', '.join(map(str, lines[:5]))}): whoever gets "
                             "the archive gets it; put it into a file that the setup reads")


def _whole(data: bytes) -> bool:
    """Whether a last line without a newline is a record all the same, as other programs end their files."""
    try:
        return not data or isinstance(orjson.loads(data[data.rfind(b"\n") + 1:]), dict)
    except orjson.JSONDecodeError:
        return False
