"""Whether judgment files hold anything that the journal doesn't: looked at without decoding games.

Never takes a row over: where there may be one to take, the files are read whole by `records.load`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from automate.arena.counting.board import Board
from automate.arena.counting.covered import covered, stamp_file
from automate.arena.counting.keys import Wanted
from automate.arena.counting.tails import FileTail
from automate.arena.games import Match
from automate.arena.records import rows_files
from automate.journal import parse_object
from automate.workspace import Workspace

_GAMES = b',"games":['


def row_head(line: bytes) -> dict[str, Any] | None:
    """A row without its games, where it is written as flock-hpc and Arena-Hard v2 write it; else None."""
    cut = line.find(_GAMES)
    if cut < 0 or not line.startswith(b'{"uid":"') or not line.endswith(b"]}"):
        return None
    try:
        found = orjson.loads(line[:cut] + b"}")
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


def _has_scores(line: bytes) -> bool:
    """Whether a row has a game with anything but null for its score."""
    games = parse_object(line)["games"]
    return not all(isinstance(game, dict) and game.get("score") is None for game in games) or len(games) < 2


@dataclass
class WatchedRows:
    """The judgment files of one model, and how far each was read."""

    workspace: Workspace
    match: Match
    wanted: Wanted
    uids: Mapping[str, int]
    tag: str
    tails: dict[Path, FileTail] = field(default_factory=dict)

    def grown(self, folders: Sequence[Path], baselines: Sequence[str]) -> list[tuple[FileTail, int]] | None:
        """Files with rows that were not looked at yet, and their sizes; None where one was replaced or cut.

        `folders`: those of other baselines; `baselines`: those that have journals. Ask before the journal is read:
        a row is written after its records.
        """
        found: list[tuple[FileTail, int]] = []
        for path in rows_files(self.workspace, self.wanted.model, self.tag, folders):
            try:
                stat = path.stat()
            except OSError:
                if path in self.tails:
                    return None
                continue
            tail = self.tails.get(path)
            if tail is None:
                tail = self.tails[path] = FileTail(path, offset=self._known(path, stat, baselines))
            changed = tail.changed(stat)
            if changed is None:
                return None
            if changed:
                found.append((tail, stat.st_size))
        return found

    def may_add(self, grown: Sequence[tuple[FileTail, int]], board: Board) -> bool:
        """Read what has grown: whether something may be there that changes the counts, or is odd."""
        return sum(self._scan(tail, size, board) for tail, size in grown) > 0

    def _known(self, path: Path, stat: os.stat_result, baselines: Sequence[str]) -> int:
        """Where to begin: what comes from a journal need not be read."""
        model, default = self.wanted.model, self.workspace.default_baseline
        for tag in dict.fromkeys((self.tag, *baselines)):
            if self.workspace.rows_file(model, tag, default) == path:
                foreign = None if tag == self.tag else self.match.baseline_names
                journal, mark = self.workspace.journal(model, tag), stamp_file(self.workspace, model, tag)
                return covered(path, stat.st_size, journal, mark, foreign)
        return 0

    def _scan(self, tail: FileTail, size: int, board: Board) -> bool:
        for data, end in tail.blocks(size, last=not tail.inode):
            start = 0
            while start < end:
                stop = data.find(b"\n", start, end)
                if self._counts(data[start:stop].rstrip(b"\r"), board):
                    tail.offset = tail.size  # the file is read whole now
                    return True
                start = stop + 1
        return False

    def _counts(self, line: bytes, board: Board) -> bool:
        """Whether a row may change the counts, or is odd in a way that is to be told."""
        if not line.strip():
            return False
        head = row_head(line)
        if head is None:
            return True
        model, names = head.get("model"), {self.wanted.model, self.wanted.row_model}
        uid, baseline = head.get("uid"), head.get("baseline")
        if head.get("judge") != self.match.judge.name or not isinstance(uid, str) or not isinstance(baseline, str):
            return True
        if model not in names and str(model).rpartition("/")[2] not in names:
            return True
        position = self.uids.get(uid)
        if position is None or not self._ours(position, baseline) or board.is_own(position):
            return False
        try:
            return _has_scores(line)
        except (ValueError, KeyError, TypeError):
            return True

    def _ours(self, position: int, baseline: str) -> bool:
        name = self.match.baseline_of(self.match.questions[position].category)
        answers = self.match.baseline_answers.get(name)
        return baseline in {name, answers.row_model if answers else name}
