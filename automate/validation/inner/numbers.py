"""A module's metrics as JSON: plain numbers, and nothing infinite on its way to the API.

Never changes a number; what isn't finite is refused, or spelled out where it is only shown."""

from __future__ import annotations

import math
from collections.abc import Mapping

from automate.validation.inner import words

DEEPEST = 64
"""Levels of a payload."""


class Unsendable(ValueError):
    """Metrics that can't go to the API: says which field and why."""


def sendable(value: object, where: str = "") -> object:
    """The same as JSON values; numbers of numpy and torch become plain ones. Raises Unsendable naming the field."""
    return _plain(value, where, DEEPEST, spell=False)


def shown(value: object) -> object:
    """The same with "nan", "inf" and "-inf" spelled out, for the result file only. Raises Unsendable."""
    return _plain(value, "", DEEPEST, spell=True)


def _plain(value: object, where: str, levels: int, *, spell: bool) -> object:
    if levels == 0:
        raise Unsendable(f"`{where[:100]}` is nested too deeply")
    if value is None or isinstance(value, (bool, str)):
        return value if not isinstance(value, str) else str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return _finite(float(value), where, spell=spell)
    if isinstance(value, Mapping):
        return {_key(name, where): _plain(one, f"{where}.{name}" if where else str(name), levels - 1, spell=spell)
                for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one, f"{where}[{number}]", levels - 1, spell=spell) for number, one in enumerate(value)]
    item = getattr(value, "item", None)
    if callable(item):
        return _plain(item(), where, levels - 1, spell=spell)
    raise Unsendable(f"`{words.plain(where, 100)}` is {type(value).__name__}, which JSON doesn't have")


def _finite(value: float, where: str, *, spell: bool) -> float | str:
    if math.isfinite(value):
        return value
    if spell:
        return str(value)
    raise Unsendable(f"`{words.plain(where, 100)}` is {value}: only finite numbers are sent")


def _key(name: object, where: str) -> str:
    if not isinstance(name, str):
        raise Unsendable(f"`{words.plain(where, 100)}` has a key that is not text")
    return name
