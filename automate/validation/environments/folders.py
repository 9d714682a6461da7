"""Where environments lie: `<name>` is a link to a folder of its own for each build, replaced by rename.

Environments can't be moved once they are made, so each is built where it stays. Never builds one."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from automate.errors import ModuleEnvironmentError, StorageError
from automate.journal import read_json, write_json
from automate.validation_places import ValidationPlaces

PREFIX = "flock-validation-"
MARKER = ".flock-hpc-environment.json"
USED = ".flock-hpc-used"
_KEEP_USED, _KEEP_LOGS = 14 * 86400.0, 10
_PACKAGE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Built:
    """A finished build: `hash` of its declaration, the manager that made it, when, and the folder before it."""

    folder: Path
    hash: str
    manager: str
    made: float
    previous: str | None = None


def name_of(module: str) -> str:
    """The environment's name."""
    return PREFIX + module


def link_of(places: ValidationPlaces, module: str) -> Path:
    """The link that leads to the module's environment."""
    return places.environments / name_of(module)


def logs_of(places: ValidationPlaces) -> Path:
    """The folder of what builds printed."""
    return places.environments / "logs"


def fresh_folder(places: ValidationPlaces, module: str, digest: str) -> Path:
    """A folder name that was never used, for one build."""
    return places.environments / f"{name_of(module)}-{digest[:12]}-{secrets.token_hex(4)}"


def builds_of(places: ValidationPlaces, module: str) -> list[Path]:
    """Every build's folder of a module: the one in use, older ones, and what killed builds left."""
    pattern = re.compile(re.escape(name_of(module)) + "-[0-9a-f]{12}-[0-9a-f]{8}")
    try:
        return sorted(path for path in places.environments.iterdir() if pattern.fullmatch(path.name))
    except OSError:
        return []


def current(places: ValidationPlaces, module: str) -> Built | None:
    """The build that is in use; None where there is none that was finished."""
    link = link_of(places, module)
    try:
        folder = link.parent / link.readlink()
    except OSError:
        return None
    return read_built(folder)


def read_built(folder: Path) -> Built | None:
    """What is recorded of a build; None where it was never finished."""
    record = read_json(folder / MARKER)
    try:
        return None if record is None else Built(**{**record, "folder": folder})
    except TypeError:
        return None


def put_in_place(places: ValidationPlaces, module: str, built: Built) -> None:
    """Record a build as finished and let the module's link lead to it, at one moment. Raises StorageError."""
    link = link_of(places, module)
    temporary = link.with_name(f".{link.name}.{secrets.token_hex(4)}")
    try:
        write_json(built.folder / MARKER, {key: value for key, value in asdict(built).items() if key != "folder"})
        temporary.symlink_to(built.folder.name)
        temporary.replace(link)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StorageError.of(error, link, "put the environment into place") from error


def check_free(places: ValidationPlaces, module: str) -> None:
    """Raises ModuleEnvironmentError where something else stands at the place of the module's link."""
    link = link_of(places, module)
    if link.exists() and not link.is_symlink():
        raise ModuleEnvironmentError("something that flock-hpc did not make stands at the environment's place",
                                     where=str(link), todo="move it away, then run the same command again")


def mark_used(folder: Path) -> None:
    """Note that a start uses this build, so that it is not swept. A folder that can't be written stays as it is."""
    try:
        (folder / USED).touch()
    except OSError:
        return


def sweep(places: ValidationPlaces, module: str, now: float | None = None) -> list[str]:
    """Remove what killed builds left, and builds that were replaced: not the last one, nor one used lately.

    Only under the module's claim. Returns the names removed.
    """
    moment = time.time() if now is None else now
    in_use = current(places, module)
    keep = {in_use.folder.name, in_use.previous} if in_use else set()
    gone = []
    for folder in builds_of(places, module):
        if folder.name not in keep and not _lately_used(folder, moment):
            (folder / MARKER).unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
            gone.append(folder.name)
    for path in places.environments.glob(f".{name_of(module)}.*"):
        path.unlink(missing_ok=True)
    for log in _logs_of(places, module)[:-_KEEP_LOGS]:
        log.unlink(missing_ok=True)
        shutil.rmtree(log.with_suffix(".declared"), ignore_errors=True)
    return gone


def _logs_of(places: ValidationPlaces, module: str) -> list[Path]:
    """The module's build logs, oldest first."""
    found = logs_of(places).glob(f"{name_of(module)}-*.log")
    return sorted(found, key=lambda path: path.stat().st_mtime)


def _lately_used(folder: Path, now: float) -> bool:
    if read_built(folder) is None:
        return False
    try:
        return now - (folder / USED).stat().st_mtime < _KEEP_USED
    except OSError:
        return False


def package_folder(places: ValidationPlaces, package: Path = _PACKAGE) -> Path:
    """A folder that holds nothing but a link to this package; made where it is missing. Raises StorageError.

    It goes into PYTHONPATH, so that the inner layer finds this package and nothing of its dependencies.
    """
    if os.pathsep in str(places.environments):
        raise ModuleEnvironmentError(f"the environments' folder holds {os.pathsep!r}, which no Python path can hold",
                                     where=str(places.environments), todo="set validation.environments to another one")
    folder = places.environments / ".packages" / hashlib.sha256(os.fsencode(package)).hexdigest()[:16]
    link = folder / package.name
    try:
        if link.is_symlink() and link.readlink() == package:
            return folder
        folder.mkdir(parents=True, exist_ok=True)
        temporary = places.environments / ".packages" / f".{secrets.token_hex(8)}"
        temporary.symlink_to(package)
        temporary.replace(link)
    except OSError as error:
        raise StorageError.of(error, link, "make the link to this package") from error
    return folder
