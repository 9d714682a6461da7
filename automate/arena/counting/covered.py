"""How much of a judgment file is known to hold nothing but rows that were derived from the journal.

What is known so need not be read; where anything is in doubt, nothing is known."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from automate.errors import StorageError
from automate.journal import read_json, record_files
from automate.workspace import Workspace

TAIL = 4096
"""How many bytes before the mark are hashed: they tell whether the file is still the one that was marked."""


def stamp_file(workspace: Workspace, model: str, tag: str) -> Path:
    """Where it is written down which records upstream's file was derived from."""
    return workspace.journal(model, tag) / "rows.json"


def _tail(path: Path, end: int) -> str:
    with path.open("rb") as file:
        file.seek(max(0, end - TAIL))
        return hashlib.sha256(file.read(min(TAIL, end))).hexdigest()


def _journal_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in record_files(folder))


def mark_of(rows: Path, size: int, journal: Path, baselines: Collection[str]) -> dict[str, Any]:
    """What to write down of the first `size` bytes of `rows`, which are derived from that journal folder.

    `baselines`: names that rows may carry there. Raises StorageError.
    """
    try:
        return {"tail": _tail(rows, size), "journal": _journal_bytes(journal), "baselines": sorted(baselines)}
    except OSError as error:
        raise StorageError.of(error, rows, "read it") from error


def covered(rows: Path, size: int, journal: Path, mark: Path, foreign_to: Collection[str] | None = None) -> int:
    """How many bytes at the start of `rows`, which has `size` bytes, are known to come from that journal folder.

    `mark`: the file that says so. With `foreign_to` they must also be against baselines of other names.
    """
    try:
        kept = read_json(mark) or {}
        end, baselines = kept.get("bytes"), kept.get("baselines")
        if not isinstance(end, int) or not isinstance(baselines, list) or not 0 < end <= size:
            return 0
        if foreign_to is not None and not set(foreign_to).isdisjoint(baselines):
            return 0
        good = kept.get("tail") == _tail(rows, end) and _journal_bytes(journal) >= kept.get("journal", size + 1)
        return end if good else 0
    except (OSError, StorageError, TypeError):
        return 0
