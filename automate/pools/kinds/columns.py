"""Rows whose columns have names of their own: which column is the question, the options, the answer.

Never guesses a column: the setting Columns says it, or the default names hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from automate.pools.kinds.base import BadRow, Kind, text_field, text_setting
from automate.pools.kinds.files import decoded, rows

Column = str | tuple[str, ...]


class Mapped(Kind):
    """A kind with the settings Columns and Delimiter. `columns`: names by role; `context` only where it is named."""

    defaults: ClassVar[Mapping[str, Column]] = {"question": "question", "answer": "answer"}
    meanings: ClassVar[Mapping[str, str]] = {
        **Kind.meanings,
        "Columns": "which column is what, as {\"question\": \"...\", \"answer\": \"...\"}; also context",
        "Delimiter": "of CSV files: one character; a comma, in .tsv files a tab, unless set",
    }
    reading = frozenset({"Columns", "Delimiter"})

    def __init__(self, settings: Mapping[str, object]) -> None:
        super().__init__(settings)
        self.columns = {**self.defaults, **_columns(settings.get("Columns", {}), {"context", *self.defaults})}
        self._delimiter = text_setting(settings, "Delimiter", "")
        if len(self._delimiter) > 1 or self._delimiter in ("\n", "\r", '"', "\0"):
            raise ValueError("Delimiter must be one character that separates columns")

    def read(self, source: Path) -> Iterator[Mapping[str, object] | BadRow]:
        return rows(source, self._delimiter or None)

    def text(self, raw: Mapping[str, object], role: str) -> str:
        """The text in a role's column. Raises ValueError."""
        return text_field(raw, self.column(role))

    def column(self, role: str) -> str:
        """The one column of a role. Raises ValueError where it has several."""
        column = self.columns[role]
        if not isinstance(column, str):
            raise ValueError(f"Columns: {role} must be one column")
        return column

    def context(self, raw: Mapping[str, object]) -> str:
        """The context, or nothing where no column has it."""
        return self.text(raw, "context") if "context" in self.columns else ""


def _columns(given: object, roles: set[str]) -> dict[str, Column]:
    if isinstance(given, str):
        given = decoded(given)
    if not isinstance(given, dict):
        raise ValueError("Columns must be an object of column names by role")
    unknown = sorted(set(given) - roles)
    if unknown:
        raise ValueError(f"Columns: {unknown[0]!r:.80} is no role; roles are {', '.join(sorted(roles))}")
    return {role: _column(role, names) for role, names in given.items()}


def _column(role: str, names: object) -> Column:
    if isinstance(names, str) and names:
        return names
    if role == "options" and isinstance(names, Sequence) and not isinstance(names, str) and len(names) > 1 and all(
            isinstance(name, str) and name for name in names):
        return tuple(names)
    raise ValueError(f"Columns: {role} must be a column's name" + (" or a list of them" if role == "options" else ""))
