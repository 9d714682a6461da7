"""What a module declares of its environment, and the hash that says whether it changed.

Never installs anything and never asks a package index."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from automate.errors import ModuleEnvironmentError, StorageError
from automate.validation.catalogue import ENVIRONMENT, REQUIREMENTS, Source

CONDA_LIKE = ("mamba", "micromamba", "conda")
_SCHEME = b"1"
_INCLUDED = re.compile(r"^\s*(?:-r|-c|--requirement|--constraint)[\s=]*(\S+)")


@dataclass(frozen=True)
class Declaration:
    """The file that a manager builds from, and what it is: `environment.yml` or `requirements.txt`."""

    file: Path
    kind: str


def declaration_for(source: Source, manager: str) -> Declaration:
    """What `manager` would build `source` from. Raises ModuleEnvironmentError where it can't build it."""
    if manager in CONDA_LIKE and source.environment_yml is not None:
        return Declaration(source.environment_yml, ENVIRONMENT)
    if source.requirements is not None:
        return Declaration(source.requirements, REQUIREMENTS)
    if source.environment_yml is not None:
        raise ModuleEnvironmentError(
            f"module '{source.name}' declares its environment in {ENVIRONMENT} only, which {manager} can't read",
            where=str(source.environment_yml),
            todo=f"install conda, mamba or micromamba, or write {_beside(source, REQUIREMENTS)}")
    raise ModuleEnvironmentError(
        f"module '{source.name}' declares no environment", where=str(source.path or source.name),
        todo=f"write {_beside(source, REQUIREMENTS)}, or set validation.manager: current to use flock-hpc's own")


def _beside(source: Source, file: str) -> str:
    if source.path is None or source.path.is_dir():
        return file if source.path is None else str(source.path / file)
    return str(source.path.with_name(f"{source.name}.{file}"))


def digest(declaration: Declaration, manager: str, python: str) -> str:
    """SHA-256 of everything that an environment is made from: files' bytes, the manager, the Python asked for."""
    made = hashlib.sha256(_SCHEME)
    for part in (manager.encode(), python.encode(), declaration.kind.encode()):
        made.update(len(part).to_bytes(8) + part)
    for path in _files(declaration.file):
        content = _read(path)
        made.update(len(content).to_bytes(8) + content)
    return made.hexdigest()


def _files(first: Path) -> list[Path]:
    """A requirements file and the files that it includes, each once, in order of appearance."""
    found: list[Path] = []
    todo = [first]
    while todo:
        path = todo.pop(0)
        if path in found:
            continue
        found.append(path)
        for line in _read(path).decode("utf-8", "replace").splitlines():
            included = _INCLUDED.match(line.lstrip().removeprefix("- "))
            if included and (path.parent / included[1]).is_file():
                todo.append(path.parent / included[1])
    return found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StorageError.of(error, path, "read the declaration of an environment") from error
