"""Handing batches over: as many as fit, each once, under every limit; the rest waits and is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from automate.arena.running.gpu_hours import lived, may_go_on
from automate.campaign.budget import budget_room, gpu_hours
from automate.campaign.cancelling import cancel, refused_among
from automate.campaign.follow import goes_on_itself
from automate.campaign.handing import Request, Submitted, hand_in, keep_key
from automate.campaign.planned import plan_anew
from automate.campaign.plans import StoredPlan, foreign_files, make_plan, read_plans, save_plan, superseded, write_files
from automate.campaign.state import BatchView, CampaignState
from automate.campaign.waiting import held, limit_then, never_submitted
from automate.cluster.base import expand_log
from automate.cluster.commands import Said
from automate.cluster.limits import Limit, SubmitLimits
from automate.cluster.queue import JobState, JobStatus
from automate.cluster.slurm import not_cancelled
from automate.cluster.submit import Submission, SubmissionBook, new_submission
from automate.errors import SubmitError
from automate.journal import write_json
from automate.workspace import Workspace
from tests.unit.support import make_match, make_prompts, make_workspace

GPU = {"judge": {"kind": "vllm", "name": "j"}, "slurm": {"time": "01:00:00", "gpus": 2}}
REQUEST = Request(())


@dataclass
class FakeCluster:
    """Takes up to `room` tasks at once and refuses more in Slurm's words; `kind` local asks nobody for limits."""

    room: int = 1000
    words: str = "sbatch refused: QOSMaxSubmitJobPerUserLimit"
    kind: str = "local"
    took: list[tuple[str, list[int], int | None, str | None]] = field(default_factory=list)

    def submit(self, script: Path, name: str, indexes: Sequence[int], parallel: int | None,
               after: str | None = None, exclude: str | None = None) -> str:
        count = len(indexes) or 1
        if count > self.room:
            raise SubmitError(self.words)
        self.room -= count
        self.took.append((name, list(indexes), parallel, after))
        return str(100 + len(self.took))

    def find(self, name: str, since: float) -> list[str]:
        return []

    def look(self, jobs: Sequence[str], names: Sequence[str] = ()) -> dict[str, JobStatus]:
        return {}

    def cancel(self, jobs: Sequence[str]) -> list[str]:
        return []

    def check(self, script: Path) -> str | None:
        return None

    def log_path(self, pattern: str, job: str) -> Path:
        return expand_log(pattern, job)


def planned(workspace: Workspace, count: int = 5, plan_id: str = "20260101_000000", first: int = 1) -> StoredPlan:
    """A plan of batches with one model each, with its files."""
    stored = make_plan(workspace, {f"m{n}": 2 for n in range(first, first + count)}, size=1, first=first,
                       max_array_size=1000, limit_questions=None, plan_id=plan_id)
    write_files(workspace, stored, make_prompts(), None)
    save_plan(workspace, stored)
    return stored


def state_of(workspace: Workspace, stored: StoredPlan, **states: JobState) -> CampaignState:
    """The plan's batches; `b1=JobState.RUNNING` has a job, the others are planned only."""
    views = []
    for batch in stored.plan.batches:
        state = states.get(f"b{batch.number}")
        job = f"9_{batch.number}" if state else None
        elapsed = "15:00" if state is JobState.RUNNING else "0:00"
        status = JobStatus(job, state, "squeue", elapsed=elapsed) if job and state else None
        views.append(BatchView(stored, batch, job, status, None, int(job is not None)))
    return CampaignState(tuple(views), tuple(SubmissionBook(workspace.submissions).all()))


def handed(workspace: Workspace, stored: StoredPlan, cluster: FakeCluster, request: Request = REQUEST,
           state: CampaignState | None = None, **options: Any) -> Submitted:
    return hand_in(workspace, cluster, stored, request, state or state_of(workspace, stored), **options)


# --- room ---------------------------------------------------------------------------------------------
def test_all_is_handed_in_where_nothing_limits(tmp_path: Path) -> None:
    workspace, cluster = make_workspace(tmp_path), FakeCluster()
    done = handed(workspace, planned(workspace), cluster)
    assert [took[1] for took in cluster.took] == [[1, 2, 3, 4, 5]]
    assert (done.waiting, done.refused) == ([], [])


