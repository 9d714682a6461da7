"""Which program makes environments, and the commands by which each one does it.

Never runs them: what is to be run is data, so that tests can read it."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from automate.errors import ModuleEnvironmentError
from automate.validation.catalogue import ENVIRONMENT, Source
from automate.validation.environments.declarations import CONDA_LIKE, Declaration, declaration_for
from automate.validation_places import ValidationPlaces

_VERSION = re.compile(r"\d+\.\d+(\.\d+)?")
_EXE = {"conda": "CONDA_EXE", "mamba": "MAMBA_EXE", "micromamba": "MAMBA_EXE"}
_OLDEST = (3, 11)
_CHECK = (f"import sys; sys.version_info >= {_OLDEST} or sys.exit('the inner layer needs Python "
          f"{_OLDEST[0]}.{_OLDEST[1]} or newer, and this is ' + sys.version.split()[0]); import pydantic; "
          "int(pydantic.VERSION.split('.')[0]) >= 2 or sys.exit('the inner layer needs pydantic 2 or newer')")
QUIET = {"PIP_NO_INPUT": "1", "PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0", "GIT_TERMINAL_PROMPT": "0",
         "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_PROGRESS_BAR": "off",
         "UV_NO_PROGRESS": "1", "CONDA_ALWAYS_YES": "true", "CONDA_AUTO_UPDATE_CONDA": "false",
         "MAMBA_ALWAYS_YES": "true", "MAMBA_NO_PROGRESS_BARS": "true", "NO_COLOR": "1", "PYTHONNOUSERSITE": "1"}
"""Variables by which no manager asks a question, draws a bar or looks into the user's own packages."""


@dataclass(frozen=True)
class Chosen:
    """A manager, its program (None: `venv`, or not installed), what it builds from, and `python` as the hash has it."""

    manager: str
    program: str | None
    declaration: Declaration
    python: str


def program_of(manager: str, environ: Mapping[str, str]) -> str | None:
    """A manager's program: on PATH, where conda's own variables say, or uv beside this Python; None: not there."""
    found = shutil.which(manager, path=environ.get("PATH", ""))
    if found:
        return found
    named = environ.get(_EXE.get(manager, ""), "")
    if named and Path(named).name == manager:
        return shutil.which(named)
    return shutil.which(manager, path=str(Path(sys.executable).parent)) if manager == "uv" else None


def choose(source: Source, places: ValidationPlaces, environ: Mapping[str, str], *, last: str | None = None) -> Chosen:
    """The manager that makes `source`'s environment. Raises ModuleEnvironmentError where none can.

    `auto`: the one that made it `last`, so that another shell's PATH does not outdate it; else mamba, micromamba or
    conda where one is installed, else uv, else venv.
    """
    wanted = places.settings.manager
    manager = _automatic(source, environ, last) if wanted == "auto" else wanted
    program = None if manager in ("venv", "current") else program_of(manager, environ)
    if manager not in ("venv", "current") and program is None and manager != last:
        raise ModuleEnvironmentError(f"validation.manager is {manager}, which is not installed here",
                                     todo=f"put {manager} on PATH (module load?), or choose another manager")
    declaration = declaration_for(source, manager)
    return Chosen(manager, program, declaration, _python_key(declaration, places))


def _automatic(source: Source, environ: Mapping[str, str], last: str | None) -> str:
    if last is not None and (last in CONDA_LIKE or source.requirements is not None):
        return last
    for manager in (*CONDA_LIKE, "uv"):
        if program_of(manager, environ) and (manager != "uv" or source.requirements is not None):
            return manager
    return "venv"


def _python_key(declaration: Declaration, places: ValidationPlaces) -> str:
    """Which Python is asked for: by the settings, else this one's version; conda's own file says it itself."""
    if declaration.kind == ENVIRONMENT:
        return ""
    return places.settings.python or "{}.{}".format(*sys.version_info[:2])


def commands(chosen: Chosen, folder: Path, python: str | None, declared: Path) -> list[list[str]]:
    """What makes the environment in `folder`, step by step; the last step checks what the inner layer needs.

    `python`: the setting. `declared`: the declaration, under the name that conda expects of it.
    """
    inside = str(folder / "bin" / "python")
    install = [inside, "-m", "pip", "install", "--no-input", "-r", str(declared)]
    check = [inside, "-c", _CHECK]
    if chosen.manager in CONDA_LIKE:
        steps = _conda(chosen, folder, python, declared)
        return [*steps, check] if chosen.declaration.kind == ENVIRONMENT else [*steps, install, check]
    if chosen.manager == "uv":
        uv = str(chosen.program)
        return [[uv, "venv", "--python", python or sys.executable, str(folder)],
                [uv, "pip", "install", "--python", inside, "-r", str(declared)], check]
    return [[_interpreter(python), "-m", "venv", str(folder)], install, check]


def _conda(chosen: Chosen, folder: Path, python: str | None, declared: Path) -> list[list[str]]:
    """`conda env create` has no `--yes` in old versions and mamba's 2 asks without: variables answer instead."""
    program = str(chosen.program)
    if chosen.declaration.kind == ENVIRONMENT:
        verb = ["create", "--yes"] if chosen.manager == "micromamba" else ["env", "create"]
        return [[program, *verb, "--prefix", str(folder), "--file", str(declared)]]
    version = python if python and _VERSION.fullmatch(python) else "{}.{}".format(*sys.version_info[:2])
    return [[program, "create", "--yes", "--prefix", str(folder), "--override-channels", "--channel", "conda-forge",
             f"python={version}", "pip"]]


def _interpreter(python: str | None) -> str:
    """The Python that a virtual environment is made with: a path, a name on PATH, or a version such as 3.12."""
    if python is None:
        return sys.executable
    named = f"python{python}" if _VERSION.fullmatch(python) else python
    found = shutil.which(named)
    if found is None:
        raise ModuleEnvironmentError(f"validation.python is {python!r}, and there is no program {named!r} here",
                                     todo="name a Python that is installed, or leave the setting out")
    return found
