"""Which validation modules there are, and where each one's code and declaration of its environment lie.

Never imports a module: what it needs may be missing here, and a stranger's file must not run by being listed."""

from __future__ import annotations

import difflib
import importlib.machinery
import importlib.util
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Literal

from automate.errors import ConfigError
from automate.validation_places import ValidationPlaces

GROUP = "flock_hpc.validation_modules"
REQUIREMENTS, ENVIRONMENT = "requirements.txt", "environment.yml"
_SHIPPED = Path(__file__).resolve().parent / "modules"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_NOT_MODULES = re.compile(r"base|conftest|setup|test_.*")

Origin = Literal["shipped", "folder", "entry point"]
EntryPoints = Callable[[], Iterable[EntryPoint]]


@dataclass(frozen=True)
class Source:
    """A module: `path` is the folder or file of one outside of this package (None: shipped with it).

    `requirements`, `environment_yml`: its declaration, pip's and conda's; None where it has none.
    """

    name: str
    path: Path | None
    requirements: Path | None
    environment_yml: Path | None
    origin: Origin


def installed() -> Iterable[EntryPoint]:
    """The entry points that installed packages declare for modules."""
    return entry_points(group=GROUP)


def find(name: str, places: ValidationPlaces, *, entries: EntryPoints = installed) -> Source:
    """The module `name`. Raises ConfigError where there is none, or more than one."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} can't be the name of a validation module",
                          todo="names are of letters, digits and underscores, and start with a letter")
    known = everything(places, entries=entries)
    found = [source for source in known if source.name == name]
    if not found:
        raise _unknown(name, known, places)
    if len(found) > 1:
        raise ConfigError(f"there are {len(found)} validation modules named '{name}': "
                          + "; ".join(_where(source) for source in found),
                          todo="rename all but one of them; which one computes a score must not depend on luck")
    return found[0]


def everything(places: ValidationPlaces, *, entries: EntryPoints = installed) -> list[Source]:
    """Every module: the shipped ones, those of the settings' folders, those of entry points; sorted by name."""
    found = list(_in_folder(_SHIPPED, "shipped"))
    for folder in places.module_folders:
        found += _in_folder(folder, "folder")
    found += _of_entry_points(entries())
    return sorted(found, key=lambda source: source.name)


def missing_folders(places: ValidationPlaces) -> list[Path]:
    """Folders of `validation.module_folders` that are not there."""
    return [folder for folder in places.module_folders if not folder.is_dir()]


def _unknown(name: str, known: list[Source], places: ValidationPlaces) -> ConfigError:
    names = sorted({source.name for source in known})
    near = difflib.get_close_matches(name, names, n=2, cutoff=0.5)
    todo = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(names)}"
    for file in (file for folder in places.module_folders for file in (folder / f"{name}.py", folder / name)):
        if file.exists():
            todo = f"{file} is there, but names no MODULE: set MODULE to its class"
    missing = missing_folders(places)
    if missing:
        todo += f"; not there, of validation.module_folders: {', '.join(map(str, missing))}"
    return ConfigError(f"there is no validation module '{name}'", todo=todo)


def _where(source: Source) -> str:
    return f"{source.path or 'shipped with flock-hpc'} ({source.origin})"


def _in_folder(folder: Path, origin: Origin) -> Iterator[Source]:
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        name = entry.stem if entry.suffix == ".py" else entry.name
        if _NAME.fullmatch(name) and not _NOT_MODULES.fullmatch(name) and _is_module(entry, origin):
            yield _source(name, entry, origin)


def _is_module(path: Path, origin: Origin) -> bool:
    """Whether a module's code lies here. Helpers beside a user's modules are told from them by their text."""
    file = path / "__init__.py" if path.is_dir() else path
    if file.suffix != ".py" or not file.is_file():
        return False
    return origin == "shipped" or _names_module(file)


def _names_module(file: Path) -> bool:
    try:
        return re.search(rb"\bMODULE\b", file.read_bytes()) is not None
    except OSError:
        return False


def _source(name: str, path: Path, origin: Origin) -> Source:
    def declared(file: str) -> Path | None:
        there = path / file if path.is_dir() else path.with_name(f"{path.stem}.{file}")
        return there if there.is_file() else None

    return Source(name, None if origin == "shipped" else path, declared(REQUIREMENTS), declared(ENVIRONMENT), origin)


def _of_entry_points(entries: Iterable[EntryPoint]) -> Iterator[Source]:
    """A file that can't be found is left out: `find` then says that there is no such module."""
    seen: set[tuple[str, Path]] = set()
    for entry in entries:
        path = _located(entry.value.partition(":")[0].strip())
        if path is None or not _NAME.fullmatch(entry.name) or (entry.name, path) in seen:
            continue
        seen.add((entry.name, path))
        yield _source(entry.name, path, "entry point")


def _located(dotted: str) -> Path | None:
    """The file of a module, or the folder of a package, found without importing any part of its name."""
    head, *rest = dotted.split(".")
    try:
        spec = importlib.util.find_spec(head)
        for part in rest:
            if spec is None or spec.submodule_search_locations is None:
                return None
            head = f"{head}.{part}"
            spec = importlib.machinery.PathFinder.find_spec(head, list(spec.submodule_search_locations))
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None or spec.origin is None or not spec.has_location:
        return None
    file = Path(spec.origin)
    return file.parent if file.name == "__init__.py" else file
