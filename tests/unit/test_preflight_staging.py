"""FH314: what this machine can know of the staging folder, and what it leaves to the jobs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from automate.arena.preflight import judge as preflight_judge
from automate.arena.preflight.findings import Finding, Level
from automate.arena.preflight.judge import judge_findings
from automate.serving import staging_folder
from automate.serving.staging_folder import home_of, refusal_of
from tests.unit.test_preflight import with_judge


def found(root: Path, folder: str | None, executor: str = "local", when: str = "auto") -> list[Finding]:
    workspace = with_judge(root, judge__staging__folder=folder, judge__staging__when=when)
    findings, _ = judge_findings(workspace, executor, lambda arguments: (127, ""))
    return [finding for finding in findings if finding.code == "FH314"]


def said(root: Path, folder: str | None, level: Level, executor: str = "local", when: str = "auto") -> str:
    (finding,) = found(root, folder, executor, when)
    assert finding.level is level
    return finding.what


@pytest.mark.parametrize(("folder", "when"), [(None, "auto"), ("$TMPDIR", "never"), ("relative", "never")])
def test_nothing_to_say(tmp_path: Path, folder: str | None, when: str) -> None:
    assert found(tmp_path, folder, when=when) == []


def test_always_without_a_folder(tmp_path: Path) -> None:
    assert "nothing is staged" in said(tmp_path, None, Level.WARNING, when="always")


def test_what_jobs_alone_can_know_is_a_note(tmp_path: Path) -> None:
    assert "known to jobs only" in said(tmp_path, "$TMPDIR/x", Level.NOTE)


def test_a_folder_of_the_nodes_is_a_note_on_slurm_and_a_warning_here(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert "the nodes may have it" in said(tmp_path / "a", "/nowhere/scratch", Level.NOTE, "slurm")
    assert "there is no folder" in said(tmp_path / "b", "/nowhere/scratch", Level.WARNING)


def test_a_relative_path(tmp_path: Path) -> None:
    assert "not an absolute path" in said(tmp_path, "scratch", Level.WARNING, "slurm")


def open_to_all(folder: Path) -> None:
    folder.chmod(0o777)


def taken(folder: Path) -> None:
    home_of(folder).mkdir()
    home_of(folder).chmod(0o755)


@pytest.mark.parametrize(("spoil", "words"), [
    (open_to_all, "no sticky bit"), (taken, "mode 700"), (lambda folder: None, "same file system as the weights")])
def test_a_folder_that_is_here_is_looked_at(tmp_path: Path, spoil: Callable[[Path], None], words: str) -> None:
    folder = tmp_path / "scratch"
    folder.mkdir(mode=0o700)
    spoil(folder)
    assert words in said(tmp_path, str(folder), Level.WARNING)


def test_read_only_full_and_another_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    assert refusal_of(tmp_path, None, 10, free=10) is None
    assert "0.0 GB free, and the weights need 70.0 GB" in str(refusal_of(tmp_path, None, 70_000_000_000, free=10))
    owner = tmp_path.stat().st_uid
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_: False)
        assert "can't be written" in str(refusal_of(tmp_path, None, 0))
    monkeypatch.setattr(staging_folder, "SYSTEM", frozenset())
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert "belongs to another user" in str(refusal_of(tmp_path, None, 0))


def test_the_weights_and_a_margin_must_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def refuse(folder: Path, source: Path | None, need: int) -> None:
        asked.append(need)

    monkeypatch.setattr(preflight_judge, "refusal_of", refuse)
    (tmp_path / "scratch").mkdir()
    assert found(tmp_path, str(tmp_path / "scratch")) == []
    assert asked == [int((512 << 20) * 1.05)]
