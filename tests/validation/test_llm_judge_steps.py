"""`llm_judge` through the inner layer: an assignment's folder, the runner in a process of its own, both steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("peft")

from automate.validation.inner.files import PARTIAL, REPLY, Outcome, Result, RunFile, read_result, write_run
from automate.validation.modules.llm_judge.kept import FILE
from automate.validation.standin.judge import Judge, failing, scored
from tests.unit.llm_judge_support import chat, make_checkout, make_input, write_set
from tests.validation.llm_judge_rig import edit, save_adapter, save_model

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with `base` and `adapter`."""
    save_adapter(tmp_path / "files" / "adapter", save_model(tmp_path / "files" / "base"))
    return tmp_path / "files"


def make_assignment(root: Path, files: Path, **changes: Any) -> Path:
    """An assignment's folder as the outer layer leaves it to the inner one."""
    folder = root / "17"
    (folder / "data").mkdir(parents=True)
    data = write_set(folder / "data" / "set.jsonl", chat("w1 w2", "w3"), chat("w4"))
    fields = make_input().model_dump()
    submission = {name: fields.pop(name) for name in ("hg_repo_id", "revision")}
    (folder / REPLY).write_text(json.dumps({"id": 17, "task_submission": {"task_id": 5, "data": submission},
                                            "data": fields | changes, "status": "validating"}))
    for path in (files / "base", files / "adapter"):
        generation = path / "generation_config.json"
        if generation.exists():
            edit(generation, max_time=2.0)
    (folder / "config.json").write_text('{"eval_batch_size": 1}')
    write_run(folder, RunFile("17", "5", "llm_judge", data=str(data), model=str(files / "adapter"),
                              base=str(files / "base"), judge_prompts=str(make_checkout(root)),
                              config_files=(str(folder / "config.json"),)))
    return folder


def run(folder: Path, step: int, environ: Mapping[str, str] | None = None) -> Result:
    around = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    done = subprocess.run([sys.executable, "-m", "automate.validation.runner", str(folder), "--step", str(step)],
                          cwd=ROOT, env=around | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"} | dict(environ or {}),
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    result = read_result(folder)
    assert result is not None, done.stderr
    return result


def test_an_assignment_from_its_folder_to_its_payload(tmp_path: Path, files: Path) -> None:
    folder = make_assignment(tmp_path, files)
    first = run(folder, 1)
    assert (first.outcome, first.step, first.payload) == (Outcome.PARTIAL, 1, None), first.reason
    assert len(json.loads((folder / PARTIAL).read_text())["answers"][0]) == 2
    without = run(folder, 2)
    assert (without.outcome, without.cause) == (Outcome.RECOVERABLE, "judge-key")
    with Judge([scored(8, 0.5), scored(8, 0.5), scored(8, 0.5), failing(404)]) as judge:
        broken = run(folder, 2, judge.environ)
    assert broken.outcome is Outcome.RECOVERABLE
    assert judge.key not in broken.reason
    with Judge([scored(8, 0.5)]) as judge:
        second = run(folder, 2, judge.environ)
    assert (second.outcome, second.step, second.payload) == (Outcome.COMPLETED, 2, {"score": 0.4}), second.reason
    assert len(judge.calls) == 1  # how many are left to ask is the next test's


def test_replies_that_were_paid_for_outlive_a_start(tmp_path: Path, files: Path) -> None:
    folder = make_assignment(tmp_path, files)
    run(folder, 1)
    for answers, asked in (([scored(), failing(404)], 2), ([scored()], 3)):
        with Judge(answers) as judge:
            run(folder, 2, judge.environ)
        assert len(judge.calls) == asked
    assert len((folder / FILE).read_text().splitlines()) == 4


def test_too_many_parameters_are_completed_in_one_step(tmp_path: Path, files: Path) -> None:
    result = run(make_assignment(tmp_path, files, max_params=3), 1)
    assert (result.outcome, result.payload) == (Outcome.COMPLETED, {"score": -999.0}), result.reason
    assert "parameters" in result.notes[0]
