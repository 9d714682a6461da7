"""Values for other programs: cells of CSV that no spreadsheet takes for a formula, plain JSON. Pure.

Rounds no number; writes no files."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from automate.cli.views.cells import clean

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]

_FORMULA = re.compile(r"\s*[=+\-@]")


def cell(text: str) -> str:
    """A text that no spreadsheet takes for a formula, also where blanks stand before it."""
    shown = clean(text)
    return f"'{shown}" if _FORMULA.match(shown) else shown


def plain(value: object) -> Json:
    """A value for JSON: NaN and the like are null."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, (int, str)) or value is None else str(value)