def test_the_first_that_fit_are_handed_in_and_the_rest_waits(tmp_path: Path) -> None:
    workspace, cluster = make_workspace(tmp_path, limits={"max_submitted": 3}), FakeCluster()
    stored = planned(workspace)
    done = handed(workspace, stored, cluster, state=state_of(workspace, stored, b1=JobState.RUNNING),
                  numbers=[2, 3, 4, 5])
    assert [took[1] for took in cluster.took] == [[2, 3]]
    assert done.waiting == [4, 5]
    assert done.why == "limits.max_submitted=3; 3 are in the queue"
    assert SubmissionBook(workspace.submissions).all()[-1].tasks == {2: 2, 3: 3}


def test_single_jobs_are_counted_like_tasks(tmp_path: Path) -> None:
    workspace, cluster = make_workspace(tmp_path, limits={"max_submitted": 2}), FakeCluster()
    done = handed(workspace, planned(workspace), cluster, Request((), array=False))
    assert [took[0].split("-")[2] for took in cluster.took] == ["1", "2"]
    assert done.waiting == [3, 4, 5]


@pytest.mark.parametrize(("most", "spare", "tasks"), [(3, 1, 2), (1, 1, 1), (5, 1, 5), (2, 1, 1), (3, 0, 3)])
def test_a_place_is_kept_for_the_small_job_where_one_is_needed(tmp_path: Path, most: int, spare: int,
                                                               tasks: int) -> None:
    workspace, cluster = make_workspace(tmp_path, limits={"max_submitted": most}), FakeCluster()
    handed(workspace, planned(workspace), cluster, spare=spare)
    assert len(cluster.took[0][1]) == tasks


@pytest.mark.parametrize(("room", "tasks"), [(2, 2), (1, 1), (3, 2), (0, 0)])
def test_a_limit_that_nobody_told_of_halves_the_array(tmp_path: Path, room: int, tasks: int) -> None:
    workspace, cluster = make_workspace(tmp_path), FakeCluster(room=room)
    done = handed(workspace, planned(workspace), cluster)
    assert sum(len(took[1]) for took in cluster.took) == tasks
    assert done.waiting == list(range(tasks + 1, 6))
    assert done.refused == []
    assert done.why == "sbatch said QOSMaxSubmitJobPerUserLimit"


def test_another_refusal_is_a_refusal(tmp_path: Path) -> None:
    workspace, cluster = make_workspace(tmp_path), FakeCluster(room=0, words="Invalid qos specification")
    done = handed(workspace, planned(workspace), cluster)
    assert done.waiting == []
    assert [error.what for _, error in done.refused] == ["Invalid qos specification"]


def test_a_limit_of_slurms_is_asked_from_what_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    workspace, cluster = make_workspace(tmp_path), FakeCluster(kind="slurm")
    limits = SubmitLimits((Limit("MaxSubmitJobs=2 of x", 2, user="x"),))
    done = handed(workspace, planned(workspace), cluster, limits=limits)
    assert done.waiting == []  # squeue can't be asked: sbatch's own word has to do


# --- how many at once ---------------------------------------------------------------------------------
def test_a_second_array_runs_beside_the_first_no_more_than_allowed(tmp_path: Path) -> None:
    workspace, cluster = make_workspace(tmp_path), FakeCluster()
    stored = planned(workspace)
    request = Request((), max_parallel=3)
    handed(workspace, stored, cluster, request, state_of(workspace, stored, b1=JobState.RUNNING), numbers=[2, 3])
    assert cluster.took[-1][2:] == (2, None)
    busy = state_of(workspace, stored, **{f"b{n}": JobState.RUNNING for n in (1, 2, 3)})
    handed(workspace, stored, cluster, request, busy, numbers=[4, 5])
    assert cluster.took[-1][2:] == (3, "9")


def test_a_paid_judge_with_a_cap_never_runs_twice(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path, judge={
        "kind": "openai", "name": "j", "base_url": "https://x/v1", "max_cost": 1, "price": {"input_per_million": 1}})
    stored, cluster = planned(workspace), FakeCluster()
    handed(workspace, stored, cluster, state=state_of(workspace, stored, b1=JobState.RUNNING), numbers=[2])
    assert cluster.took[-1][3] == "9"


