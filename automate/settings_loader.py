"""Builds the settings: defaults < cluster profile < flock-hpc.yaml < environment < flags.

Never writes; every problem is reported at once, with file, line, key and what was expected."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from automate.errors import ConfigError, ManyErrors
from automate.resources import configs_dir
from automate.settings import Settings
from automate.yamlfile import KeyPath, Value, YamlFile, parse_scalar, read_yaml

PREFIX = "FLOCK_HPC_"
_RESERVED = {"TEST_DATA", "WORKSPACE", "REQUIRE_REAL", "TEST_VLLM"}
Mapping_ = dict[str, Value]


def merge(low: Mapping[str, Value], high: Mapping[str, Value]) -> Mapping_:
    """Merge two nested mappings; `high` wins, lists and scalars are replaced whole."""
    out: Mapping_ = dict(low)
    for key, value in high.items():
        old = out.get(key)
        whole = key in {"baseline", "rehearsal"}
        if isinstance(old, dict) and isinstance(value, dict) and not whole:
            out[key] = merge(old, value)
        else:
            out[key] = value
    return out


def profile_names() -> list[str]:
    """Names of the profiles that ship with the package."""
    return sorted(path.stem for path in (configs_dir() / "profiles").glob("*.yaml"))


def read_profile(name: str, root: Path | None) -> YamlFile:
    """A profile by name (shipped, or in the workspace's profiles/ folder) or by path to a .yaml file."""
    if name.endswith((".yaml", ".yml")):
        path = Path(name) if root is None else root / name
        return read_yaml(path)
    for folder in ([root / "profiles"] if root else []) + [configs_dir() / "profiles"]:
        path = folder / f"{name}.yaml"
        if "/" not in name and path.is_file():
            return read_yaml(path)
    near = difflib.get_close_matches(name, profile_names(), n=1)
    raise ConfigError(f"no cluster profile named '{name}'", where="cluster",
                      todo=(f"did you mean '{near[0]}'? " if near else "")
                      + f"shipped profiles: {', '.join(profile_names())}; or give a path to a .yaml file")


def _keys(parts: list[str]) -> KeyPath:
    """Keys in lower case as far as settings have names; names inside a mapping, such as variables, as they are."""
    keys: list[str] = []
    for part in parts:
        keys.append(part.lower() if _model_at(tuple(keys)) is not None else part)
    return tuple(keys)


def _environment(environ: Mapping[str, str]) -> tuple[Mapping_, dict[KeyPath, str]]:
    values: Mapping_ = {}
    origin: dict[KeyPath, str] = {}
    for variable, text in sorted(environ.items()):
        if not variable.startswith(PREFIX) or variable[len(PREFIX):] in _RESERVED:
            continue
        keys = _keys(variable[len(PREFIX):].split("__"))
        if len(keys) == 1 and keys[0] not in Settings.model_fields:
            near = difflib.get_close_matches(str(keys[0]), list(Settings.model_fields), n=1, cutoff=0.8)
            if near:
                raise ConfigError(f"no setting '{keys[0]}'", where=f"environment variable {variable}",
                                  todo=f"did you mean {PREFIX}{near[0].upper()}?")
            continue
        nested: Value = parse_scalar(text)
        for key in reversed(keys):
            nested = {str(key): nested}
        values = merge(values, cast(Mapping_, nested))
        origin[keys] = f"environment variable {variable}"
    return values, origin


def _model_at(path: KeyPath) -> type[BaseModel] | None:
    model: type[BaseModel] | None = Settings
    named: type[BaseModel] | None = None  # of a mapping from names to models
    for key in path:
        if named is not None:
            model, named = named, None
            continue
        field = model.model_fields.get(str(key)) if model else None
        kinds = [] if field is None else [field.annotation, *get_args(field.annotation)]
        found = next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)
        mapping = field is not None and get_origin(field.annotation) is dict
        model, named = (None, found) if mapping else (found, None)
    return model


def _unknown_key(path: KeyPath) -> tuple[str, str]:
    model = _model_at(path[:-1])
    known = sorted(model.model_fields) if model else []
    near = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.5)
    todo = f"did you mean '{near[0]}'?" if near else f"known keys here: {', '.join(known)}"
    return f"unknown key '{path[-1]}'", todo


