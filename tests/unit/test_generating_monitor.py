"""The monitor of a campaign that makes answers: its models, batches and failures, and how little it reads again."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from automate.arena.benchmark import Answers
from automate.campaign.logs import newest, show
from automate.campaign.monitoring.failures import failure
from automate.campaign.monitoring.monitor import Watch
from automate.campaign.monitoring.vitals import rates, vitals
from automate.campaign.state import BatchView
from automate.cluster.local.executor import LocalQueue
from automate.cluster.queue import JobState, JobStatus
from automate.cluster.submit import SubmissionBook, new_submission
from automate.errors import DataError
from automate.journal import write_json
from automate.workspace import Workspace
from tests.unit.test_generating import answer, answers_plan, workspace_at
from tests.unit.test_handing import planned


def submitted(workspace: Workspace, job: str = "local-1", state: str = "FAILED") -> None:
    """The first generation batch, handed in and ended."""
    stored = answers_plan(workspace)
    one = new_submission(stored.plan.id, "n", workspace.answer_script(1), "local", {0: 1}, array=False, parallel=None)
    SubmissionBook(workspace.submissions).save(replace(one, job=job))
    LocalQueue(workspace.local_queue).save({
        "job": job, "number": 1, "index": None, "name": stored.plan.job_name(stored.plan.batches[0]),
        "script": "s", "state": state, "created": time.time(), "exit": 1, "host": "n"})


def test_a_campaign_without_a_baseline_is_shown_and_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = workspace_at(tmp_path, "m1", "m2")
    submitted(workspace)
    answer(workspace, "m1", 1)
    watch, read = Watch(lambda: workspace), list[str]()
    first = watch.look()
    assert [(line.model, line.wanted, line.done, line.due, line.batch) for line in first.answers] == [
        ("m1", 3, 1, 2, 1), ("m2", 3, 0, 3, None)]
    assert any("no answers of the baseline 'base'" in problem for problem in first.problems)
    assert [(batch.batch, batch.kind, batch.due) for batch in first.batches] == [(1, "generate", 2), (2, "generate", 3)]
    assert first.as_json()["totals"]["answers_due"] == 5

    def load(_: Workspace, model: str) -> Answers | None:
        read.append(model)
        return None

    monkeypatch.setattr("automate.campaign.monitoring.lines.load_answers", load)
    monkeypatch.setattr("automate.arena.answering.due.read_file", None)
    assert watch.look().answers == first.answers and not read
    monkeypatch.undo()
    monkeypatch.setattr("automate.campaign.monitoring.lines.load_answers", load)
    answer(workspace, "m1", 2)
    assert watch.look().answers[0].done == 2 and read == ["m1"]
    answer(workspace, "base")
    assert not watch.look().problems and watch.look().totals["wanted"] == 4


def test_a_failed_batch_of_answers_is_told_in_its_own_words(tmp_path: Path) -> None:
    workspace = workspace_at(tmp_path, "m1")
    submitted(workspace)
    [found] = Watch(lambda: workspace).look().failures
    assert (found.work, found.batch, found.due, found.kind) == ("generate", 1, 3, "script")
    view = BatchView(answers_plan(workspace), answers_plan(workspace).plan.batches[0], "local-1",
                     JobStatus("local-1", JobState.COMPLETED, "local queue"), {"status": 3}, 1)
    told = failure(workspace, view, 3)
    assert (told.cause, told.todo) == ("ended with 3 answers due", "submit again: it asks just those")
    lost = replace(view, status=JobStatus("local-1", JobState.FAILED, "x"), run={"phase": "ended"})
    assert failure(workspace, lost, 3).todo == "see 'flock-hpc logs 1 --answers'"
    stopped = replace(view, status=JobStatus("local-1", JobState.TIMEOUT, "x"))
    assert "'flock-hpc generate --submit'" in failure(workspace, stopped, 3).todo
    assert "generate.slurm.time" in failure(workspace, stopped, 3).todo


def test_speeds_of_the_two_kinds_are_not_added_up() -> None:
    run = {"phase": "playing", "rate": 2.0, "updated": 100.0, "started": 90.0}
    found = rates([vitals(run, 101.0), vitals({**run, "kind": "generate", "rate": 30.0}, 101.0)])
    assert (found.games_per_second, found.answers_per_second) == (2.0, 30.0)


def test_logs_of_either_kind_are_shown(tmp_path: Path) -> None:
    workspace = workspace_at(tmp_path, "m1")
    submitted(workspace)
    assert newest(workspace, 1).kind == newest(workspace, 1, answers=True).kind == "generate"
    planned(workspace, 1)
    assert newest(workspace, 1).kind == "judge" and newest(workspace, 1, answers=True).kind == "generate"
    lines = list[str]()
    show(workspace, 1, lines.append, follow=False, count=3, paths_only=True, answers=True)
    assert lines[0].startswith("answers batch 1 of plan 20260101_000100: failed, job local-1")
    with pytest.raises(DataError, match="no batch 7 of answers"):
        newest(workspace, 7, answers=True)


def test_a_plan_of_a_user_who_left_its_kind_out_is_seen_by_the_monitor(tmp_path: Path) -> None:
    workspace = workspace_at(tmp_path, "m1")
    stored = planned(workspace, 1)
    write_json(workspace.plans / "20260101_000500.json", {
        "id": "20260101_000500", "tag": "abc", "baseline": "base", "batches": [], "parts": [],
        "settings": stored.settings})
    assert {batch.kind for batch in Watch(lambda: workspace).look().batches} <= {"judge"}


def test_a_mistyped_name_of_a_plan_that_nobody_handed_in_is_not_wanted(tmp_path: Path) -> None:
    workspace = workspace_at(tmp_path, "m1")
    answers_plan(workspace)
    assert [line.model for line in Watch(lambda: workspace).look().answers] == ["m1"]
    submitted(workspace)
    assert [line.model for line in Watch(lambda: workspace).look().answers] == ["m1", "m2"]