# --- plans that are older, moved, or taken over -------------------------------------------------------
def test_files_are_written_anew_where_the_workspace_was_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = make_workspace(tmp_path / "old")
    stored = planned(old)
    (tmp_path / "old").rename(tmp_path / "new")
    workspace, cluster = replace(old, root=tmp_path / "new"), FakeCluster()
    stored = read_plans(workspace)[0]
    assert foreign_files(workspace, stored, [1])
    monkeypatch.setattr("automate.campaign.plans.load_prompts", lambda *_: make_prompts())
    done = handed(workspace, stored, cluster, numbers=[2, 3])
    assert done.notes == [f"the workspace was moved from {tmp_path}/old: the files of 2 batches were written anew"]
    assert f"{tmp_path}/old" not in workspace.batch_script(2).read_text() + workspace.array_script(1).read_text()
    assert f"{tmp_path}/old" in workspace.batch_script(4).read_text()  # not asked for: left as it was
    assert read_plans(workspace)[0].root == str(tmp_path / "new")


def test_a_plan_without_a_root_is_not_called_moved(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path)
    stored = replace(planned(workspace), root=None)
    assert not foreign_files(workspace, stored, [1, 5])
    workspace.batch_script(5).unlink()
    assert foreign_files(workspace, stored, [5])
    assert not foreign_files(workspace, stored, [1])


def test_files_of_another_plan_are_never_handed_in_as_ones_own(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path)
    stored = planned(workspace)
    planned(workspace, plan_id="20260102_000000", first=3, count=2)
    assert foreign_files(workspace, stored, [3])


def test_a_batch_is_taken_over_by_a_newer_plan_only_once_that_is_handed_in(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path)
    stored, newer = planned(workspace), planned(workspace, plan_id="20260102_000000", first=4, count=1)
    plans = read_plans(workspace)
    third, fourth = stored.plan.batches[2], stored.plan.batches[3]
    assert superseded(stored, fourth, plans, []) is None  # a dry run
    assert superseded(stored, fourth, plans, [newer.plan.id]) == newer
    assert superseded(stored, third, plans, [newer.plan.id]) is None
    book = SubmissionBook(workspace.submissions)
    book.save(replace(new_submission(newer.plan.id, "x", Path("x"), "local", {4: 4}, array=True, parallel=None),
                      job="7"))
    state = state_of(workspace, stored, b1=JobState.RUNNING)
    assert never_submitted(workspace, state, stored, plans) == [2, 3, 5]
    workspace.stopped(stored.plan.id).touch()
    assert never_submitted(workspace, state, stored, plans) == []


def newer_plan(workspace: Workspace, *models: str, first: int = 1, plan_id: str = "20260102_000000") -> StoredPlan:
    stored = make_plan(workspace, dict.fromkeys(models, 2), size=9, first=first, max_array_size=1000,
                       limit_questions=None, plan_id=plan_id)
    write_files(workspace, stored, make_prompts(), None)
    save_plan(workspace, stored)
    return stored


def accepted(workspace: Workspace, plan: str, number: int, job: str = "7", **more: Any) -> None:
    one = new_submission(plan, "x", Path("x"), "local", {number: number}, array=True, parallel=None)
    SubmissionBook(workspace.submissions).save(replace(one, job=job, **more))


def test_a_waiting_batch_of_other_models_keeps_its_number_and_is_not_taken_over(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path)
    stored = planned(workspace, 3)
    accepted(workspace, stored.plan.id, 1)
    state = state_of(workspace, stored, b1=JobState.RUNNING)
    assert [view.batch.number for view in held(workspace, state, [stored], ["m3"])] == [2]
    newer = newer_plan(workspace, "m3", first=2)  # even where the number was given twice
    accepted(workspace, newer.plan.id, 2)
    state = state_of(workspace, stored, b1=JobState.RUNNING)
    assert never_submitted(workspace, state, stored, read_plans(workspace)) == [2]


