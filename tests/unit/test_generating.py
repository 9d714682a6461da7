"""Plans of answers: apart from those of games in numbers, files and models, together in claims, room and queue."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from automate.arena.answering.candidates import Candidate, Problem
from automate.arena.answering.due import AnswerStatus
from automate.arena.answering.recorded import prompt_sha
from automate.arena.batches import Batch
from automate.campaign import answer_counts
from automate.campaign.answer_counts import AnswerCounts
from automate.campaign.budget import gpu_hours
from automate.campaign.follow import Follower
from automate.campaign.following import follow
from automate.campaign.generating import GenerationPrepared, prepare, spread
from automate.campaign.handing import Request
from automate.campaign.kinds import Files, under
from automate.campaign.late import LateProgress
from automate.campaign.planned import plan_anew
from automate.campaign.plans import (
    StoredPlan,
    foreign_files,
    make_plan,
    read_plans,
    remove_leftovers,
    same_judge,
    save_plan,
    superseded,
    touched,
    write_files,
)
from automate.campaign.selection import select_for_answers
from automate.campaign.state import BatchView, CampaignState, log_files
from automate.campaign.waiting import held, never_submitted
from automate.cluster.local.schedule import Node, schedule
from automate.cluster.queue import JobState, JobStatus
from automate.cluster.slurm import dependency
from automate.cluster.submit import SubmissionBook, new_submission
from automate.errors import DataError
from automate.workspace import Workspace
from tests.unit.support import make_prompts, make_workspace, write_lines
from tests.unit.test_handing import REQUEST, FakeCluster, handed, planned, state_of

REHEARSED = {"generate": {"kind": "rehearsal"}}


def workspace_at(root: Path, *models: str, questions: int = 3, **values: Any) -> Workspace:
    """A workspace with questions, and models in its list that have no answers."""
    workspace = make_workspace(root, **{**REHEARSED, "baseline": "base", **values})
    write_lines(workspace.questions, [{"uid": f"q{n}", "category": "hard_prompt", "prompt": f"prompt {n}"}
                                      for n in range(questions)])
    workspace.models_file.write_text("".join(f"{model}\n" for model in models))
    return workspace


def answer(workspace: Workspace, model: str, count: int = 3) -> None:
    """An answer file with the first `count` answers."""
    write_lines(workspace.answer_file(model), [
        {"uid": f"q{n}", "ans_id": "x", "model": model, "messages": [
            {"role": "user", "content": f"prompt {n}"}, {"role": "assistant", "content": {"answer": "yes"}}]}
        for n in range(count)])


def answers_plan(workspace: Workspace, count: int = 2, plan_id: str = "20260101_000100", first: int = 1) -> StoredPlan:
    """A plan that generates, with one model a batch, and its files."""
    mine = under(workspace, "generate")
    stored = make_plan(mine, {f"m{n}": 3 for n in range(first, first + count)}, size=1, first=first,
                       max_array_size=1000, limit_questions=None, plan_id=plan_id, kind="generate")
    write_files(mine, stored, None, None)
    save_plan(mine, stored)
    return stored


def both(one: CampaignState, other: CampaignState, workspace: Workspace) -> CampaignState:
    return CampaignState((*one.batches, *other.batches), tuple(SubmissionBook(workspace.submissions).all()))


# --- what is kept --------------------------------------------------------------------------------------
def test_a_plan_says_its_kind_and_an_old_one_judges(tmp_path: Path) -> None:
    workspace = workspace_at(tmp_path)
    stored, judging = answers_plan(workspace), planned(workspace)
    assert [one.plan.kind for one in read_plans(workspace)] == ["judge", "generate"]
    file = workspace.plans / f"{judging.plan.id}.json"
    data = json.loads(file.read_text())
    assert data.pop("kind") == "judge"
    file.write_text(json.dumps(data))
    assert read_plans(workspace) == [judging, stored]
    file.write_text(json.dumps({**data, "kind": "dance"}))
    with pytest.raises(DataError, match="kind"):
        read_plans(workspace)


def test_names_files_and_settings_are_its_own(tmp_path: Path) -> None:
    workspace = workspace_at(tmp_path, slurm={"time": "08:00:00"},
                             generate={"kind": "rehearsal", "slurm": {"time": "00:20:00"}})
    stored, judging = answers_plan(workspace), planned(workspace)
    assert stored.plan.job_name(stored.plan.batches[0]) == f"answer-batch-1-{stored.plan.tag}"
    assert stored.plan.array_name(1) == f"answer-array-{stored.plan.tag}"
    assert judging.plan.job_name(judging.plan.batches[0]) == f"judge-batch-1-{judging.plan.tag}"
    text = Files(workspace, "generate").script(1).read_text()
    assert "--time=00:20:00" in text and f"answer-batch-1_%j_{stored.plan.id}.out" in text
    assert "--time=08:00:00" in workspace.batch_script(1).read_text()
    assert stored.settings["slurm"]["time"] == "00:20:00"  # so that budgets and refill jobs know it
    assert under(under(workspace, "generate"), "generate") == under(workspace, "generate")


def test_logs_are_found_by_kind(tmp_path: Path) -> None:
    workspace = workspace_at(tmp_path)
    stored, judging = answers_plan(workspace, plan_id="20260101_000000"), planned(workspace)
    for folder, word in ((workspace.answer_logs, "answer"), (workspace.logs, "judge")):
        (folder / f"{word}-batch-1_7_20260101_000000.out").write_text("")
    for plan, folder in ((stored, workspace.answer_logs), (judging, workspace.logs)):
        view = BatchView(plan, plan.plan.batches[0], "7", None, None, 1)
        assert [path.parent for path in log_files(workspace, view)] == [folder]


# --- the two kinds side by side ------------------------------------------------------------------------
def test_a_plan_of_the_other_kind_supersedes_nothing(tmp_path: Path) -> None:
    workspace = workspace_at(tmp_path)
    judging, stored = planned(workspace), answers_plan(workspace, 5)
    plans, first = read_plans(workspace), judging.plan.batches[0]
    assert superseded(judging, first, plans, [stored.plan.id]) is None
    assert touched(judging, first, plans, [stored.plan.id]) is None
    assert not same_judge(judging, stored) and not same_judge(stored, workspace)
    other = workspace_at(tmp_path / "other", baseline="another", judge={"name": "another"})
    assert same_judge(stored, workspace, "generate") and same_judge(stored, other, "generate")
    assert not same_judge(stored, workspace_at(tmp_path / "bench", bench="another"), "generate")
    newer = answers_plan(workspace, 5, "20260101_000200")
    plans = read_plans(workspace)
    assert superseded(stored, stored.plan.batches[0], plans, [newer.plan.id]) == newer
    assert touched(stored, stored.plan.batches[0], plans, [newer.plan.id]) == newer


def test_numbers_and_files_in_use_are_counted_by_kind(tmp_path: Path) -> None:
    workspace = workspace_at(tmp_path)
    judging, stored = planned(workspace, 5), answers_plan(workspace, 2)
    state = both(state_of(workspace, judging, b1=JobState.RUNNING), state_of(workspace, stored), workspace)
    assert never_submitted(workspace, state, stored, read_plans(workspace)) == [1, 2]
    assert state.busy_models.keys() == {"m1"} and not state.busy("generate")
    gone = remove_leftovers(workspace, read_plans(workspace), set(), set(), "generate")
    assert gone == [1, 2] and not workspace.answer_script(1).exists() and workspace.batch_script(1).exists()
    assert not workspace.answer_array_script().exists() and workspace.array_script().exists()


def test_judging_is_numbered_from_one_beside_answers_in_work(tmp_path: Path) -> None:
    workspace = workspace_at(tmp_path)
    stored = answers_plan(workspace, 2)
    state = state_of(workspace, stored, b1=JobState.RUNNING, b2=JobState.PENDING)
    made = plan_anew(workspace, FakeCluster(), REQUEST, {"m1": 6}, state, [], prompts=make_prompts())
    assert [batch.number for batch in made.plan.batches] == [1] and workspace.answer_script(1).exists()


def test_what_waits_for_room_is_held_against_plans_of_its_kind(tmp_path: Path) -> None:
    workspace = workspace_at(tmp_path)
    stored = answers_plan(workspace, 2)
    workspace.submissions.mkdir(parents=True, exist_ok=True)
    workspace.unsent(stored.plan.id).write_text("{}")
    state = state_of(workspace, stored)
    assert [view.batch.number for view in held(workspace, state, [stored], ["m1", "m2"], "generate")] == []
    assert [view.batch.number for view in held(workspace, state, [stored], ["m1", "m2"])] == [1, 2]


# --- handing in ----------------------------------------------------------------------------------------
def test_answers_are_handed_in_from_their_own_scripts(tmp_path: Path) -> None:
    workspace, cluster = workspace_at(tmp_path), FakeCluster()
    stored = answers_plan(workspace)
    handed(workspace, stored, cluster)
    assert cluster.took == [(stored.plan.array_name(1), [1, 2], None, None)]
    assert SubmissionBook(workspace.submissions).all()[0].script == str(workspace.answer_array_script())


def test_room_is_counted_with_what_jobs_of_answers_ask_for(tmp_path: Path) -> None:
    workspace = workspace_at(tmp_path, slurm={"time": "10:00:00", "gpus": 4}, judge={"kind": "vllm", "name": "j"},
                             limits={"max_gpu_hours": 2},
                             generate={"kind": "vllm", "path": "/x/{model}", "slurm": {"time": "01:00:00", "gpus": 1}})
    done = handed(workspace, answers_plan(workspace, 3), FakeCluster())
    assert [sorted(one.tasks.values()) for one in done.accepted] == [[1, 2]] and done.waiting == [3]


def test_files_are_written_anew_by_kind_where_the_workspace_was_moved(tmp_path: Path) -> None:
    workspace = workspace_at(tmp_path / "new")
    old = replace(under(workspace, "generate"), root=tmp_path / "old")
    stored = make_plan(old, {"m1": 3}, size=1, first=1, max_array_size=9, limit_questions=None,
                       plan_id="20260101_000000", kind="generate")
    save_plan(workspace, stored)
    (tmp_path / "old").mkdir()
    stored = replace(stored, root=str(tmp_path / "old"))
    write_files(replace(old, root=tmp_path / "old"), stored, None, None)
    assert foreign_files(workspace, stored, [1])
    done = handed(workspace, stored, FakeCluster())
    assert "was moved" in done.notes[0]
    assert str(tmp_path / "old") not in workspace.answer_script(1).read_text()
    assert not workspace.batch_script(1).exists()


@pytest.mark.parametrize(("given", "limit", "expected"), [
    ({1: "7,8", 2: "8"}, None, ["7,8", "8", None]),
    ({1: "7?8", 2: "8", 3: "9"}, None, ["7?8", "8", "9"]),
    ({1: "7", 2: "8", 3: "7?9"}, 2, ["7", "8", "7?9"]),
    ({1: "7", 2: "8", 3: "9"}, 2, ["7", "8", "9,101"]),
])
def test_batches_wait_for_the_jobs_that_they_need(tmp_path: Path, given: dict[int, str], limit: int | None,
                                                  expected: list[str | None]) -> None:
    workspace, cluster = workspace_at(tmp_path), FakeCluster()
    handed(workspace, planned(workspace, 3), cluster, Request((), max_parallel=limit), after=given)
    assert [(took[1], took[3]) for took in cluster.took] == [([], after) for after in expected]


def test_a_dependency_is_on_all_or_on_any() -> None:
    assert dependency("7") == "--dependency=afterany:7"
    assert dependency("7,8_1") == "--dependency=afterany:7,afterany:8_1"
    assert dependency("7?8") == "--dependency=afterany:7?afterany:8"


@pytest.mark.parametrize(("every", "running", "starts"), [
    (True, ("local-1", "local-2"), False), (True, ("local-2",), False), (True, (), True),
    (False, ("local-1", "local-2"), False), (False, ("local-2",), True)])
def test_this_machine_waits_for_all_or_for_any(every: bool, running: tuple[str, ...], starts: bool) -> None:
    waiting = {"job": "local-3", "number": 3, "index": None, "created": 0.0, "after": ["local-1", "local-2"],
               "after_all": every}
    others = [{"job": job, "number": int(job[-1]), "host": "n", "index": None} for job in running]
    found, reasons = schedule([waiting], others, [Node("n")], now=10.0)
    assert bool(found) == starts and reasons == ({} if starts else {"local-3": "Dependency"})


def test_answers_take_their_own_share_of_the_gpu_hours(tmp_path: Path) -> None:
    slurm = {"time": "01:00:00", "gpus": 2}
    workspace = workspace_at(tmp_path, slurm=slurm, judge={"kind": "vllm", "name": "j"},
                             generate={"kind": "vllm", "path": "/x/{model}", "slurm": {"time": "03:00:00", "gpus": 1}})
    stored = answers_plan(workspace, 1)
    assert gpu_hours(workspace, state_of(workspace, stored, b1=JobState.PENDING)).reserved == pytest.approx(3.0)
    other = under(workspace_at(tmp_path / "b", judge={"name": "j"}), "generate")
    rehearsed = replace(stored, settings=other.settings.model_dump())
    assert gpu_hours(workspace, state_of(workspace, rehearsed, b1=JobState.PENDING)).reserved == 0.0


# --- planning ------------------------------------------------------------------------------------------
def test_models_that_share_a_server_stay_together() -> None:
    due = dict.fromkeys("abcdefg", 10)
    found = spread([("a", "b", "c"), ("d",), ("e", "f"), ("g",)], due, 4, 5)
    assert [batch.number for batch in found] == [5, 6]
    assert sorted(len(batch.models) for batch in found) == [3, 4]
    assert any({"a", "b", "c"} <= set(batch.models) for batch in found)
    assert any({"e", "f"} <= set(batch.models) for batch in found)
    assert sum(batch.games for batch in found) == 70
    assert spread([tuple("abcde")], due, 2) == (Batch(1, ("a", "b"), 20), Batch(2, ("c", "d"), 20),
                                                 Batch(3, ("e",), 10))
    assert spread([], due, 3) == ()


def prepared(workspace: Workspace, *models: str, **options: Any) -> GenerationPrepared:
    return prepare(workspace, FakeCluster(), Request(models), **options)


def test_only_what_lacks_answers_is_planned(tmp_path: Path) -> None:
    workspace = workspace_at(tmp_path)
    answer(workspace, "done")
    answer(workspace, "half", 1)
    found = prepared(workspace, "done", "half", "none")
    assert found.complete == ["done"] and found.due == {"half": 2, "none": 3}
    assert found.stored is not None and found.stored.plan.batches == (Batch(1, ("half", "none"), 5),)
    before = workspace.answer_script(1).read_bytes()
    again = prepared(workspace, "done", "half", "none")
    assert again.stored == found.stored and workspace.answer_script(1).read_bytes() == before
    assert len(read_plans(workspace)) == 1
    assert prepared(workspace, "done").stored is None


def test_a_model_that_cannot_be_served_stops_the_plan_unless_it_is_skipped(tmp_path: Path) -> None:
    workspace = workspace_at(tmp_path, generate={"kind": "vllm", "path": "/nowhere/{model}"})
    answer(workspace, "done")
    found = prepared(workspace, "a", "b", "done")
    assert [problem.model for problem in found.problems] == ["a", "b"] and found.stored is None
    assert not workspace.plans.exists() and found.complete == ["done"]  # whose checkpoint may be gone
    assert prepared(workspace, "a", "b", skip_problems=True).stored is None


def test_one_bad_model_keeps_the_others_from_being_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace, bad = workspace_at(tmp_path), Problem("b", "/x", "no such folder", "make it")
    monkeypatch.setattr("automate.campaign.generating.candidates", lambda *_: ([Candidate("a", None)], [bad]))
    assert prepared(workspace, "a", "b").stored is None and not workspace.answer_scripts.exists()
    found = prepared(workspace, "a", "b", skip_problems=True)
    assert found.stored is not None and found.stored.plan.batches == (Batch(1, ("a",), 3),)


def test_models_in_work_are_left_alone_and_their_numbers_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = workspace_at(tmp_path)
    stored = answers_plan(workspace, 2)
    state = state_of(workspace, stored, b1=JobState.RUNNING, b2=JobState.COMPLETED)
    monkeypatch.setattr("automate.campaign.generating.look", lambda _: state)
    found = prepared(workspace, "m1", "m2")
    assert list(found.busy) == ["m1"] and found.stored is not None
    assert found.stored.plan.batches == (Batch(2, ("m2",), 3),)


def test_the_baseline_comes_first_where_a_whole_list_is_meant(tmp_path: Path) -> None:
    workspace = workspace_at(tmp_path, "one", "two")
    assert select_for_answers(workspace, all_models=True).models == ("base", "one", "two")
    assert select_for_answers(workspace, models=("two", "base")).models == ("two", "base")
    assert select_for_answers(workspace, models=("two",)).models == ("two",)


# --- counting and following ----------------------------------------------------------------------------
def test_files_are_read_again_only_where_they_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace, read = workspace_at(tmp_path), list[str]()
    answer(workspace, "a", 1)

    def count(_: Workspace, questions: list[object], model: str, limit: int | None) -> AnswerStatus:
        read.append(model)
        return AnswerStatus(model, len(questions), 1, 2)

    monkeypatch.setattr("automate.arena.answering.due.answer_status", count)
    counts = AnswerCounts(workspace, ["a", "b"])
    assert read == ["a", "b"] and not counts.refresh() and read == ["a", "b"]
    answer(workspace, "a", 2)
    assert counts.refresh() and read == ["a", "b", "a"]
    write_lines(workspace.answer_journal("b") / "r.jsonl", [{"uid": "q1"}])
    assert counts.refresh() and read == ["a", "b", "a", "b"]
    workspace_at(tmp_path, questions=5)
    assert counts.refresh() and read[4:] == ["a", "b"] and (counts.wanted, counts.questions) == (10, 5)
    assert answer_counts.mark_of(workspace, "nobody") == ()


def test_answers_that_cannot_be_read_are_due_and_told(tmp_path: Path) -> None:
    workspace = workspace_at(tmp_path)
    workspace.answer_file("a").mkdir(parents=True)
    answer(workspace, "b")
    counts = AnswerCounts(workspace, ["a", "b"])
    assert counts.due == {"a": 3, "b": 0} or counts.problems


def test_games_that_cannot_be_counted_yet_are_counted_later(tmp_path: Path) -> None:
    workspace = workspace_at(tmp_path, "one")
    answer(workspace, "one")
    late = LateProgress(workspace, ["one"])
    assert (late.wanted, late.due, late.models) == (0, {}, {}) and "no answers of the baseline" in late.why
    answer(workspace, "base")
    assert late.refresh() and (late.wanted, late.due, late.why) == (6, {"one": 6}, "")


@dataclass
class Followed(Follower):
    """A follower that hands nothing in, and remembers what it would."""

    said: list[str] = field(default_factory=list)

    def _again(self, view: BatchView) -> bool:
        self.said.append(f"again {view.kind} {view.batch.number}")
        return True

    def _more(self, state: CampaignState, planned: list[BatchView]) -> bool:
        self.said += [f"more {view.kind} {view.batch.number}" for view in planned]
        return True


@pytest.mark.parametrize("lacking", ["m1", "base"])
@pytest.mark.parametrize(("answers", "games", "expected"), [
    (JobState.RUNNING, None, []), (JobState.FAILED, None, ["again generate 1"]),
    (None, None, ["more generate 1"]), (None, JobState.FAILED, ["more generate 1"])])
def test_games_wait_until_their_answers_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                 answers: JobState | None, games: JobState | None,
                                                 expected: list[str], lacking: str) -> None:
    workspace = workspace_at(tmp_path, "m1")
    answer(workspace, "base" if lacking == "m1" else "m1")
    answer(workspace, lacking, 1)
    judging, stored = planned(workspace, 1), answers_plan(workspace, 1)
    batch = replace(stored.plan.batches[0], models=(lacking,))
    stored = replace(stored, plan=replace(stored.plan, batches=(batch,)))
    state = both(state_of(workspace, judging, **({"b1": games} if games else {})),
                 state_of(workspace, stored, **({"b1": answers} if answers else {})), workspace)
    monkeypatch.setattr("automate.campaign.follow.look", lambda _: state)
    follower = Followed(workspace, FakeCluster(), LateProgress(workspace, ["m1"]),
                        frozenset({judging.plan.id, stored.plan.id}), REQUEST, AnswerCounts(workspace, [lacking]))
    lines = list[str]()
    follower.say = lines.append
    for _ in range(2):
        follower.said.clear()
        assert follower.step()[1] is False and follower.said == expected
    assert sum("waits for answers" in line for line in lines) == 1
    answer(workspace, lacking)
    follower.said.clear()
    over = replace(state, batches=tuple(
        replace(view, status=JobStatus("1", JobState.COMPLETED, "squeue")) if view.kind == "generate" else view
        for view in state.batches))
    monkeypatch.setattr("automate.campaign.follow.look", lambda _: over)
    follower.step()
    assert follower.said == ["again judge 1" if games else "more judge 1"]


@pytest.mark.parametrize("newer_models", [("m1",), ("m2",)])
def test_a_dead_batch_that_a_newer_plan_took_over_is_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                                newer_models: tuple[str, ...]) -> None:
    workspace = workspace_at(tmp_path, "m1", "m2")
    for model in ("base", "m1", "m2"):
        answer(workspace, model)
    old, new = planned(workspace, 1), planned(workspace, 1, "20260101_000100", first=int(newer_models[0][1:]))
    book = SubmissionBook(workspace.submissions)
    book.save(replace(new_submission(new.plan.id, "n", Path("s"), "local", {0: 1}, array=False, parallel=None),
                      job="local-7"))
    state = both(state_of(workspace, old, b1=JobState.FAILED), state_of(workspace, new, b1=JobState.RUNNING,
                                                                       b2=JobState.RUNNING), workspace)
    monkeypatch.setattr("automate.campaign.follow.look", lambda _: state)
    follower = Followed(workspace, FakeCluster(), LateProgress(workspace, ["m1", "m2"]), frozenset({old.plan.id}),
                        REQUEST)
    lines = list[str]()
    follower.say = lines.append
    taken = newer_models == ("m1",)
    for _ in range(2):
        assert follower.step()[1] is False
    assert follower.said == ([] if taken else ["again judge 1"] * 2)
    assert (new.plan.id in follower.plans) is taken
    assert sum("which is followed too" in line for line in lines) == int(taken)


def test_a_small_job_hands_in_under_the_settings_of_the_kind(tmp_path: Path) -> None:
    workspace = workspace_at(tmp_path, limits={"max_submitted": 1})
    stored, cluster = answers_plan(workspace), FakeCluster()
    done = handed(workspace, stored, cluster, by="refill")
    assert done.waiting == [2] and workspace.unsent(stored.plan.id).exists()
    one = new_submission(stored.plan.id, "n", Path("s"), "local", {1: 1}, array=True, parallel=None)
    assert one.job_of(1) is None


def test_counts_are_kept_for_the_next_command_and_never_trusted_after_a_change(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = workspace_at(tmp_path)
    answer(workspace, "a", 1)
    first = AnswerCounts(workspace, ["a"])
    kept = workspace.answer_counts_file("a")
    with monkeypatch.context() as patch:
        patch.setattr("automate.arena.answering.due.answer_status", None)  # nobody reads the answers again
        assert AnswerCounts(workspace, ["a"]).statuses == first.statuses
    for broken in ("{}", "not JSON", '{"key": 1, "status": []}'):
        kept.write_text(broken)
        assert AnswerCounts(workspace, ["a"]).due == {"a": 2}
    answer(workspace, "a", 2)
    assert AnswerCounts(workspace, ["a"]).due == {"a": 1}
    assert AnswerCounts(workspace, ["a"], 1).due == {"a": 0}  # of the first question only
    workspace_at(tmp_path, questions=4)
    assert AnswerCounts(workspace, ["a"]).due == {"a": 2}
    changed = replace(workspace, settings=workspace.settings.model_copy(
        update={"limits": workspace.settings.limits.model_copy(update={"attempts": 7})}))
    with monkeypatch.context() as patch:
        patch.setattr("automate.arena.answering.due.answer_status", lambda *_: AnswerStatus("a", 4, 0, 4))
        assert AnswerCounts(changed, ["a"]).due == {"a": 4}


@pytest.mark.parametrize(("models", "answered", "whole"), [
    ((), False, True), (("m1",), False, False), (("m1",), True, False), ((), True, True)])
def test_following_ends_well_only_where_everything_could_be_counted(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, models: tuple[str, ...], answered: bool, whole: bool) -> None:
    workspace, out = workspace_at(tmp_path, "m1"), io.StringIO()
    answer(workspace, "m1")
    if answered:
        answer(workspace, "base")
    monkeypatch.setattr("automate.campaign.follow.look", lambda _: CampaignState((), ()))
    follower = Follower(workspace, FakeCluster(), LateProgress(workspace, models), frozenset(), REQUEST,
                        AnswerCounts(workspace, ["m1"]))
    assert follow(follower, Console(file=out, width=200), pause=0.0) is whole
    assert "3 of 3 answers are finished" in out.getvalue()
    assert ("games can't be counted" in out.getvalue()) == (bool(models) and not answered)


def test_an_answer_that_only_the_journal_has_is_written_into_the_file(tmp_path: Path) -> None:
    workspace = workspace_at(tmp_path)
    answer(workspace, "a", 2)
    write_lines(workspace.answer_journal("a") / "r.jsonl", [{
        "source": "engine", "key": "k", "model": "a", "uid": "q2", "category": "hard_prompt", "outcome": "answer",
        "prompt_sha": prompt_sha("prompt 2"), "answer": "late", "weights": "rehearsal", "time": 1.0}])
    found = prepared(workspace, "a")
    assert found.stored is None and found.complete == ["a"] and any("was written anew" in note for note in found.notes)
    rows = [json.loads(line) for line in workspace.answer_file("a").read_text().splitlines()]
    assert [row["uid"] for row in rows] == ["q0", "q1", "q2"]
    assert not prepared(workspace, "a").notes


@pytest.mark.parametrize(("command", "named"), [("", "flock-hpc generate --submit"), ("x --submit", "x --submit")])
def test_who_gives_up_names_the_command_that_the_user_typed(tmp_path: Path, command: str, named: str) -> None:
    workspace = workspace_at(tmp_path, "m1")
    stored = answers_plan(workspace)
    view = BatchView(stored, stored.plan.batches[0], "local-1", JobStatus("local-1", JobState.FAILED, "x"), None, 99)
    follower = Follower(workspace, FakeCluster(), None, frozenset({stored.plan.id}), REQUEST, command=command)
    lines = list[str]()
    follower.say = lines.append
    assert follower._again(view) is False
    assert lines[0].endswith(f"then run '{named}' again")
