"""Room on disk that is kept for reporting: made while fetching, given up when the disk is full.

Never touches anything but its own file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from automate.errors import StorageError
from automate.validation.spool import out_of_space

RESERVE = 4 << 20
"""Bytes: claims, lines and histories of some hundred reports."""
T = TypeVar("T")


def keep_reserve(path: Path) -> None:
    """Make the reserve, unless it is there. Raises StorageError."""
    try:
        if path.is_file() and path.stat().st_size >= RESERVE:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(b"\xa5" * RESERVE)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise StorageError.of(error, path, "keep room for reports") from error


def with_room(reserve: Path, action: Callable[[], T]) -> T:
    """Do it; where the disk is full, give the reserve up and do it once more. Raises what `action` raises."""
    try:
        return action()
    except StorageError as error:
        if not out_of_space(error) or not _give_up(reserve):
            raise
        return action()


def _give_up(reserve: Path) -> bool:
    try:
        reserve.unlink()
    except OSError:
        return False
    return True
