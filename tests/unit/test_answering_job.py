"""A job of answers: what it reads from its batch, how it ends, who goes on, and what stands in its record."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from pathlib import Path

import pytest

from automate import __version__
from automate.arena.answering.candidates import REHEARSAL, Candidate, server_group
from automate.arena.answering.job import AnswerJob
from automate.arena.answering.recorded import due_of
from automate.arena.answering.scripts import answer_array_script, answer_config, answer_script
from automate.arena.batches import Batch, Plan
from automate.arena.running.ending import NODE_FAULT, TIME_LIMIT, GoOn, decide, never_played
from automate.arena.running.job import STOPPED
from automate.arena.running.job_config import ANSWERING, JobConfig, read_job_config
from automate.arena.running.judging import BatchJob
from automate.arena.running.runlog import RunLog
from automate.cluster.own_job import OwnJob
from automate.cluster.submit import SubmissionBook
from automate.errors import ConfigError, ServerError
from automate.serving import causes
from automate.serving.launch import Launch
from automate.serving.server import JudgeServer
from automate.workspace import Workspace
from tests.unit.support import check_golden, make_match, make_questions, make_workspace, write_lines
from tests.unit.test_ending import LEFT, RUNNING

PLAN_ID = "20260101_000000"


def batch_of(root: Path, *models: str, **generate: object) -> tuple[Workspace, JobConfig]:
    """A batch of a rehearsal, as its job reads it."""
    workspace = make_workspace(root, generate={"kind": "rehearsal", "slurm": {"time": "09:00:00"}, **generate},
                               slurm={"gpus": 4}, judge={"name": "real", "kind": "vllm"})
    write_lines(workspace.questions, [{"uid": q.uid, "category": q.category, "prompt": q.prompt}
                                      for q in make_questions(3)])
    plan = Plan(PLAN_ID, "abcdef", "b", (Batch(2, models, 5),), 2, kind="generate")
    text = answer_config(workspace, plan, plan.batches[0])
    path = workspace.answer_config(2)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    workspace.runs.mkdir(parents=True, exist_ok=True)
    return workspace, read_job_config(root, path, hashlib.sha256(text.encode()).hexdigest(), __version__, ANSWERING)


def test_a_job_reads_its_kind_its_groups_and_the_settings_of_generation(tmp_path: Path) -> None:
    workspace, config = batch_of(tmp_path, "a", "b")
    assert (config.kind, config.groups, config.limit_questions) == ("generate", (("a",), ("b",)), 2)
    assert (config.settings.slurm.time, config.settings.judge.kind) == ("09:00:00", "rehearsal")
    assert config.script == workspace.answer_script(2)
    assert config.server_log("77") == workspace.answer_logs / f"answer-batch-2_77_{PLAN_ID}.server.log"


def test_its_record_names_no_judge(tmp_path: Path) -> None:
    _, config = batch_of(tmp_path, "a")
    job = AnswerJob(config, tmp_path / "s.sh", lambda _: None)
    assert job.log.data["kind"] == "generate"
    assert "judge" not in job.log.data
    assert (job.log.data["gpus"], job.log.data["time_limit"]) == (0, 9 * 3600)


def test_a_batch_of_another_version_says_which_command_writes_it_anew(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as told:
        read_job_config(tmp_path, tmp_path / "x.yaml", "", "0.0.0", ANSWERING)
    assert "flock-hpc generate" in str(told.value)


@pytest.mark.parametrize(("end", "own", "words"), [
    (LEFT, RUNNING, "100 answers are left"),
    (LEFT, OwnJob(state="RUNNING", requeue=False), "100 answers are left"),
])
def test_an_ending_speaks_of_answers(end: object, own: OwnJob, words: str) -> None:
    step = decide(end, own, most=21, local=False, words=ANSWERING)  # type: ignore[arg-type]
    assert words in step.why
    assert "game" not in step.why
    assert never_played(ANSWERING) == (
        "the time limit was over before an answer could be generated\n  -> raise slurm.time above what loading the "
        "model takes, then run 'flock-hpc generate --submit'")


def test_a_successor_runs_the_batchs_own_script_under_its_own_name(tmp_path: Path,
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    sbatch = tools / "sbatch"
    sbatch.write_text(f"#!{sys.executable}\nimport sys\nopen({str(tmp_path / 'told')!r}, 'w').write(sys.argv[-1])\n"
                      "print(4242)\n")
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    workspace, config = batch_of(tmp_path / "w", "a")
    log = RunLog(workspace.runs, config.plan, config.batch, kind="generate")
    log.update()
    script = workspace.answer_script(2)
    script.parent.mkdir(parents=True)
    script.write_text("#!/bin/bash\n#SBATCH --job-name=answer-batch-2-abcdef\n")
    (workspace.runs / "other.json").write_text(json.dumps({"plan": PLAN_ID, "batch": 2, "kind": "judge"}))
    go_on = GoOn(config, lambda _: None, {"SLURM_JOB_ID": "7"})
    end = go_on.end_of(NODE_FAULT, 5, 3)
    assert end.starts == 1, "a judging batch of this number is another batch"
    step = go_on.finish(log, end, RUNNING)
    assert (step.kind, step.job) == ("successor", "4242")
    assert (tmp_path / "told").read_text() == str(script)
    (written,) = SubmissionBook(workspace.submissions).all()
    assert written.name.startswith("answer-batch-2-")
    assert step.why.startswith("5 answers are left")


def test_the_servers_of_a_batch_have_the_numbers_of_its_script(tmp_path: Path) -> None:
    lora = {"base": "/b"}
    _, config = batch_of(tmp_path, "a", "x", "c", "y", models={"x": lora, "y": lora})
    job = AnswerJob(config, tmp_path / "s.sh", lambda _: None)
    assert asyncio.run(job.prepare()) == 8
    assert [(number, group.models, group.served) for number, group in job.groups()] == [
        (1, ("a",), "a"), (2, ("x", "y"), "base-b"), (3, ("c",), "c")]
    job.items["c"] = []
    job.items["x"] = []
    assert [(number, group.models) for number, group in job.groups()] == [(1, ("a",)), (2, ("x", "y"))]
    group = server_group([job.candidates["x"], job.candidates["y"]], ["x", "y"])
    assert [item.uid for item in job.in_order(group)] == ["q0", "q1"]
    for failed in job.held.close():
        raise failed


def test_adapters_are_asked_question_by_question(tmp_path: Path) -> None:
    _, config = batch_of(tmp_path, "x")
    job = AnswerJob(config, tmp_path / "s.sh", lambda _: None)
    job.questions = make_questions(2)
    members = [Candidate(name, None, Path("/b"), weights=REHEARSAL) for name in ("x", "y")]
    job.items = {one.model: [due_of(one.model, question, REHEARSAL) for question in job.questions] for one in members}
    assert [(item.uid, item.model) for item in job.in_order(server_group(members, ["x", "y"]))] == [
        ("q0", "x"), ("q0", "y"), ("q1", "x"), ("q1", "y")]


def test_a_model_whose_server_failed_is_in_the_record(tmp_path: Path) -> None:
    _, config = batch_of(tmp_path, "a", "b")
    job = AnswerJob(config, tmp_path / "s.sh", lambda _: None)
    asyncio.run(job.prepare())
    error = ServerError("it died")
    error.hopeless = True
    job.failures.append((server_group([job.candidates["a"]], ["a"]), error))
    job._note_failures()
    assert (job.log.data["hopeless"], "a: it died" in job.log.data["error"]) == (False, True), "b is still due"
    job.failures.append((server_group([job.candidates["b"]], ["b"]), error))
    job._note_failures()
    assert job.log.data["hopeless"] is True
    job.failures[0] = (job.failures[0][0], ServerError("killed by somebody"))
    job._note_failures()
    assert job.log.data["hopeless"] is False
    job.held.close()


def test_advice_on_a_models_server_names_the_settings_of_generation() -> None:
    judge = Launch(["x"], "m", "uds", Path("log"))
    model = Launch(["x"], "m", "uds", Path("log"), who="model", settings="generate")
    for cause in (causes.OUT_OF_MEMORY, causes.CONTEXT, causes.ARGUMENTS, causes.CUDA, causes.PORT):
        assert judge.advice(cause.todo) == cause.todo
        assert "judge" not in model.advice(cause.todo)
    assert "generate.server.max_model_len" in model.advice(causes.CONTEXT.todo)


def test_the_array_runs_the_answers_scripts(tmp_path: Path) -> None:
    workspace, _ = batch_of(tmp_path, "a")
    plan = Plan(PLAN_ID, "abcdef", "b", (Batch(2, ("a",), 5),), kind="generate")
    text = answer_array_script(workspace, plan, 1, 1, ["1"], 3)
    assert "#SBATCH --job-name=answer-array-abcdef" in text
    assert "#SBATCH --array=1%3" in text
    assert "run_arena_hard_answers_batch_\"$batch\".sh" in text
    assert f"answer-batch-%a_%A_%a_{PLAN_ID}.out" in text
    script = answer_script(workspace, plan, plan.batches[0], "", "python3")
    assert "#SBATCH --time=09:00:00" in script
    assert "--gres" not in script, "a rehearsal needs no GPU"


def test_no_server_is_started_that_would_be_ready_too_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    _, config = batch_of(tmp_path, "a", "b")
    job = AnswerJob(config, tmp_path / "s.sh", said.append)

    async def attempt(number: int, _: object) -> int:
        server = JudgeServer(Launch(["x"], "m", "uds", tmp_path / "log"), said.append)
        server.loads.append(600.0)
        job.servers.append(server)
        return number - 1

    async def both() -> int:
        await job.prepare()
        return await job.work()

    monkeypatch.setattr(job, "_attempt", attempt)
    monkeypatch.setattr(job.time, "left", lambda: 700.0)
    monkeypatch.setattr(job.time, "lead", lambda: 120.0)
    assert asyncio.run(both()) == STOPPED
    assert (len(job.servers), job.stopped_by) == (1, TIME_LIMIT)
    job.held.close()


def test_the_script_of_a_batch() -> None:
    workspace = make_workspace("/campaign", generate={"kind": "rehearsal", "models": {"x": {"base": "/b"}}},
                               environment={"A": "b c"})
    plan = Plan(PLAN_ID, "abcdef", "b", (Batch(1, ("m", "x"), 5),), kind="generate")
    check_golden("answer_batch.sh", answer_script(workspace, plan, plan.batches[0], "config", "/venv/bin/python"))
    check_golden("answer_array.sh", answer_array_script(workspace, plan, 1, 0, ["1-4"], 2))


def test_a_real_judge_leaves_a_model_out_whose_answers_were_rehearsed(tmp_path: Path) -> None:
    workspace, _ = batch_of(tmp_path, "a")
    config = JobConfig(workspace, PLAN_ID, 1, ("a", "b"), None, "t", tmp_path / "c.yaml")
    rehearsed = {"uid": "q0", "messages": [{"role": "assistant", "content": {"answer": "x"}}],
                 "flock_hpc": {"rehearsal": True}}
    write_lines(workspace.answer_file("a"), [rehearsed])
    job = BatchJob(config, tmp_path / "s.sh", lambda _: None)
    job.match = make_match(make_questions(3))
    assert job._ledger("a") == "1 of its answers are a rehearsal's and mean nothing"
    assert job._ledger("b") == "no answers"
    assert (job.log.data["kind"], job.log.data["judge"]) == ("judge", "real")