def test_planning_anew_leaves_waiting_batches_their_numbers_and_files(tmp_path: Path,
                                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = make_workspace(tmp_path)
    stored = planned(workspace, 3)
    accepted(workspace, stored.plan.id, 1)
    state = state_of(workspace, stored, b1=JobState.RUNNING)
    before = workspace.batch_script(2).read_bytes(), workspace.array_script(1).read_bytes()
    match = make_match()
    new = plan_anew(workspace, FakeCluster(), REQUEST, {"m3": 2}, state, [], prompts=match.prompts)
    assert [batch.number for batch in new.plan.batches] == [3]
    assert [part.part for part in new.parts] == [2]
    assert (workspace.batch_script(2).read_bytes(), workspace.array_script(1).read_bytes()) == before


def test_a_plan_that_waits_as_a_whole_takes_over_and_is_taken_over_once(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path, limits={"max_submitted": 1})
    stored = planned(workspace, 2)
    accepted(workspace, stored.plan.id, 1)
    newer = newer_plan(workspace, "m2", first=3)
    state = state_of(workspace, stored, b1=JobState.RUNNING)
    assert never_submitted(workspace, state, stored, read_plans(workspace)) == [2]  # a dry run takes nothing over
    assert handed(workspace, newer, FakeCluster(), state=state).waiting == [3]
    assert never_submitted(workspace, state, stored, read_plans(workspace)) == []


def test_models_that_a_newer_plan_has_are_left_out_of_a_batch_that_waits(tmp_path: Path,
                                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    workspace, cluster = make_workspace(tmp_path), FakeCluster()
    stored = newer_plan(workspace, "a", "b", plan_id="20260101_000000")
    newer = newer_plan(workspace, "a", first=2)
    accepted(workspace, newer.plan.id, 2)
    state = state_of(workspace, stored)
    assert never_submitted(workspace, state, stored, read_plans(workspace)) == [1]
    monkeypatch.setattr("automate.campaign.plans.load_prompts", lambda *_: make_prompts())
    done = handed(workspace, stored, cluster, state=state, numbers=[1])
    assert done.notes == ["models that a newer plan has taken over are left out"]
    assert [took[1] for took in cluster.took] == [[1]]
    assert read_plans(workspace)[0].plan.batches[0].models == ("b",)
    assert "model_list:\n- b\n" in workspace.batch_config(1).read_text().replace("  - ", "- ")
    third = newer_plan(workspace, "b", first=3, plan_id="20260103_000000")
    accepted(workspace, third.plan.id, 3)
    both = superseded(stored, stored.plan.batches[0], read_plans(workspace), [newer.plan.id, third.plan.id])
    assert both is not None and both.plan.id == third.plan.id


# --- cancel -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("refused", "goes_on"), [(["9_1"], True), ([], False)])
@pytest.mark.parametrize("user", ["somebody", None])
def test_a_refused_cancel_stops_no_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: list[str],
                                            goes_on: bool, user: str | None) -> None:
    workspace = make_workspace(tmp_path)
    stored = planned(workspace, 2)
    accepted(workspace, stored.plan.id, 1, "9", user=user)
    workspace.waiting(stored.plan.id).write_text('{"plan": "x"}')
    cluster = FakeCluster()
    monkeypatch.setattr(cluster, "cancel", lambda jobs: [f"job {job}: Access/permission denied" for job in refused])
    monkeypatch.setattr("automate.campaign.cancelling.cluster_of_kind", lambda *_: cluster)
    state = state_of(workspace, stored, b1=JobState.RUNNING)
    cancelled, problems = cancel(workspace, state)
    assert (cancelled, len(problems)) == (([], 1) if refused else (["9_1"], 0))
    assert workspace.stopped(stored.plan.id).exists() is not goes_on
    assert workspace.waiting(stored.plan.id).exists() is goes_on
    assert (workspace.submissions / "9_1.cancelled").exists() is not goes_on


def test_only_the_plan_of_a_job_that_slurm_cancelled_is_stopped(tmp_path: Path,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    workspace, cluster = make_workspace(tmp_path), FakeCluster()
    theirs, mine = planned(workspace, 1), newer_plan(workspace, "z", first=2)
    accepted(workspace, theirs.plan.id, 1, "9", user="somebody")
    accepted(workspace, mine.plan.id, 2, "9")
    states = [state_of(workspace, theirs, b1=JobState.RUNNING), state_of(workspace, mine, b2=JobState.RUNNING)]
    monkeypatch.setattr(cluster, "cancel", lambda jobs: ["job 9_1: Access/permission denied"])
    monkeypatch.setattr("automate.campaign.cancelling.cluster_of_kind", lambda *_: cluster)
    cancel(workspace, replace(states[0], batches=states[0].batches + states[1].batches))
    assert not workspace.stopped(theirs.plan.id).exists()
    assert workspace.stopped(mine.plan.id).exists()


# --- GPU-hours ----------------------------------------------------------------------------------------
def run_of(job: str, seconds: float, **more: Any) -> dict[str, Any]:
    return {"job": job, "judge": "j", "gpus": 2, "seconds": seconds, "phase": "ended", **more}


@pytest.mark.parametrize(("cap", "fits"), [(1.9, 0), (2, 1), (5.9, 2), (6, 3)])
def test_a_batch_counts_with_its_whole_time_limit(tmp_path: Path, cap: float, fits: int) -> None:
    workspace = make_workspace(tmp_path, **GPU, limits={"max_gpu_hours": cap})
    stored = planned(workspace)
    assert budget_room(workspace, state_of(workspace, stored)).jobs == fits


def test_used_and_set_aside(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path, **GPU)
    stored = planned(workspace)
    state = state_of(workspace, stored, b1=JobState.RUNNING, b2=JobState.PENDING, b3=JobState.COMPLETED)
    runs = [run_of("9_3", 1800), run_of("9_1", 600, phase="playing"), run_of("5", 3600, judge="another")]
    usage = gpu_hours(workspace, state, runs)
    assert usage.used == pytest.approx(2 * (1800 + 900) / 3600)  # of the running one Slurm says a quarter of an hour
    assert usage.reserved == pytest.approx(2 * (3600 - 900) / 3600 + 2)


def test_no_gpu_is_never_too_much(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path, judge={"kind": "rehearsal"}, limits={"max_gpu_hours": 0.001})
    assert budget_room(workspace, state_of(workspace, planned(workspace))).jobs is None
    assert may_go_on(workspace, own="1")


def test_the_cap_holds_back_what_does_not_fit(tmp_path: Path) -> None:
    workspace, cluster = make_workspace(tmp_path, **GPU, limits={"max_gpu_hours": 5}), FakeCluster()
    done = handed(workspace, planned(workspace), cluster)
    assert [took[1] for took in cluster.took] == [[1, 2]]
    assert done.waiting == [3, 4, 5]
    assert done.why == ("limits.max_gpu_hours=5; 0.00 used, 4.00 set aside for jobs in the queue, a batch takes up to "
                        "2.00")
    assert limit_then(workspace, "20260101_000000") == "limits.max_gpu_hours=5"


@pytest.mark.parametrize(("record", "seconds"), [
    ({"phase": "ended", "seconds": 50, "started": 0, "ended": 900}, 50), ({"started": 100, "updated": 400}, 360),
    ({"started": 100, "ended": 160}, 60), ({"started": 100}, 0), ({}, 0), ({"started": 500, "updated": 100}, 0),
    ({"seconds": "x", "started": "y"}, 0)])
def test_how_long_a_start_lived(record: dict[str, Any], seconds: float) -> None:
    assert lived(record) == seconds


def test_a_job_goes_on_only_while_another_start_fits(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path, **GPU, limits={"max_gpu_hours": 6})

    def write(name: str, record: dict[str, Any]) -> None:
        write_json(workspace.runs / f"{name}.json", record)

    write("a", run_of("1", 3600, updated=1000.0))
    assert may_go_on(workspace, own="1", now=1000)  # 2 used, 2 for the next start
    write("b", run_of("2", 60, phase="playing", updated=1000.0))
    assert may_go_on(workspace, own="1", now=1000)  # and 2 for the one that runs
    write("c", run_of("3", 60, updated=1000.0, next={"kind": "requeue"}))
    assert not may_go_on(workspace, own="1", now=1000)  # and 2 for one that waits to go on
    (workspace.runs / "c.json").unlink()
    book = SubmissionBook(workspace.submissions)
    book.save(replace(new_submission("p", "x", Path("x"), "slurm", {0: 1}, array=False, parallel=None), job="4"))
    assert not may_go_on(workspace, own="1", now=1000)  # and 2 for one that has not been started yet
    (workspace.submissions / "4.cancelled").touch()
    assert may_go_on(workspace, own="1", now=1000)


# --- who and what else --------------------------------------------------------------------------------
def test_old_submissions_and_newer_ones_can_be_read(tmp_path: Path) -> None:
    book = SubmissionBook(tmp_path)
    book.save(new_submission("p", "n", Path("s"), "slurm", {0: 1}, array=False, parallel=None, by="refill"))
    write_json(tmp_path / "old.json", {"id": "old", "plan": "p", "name": "n", "script": "s", "executor": "slurm",
                                       "tasks": {"0": 1}, "array": False, "of a later version": 1})
    found = {one.id == "old": one for one in book.all()}
    assert (found[True].user, found[True].by) == (None, "user")
    assert found[False].user
    assert found[False].by == "refill"


def test_each_user_keeps_a_key_of_his_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = make_workspace(tmp_path, judge={"kind": "openai", "name": "j", "base_url": "https://x/v1",
                                            "api_key_env": "THE_KEY"}).settings.judge
    for uid in (1, 2):
        monkeypatch.setattr("os.getuid", lambda uid=uid: uid)
        monkeypatch.setenv("THE_KEY", f"key of {uid}")
        keep_key(judge, tmp_path)
    assert {path.read_text() for path in tmp_path.glob("*/THE_KEY")} == {"key of 1", "key of 2"}
    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("*/THE_KEY")} == {0o600}


@pytest.mark.parametrize(("status", "err", "problems"), [
    (0, "", []),
    (1, "scancel: error: Kill job error on job id 12_3: Access/permission denied\n",
     ["job 12_3: Access/permission denied"]),
    (1, "scancel: error: Kill job error on job id 11: Invalid job id specified\n", []),
    (1, "slurm_load_jobs error: Unable to contact slurm controller", [
        "job 11: slurm_load_jobs error: Unable to contact slurm controller",
        "job 12_3: slurm_load_jobs error: Unable to contact slurm controller"])])
def test_what_scancel_refused(status: int, err: str, problems: list[str]) -> None:
    assert not_cancelled(Said(status, "", err), ["11", "12_3"]) == problems
    assert refused_among(problems, ["11", "12_3", "12_33"]) == {
        job for job in ("11", "12_3") if any(f"job {job}:" in problem for problem in problems)}


@pytest.mark.parametrize(("record", "waits"), [
    (None, False), ({}, False), ({"next": {"kind": "requeue"}, "updated": 1000.0}, True),
    ({"next": {"kind": "successor"}, "updated": 1000.0}, True), ({"next": {"kind": "slurm"}, "updated": 1000.0}, True),
    ({"next": {"kind": "none"}, "updated": 1000.0}, False), ({"next": {"kind": "requeue"}, "updated": 1.0}, False),
    ({"next": "requeue", "updated": 1000.0}, False)])
def test_a_batch_that_goes_on_by_itself_is_waited_for(tmp_path: Path, record: dict[str, Any] | None,
                                                      waits: bool) -> None:
    workspace = make_workspace(tmp_path)
    view = state_of(workspace, planned(workspace, 1), b1=JobState.COMPLETED).batches[0]
    assert goes_on_itself(replace(view, run=record), 1010.0) is waits
    cancelled = state_of(workspace, planned(workspace, 1), b1=JobState.CANCELLED).batches[0]
    assert not goes_on_itself(replace(cancelled, run=record), 1010.0)


def test_a_successor_is_no_handing_over(tmp_path: Path) -> None:
    from automate.campaign.state import look

    workspace = make_workspace(tmp_path)
    stored = planned(workspace, 1)
    book = SubmissionBook(workspace.submissions)
    for by in ("user", "job", "job", "wait"):
        one: Submission = new_submission(stored.plan.id, "x", Path("x"), "local", {0: 1}, array=False, parallel=None,
                                         by=by)
        book.save(replace(one, job=f"local-{one.id}"))
    assert look(workspace).batches[0].submissions == 2
