"""What a started job refuses, what is not started again, and what a setting that is changed back does."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.e2e.support import (
    EXAMPLES,
    Row,
    change_settings,
    environment,
    flock,
    judge_now,
    judge_settings,
    make_workspace,
    read_rows,
    rows_file,
    said,
)


@pytest.fixture
def example(tmp_path: Path) -> Path:
    return make_workspace(tmp_path / "w", questions=3)


def script(root: Path, number: int = 1) -> Path:
    return root / "generated_judgment_scripts" / f"run_arena_hard_judgment_batch_{number}.sh"


def run(file: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", str(file)], env=environment(), capture_output=True, text=True, timeout=120,
                          stdin=subprocess.DEVNULL, check=False)


def by_uid(root: Path, model: str) -> dict[str, Row]:
    return {row["uid"]: row for row in read_rows(rows_file(root, model))}


def test_a_script_runs_by_hand_and_registers_itself(example: Path) -> None:
    assert flock("judge", "--dry-run", "--executor", "local", cwd=example).returncode == 0
    done = run(script(example))
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(len(read_rows(rows_file(example, model))) == 3 for model in EXAMPLES)


@pytest.mark.parametrize(("old", "new", "word"), [
    ("model_list:", "model_list: ", "changed after its script was written"),
    ("--version 0", "--version 9", "was written by flock-hpc 9"),
])
def test_a_changed_batch_is_refused(example: Path, old: str, new: str, word: str) -> None:
    flock("judge", "--dry-run", "--executor", "local", cwd=example)
    config = example / "generated_judgment_configs" / "arena_hard_judgment_batch_1.yaml"
    for file in (config, script(example)):
        file.write_text(file.read_text().replace(old, new))
    done = run(script(example))
    assert done.returncode == 1
    assert word in said(done)
    assert "flock-hpc judge" in said(done)  # what to do


def test_a_server_that_can_never_start_is_started_once(example: Path) -> None:
    template = example / "templates"
    template.mkdir()
    shipped = Path(__file__).resolve().parents[2] / "templates" / "judge_batch.sh.j2"
    broken = shipped.read_text().replace('{{ server.command | map("q") | join(" ") }}', "vllm-that-is-not-there")
    (template / "judge_batch.sh.j2").write_text(broken)
    out = judge_now(example, status=1)
    assert "CUDA or module" in out
    assert "It would fail again like this" in out
    runs = list((example / ".flock-hpc" / "runs").glob("*.json"))
    assert len(runs) == 1
    picture = json.loads(flock("monitor", "--json", cwd=example).stdout)
    assert "judge.environment" in picture["failures"][0]["todo"]


def test_a_setting_changed_back_brings_its_rows_back(example: Path) -> None:
    judge_now(example)
    first = {model: by_uid(example, model) for model in EXAMPLES}
    judge_settings(example, temperature=0.5, rehearsal={"no_label": 1.0, "ignore_structured": True})
    out = judge_now(example)
    assert "18 games are due again" in out
    assert all(game["score"] is None for row in read_rows(rows_file(example, EXAMPLES[0])) for game in row["games"])
    judge_settings(example, temperature=0.0, rehearsal={})
    out = judge_now(example)
    assert "Nothing to do" in out
    assert "derived anew" in out
    assert {model: by_uid(example, model) for model in EXAMPLES} == first


def test_missing_with_nothing_missing_is_no_error(example: Path) -> None:
    judge_now(example)
    for command in (("judge", "--missing", "--submit"), ("validate-only", "--missing")):
        done = flock(*command, cwd=example)
        assert done.returncode == 0
        assert "Nothing to do" in said(done)


def test_another_baselines_batches_are_no_failures(example: Path) -> None:
    judge_now(example)
    change_settings(example, baseline=EXAMPLES[0])
    picture = json.loads(flock("monitor", "--json", cwd=example).stdout)
    assert picture["failures"] == []
    assert picture["totals"]["games"] == 0
