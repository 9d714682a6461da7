"""Answers under the local executor, from models that lack them to whole answer files, through deaths and refusals."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.support import (
    BASELINE,
    EXAMPLE_BASELINE,
    EXAMPLES,
    TULU,
    bench_file,
    change_settings,
    command,
    environment,
    eventually,
    flock,
    jobs,
    kill,
    make_workspace,
    processes_of,
    read_answers,
    read_lines,
    read_questions,
    said,
)


def answer_file(root: Path, model: str) -> Path:
    return bench_file(root, "model_answer", f"{model}.jsonl")


def without_answers(root: Path, *models: str) -> None:
    """Remove models' answer files."""
    for model in models:
        answer_file(root, model).unlink()


def journal(root: Path, model: str) -> list[dict[str, Any]]:
    """All records of a model's answers."""
    folder = next((root / ".flock-hpc" / "answers").glob("*")) / model
    return [record for file in sorted(folder.glob("*.jsonl")) for record in read_lines(file)]


def example(tmp_path: Path, **rehearsal: object) -> Path:
    """The bundled example, whose models' answers are rehearsed."""
    return make_workspace(tmp_path / "ws", generate={"kind": "rehearsal", "rehearsal": rehearsal})


def generate(root: Path, *args: str, status: int = 0) -> str:
    """`generate ARGS` under the local executor; what it said."""
    done = flock("generate", "--executor", "local", *args, cwd=root)
    assert done.returncode == status, f"exit {done.returncode} instead of {status}:\n{done.stdout}\n{done.stderr}"
    return said(done)


def assert_answered(root: Path, *models: str) -> None:
    """Every question once, in the questions' order, in upstream's shape."""
    uids = list(read_questions(root))
    for model in models:
        rows = read_lines(answer_file(root, model))
        assert [row["uid"] for row in rows] == uids, model
        assert all(row["model"] == model and row["messages"][-1]["content"]["answer"] for row in rows), model
        assert {"token_len", "header_count", "list_count", "bold_count"} <= rows[0]["metadata"].keys()


def test_answers_of_real_questions_then_nothing_to_do_then_games(tmp_path: Path) -> None:
    root = make_workspace(tmp_path / "ws", real=True, generate={"kind": "rehearsal"})
    lacking = (*TULU[:2], BASELINE)
    without_answers(root, *lacking)
    kept = answer_file(root, TULU[2]).read_bytes()
    text = generate(root, "--all", "--submit", "--wait", "--batch-size", "1")
    assert "submitted 3 batches" in text and "3000 of 3000 answers are finished" in text
    assert_answered(root, *lacking)
    assert answer_file(root, TULU[2]).read_bytes() == kept
    count = len(jobs(root))
    assert count == 3
    assert "Nothing to do." in generate(root, "--submit", "--wait") and len(jobs(root)) == count
    judged = flock("judge", "--executor", "local", "--submit", "--wait", "--limit-questions", "3", cwd=root)
    assert judged.returncode == 0 and "submitted batch 1" in said(judged)  # numbers of the two kinds are apart
    for model in lacking:
        assert len(read_answers(root, model)) == 750


