"""What a bug report needs, in one small archive: settings, plans, states, scripts, the ends of logs.

Never holds answers, questions, judgments or secrets; a part that can't be made is named instead."""

from __future__ import annotations

import gzip
import io
import json
import os
import platform
import re
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from automate import __version__
from automate.campaign.keeping.fleets import fleet_files, fleet_logs, fleet_secrets
from automate.campaign.keeping.redact import Redactor, kept_secrets, looks_secret, secret_values
from automate.campaign.keeping.setup_lines import cleaned, given_secrets, setup_lines
from automate.errors import FlockError, StorageError
from automate.journal import replace_file
from automate.settings import Settings
from automate.workspace import Workspace, open_workspace

FOLDER = "flock-hpc-bundle"
LARGEST = 1_000_000
"""Bytes of one file; of a log the end is kept, of others the beginning."""
LOGS, RECORDS, SCRIPTS = 30, 200, 40
LINE = 500
_PROMPT = re.compile(r"(Received request|prompt_token_ids|\bprompts?['\"]?\s*[:=]\s*['\"])")
_VARIABLES = re.compile(r"^((FLOCK_HPC|SLURM|SBATCH|CUDA|HF|VLLM|NCCL|LC|CONDA)_|(LANG|TMPDIR|VIRTUAL_ENV|PATH)$)")


@dataclass(frozen=True)
class Bundle:
    """What was packed: names in the archive, its bytes, how many secrets were taken out, and what to tell."""

    names: tuple[str, ...]
    bytes: int
    removed: int
    notes: tuple[str, ...]


Part = tuple[str, str]
"""Name below FOLDER, and text."""


def make_bundle(root: Path, target: Path, *, lines: int, most: int, environ: Mapping[str, str] | None = None) -> Bundle:
    """Pack a workspace's bug report of at most `most` bytes (unpacked) into `target`. Raises StorageError."""
    if target.exists():
        raise StorageError("there is a file of this name already", where=str(target), todo="give another name")
    env = os.environ if environ is None else environ
    workspace, problem = _open(root)
    redact = _redactor(workspace, env)
    parts = [(_clean_name(name, redact), redact(text)) for name, text in
             (*([("problem.txt", problem)] if problem else []), *_parts(workspace, lines, env))]
    kept, left_out = fit(parts, most)
    notes = tuple(f"left out, as --max-mb is reached: {name}" for name in left_out[:10])
    notes += (f"and {len(left_out) - 10} more",) if len(left_out) > 10 else ()
    contents = "\n".join([*(f"{len(text.encode()):>9}  {name}" for name, text in kept), "", *notes, ""])
    data = pack([("CONTENTS.txt", contents), *kept])
    replace_file(target, data)
    return Bundle(tuple(name for name, _ in kept), len(data), redact.count, notes)


def _open(root: Path) -> tuple[Workspace, str]:
    """The workspace; one whose settings can't be read is packed too, as that is what the report is about."""
    try:
        return open_workspace(root), ""
    except FlockError as error:
        return Workspace(root, Settings(), "-"), f"the settings can't be used:\n{error}\n"


def _redactor(workspace: Workspace, environ: Mapping[str, str]) -> Redactor:
    """What takes out this workspace's secrets; its setup lines lose every value, also those of older plans."""
    settings = workspace.settings
    known = secret_values(environ) | kept_secrets(workspace.secrets) | fleet_secrets(workspace.root) | secret_values(
        {**settings.environment, **settings.judge.environment.variables})
    older = []
    for path in _newest(workspace.plans, RECORDS):
        with suppress(OSError, ValueError, LookupError, TypeError):
            older.append(dict(json.loads(path.read_bytes())["settings"]))
    try:
        text = workspace.settings_file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    lines = setup_lines([settings.model_dump(mode="json"), *older], text)
    changed = {line: clean for line in lines if (clean := cleaned(line)) != line}
    return Redactor(known.union(*map(given_secrets, lines)), changed)


def _clean_name(name: str, redact: Redactor) -> str:
    """A name for the archive: without secrets, and within its folder."""
    shown = "".join(char if char.isprintable() and char != "\\" else "_" for char in redact(name))
    return "/".join(part for part in shown.split("/") if part not in ("", ".", ".."))


def fit(parts: Iterable[Part], most: int) -> tuple[list[Part], list[str]]:
    """The parts that fit in `most` bytes, in their order, each name once; and the names of those that don't."""
    kept: dict[str, str] = {}
    left_out, total = [], 0
    for given, text in parts:
        name = given
        for number in range(2, 1000):
            if name not in kept:
                break
            name = f"{given}.{number}"
        length = len(text.encode())
        if total + length > most:
            left_out.append(name)
            continue
        kept[name] = text
        total += length
    return list(kept.items()), left_out


