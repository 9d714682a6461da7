"""Answers of a real vLLM: the tiny model, and two adapters of it on one server, by a batch's own script."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.support import said
from tests.e2e.test_answers import Rig, assert_answered_once, prepare, questions_of
from tests.rigs import vllm as rig
from tests.rigs.adapter import make_adapter

LOAD = 500.0


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    """A folder with the tiny model and two adapters of it."""
    reason = rig.available()
    if reason:
        if rig.real_parts_required():
            pytest.fail(reason)
        pytest.skip(reason)
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / "tiny").symlink_to(rig.tiny_model())
    make_adapter(folder / "tiny-r8", rig.tiny_model(), rank=8, seed=1)
    make_adapter(folder / "tiny-r20", rig.tiny_model(), rank=20, seed=2)
    return folder


def batch(root: Path, checkpoints: Path, *models: str) -> Rig:
    server = {"command": [*rig.vllm_command(), "serve"], "args": ["--enforce-eager"], "load_timeout": LOAD,
              "max_model_len": 4096}
    return prepare(root, models, questions=3, kind="vllm", path=str(checkpoints / "{model}"), max_tokens=40,
                   server=server, environment={"variables": rig.serve_environment()})


def test_a_model_answers_and_its_adapters_do_from_one_server(tmp_path: Path, checkpoints: Path) -> None:
    made = batch(tmp_path / "w", checkpoints, "tiny-r8", "tiny", "tiny-r20")
    questions = questions_of(made)
    with made.workspace.questions.open("a") as file:
        file.write(json.dumps({**questions[0], "uid": "toolong", "prompt": "seven " * 9000}) + "\n")
    done = made.run(timeout=2 * LOAD)
    assert done.returncode == 0, said(done)
    for model in made.models:
        assert_answered_once(made, model, questions)
        failed = [record for record in made.records(model) if record["outcome"] != "answer"]
        assert [(record["uid"], record["outcome"]) for record in failed] == [("toolong", "too_long")]
        assert "of the context's 4096" in failed[0]["reason"]
    texts = {model: [row["messages"][-1]["content"]["answer"] for row in made.rows(model)] for model in made.models}
    assert len({str(answers) for answers in texts.values()}) == 3, "each adapter says something of its own"
    for row in made.rows("tiny-r20"):
        own = row["flock_hpc"]
        assert own["tokenizer"] == "served model"
        assert 0 < row["metadata"]["token_len"] <= 40
        assert own["finish_reason"] in ("stop", "length")
        assert "rehearsal" not in own
    record = made.run_record()
    assert len(record["load"]) == 2
    assert (record["played"], record["usage"][1] > 0) == (12, True)
