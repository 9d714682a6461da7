"""A judge's weights staged to a node's disk by whole jobs: the copy is loaded, used again, and never needed."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from automate.arena.running.runlog import read_runs
from tests.e2e.support import JUDGE, PROJECT, judge_now, judge_settings, make_workspace

SERVER = """#!/bin/bash
# Stands for vllm serve: notes the folder that it was to load, and answers as the rehearsal judge does.
echo "$2" >> {seen}
while [[ $1 != --uds ]]; do shift; done
exec {python} -m automate.serving.rehearsal --model {judge} "$@"
"""


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder on another file system than tmp_path."""
    folder = Path("/dev/shm") / f"flock-hpc-test-{os.getpid()}"
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        pytest.skip(f"no second file system here: {error}")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def vllm_workspace(root: Path, **staging: Any) -> Path:
    """A workspace whose judge is a folder of weights and whose server only looks as if it loaded them."""
    judge, server = root.parent / "a judge's folder", root.parent / "server.sh"
    judge.mkdir()
    (judge / "config.json").write_text('{"architectures": ["X"]}')
    (judge / "model.safetensors").write_bytes(os.urandom(3_000_000))
    server.write_text(SERVER.format(seen=root.parent / "seen", python=sys.executable, judge=JUDGE))
    server.chmod(0o755)
    make_workspace(root, questions=2, judge={
        "kind": "vllm", "path": str(judge), "server": {"command": [str(server), "serve"]}, "staging": staging,
        "environment": {"variables": {"PYTHONPATH": str(PROJECT)}}})
    return root


def seen(root: Path) -> list[str]:
    return (root.parent / "seen").read_text().splitlines()


def loads(root: Path) -> list[dict[str, Any]]:
    return [entry for run in read_runs(root / ".flock-hpc" / "runs") for entry in run.get("load", [])]


def log(root: Path) -> str:
    return "".join(path.read_text() for path in sorted((root / "logs").rglob("*.out")))


def test_jobs_of_one_node_share_a_copy(tmp_path: Path, memory: Path) -> None:
    root = vllm_workspace(tmp_path / "campaign", folder=str(memory), when="always")
    judge_now(root, "--batch-size", "1")
    copies = set(seen(root))
    assert len(seen(root)) == 3
    assert len(copies) == 1
    assert Path(copies.pop()).is_relative_to(memory)
    found = loads(root)
    assert [entry["staged"] for entry in found] == [True] * 3
    assert sorted(entry["copied"] > 0 for entry in found) == [False, False, True]
    assert {entry["weights"] for entry in found} == {3_000_000}
    assert log(root).count("GB copied to") == 1


def test_a_folder_that_cant_be_used_costs_a_line_and_no_game(tmp_path: Path) -> None:
    root = vllm_workspace(tmp_path / "campaign", folder="$NOWHERE_AT_ALL/x", when="always")
    judge_now(root)
    assert set(seen(root)) == {str(tmp_path / "a judge's folder")}
    (entry,) = loads(root)
    assert entry["staged"] is False
    assert entry["disk_rate"] > 0
    assert log(root).count("weights not staged: ") == 1
    assert "$NOWHERE_AT_ALL is not set in this job" in log(root)


def test_auto_leaves_memory_alone(tmp_path: Path, memory: Path) -> None:
    root = vllm_workspace(tmp_path / "campaign", folder=str(memory))
    judge_now(root)
    assert set(seen(root)) == {str(tmp_path / "a judge's folder")}
    assert list(memory.iterdir()) == []
    assert "counts against slurm.mem" in log(root)


def test_a_mixed_crowd_of_thinking_judges_leaves_no_game_undecided(tmp_path: Path) -> None:
    root = make_workspace(tmp_path / "campaign", questions=6)
    judge_settings(root, rehearsal={"think": .2, "think_apart": .2, "think_only_close": .2, "think_unclosed": .2,
                                    "think_cut": .2, "parts": .3, "refusal": .1})
    judge_now(root)
    records = [path.read_text() for path in (root / ".flock-hpc" / "journal").rglob("*.jsonl")]
    text = "".join(records)
    assert text.count('"outcome":"verdict"') == text.count('"outcome"') == 36
    assert '"asked_twice":true' in text
    assert '"reasoning":"Suppose' in text