def _problem(error: ErrorDetails, where: str, path: KeyPath) -> ConfigError:
    dotted = ".".join(str(key) for key in path) or "settings"
    if error["type"] == "extra_forbidden":
        what, todo = _unknown_key(path)
        return ConfigError(f"{dotted}: {what}", where=where, todo=todo)
    message = error["msg"].removeprefix("Value error, ")
    given = error.get("input")
    may_show = path[-1:] != ("api_key_env",) and isinstance(given, (str, int, float, bool, type(None)))
    shown = f", found {given!r}" if may_show else ""
    quotes = "put it in quotes" if isinstance(given, float) and "string" in message else None
    return ConfigError(f"{dotted}: {message[0].lower()}{message[1:]}{shown}", where=where, todo=quotes)


def _clean_path(loc: tuple[int | str, ...], data: Value) -> KeyPath:
    """Pydantic's location without the names of union members, which are no keys of the file."""
    path: list[int | str] = []
    here: Value = data
    for part in loc:
        if isinstance(here, dict) and part in here:
            path.append(part)
            here = here[str(part)]
        elif isinstance(here, list) and isinstance(part, int) and part < len(here):
            path.append(part)
            here = here[part]
    return tuple(path)


def _locate(path: KeyPath, files: list[YamlFile], origin: Mapping[KeyPath, str]) -> str:
    for keys, name in origin.items():
        if path[: len(keys)] == keys:
            return name
    for file in files:
        if path in file.lines:
            return file.where(path)
    for file in files:
        if path[:1] in file.lines:
            return file.where(path)
    return files[0].path if files else "settings"


def _line(where: str) -> tuple[str, int]:
    """A place as something to sort by: file, then line."""
    file, _, line = where.rpartition(":")
    return (file, int(line)) if line.isdigit() else (where, 0)


def _one_of(details: list[ErrorDetails]) -> ErrorDetails:
    """One error for a value that fits no member of a union: what each of them would have been."""
    messages = dict.fromkeys(detail["msg"].removeprefix("Value error, ") for detail in details)
    return {**details[0], "msg": " or ".join(message[0].lower() + message[1:] for message in messages)}


def build(data: Mapping_, files: list[YamlFile], origin: Mapping[KeyPath, str]) -> Settings:
    """Validate merged data; errors name the file and line that each wrong value came from."""
    try:
        return Settings.model_validate(data)
    except ValidationError as error:
        by_path: dict[KeyPath, list[ErrorDetails]] = {}
        for detail in error.errors():
            by_path.setdefault(_clean_path(detail["loc"], data), []).append(detail)
        found = [
            _problem(_one_of(details), _locate(path, files, origin), path)
            for path, details in by_path.items()
            if not any(len(other) > len(path) and other[: len(path)] == path for other in by_path)
        ]
        found.sort(key=lambda problem: _line(problem.where or ""))
        raise (found[0] if len(found) == 1 else ManyErrors(found)) from error


def _leaves(values: Mapping[str, Value], at: KeyPath = ()) -> Iterator[KeyPath]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*at, key))
        else:
            yield (*at, key)


def load_settings(
    file: Path | None,
    *,
    root: Path | None = None,
    overrides: Mapping[str, Value] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Settings of the workspace file `file` under flags (`overrides`, nested). Raises ConfigError."""
    own = read_yaml(file) if file else YamlFile("flock-hpc.yaml", {})
    values, origin = _environment(os.environ if environ is None else environ)
    flags = dict(overrides or {})
    typed = {keys: f"command line ({'.'.join(map(str, keys))})" for keys in _leaves(flags)}
    origin = typed | {keys: name for keys, name in origin.items() if keys not in typed}
    top = merge(merge(own.value, values), flags)
    name = str(top.get("cluster") or Settings().cluster)
    try:
        profile = read_profile(name, root)
    except ConfigError as error:
        if "cluster" in own.value and error.where == "cluster":
            raise ConfigError(error.what, where=own.where(("cluster",)), todo=error.todo) from error
        raise
    low = {key: value for key, value in profile.value.items() if key != "description"}
    if "cluster" in low:
        raise ConfigError("a profile can't name another profile", where=profile.where(("cluster",)))
    return build(merge(low, top), [own, profile], origin)
