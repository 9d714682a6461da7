"""A batch of answers inside its job, by its own script: complete, killed, told to stop, with models that can't be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from automate.arena.answering.scripts import answer_config, answer_script
from automate.arena.batches import Batch, Plan
from automate.workspace import Workspace, open_workspace
from tests.e2e.support import environment, make_workspace, read_lines, said
from tests.unit.test_answering_candidates import make_adapter, make_model

KEYS = ["uid", "ans_id", "model", "messages", "tstamp", "metadata", "flock_hpc"]
WAIT = 120.0
SERVER = """
import argparse, json, os, sys
parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--served-model-name")
parser.add_argument("--uds")
parser.add_argument("--lora-modules", nargs="+", default=[])
args, _ = parser.parse_known_args()
if "bad" in args.folder:
    sys.exit("error: argument --quantization: invalid choice")
also = [word for item in args.lora_modules for word in ("--also", json.loads(item)["name"])]
os.execv(sys.executable, [sys.executable, "-m", "automate.serving.rehearsal", "--answers", "--model",
                          args.served_model_name, "--uds", args.uds, *also])
"""


@dataclass
class Rig:
    """A workspace with one batch of answers."""

    workspace: Workspace
    models: tuple[str, ...]

    @property
    def script(self) -> Path:
        return self.workspace.answer_script(1)

    def rows(self, model: str) -> list[dict[str, Any]]:
        file = self.workspace.answer_file(model)
        return read_lines(file) if file.exists() else []

    def records(self, model: str) -> list[dict[str, Any]]:
        files = sorted(self.workspace.answer_journal(model).glob("*.jsonl"))
        return [record for file in files for record in read_lines(file)]

    def run_record(self) -> dict[str, Any]:
        newest = sorted(self.workspace.runs.glob("*.json"))[-1]
        found: dict[str, Any] = json.loads(newest.read_text())
        return found

    def run(self, timeout: float = WAIT) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["bash", str(self.script)], env=environment(), capture_output=True, text=True,
                              timeout=timeout, stdin=subprocess.DEVNULL)

    def start(self) -> subprocess.Popen[bytes]:
        with (self.workspace.root / "job.log").open("wb") as log:
            return subprocess.Popen(["bash", str(self.script)], env=environment(), stdin=subprocess.DEVNULL, stdout=log,
                                    stderr=log, start_new_session=True)


def prepare(root: Path, batch: tuple[str, ...], *, questions: int | None = None, real: bool = False,
            limit: int | None = None, **generate: Any) -> Rig:
    """Write the batch as a plan does."""
    make_workspace(root, real=real, questions=questions, generate={"kind": "rehearsal", **generate})
    return write(Rig(open_workspace(root), batch), limit)


def write(rig: Rig, limit: int | None = None) -> Rig:
    workspace = open_workspace(rig.workspace.root)
    plan = Plan("20260101_000000", "abcdef", "b", (Batch(1, rig.models, 9),), limit, kind="generate")
    config = answer_config(workspace, plan, plan.batches[0])
    script = answer_script(workspace, plan, plan.batches[0], config, sys.executable)
    for path, text in ((workspace.answer_config(1), config), (workspace.answer_script(1), script)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    workspace.answer_logs.mkdir(parents=True, exist_ok=True)
    return Rig(workspace, rig.models)


def assert_answered_once(rig: Rig, model: str, questions: list[dict[str, Any]]) -> None:
    """Every question has one row, in order, of one record."""
    rows = rig.rows(model)
    assert [row["uid"] for row in rows] == [question["uid"] for question in questions]
    for row, question in zip(rows, questions, strict=True):
        assert list(row) == KEYS
        assert row["messages"][-2] == {"role": "user", "content": question["prompt"]}
        assert row["model"] == model
    answered = Counter(record["uid"] for record in rig.records(model) if record["outcome"] == "answer")
    assert set(answered.values()) <= {1}, "a question was answered twice"
    texts = {record["uid"]: record["answer"] for record in rig.records(model) if record["outcome"] == "answer"}
    assert {row["uid"]: row["messages"][-1]["content"]["answer"] for row in rows} == texts


def questions_of(rig: Rig) -> list[dict[str, Any]]:
    return read_lines(rig.workspace.questions)


def wait_for_answers(rig: Rig, model: str, count: int, process: subprocess.Popen[bytes]) -> None:
    """Return once so many answers stand in the answer file."""
    end = time.monotonic() + WAIT
    file = rig.workspace.answer_file(model)
    while time.monotonic() < end:
        if file.is_file() and file.read_bytes().count(b"\n") >= count:
            return
        assert process.poll() is None, (rig.workspace.root / "job.log").read_text()
        time.sleep(0.02)
    pytest.fail(f"no {count} answers after {WAIT:g} s")


def test_a_batch_answers_every_question_of_every_model_once(tmp_path: Path) -> None:
    lora = {"base": "/some/base"}
    rig = prepare(tmp_path / "w", ("one", "x-a", "example-final", "x-b"), models={"x-a": lora, "x-b": lora})
    theirs = rig.workspace.answer_file("example-final").read_bytes()
    done = rig.run()
    assert done.returncode == 0, said(done)
    questions = questions_of(rig)
    for model in ("one", "x-a", "x-b"):
        assert_answered_once(rig, model, questions)
    assert rig.rows("x-a")[0]["messages"][-1] != rig.rows("x-b")[0]["messages"][-1]
    assert rig.workspace.answer_file("example-final").read_bytes() == theirs
    record = rig.run_record()
    assert (record["kind"], record["played"], record["due"], record["status"]) == ("generate", 36, 36, 0)
    assert "judge" not in record
    assert len(record["load"]) == 2, "one server for 'one', one for both adapters, none for what is complete"
    again = rig.run()
    assert again.returncode == 0
    assert "0 answers due" in said(again)


def test_a_killed_job_loses_no_answer_and_doubles_none(tmp_path: Path) -> None:
    rig = prepare(tmp_path / "w", ("one", "two"), real=True, questions=200, concurrency=4,
                  rehearsal={"latency": 0.02})
    process = rig.start()
    wait_for_answers(rig, "one", 40, process)
    process.kill()  # the engine itself: the script has become it
    process.wait(WAIT)
    before = {record["uid"] for record in rig.records("one")}
    assert 40 <= len(before) < 200
    file = rig.workspace.answer_file("one")
    file.write_bytes(file.read_bytes()[:-7])  # as if the last write had been cut off
    done = rig.run()
    assert done.returncode == 0, said(done)
    for model in rig.models:
        assert_answered_once(rig, model, questions_of(rig))
    assert before <= {record["uid"] for record in rig.records("one")}


def test_a_job_that_is_told_to_stop_ends_in_time_and_the_rest_stays_due(tmp_path: Path) -> None:
    rig = prepare(tmp_path / "w", ("one", "two"), real=True, questions=200, concurrency=4,
                  rehearsal={"latency": 0.02})
    process = rig.start()
    wait_for_answers(rig, "one", 20, process)
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(WAIT) == 143, (rig.workspace.root / "job.log").read_text()
    record = rig.run_record()
    assert record["phase"] == "ended"
    assert "flock-hpc generate --submit" in record["next"]["why"]
    done = rig.run()
    assert done.returncode == 0, said(done)
    for model in rig.models:
        assert_answered_once(rig, model, questions_of(rig))


def test_one_models_failure_holds_back_no_other(tmp_path: Path) -> None:
    shim = tmp_path / "server.py"
    shim.write_text(SERVER)
    for name in ("bad", "good", "gone", "base"):
        make_model(tmp_path / name)
    make_adapter(tmp_path / "lora", tmp_path / "base")
    rig = prepare(tmp_path / "w", ("bad", "good", "gone", "lora"), kind="vllm", path=str(tmp_path / "{model}"),
                  server={"command": [sys.executable, str(shim)]})
    (tmp_path / "gone" / "model.safetensors").write_bytes(b"12")  # written anew since the batch was planned
    done = rig.run()
    assert done.returncode == 3, said(done)
    for model in ("good", "lora"):
        assert_answered_once(rig, model, questions_of(rig))
    record = rig.run_record()
    assert record["skipped"] == ["gone", "bad"]
    assert record["status"] == 3
    assert record["hopeless"] is True
    assert "bad: " in record["error"]
    assert "generate.server.args" in record["error"], "advice names the settings of generation"
    assert "gone: " in said(done)
    assert "still being written" in said(done)
    row = rig.rows("lora")[0]["flock_hpc"]
    assert "rehearsal" not in row
    assert len(row["weights"]) == 32


@pytest.mark.parametrize(("options", "outcome"), [({"context": 350}, "too_long"), ({"status_400": 1.0}, "refused")])
def test_questions_that_can_not_be_answered_are_tried_so_often_and_given_up(tmp_path: Path, options: dict[str, Any],
                                                                            outcome: str) -> None:
    rig = prepare(tmp_path / "w", ("one",), rehearsal=options)
    assert rig.run().returncode == 0
    failed = [record for record in rig.records("one") if record["outcome"] == outcome]
    assert failed
    assert {record["uid"] for record in failed}.isdisjoint(row["uid"] for row in rig.rows("one"))
    assert f"{len(failed)} answers due" in said(rig.run())
    assert "0 answers due" in said(rig.run())


def test_an_empty_answer_is_an_answer(tmp_path: Path) -> None:
    rig = prepare(tmp_path / "w", ("one",), rehearsal={"empty": 1.0})
    assert rig.run().returncode == 0
    assert_answered_once(rig, "one", questions_of(rig))
    assert {row["messages"][-1]["content"]["answer"] for row in rig.rows("one")} == {""}
    assert {row["metadata"]["token_len"] for row in rig.rows("one")} == {0}


def test_only_the_first_questions_are_asked_where_they_are_limited(tmp_path: Path) -> None:
    rig = prepare(tmp_path / "w", ("one",), limit=5)
    assert rig.run().returncode == 0
    assert [row["uid"] for row in rig.rows("one")] == [question["uid"] for question in questions_of(rig)[:5]]


def test_a_batch_that_was_changed_says_how_to_write_it_anew(tmp_path: Path) -> None:
    rig = prepare(tmp_path / "w", ("one",))
    config = rig.workspace.answer_config(1)
    config.write_text(config.read_text() + "# changed\n")
    done = rig.run()
    assert done.returncode == 1
    assert "flock-hpc generate" in said(done)


def test_a_judge_of_a_workspace_does_not_take_rehearsed_answers(tmp_path: Path) -> None:
    from automate.arena.preflight.check import check

    rig = prepare(tmp_path / "w", ("one",))
    assert rig.run().returncode == 0
    models = ["one"]
    rehearsed = check(rig.workspace, models, cluster=None, executor="local")
    assert [finding.level.value for finding in rehearsed.findings if finding.code == "FH113"] == ["note"]
    file = rig.workspace.settings_file
    told = yaml.safe_load(file.read_text())
    told["judge"] = {"kind": "openai", "name": "real", "base_url": "http://127.0.0.1:1/v1"}
    file.write_text(yaml.safe_dump(told))
    real = check(open_workspace(rig.workspace.root), models, cluster=None, executor="local")
    assert [finding.level.value for finding in real.findings if finding.code == "FH113"] == ["error"]
    assert real.blocked == ("one",)
