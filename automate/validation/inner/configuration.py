"""A module's config: files laid over each other key by key, then the defaults of the module's schema.

Never looks for files: the outer layer names them, in order. Says file, key and what was expected."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from automate.validation.inner import faults, words
from automate.validation.modules.base import InvalidConfigValueException

LARGEST = 2**20
"""Bytes of a config file that are read."""


class _Twice(ValueError):
    """A key that stands twice in one object."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _Twice(f"the key `{words.plain(name, 100)}` stands there twice")
        found[name] = value
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number that JSON knows")


def read(path: Path) -> dict[str, Any]:
    """One config file; {} where there is none. Raises InvalidConfigValueException with file and line, and OSError."""
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"it is larger than {LARGEST} bytes")
        text = path.read_text(encoding="utf-8-sig")
        value = json.loads(text, object_pairs_hook=_pairs, parse_constant=_no_constant)
    except FileNotFoundError:
        if path.is_symlink():
            raise _refused(path, "a link that leads nowhere") from None
        return {}
    except json.JSONDecodeError as error:
        raise _refused(path, f"line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from None
    except UnicodeDecodeError:
        raise _refused(path, "not UTF-8 text") from None
    except (ValueError, RecursionError) as error:
        raise _refused(path, words.of(error, 200)) from None
    except (IsADirectoryError, NotADirectoryError, PermissionError) as error:
        raise _refused(path, f"can't be read: {error.strerror or error}") from None
    if not isinstance(value, dict):
        raise _refused(path, "expected one JSON object: {\"key\": value, ...}")
    return value


def _refused(where: object, what: str) -> InvalidConfigValueException:
    return InvalidConfigValueException(f"{words.plain(str(where), 300)}: {what}", cause="config")


def _names(schema: type[BaseModel]) -> set[str]:
    found = set()
    for name, field in schema.model_fields.items():
        found |= {name} | {alias for alias in (field.alias, field.validation_alias) if isinstance(alias, str)}
    return found


def _unknown(name: str, known: set[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"expected one of: {', '.join(sorted(known)) or '(no keys)'}"
    return f"`{words.plain(name, 100)}` is unknown; {hint}"


def load(files: Sequence[Path], schema: type[BaseModel], module: str) -> BaseModel:
    """The config of one assignment. Later files win, key by key (shallow).

    Types are taken as written ("yes" is not true, "1" is not 1). Raises InvalidConfigValueException, cause `config`.
    """
    merged: dict[str, Any] = {}
    origin: dict[str, Path] = {}
    known = _names(schema)
    for path in files:
        values = read(path)
        for name in values:
            if name not in known and schema.model_config.get("extra") != "allow":
                raise _refused(path, _unknown(name, known))
        merged.update(values)
        origin.update(dict.fromkeys(values, path))
    try:
        return schema.model_validate_json(json.dumps(merged), strict=True)
    except ValidationError as error:
        raise _blame(error, origin, files, module) from None


def _blame(error: ValidationError, origin: dict[str, Path], files: Sequence[Path],
           module: str) -> InvalidConfigValueException:
    said = []
    for detail in error.errors(include_url=False, include_context=False)[:faults.MOST]:
        name = str(detail["loc"][0]) if detail["loc"] else ""
        where = origin.get(name) or (files[0] if files else f"the config of {module}")
        said.append(f"{words.plain(str(where), 300)}: {faults.one(dict(detail))}")
    return InvalidConfigValueException("; ".join(said), cause="config")