def test_a_killed_job_is_handed_over_again_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    root = example(tmp_path, latency=0.5)
    change_settings(root, generate={"kind": "rehearsal", "concurrency": 2, "rehearsal": {"latency": 0.5}})
    without_answers(root, *EXAMPLES[:2])
    with subprocess.Popen(command("generate", "--executor", "local", "--submit", "--wait"), cwd=root,
                          env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        folder = root / ".flock-hpc" / "answers"
        eventually(lambda: sum(file.read_bytes().count(b"\n") for file in folder.glob("*/*/*.jsonl")) >= 3,
                   "three answers are recorded")
        engines = [one for one in processes_of(root).values() if "run-answers" in words(one)]
        assert engines and all(kill(one) for one in engines)
        out, _ = process.communicate(timeout=240)
    assert process.returncode == 0, out
    assert "handed over again as job" in out
    assert_answered(root, *EXAMPLES[:2])
    for model in EXAMPLES[:2]:
        found = [record["uid"] for record in journal(root, model) if record["outcome"] == "answer"]
        assert len(found) == len(set(found)) == len(read_questions(root))


def words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_a_model_that_cannot_be_served_is_named_before_anything_is_submitted(tmp_path: Path) -> None:
    root = make_workspace(tmp_path / "ws", generate={"kind": "vllm", "path": "/checkpoints/{model}"})
    without_answers(root, *EXAMPLES[:2])
    (root / "half").mkdir()
    change_settings(root, generate={"kind": "vllm", "path": "/checkpoints/{model}",
                                    "models": {EXAMPLES[0]: {"path": "half"}}})
    text = generate(root, "--all", "--submit", status=1)
    assert f"{EXAMPLES[0]}: {root}/half" in text and f"{EXAMPLES[1]}: /checkpoints/{EXAMPLES[1]}" in text
    assert "Nothing was submitted" in text and "--skip-missing" in text and not jobs(root)
    assert not list((root / "generated_answer_scripts").glob("*.sh"))


def test_skip_missing_goes_on_with_the_others(tmp_path: Path) -> None:
    root = example(tmp_path)
    without_answers(root, *EXAMPLES[:2])
    (root / "list.txt").write_text(f"{EXAMPLES[0]}\nnot/a/name\n")
    assert "can't be used" in generate(root, "--models-file", "list.txt", "--submit", status=1) and not jobs(root)
    assert not list((root / "generated_answer_scripts").glob("*.sh"))  # nothing is written that may not be handed in
    assert "1 of" not in generate(root, "--models-file", "list.txt", "--submit", "--wait", "--skip-missing")
    assert_answered(root, EXAMPLES[0])
    assert not answer_file(root, EXAMPLES[1]).exists()


@pytest.mark.parametrize("work", ["generate", "judge"])
def test_a_list_of_comments_means_nothing_to_do(tmp_path: Path, work: str) -> None:
    root = example(tmp_path)
    (root / "missing_models_list.txt").write_text("# no model lacks answers\n")
    done = flock(work, "--executor", "local", "--submit", "--models-file", "missing_models_list.txt", cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Nothing to do: missing_models_list.txt names no model." in said(done) and not jobs(root)


def test_judge_and_monitor_while_answers_are_made(tmp_path: Path) -> None:
    root = example(tmp_path)
    change_settings(root, generate={"kind": "rehearsal", "concurrency": 1, "rehearsal": {"latency": 4}})
    without_answers(root, EXAMPLES[0], EXAMPLE_BASELINE)
    generate(root, "--submit", "--no-array")
    eventually(lambda: "answer-batch-1" in monitor(root), "the job is shown")
    eventually(lambda: (json_of(root)["running"] or [{}])[0].get("phase") == "playing", "it asks")
    text, data = monitor(root), json_of(root)
    assert "Running Generation Jobs (" in text and "Running Judgment Jobs: None" in text
    assert f"Baseline Model ({EXAMPLE_BASELINE}): NOT FOUND" in text
    assert "Answer Progress" in text
    assert {job["kind"] for job in data["running"]} == {"generate"}  # the baseline's answers are a batch of their own
    assert data["totals"]["answers_wanted"] == 2 * len(read_questions(root)) and data["totals"]["answers_due"] > 0
    judged = flock("judge", "--executor", "local", "--submit", "--models", EXAMPLES[0], cwd=root)
    assert judged.returncode == 0 and f"{EXAMPLES[0]}: left alone, its answers are being generated" in said(judged)
    judged = flock("judge", "--executor", "local", "--submit", cwd=root)
    assert judged.returncode == 1 and f"answers of the baseline '{EXAMPLE_BASELINE}' are being" in said(judged)
    again = generate(root, "--submit")
    assert "left alone, batch 1 is running" in again and "Nothing else to do" in again and len(jobs(root)) == 2
    logs = said(flock("logs", "1", "--paths", cwd=root))
    assert "answers batch 1 of plan" in logs and "answer-batch-1_local-1_" in logs
    cancelled = said(flock("cancel", cwd=root))
    assert "cancelled job local-1" in cancelled and "'flock-hpc generate --submit' goes on" in cancelled
    eventually(lambda: not json_of(root)["running"], "the jobs have ended", timeout=90)
    for failure in json_of(root)["failures"]:
        assert (failure["work"], failure["kind"]) == ("generate", "cancelled")
        assert "generate --submit" in failure["todo"]
    assert len(json_of(root)["failures"]) == 2


def monitor(root: Path) -> str:
    return flock("monitor", cwd=root).stdout


def json_of(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(flock("monitor", "--json", cwd=root).stdout)
    return found
