"""Rows of several baselines in one file: each moves to its baseline's own, and none is lost."""

import json
from pathlib import Path

from automate.arena.apart import has_foreign_rows, move_foreign_rows
from automate.settings import Settings
from automate.workspace import Workspace


def line(uid: str, baseline: object) -> bytes:
    return json.dumps({"uid": uid, "baseline": baseline, "games": []}).encode() + b"\n"


def workspace(tmp_path: Path) -> tuple[Workspace, Path]:
    found = Workspace(tmp_path, Settings(baseline="ours"), "ours")
    path = found.rows_file("model", "ours", "ours")
    path.parent.mkdir(parents=True)
    return found, path


def test_rows_move_and_none_is_lost(tmp_path: Path) -> None:
    place, path = workspace(tmp_path)
    lines = [line("1", "theirs"), line("2", "ours"), line("3", "theirs"), line("4", "../x"), b"torn {\n", line("5", 7)]
    path.write_bytes(b"".join(lines))
    there = place.rows_file("model", "theirs", "")
    there.parent.mkdir()
    there.write_bytes(line("3", "theirs") + line("9", "theirs"))
    assert has_foreign_rows(path, {"ours"})
    assert move_foreign_rows(place, "model", path, {"ours"}) == {"theirs": 2}
    assert path.read_bytes() == b"".join([lines[1], lines[3], lines[4], lines[5]])
    assert there.read_bytes() == line("3", "theirs") + line("9", "theirs") + line("1", "theirs")
    assert not has_foreign_rows(path, {"ours"})
    assert move_foreign_rows(place, "model", path, {"ours"}) == {}


def test_a_file_whose_rows_all_move_is_gone(tmp_path: Path) -> None:
    place, path = workspace(tmp_path)
    path.write_bytes(line("1", "theirs"))
    move_foreign_rows(place, "model", path, {"ours"})
    assert not path.exists()
    assert place.rows_file("model", "theirs", "").read_bytes() == line("1", "theirs")
