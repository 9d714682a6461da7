"""What state a module's environment is in, and the command that runs the inner layer in it.

Never builds, and never runs anything: both are read off the disk."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from automate.errors import FlockError, ModuleEnvironmentError
from automate.validation.catalogue import Source
from automate.validation.environments import folders, managers, own
from automate.validation.environments.declarations import CONDA_LIKE, digest
from automate.validation_places import ValidationPlaces

RUNNER = "automate.validation.runner"


@dataclass(frozen=True)
class EnvironmentState:
    """An environment. ready: up to date; outdated: the declaration changed since; missing: none; current: our own.

    `folder` is the build in use, `hash` what the declaration says now ("" where that can't be told: `why` says so).
    """

    name: str
    status: Literal["ready", "missing", "outdated", "current"]
    manager: str
    folder: Path | None
    hash: str
    why: str


def state(source: Source, places: ValidationPlaces, *, environ: Mapping[str, str] | None = None) -> EnvironmentState:
    """The state of a module's environment. Raises nothing that its declaration causes: `why` tells."""
    name = folders.name_of(source.name)
    if places.settings.manager == "current":
        return EnvironmentState(name, "current", "current", Path(sys.prefix), "", own.lacking(source.requirements))
    built = folders.current(places, source.name)
    last = built.manager if built else None
    try:
        chosen = managers.choose(source, places, os.environ if environ is None else environ, last=last)
        now = digest(chosen.declaration, chosen.manager, chosen.python)
    except FlockError as error:
        folder = built.folder if built else None
        return EnvironmentState(name, "outdated" if built else "missing", last or places.settings.manager, folder, "",
                                f"{error.what} -> {error.todo}" if error.todo else error.what)
    if built is None:
        return EnvironmentState(name, "missing", chosen.manager, None, now, "it was never built")
    if built.hash != now:
        return EnvironmentState(name, "outdated", chosen.manager, built.folder, now,
                                "the declaration, the manager or the Python asked for changed since it was built")
    if not (built.folder / "bin" / "python").exists():
        return EnvironmentState(name, "missing", chosen.manager, built.folder, now,
                                "its Python has gone: the one it was made with was removed or can't be seen here")
    return EnvironmentState(name, "ready", chosen.manager, built.folder, now, "")


def inner_call(source: Source, places: ValidationPlaces, arguments: Sequence[str], *,
               environ: Mapping[str, str] | None = None) -> tuple[list[str], dict[str, str]]:
    """The command that runs the inner layer in a module's environment, and the variables to lay over one's own.

    Variables that would lead elsewhere (PYTHONHOME, VIRTUAL_ENV) are set empty, which Python reads as not set. With
    `current` the Python keeps what it needs to find its own packages.
    Raises ModuleEnvironmentError where the environment is not ready, StorageError where its folder can't be written.
    """
    env = os.environ if environ is None else environ
    found = state(source, places, environ=env)
    if found.status not in ("ready", "current") or found.folder is None:
        raise ModuleEnvironmentError(f"the environment {found.name} is {found.status}: {found.why}",
                                     where=str(folders.link_of(places, source.name)),
                                     todo=f"run 'flock-hpc validation env create {source.name}' on the login node")
    package = str(folders.package_folder(places))
    if found.status == "current":
        return [sys.executable, "-m", RUNNER, *arguments], {
            "PYTHONPATH": _path(package, environ=env, name="PYTHONPATH"), "PYTHONSAFEPATH": "1"}
    folders.mark_used(found.folder)
    python = str(found.folder / "bin" / "python")
    return [python, "-m", RUNNER, *arguments], _variables(found, found.folder, package, env)


def _variables(found: EnvironmentState, folder: Path, package: str, environ: Mapping[str, str]) -> dict[str, str]:
    is_conda = found.manager in CONDA_LIKE
    return {"PYTHONPATH": package, "PYTHONNOUSERSITE": "1", "PYTHONSAFEPATH": "1", "PYTHONHOME": "",
            "VIRTUAL_ENV": "" if is_conda else str(folder), "CONDA_PREFIX": str(folder) if is_conda else "",
            "PATH": _path(str(folder / "bin"), environ=environ, name="PATH")}


def _path(first: str, *, environ: Mapping[str, str], name: str) -> str:
    rest = environ.get(name, "")
    return f"{first}{os.pathsep}{rest}" if rest else first
