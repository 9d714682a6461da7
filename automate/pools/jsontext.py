"""Text and JSON of others, before anything is done with it: what can be kept, and what is refused with a reason.

Never mends a text: it is taken as it is, or not at all."""

from __future__ import annotations

import json
import re
from typing import NoReturn

from automate.errors import PoolError

NAME_LENGTH = 128
"""Of an address, an Action, an anchor or a tag's name, in characters."""
DEPTH = 64
"""Of JSON inside JSON."""
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_ESCAPED = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
"""How JSON may write what can't be kept."""


def refuse(what: str, todo: str | None = None) -> NoReturn:
    """Raises PoolError."""
    raise PoolError(what, where="message", todo=todo)


def check_text(text: str, what: str) -> str:
    """Text that UTF-8 and SQLite can keep. Raises PoolError."""
    if "\0" in text:
        refuse(f"{what} holds a NUL character", "leave it out: it ends a text in many programs")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            refuse(f"{what} holds half of a surrogate pair (\\ud800 to \\udfff), which is no character",
                   "write the character as UTF-8, or as both halves")
    return text


def check_line(text: str, what: str) -> str:
    """A short text of one line, which may be empty. Raises PoolError."""
    if len(text) > NAME_LENGTH:
        refuse(f"{what} is longer than {NAME_LENGTH} characters")
    if _CONTROL.search(text) or text != text.strip():
        refuse(f"{what} holds a control character, or spaces at an end")
    return check_text(text, what)


def _check_depth(value: object) -> None:
    """Raises PoolError where a JSON value is too deep."""
    level = [value]
    for _ in range(DEPTH + 1):
        level = [inner for one in level if isinstance(one, dict | list)
                 for inner in (one.values() if isinstance(one, dict) else one) if isinstance(inner, dict | list)]
        if not level:
            return
    refuse(f"JSON deeper than {DEPTH} levels")


def _check_texts(value: object, what: str) -> None:
    """Raises PoolError where a text or a field's name in a JSON value, which is not too deep, can't be kept."""
    if isinstance(value, str):
        check_text(value, what)
    elif isinstance(value, dict):
        for name, inner in value.items():
            check_text(str(name), what)
            _check_texts(inner, what)
    elif isinstance(value, list):
        for inner in value:
            _check_texts(inner, what)


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        refuse(f"the JSON field {next(name for name in names if names.count(name) > 1)!r} is there twice")
    return found


def _no_number(text: str) -> NoReturn:
    refuse(f"{text[:40]} is no number in JSON")


def _float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        _no_number(text)
    return value


def parse_json(text: str, what: str = "Data") -> object:
    """A JSON value: no field twice, no NaN, no half characters, not too deep. Raises PoolError saying where it ends."""
    check_text(text, what)
    try:
        value: object = json.loads(text, object_pairs_hook=_object, parse_constant=_no_number, parse_float=_float)
    except json.JSONDecodeError as error:
        refuse(f"{what} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}", "send JSON")
    except RecursionError:
        refuse(f"{what} is JSON deeper than {DEPTH} levels")
    except ValueError:
        refuse(f"{what} holds a number with too many digits")
    _check_depth(value)
    if _ESCAPED.search(text):
        _check_texts(value, what)
    return value


def as_text(value: object, what: str) -> str:
    """Text as it is, a number as text, an object or array as JSON. Raises PoolError."""
    if isinstance(value, str):
        return check_text(value, what)
    if isinstance(value, bool | int | float | dict | list):
        _check_depth(value)
        _check_texts(value, what)
        try:
            return json.dumps(value, ensure_ascii=False, allow_nan=False)
        except ValueError:
            refuse(f"{what} holds what is no number in JSON, or too many digits")
    refuse(f"{what} is neither text, number nor object")
