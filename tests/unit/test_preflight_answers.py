"""FH113: answers of a rehearsal, which only a rehearsal judge takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from automate.arena.answering.candidates import candidate_of
from automate.arena.answering.recorded import due_of
from automate.arena.benchmark import read_questions
from automate.arena.preflight.findings import Level
from automate.workspace import Workspace
from tests.unit.support import write_lines
from tests.unit.test_preflight import GOOD, OTHER, UIDS, answer, campaign, look, of, only

REAL = {"judge__kind": "openai", "judge__name": "real", "judge__base_url": "http://127.0.0.1:1/v1"}


def rehearse(workspace: Workspace, model: str, count: int) -> None:
    """Let the first answers of a model be a rehearsal's."""
    own = {"flock_hpc": {"rehearsal": True}}
    write_lines(workspace.answer_file(model), [{**answer(uid, model=model), **(own if number < count else {})}
                                               for number, uid in enumerate(UIDS)])


def test_a_rehearsal_judge_takes_rehearsed_answers(tmp_path: Path) -> None:
    workspace = campaign(tmp_path)
    rehearse(workspace, GOOD, 2)
    report = look(workspace)
    assert only(report, "FH113", Level.NOTE).what.startswith("2 of its answers are a rehearsal's")
    assert report.ready == (GOOD, OTHER)


def test_a_real_judge_does_not(tmp_path: Path) -> None:
    workspace = campaign(tmp_path, **REAL)
    rehearse(workspace, GOOD, 1)
    report = look(workspace)
    assert only(report, "FH113", Level.ERROR).model == GOOD
    assert (report.ready, report.blocked) == ((OTHER,), (GOOD,))


def test_a_rehearsed_baseline_keeps_all_models_from_a_real_judge(tmp_path: Path) -> None:
    workspace = campaign(tmp_path, **REAL)
    rehearse(workspace, "base", 6)
    assert only(look(workspace), "FH113", Level.ERROR) in look(workspace).fatal


@pytest.mark.parametrize("last", [True, False])
def test_the_last_answer_to_a_question_counts(tmp_path: Path, last: bool) -> None:
    workspace = campaign(tmp_path)
    rehearse(workspace, GOOD, 0)
    rows = [answer(UIDS[0]), {**answer(UIDS[0]), "flock_hpc": {"rehearsal": True}}]
    lines = workspace.answer_file(GOOD).read_bytes()
    write_lines(workspace.answer_file(GOOD), [lines, *(rows if last else rows[::-1])])
    assert len(of(look(workspace), "FH113")) == last


def ask_in_vain(workspace: Workspace, model: str, uid: str, times: int) -> None:
    """Let the journal say that a model was asked a question so often, and that it was too long."""
    question = next(q for q in read_questions(workspace.questions, workspace.settings.bench) if q.uid == uid)
    due = due_of(model, question, candidate_of(workspace, model)[0].weights)
    record = {"key": due.key, "uid": uid, "outcome": "too_long", "prompt_sha": due.prompt_sha}
    write_lines(workspace.answer_journal(model) / "a.jsonl", [record] * times)


@pytest.mark.parametrize("times", [1, 2])
def test_a_question_that_was_given_up_does_not_keep_its_model_back(tmp_path: Path, times: int) -> None:
    workspace = campaign(tmp_path)
    write_lines(workspace.answer_file(GOOD), [answer(uid, model=GOOD) for uid in UIDS[1:]])
    ask_in_vain(workspace, GOOD, UIDS[0], times)
    report = look(workspace)
    if times < workspace.settings.limits.attempts:
        assert (report.ready, report.blocked) == ((OTHER,), (GOOD,))
    else:
        [warned] = [finding for finding in of(report, "FH104") if finding.level is Level.WARNING]
        assert warned.what.startswith("1 of 6 questions were asked of it in vain (1 too_long)")
        assert report.ready == (GOOD, OTHER)


def test_a_baseline_that_gave_a_question_up_keeps_nobody_back(tmp_path: Path) -> None:
    workspace = campaign(tmp_path)
    write_lines(workspace.answer_file("base"), [answer(uid, model="base") for uid in UIDS[1:]])
    assert only(look(workspace), "FH201", Level.ERROR) in look(workspace).fatal
    ask_in_vain(workspace, "base", UIDS[0], 2)
    assert "for every model" in only(look(workspace), "FH201", Level.WARNING).what
    assert look(workspace).ready == (GOOD, OTHER)
