"""Keeps judgments against other baselines apart, each in a file of their own, and files as they were before a change.

Moves rows line for line, and never drops one: a row whose baseline can't name a file stays where it is."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path

from automate.errors import StorageError
from automate.journal import iter_lines, parse_object, replace_file
from automate.names import name_problem
from automate.workspace import Workspace


def _row(line: bytes) -> tuple[str | None, str]:
    """(baseline, uid) of a row; no baseline where the line is no row or its baseline can't name a folder."""
    try:
        row = parse_object(line)
    except ValueError:
        return None, ""
    baseline = row.get("baseline")
    good = isinstance(baseline, str) and name_problem(baseline) is None
    return (baseline if good else None), str(row.get("uid", row.get("question_id")))


def _lines(path: Path) -> list[bytes]:
    return [line + b"\n" for _, line, _ in iter_lines(path)] if path.is_file() else []


def copy_foreign_rows(workspace: Workspace, model: str, path: Path, mine: Collection[str]) -> dict[str, int]:
    """Copy rows of `path` against baselines not in `mine` to those baselines' files; how many of each.

    A row that is there already, by uid, stays as it is.
    """
    foreign: dict[str, dict[str, bytes]] = {}
    for line in _lines(path):
        baseline, uid = _row(line)
        if baseline is not None and baseline not in mine:
            foreign.setdefault(baseline, {})[uid] = line
    for baseline, rows in foreign.items():
        target = workspace.rows_file(model, baseline, "")
        there = _lines(target)
        known = {_row(line)[1] for line in there}
        replace_file(target, [*there, *(line for uid, line in rows.items() if uid not in known)])
    return {baseline: len(rows) for baseline, rows in foreign.items()}


def has_foreign_rows(path: Path, mine: Collection[str]) -> bool:
    """Whether the first row of a file that says its baseline is against one not in `mine`."""
    for _, line, _ in iter_lines(path):
        baseline, _uid = _row(line)
        if baseline is not None:
            return baseline not in mine
    return False


def move_foreign_rows(workspace: Workspace, model: str, path: Path, mine: Collection[str]) -> dict[str, int]:
    """Copy foreign rows to their own files, then take them out of this one. Hold the model's claim."""
    moved = copy_foreign_rows(workspace, model, path, mine)
    kept = [line for line in _lines(path) if (_row(line)[0] or "") in {"", *mine}] if moved else []
    if moved and kept:
        replace_file(path, kept)
    elif moved:
        path.unlink()  # every row of it stands elsewhere now
    return moved


def keep_old(workspace: Workspace, path: Path, name: Path, data: bytes | None = None) -> Path:
    """Keep a copy of a file that changes, as superseded/<time>/`name`, never over another one; where it is kept.

    `data`: what the file held, where it has changed already. Raises StorageError.
    """
    moment = time.time()
    while (target := workspace.superseded / time.strftime("%Y%m%d_%H%M%S", time.localtime(moment)) / name).exists():
        moment += 1
    try:
        replace_file(target, path.read_bytes() if data is None else data)
    except OSError as error:
        raise StorageError.of(error, target, "keep the old file") from error
    return target
