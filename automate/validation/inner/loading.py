"""A module's class: from this package, from a folder or file outside of it, or from an installed package.

Runs the module's own code; what it imports is looked up in the environment that this runs in."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from pydantic import BaseModel

from automate.validation.inner import symptoms, words
from automate.validation.modules.base import BaseValidationModule, InvalidConfigValueException, RecoverableException

GROUP = "flock_hpc.validation_modules"
"""The entry points by which an installed package offers modules."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_SHIPPED = "automate.validation.modules"
_NO_MODULES = {"base"}
_SCHEMAS = ("config_schema", "input_data_schema", "metrics_schema")


@dataclass(frozen=True)
class Loaded:
    """A module's class. `shipped`: it is one of this package's own."""

    name: str
    kind: type[BaseValidationModule]
    shipped: bool


def load(name: str, path: Path | None = None) -> Loaded:
    """The class that `MODULE` names. `path`: the folder or file of a module outside of the package.

    Raises InvalidConfigValueException: cause `environment` where a library is missing, `module` where the module
    itself can't be used; what the machine's faults raise (memory, disk) as it is.
    """
    if not _NAME.fullmatch(name) or name in _NO_MODULES:
        raise _broken(name, "is not a name of a module: letters, digits and underscores are")
    try:
        source, shipped = _imported(name, path)
    except RecoverableException:
        raise
    except Exception as error:
        if symptoms.machine(error) is not None:
            raise
        if isinstance(error, ImportError):
            raise _missing(name, error) from error
        raise _broken(name, f"can't be loaded: {type(error).__name__}: {words.of(error, 300)}") from error
    return Loaded(name, _checked(name, source), shipped)


def _imported(name: str, path: Path | None) -> tuple[object, bool]:
    if path is not None:
        return _from_path(name, path), False
    if importlib.util.find_spec(f"{_SHIPPED}.{name}") is not None:
        return importlib.import_module(f"{_SHIPPED}.{name}"), True
    for point in entry_points(group=GROUP, name=name):
        return point.load(), False
    raise _broken(name, "is neither shipped, nor in a folder of the settings, nor offered by an installed package")


def _from_path(name: str, path: Path) -> ModuleType:
    """Import a folder with `__init__.py`, or a file, as a package of its own name, so that it shadows nothing."""
    start = path / "__init__.py" if path.is_dir() else path
    if not start.is_file():
        raise _broken(name, f"is not there: {path}")
    full = f"flock_validation_module_{name}"
    spec = importlib.util.spec_from_file_location(
        full, start, submodule_search_locations=[str(path)] if path.is_dir() else None)
    if spec is None or spec.loader is None:
        raise _broken(name, f"is no Python file: {start}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(full, None)
        raise
    return module


def _checked(name: str, source: object) -> type[BaseValidationModule]:
    kind = source if inspect.isclass(source) else getattr(source, "MODULE", None)
    if not inspect.isclass(kind) or not issubclass(kind, BaseValidationModule):
        raise _broken(name, "has no `MODULE` that is a subclass of BaseValidationModule")
    for schema in _SCHEMAS:
        found = getattr(kind, schema, None)
        if not inspect.isclass(found) or not issubclass(found, BaseModel):
            raise _broken(name, f"declares no `{schema}`")
    if inspect.isabstract(kind):
        raise _broken(name, f"lacks {', '.join(sorted(kind.__abstractmethods__))}")
    return kind


def _broken(name: str, what: str) -> InvalidConfigValueException:
    return InvalidConfigValueException(f"the module {words.plain(name, 80)!r} {what}", cause="module")


def _missing(name: str, error: ImportError) -> InvalidConfigValueException:
    lacking = f"`{words.plain(error.name, 80)}` is not in" if error.name else "something is missing from"
    return InvalidConfigValueException(
        f"{lacking} the environment of the module {name!r}: {words.of(error, 300)}", cause="environment")
