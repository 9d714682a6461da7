"""Pydantic's errors in words: which key, what was expected, what kind of value stood there.

Never shows the value itself: it may be a secret."""

from __future__ import annotations

from pydantic import ValidationError

from automate.validation.inner import words

MOST = 5
"""Fields that are named; of more, only how many there are."""
_MISSING = {"missing", "missing_argument"}
_UNKNOWN = {"extra_forbidden"}


def key(location: tuple[int | str, ...]) -> str:
    """`a.b[3]` of a location in pydantic's errors."""
    said = ""
    for part in location:
        said += f"[{part}]" if isinstance(part, int) else f".{part}" if said else str(part)
    return words.plain(said or "(the whole)", 100)


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a whole number",
             float: "a number", type(None): "null"}
    return names.get(type(value), type(value).__name__)


def one(detail: dict[str, object]) -> str:
    """One of `ValidationError.errors()` in words."""
    name = key(detail["loc"])  # type: ignore[arg-type]
    if detail["type"] in _MISSING:
        return f"`{name}` is missing"
    if detail["type"] in _UNKNOWN:
        return f"`{name}` is unknown"
    said = words.plain(str(detail["msg"]), 200)
    expected = said.removeprefix("Input should be ").removeprefix("Value error, ")
    return f"`{name}`: expected {expected}, found {_kind(detail.get('input'))}"


def explain(error: ValidationError) -> str:
    """All that is wrong, field by field, in one line."""
    details = error.errors(include_url=False, include_context=False)
    said = [one(dict(detail)) for detail in details[:MOST]]
    more = f"; and {len(details) - MOST} more" if len(details) > MOST else ""
    return "; ".join(said) + more