def pack(parts: Iterable[Part]) -> bytes:
    """A .tar.gz of these texts; the same texts give the same bytes."""
    out = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0) as zipped, \
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, text in parts:
            data = text.encode("utf-8", "replace")
            entry = tarfile.TarInfo(f"{FOLDER}/{name}")
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def _parts(workspace: Workspace, lines: int, environ: Mapping[str, str]) -> Iterator[Part]:
    """Everything that belongs in, the most telling first."""
    yield "versions.txt", _versions(environ)
    yield from _files("settings", [workspace.settings_file, workspace.models_file])
    yield "settings/resolved.json", json.dumps(workspace.settings.model_dump(mode="json"), indent=2, ensure_ascii=False)
    yield "doctor.json", _made(lambda: _doctor(workspace))
    yield "monitor.json", _made(lambda: _monitor(workspace))
    yield "slurm.txt", _made(_slurm)
    for name, folder in (("plans", workspace.plans), ("submissions", workspace.submissions), ("runs", workspace.runs),
                         ("nodes", workspace.nodes), ("doctor", workspace.doctor)):
        yield from _files(name, _newest(folder, RECORDS))
    for name, paths in fleet_files(workspace.root, RECORDS).items():
        yield from _files(name, paths)
    for name, folder in (("profiles", workspace.profiles), ("templates", workspace.templates)):
        yield from _files(name, _newest(folder, RECORDS))
    for name, folder in (("logs", workspace.logs), ("logs/answers", workspace.answer_logs),
                         *fleet_logs(workspace.root).items(), ("logs/local", workspace.local_queue)):
        for path in _newest(folder, LOGS):
            if folder != workspace.local_queue or path.suffix in (".log", ".json"):
                yield f"{name}/{path.name}", log_end(path, lines)
    for name, folder in (("scripts", workspace.scripts), ("configs", workspace.configs),
                         ("scripts/answers", workspace.answer_scripts), ("configs/answers", workspace.answer_configs)):
        yield from _files(name, _newest(folder, SCRIPTS))
    yield "files.txt", _made(lambda: listing(workspace))


def _versions(environ: Mapping[str, str]) -> str:
    from importlib.metadata import distributions

    packages = sorted({f"{one.metadata['Name']} {one.version}" for one in distributions() if one.metadata["Name"]})
    variables = [f"{name}={'[removed]' if looks_secret(name) else value}" for name, value in sorted(environ.items())
                 if _VARIABLES.match(name)]
    return "\n".join([f"flock-hpc {__version__}", f"Python {platform.python_version()} at {sys.executable}",
                      platform.platform(), "", *packages, "", *variables, ""])


def _made(make: Callable[[], str]) -> str:
    """A text, or why it could not be made."""
    try:
        return make()
    except Exception as error:
        return f"could not be made: {type(error).__name__}: {error}\n"


def _doctor(workspace: Workspace) -> str:
    from automate.campaign.doctoring.doctor import examine
    from automate.campaign.state import pick_cluster

    checks = examine(workspace, pick_cluster(workspace))
    return json.dumps([check.as_json() for check in checks], indent=2, ensure_ascii=False)


def _monitor(workspace: Workspace) -> str:
    from automate.campaign.monitoring.monitor import snapshot

    return json.dumps(snapshot(workspace).as_json(), indent=2, ensure_ascii=False, default=str)


def _slurm() -> str:
    from automate.cluster import site, slurm

    return site.in_its_words() if slurm.available() else "no Slurm on this machine\n"


def _newest(folder: Path, most: int) -> list[Path]:
    """The newest plain files of a folder, by name where they are as old."""
    found = []
    try:
        for path in folder.iterdir():
            if path.is_file() and not path.is_symlink():
                found.append((-path.stat().st_mtime, path.name, path))
    except OSError:
        return [path for _, _, path in sorted(found)[:most]]
    return [path for _, _, path in sorted(found)[:most]]


def _files(name: str, paths: Iterable[Path]) -> Iterator[Part]:
    for path in paths:
        if path.suffix != ".log":
            try:
                with path.open("rb") as file:
                    yield f"{name}/{path.name}", file.read(LARGEST).decode("utf-8", "replace")
            except OSError as error:
                yield f"{name}/{path.name}", f"could not be read: {error.strerror}\n"


def log_end(path: Path, lines: int) -> str:
    """The last lines of a log; lines that show a prompt are left out, long ones are cut."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LARGEST))
            found = file.read(LARGEST).decode("utf-8", "replace").split("\n")
    except OSError as error:
        return f"could not be read: {error.strerror}\n"
    return "\n".join(_line(line) for line in found[-lines - 1:])


def _line(line: str) -> str:
    if _PROMPT.search(line):
        return "[a line that may show a prompt was left out]"
    return line if len(line) <= LINE else f"{line[:LINE]} [cut]"


def listing(workspace: Workspace) -> str:
    """Names, sizes and times of the files that are not in: journals, judgments, answers."""
    rows = []
    for folder in (workspace.journals, workspace.judgments, workspace.answers, workspace.superseded):
        for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
            if path.is_file():
                stat = path.stat()
                rows.append(f"{stat.st_size:>12} {stat.st_mtime:.0f} {path.relative_to(folder.parent)}")
    return "\n".join(rows) + "\n"
