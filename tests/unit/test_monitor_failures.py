"""Classes of failures by their evidence, what jobs say of themselves, and why batches are not handed in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from automate.arena.batches import Batch, Plan
from automate.campaign.monitoring.failures import KINDS, failure
from automate.campaign.monitoring.lines import batch_lines, job_line
from automate.campaign.monitoring.picture import BatchLine
from automate.campaign.monitoring.unsent import why_unsent
from automate.campaign.monitoring.vitals import RunFiles, rates, usual_load, vitals
from automate.campaign.plans import StoredPlan
from automate.campaign.state import BatchView, CampaignState
from automate.campaign.waiting import remember_unsent
from automate.cli.views import words
from automate.cluster.queue import JobState, JobStatus
from automate.cluster.submit import Submission
from automate.journal import write_json
from automate.workspace import Workspace
from tests.unit.monitor_support import NOW, model
from tests.unit.support import make_workspace

PLAN = "20240101_000000"
ODD: list[Any] = [None, "text", 3, True, [], [None], {}, {"x": float("nan")}, -1.0, "1e999", [[1]], {"a": {"b": []}}]


def view_of(state: JobState | None, run: dict[str, Any] | None = None, number: int = 1, **status: Any) -> BatchView:
    stored = StoredPlan(Plan(PLAN, "tag", "base", (Batch(number, ("m",), 10),), None), (), {})
    job = f"4711_{number}"
    told = None if state is None else JobStatus(job, state, **{"evidence": "sacct", "elapsed": "2:00:00", **status})
    return BatchView(stored, stored.plan.batches[0], job if told else None, told, run, 1)


def run_of(**values: Any) -> dict[str, Any]:
    return {"plan": PLAN, "batch": 1, "judge": "judge", "job": "4711_1", "started": NOW - 1000, "updated": NOW - 5,
            "node": "c3", **values}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return make_workspace(tmp_path)


@pytest.mark.parametrize(("state", "run", "kind", "cause"), [
    (JobState.TIMEOUT, {}, "time_limit", "time limit"),
    (JobState.DEADLINE, {}, "time_limit", "time limit"),
    (JobState.COMPLETED, {"stopped_by": "time limit", "status": 3}, "time_limit", "time limit"),
    (JobState.CANCELLED, {"stopped_by": "time limit"}, "time_limit", "time limit"),
    (JobState.PREEMPTED, {"stopped_by": "SIGTERM"}, "preempted", "preempted"),
    (JobState.FAILED, {"stopped_by": "preempted"}, "preempted", "preempted"),
    (JobState.NODE_FAIL, {}, "node", "node failure"),
    (JobState.BOOT_FAIL, {}, "node", "node failure"),
    (JobState.FAILED, {"stopped_by": "node fault"}, "node", "node failure"),
    (JobState.OUT_OF_MEMORY, {}, "host_memory", "host memory"),
    (JobState.CANCELLED, {}, "cancelled", "cancelled"),
    (JobState.FAILED, {"stopped_by": "stalled"}, "stalled", "stalled"),
    (JobState.FAILED, {"error": "the list is bad\n  -> mend it"}, "error", "the list is bad"),
    (JobState.FAILED, {"deaths": [{"cause": "port in use"}]}, "judge_server", "judge server: port in use"),
    (JobState.COMPLETED, {"status": 3}, "ended_early", "ended with 12 games due"),
    (JobState.FAILED, None, "script", "failed before flock-hpc began"),
    (JobState.UNKNOWN, None, "unknown", "unknown")])
def test_failures_are_told_apart_by_their_evidence(workspace: Workspace, state: JobState, run: dict[str, Any] | None,
                                                   kind: str, cause: str) -> None:
    found = failure(workspace, view_of(state, None if run is None else run_of(**run), gone=True), 12)
    assert (found.kind, found.kind in KINDS) == (kind, True)
    assert cause in found.cause
    assert found.todo
    assert found.facts[0].startswith(f"sacct: {state.value}")


def test_the_judge_servers_log_says_why_it_died(workspace: Workspace) -> None:
    workspace.logs.mkdir(parents=True)
    log = workspace.logs / f"judge-batch-1_4711_1_{PLAN}.server.log"
    log.write_text("INFO loading\ntorch.OutOfMemoryError: CUDA out of memory\n")
    found = failure(workspace, view_of(JobState.FAILED, run_of(error=f"{log}: it failed")), 12)
    assert (found.kind, found.cause) == ("judge_server", "judge server: out of memory")
    assert "tensor_parallel_size" in found.todo
    assert found.log == str(log)


def test_an_error_is_not_told_with_its_logs_path(workspace: Workspace) -> None:
    workspace.logs.mkdir(parents=True)
    log = workspace.logs / f"judge-batch-1_4711_1_{PLAN}.server.log"
    log.write_text("nothing known\n")
    found = failure(workspace, view_of(JobState.FAILED, run_of(error=f"{log}: the server ended\n  -> read the server's "
                                                                     "log", deaths=[{"cause": "unknown"}])), 12)
    assert found.cause == "the server ended"
    assert "flock-hpc logs 1" in found.todo


@pytest.mark.parametrize(("status", "who"), [
    ({"evidence": "cancelled by flock-hpc"}, "cancelled by flock-hpc cancel"), ({"reason": "by 0"}, "user root"),
    ({"reason": "by 4000000123"}, "user 4000000123"), ({"reason": "by hand"}, "cancelled"), ({}, "cancelled")])
def test_who_cancelled_a_job_is_said_where_it_is_known(workspace: Workspace, status: dict[str, Any], who: str) -> None:
    assert failure(workspace, view_of(JobState.CANCELLED, None, 1, **status), 12).cause.endswith(who)


@pytest.mark.parametrize(("step", "said"), [
    ({"kind": "requeue", "why": "x"}, "requeued itself, start 3 of at most 21"),
    ({"kind": "successor", "why": "x", "job": "99"}, "handed in job 99 to go on, start 3 of at most 21"),
    ({"kind": "slurm", "why": "x"}, "left it to Slurm, which puts it into the queue again"),
    ({"kind": "none", "why": "nothing is left"}, "did not requeue itself: nothing is left"),
    (None, ""), ({}, ""), ("requeue", "")])
def test_what_the_job_did_about_its_end(workspace: Workspace, step: Any, said: str) -> None:
    run = run_of(stopped_by="time limit", next=step)
    assert failure(workspace, view_of(JobState.TIMEOUT, run), 12, [run_of(), run]).next == said
    line = job_line(view_of(JobState.PENDING, {**run, "phase": "ended"}, reason="BeginTime"), NOW, [run_of(), run],
                    None, 20)
    assert line.note == "; ".join(part for part in ("last start ended by time limit", said) if part)


@pytest.mark.parametrize("odd", ODD)
def test_a_record_may_hold_anything(workspace: Workspace, odd: Any) -> None:
    keys = ("phase", "started", "updated", "play_seconds", "node", "rate", "played", "due", "in_flight", "server",
            "gpu_use", "load", "deaths", "next", "stopped_by", "error", "status", "judge")
    for key in keys:
        run = run_of(**{key: odd})
        seen = vitals(run, NOW)
        rates([seen])
        usual_load([run], "judge")
        for state in (JobState.RUNNING, JobState.PENDING):
            job_line(view_of(state, run), NOW, [run], None, 20)
        failure(workspace, view_of(JobState.FAILED, run), 1, [run])
    for key in ("server", "gpu_use", "load", "deaths", "next"):
        inside = dict.fromkeys(("time", "running", "kv_usage", "index", "name", "seconds", "cause", "kind", "why"), odd)
        vitals(run_of(**{key: [inside]}), NOW)
        vitals(run_of(**{key: inside}), NOW)


def test_a_running_job_says_what_it_does() -> None:
    run = run_of(phase="loading", started=NOW - 200)
    line = job_line(view_of(JobState.RUNNING, run), NOW, [run], 300.0, 20)
    assert (line.phase, line.phase_seconds, line.load_expected, line.starts) == ("loading", 200.0, 300.0, 1)
    run = run_of(phase="playing", play_seconds=60.0, rate=1.5)
    played = job_line(view_of(JobState.RUNNING, run), NOW, [], None, 20)
    assert (played.phase_seconds, played.rate, played.age) == (65.0, 1.5, 5.0)


def test_a_requeued_job_that_has_not_spoken_yet_is_starting() -> None:
    run = run_of(phase="ended", rate=2.0, next={"kind": "requeue"}, stopped_by="time limit")
    line = job_line(view_of(JobState.RUNNING, run), NOW, [run], None, 20)
    assert (line.phase, line.rate) == ("starting", None)
    assert "requeued itself, start 2 of at most 21" in line.note


def test_only_fresh_numbers_are_summed_up() -> None:
    server = {"running": 3, "waiting": 1, "kv_usage": 0.5, "prompt_rate": 100.0, "output_rate": 10.0,
              "prefix_hits": 0.4, "time": NOW - 5}
    gpus = [{"index": 0, "name": "H100", "memory_used_mb": 1024, "memory_total_mb": 2048, "utilization": 90}]
    fresh = run_of(phase="playing", rate=2.0, server=server, gpu_use=gpus)
    old = {**fresh, "updated": NOW - 61}
    loading = run_of(phase="loading", rate=0.0)
    found = rates([vitals(run, NOW) for run in (fresh, fresh, old, loading, None)])
    tokens = found.prompt_tokens_per_second, found.output_tokens_per_second
    assert (found.games_per_second, *tokens) == (4.0, 200.0, 20.0)
    assert (found.requests_running, found.requests_waiting, found.kv_usage, found.prefix_hits) == (6, 2, 0.5, 0.4)
    assert (found.gpu_memory_used_mb, found.gpu_memory_total_mb, found.gpu_utilization) == (2048, 4096, 90)
    assert (found.jobs, found.silent) == (3, 1)
    assert rates([vitals(loading, NOW)]).games_per_second is None


def test_the_usual_load_is_the_median_of_this_judges_loads() -> None:
    runs = [run_of(load=[{"seconds": seconds}]) for seconds in (100, 300, 200)]
    assert usual_load([*runs, run_of(judge="other", load=[{"seconds": 9000}])], "judge") == 200
    assert usual_load([], "judge") is None


def test_run_files_are_read_again_only_where_they_changed(tmp_path: Path) -> None:
    files = RunFiles(tmp_path / "runs")
    assert files.read() == []
    for name in ("a", "b"):
        write_json(tmp_path / "runs" / f"{name}.json", {"name": name})
    first = files.read()
    assert [record["name"] for record in first] == ["a", "b"]
    write_json(tmp_path / "runs" / "b.json", {"name": "b", "more": 1})
    (tmp_path / "runs" / "c.json").write_text("{not json")
    second = files.read()
    assert second[0] is first[0]
    assert second[1] == {"name": "b", "more": 1}
    (tmp_path / "runs" / "a.json").unlink()
    assert files.read() == [second[1]]


# --- batches that are not handed in


def submission(number: int = 1, job: str | None = "4711", **more: Any) -> Submission:
    values: dict[str, Any] = {"name": "n", "script": "s", "executor": "slurm", "tasks": {number: number}, "array": True,
                              "intended": NOW, **more}
    return Submission(id=f"s{number}", plan=PLAN, job=job, **values)


def test_why_a_batch_is_not_handed_in(workspace: Workspace) -> None:
    view = view_of(None)

    def why(*submissions: Submission) -> str:
        return why_unsent(workspace, CampaignState((view,), submissions), view)

    assert why() == "not submitted: 'flock-hpc judge --submit' does that"
    assert why(submission(job=None, refused="QOSMaxSubmitJobPerUserLimit")) == "refused: QOSMaxSubmitJobPerUserLimit"
    assert "nobody knows whether it was taken" in why(submission(job=None))
    assert "doesn't know its job 4711 any more" in why(submission())
    assert why(submission(2)).startswith("waits for room; 'judge --wait'")
    workspace.submissions.mkdir(parents=True)
    workspace.waiting(PLAN).touch()
    assert "the small job 99 hands it in" in why(submission(2), submission(3, "99", by="refill", tasks={}))
    workspace.stopped(PLAN).touch()
    assert why(submission(2)) == "the campaign was cancelled; 'flock-hpc judge --submit' goes on"


def test_the_own_limit_is_named(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path, limits={"max_submitted": 1})
    view, active = view_of(None), view_of(JobState.RUNNING, number=2)
    why = why_unsent(workspace, CampaignState((view, active), (submission(2),)), view)
    assert "limits.max_submitted=1; 1 is in the queue" in why


def test_the_limit_that_held_a_batch_back_is_named_when_it_would_fit_by_now(workspace: Workspace) -> None:
    remember_unsent(workspace, PLAN, "limits.max_gpu_hours=0.1; 0.00 used")
    view = view_of(None)
    assert why_unsent(workspace, CampaignState((view,), ()), view).startswith(
        "waits for room (held back by limits.max_gpu_hours=0.1 when it was tried); ")


def test_a_batch_of_an_older_plan_that_waits_is_shown(workspace: Workspace) -> None:
    old, done = view_of(None), view_of(JobState.COMPLETED, number=2)
    newer = replace(done.stored, plan=replace(done.stored.plan, id="20990101_000000", batches=(Batch(2, ("n",), 10),)))
    new = replace(done, stored=newer, batch=newer.plan.batches[0])
    state = CampaignState((old, new), (submission(2), replace(submission(2), plan=newer.plan.id)))
    found = batch_lines(workspace, state, [model("m", games=30, wanted=40), model("n", games=30, wanted=40)])
    assert [(line.batch, line.why[:14]) for line in found] == [(1, "waits for room"), (2, "")]


def test_batches_with_their_games(workspace: Workspace) -> None:
    views = (view_of(JobState.RUNNING), replace(view_of(None, number=2), batch=Batch(2, ("n",), 10)))
    stored = replace(views[0].stored, plan=replace(views[0].stored.plan, batches=tuple(v.batch for v in views)))
    state = CampaignState(tuple(replace(view, stored=stored) for view in views), ())
    found = batch_lines(workspace, state, [model("m", games=30, wanted=40), model("n", "waiting", 0, 40)])
    assert [(line.batch, line.state, line.games, line.wanted, line.due) for line in found] == [
        (1, "running", 30, 40, 10), (2, "planned", 0, 40, 40)]
    assert found[1].why.startswith("not submitted")
    done = batch_lines(workspace, state, [model("m", games=30, wanted=40), model("n", "complete", 40, 40)])
    assert [line.batch for line in done] == [1]


# --- what is easily taken for something else


@pytest.mark.parametrize(("nodes", "elapsed"), [("", "0:00"), ("None assigned", "00:00:00")])
def test_a_job_whose_partition_went_away_while_it_waited_never_started(workspace: Workspace, nodes: str,
                                                                       elapsed: str) -> None:
    gone: dict[str, Any] = {"nodes": nodes, "elapsed": elapsed, "reason": "NodeDown"}
    found = failure(workspace, view_of(JobState.NODE_FAIL, None, **gone), 12)
    assert (found.kind, found.node) == ("not_started", "")
    assert found.cause == "it never started: its nodes or its partition went away"
    assert found.todo.startswith("check slurm.partition ('sinfo'")
    again = failure(workspace, view_of(JobState.NODE_FAIL, run_of(stopped_by="time limit"), **gone), 12)
    assert "it did not start again" in again.cause
    assert not any("c3" in fact for fact in again.facts[:1])


def test_a_node_that_failed_under_a_job_is_still_a_nodes_failure(workspace: Workspace) -> None:
    for nodes, elapsed in (("c3", "0:00"), ("", "0:07"), ("", "")):
        assert failure(workspace, view_of(JobState.NODE_FAIL, None, nodes=nodes, elapsed=elapsed), 12).kind == "node"


@pytest.mark.parametrize(("code", "phase", "kind", "said"), [
    ("0:9", "playing", "killed", "its process was killed (signal 9): by somebody"),
    ("1:9", "loading", "killed", "(signal 9)"), ("137:0", "draining", "killed", "(signal 9)"),
    ("", "playing", "killed", "its process was killed, as it seems: by somebody"),
    ("1:0", "playing", "unknown", "unknown"), ("0:9", "ended", "unknown", "unknown"),
    ("0:9", "", "unknown", "unknown")])
def test_a_process_that_was_killed_in_the_midst_of_its_work(workspace: Workspace, code: str, phase: str, kind: str,
                                                            said: str) -> None:
    found = failure(workspace, view_of(JobState.FAILED, run_of(phase=phase), exit_code=code,
                                       reason="JobLaunchFailure"), 12)
    assert found.kind == kind
    assert said in found.cause
    if kind == "killed":
        assert "slurm.mem" in found.cause
        assert found.todo == "'flock-hpc judge --submit' goes on from here"


@pytest.mark.parametrize(("reason", "kind"), [
    ("signal 9", "killed"), ("exit status 137", "killed"), ("exit status 1", "unknown"), ("signal 11", "unknown")])
def test_the_local_queues_word_on_a_kill(workspace: Workspace, reason: str, kind: str) -> None:
    view = view_of(JobState.FAILED, run_of(phase="playing"), reason=reason, evidence="local queue")
    assert failure(workspace, view, 12).kind == kind


def test_a_kill_is_not_laid_at_the_door_of_an_earlier_death_of_the_server(workspace: Workspace) -> None:
    run = run_of(phase="playing", deaths=[{"cause": "port in use"}])
    assert failure(workspace, view_of(JobState.FAILED, run, exit_code="0:9"), 12).kind == "killed"
    assert failure(workspace, view_of(JobState.FAILED, run, exit_code=""), 12).kind == "judge_server"


@pytest.mark.parametrize("run", [None, run_of(phase="ended", stopped_by="time limit", next={"kind": "requeue"})])
def test_a_job_of_a_workspace_that_was_moved_says_so(workspace: Workspace, run: dict[str, Any] | None) -> None:
    def placed(root: str | None, state: JobState = JobState.FAILED) -> BatchView:
        view = view_of(state, run, exit_code="0:53")
        return replace(view, stored=replace(view.stored, root=root))

    found = failure(workspace, placed("/old/place"), 12)
    assert (found.kind, found.cause) == ("moved", "the job was submitted when the workspace lay in /old/place")
    assert found.todo == "'flock-hpc judge --submit' writes the scripts anew"
    for view in (placed(str(workspace.root)), placed(None), placed("/old/place", JobState.TIMEOUT)):
        assert failure(workspace, view, 12).kind != "moved"
    begun = replace(placed("/old/place"), run=run_of(phase="ended", error="the list is bad"))
    assert failure(workspace, begun, 12).kind == "error"


@pytest.mark.parametrize(("stop", "step", "note"), [
    ("requeued", {"kind": "slurm", "why": "requeued: Slurm puts it into the queue again by itself"},
     "last start was requeued; left it to Slurm, which puts it into the queue again"),
    ("preempted", {"kind": "slurm", "why": "preempted: Slurm puts it into the queue again by itself"},
     "last start was preempted; left it to Slurm, which puts it into the queue again"),
    ("cancelled", {"kind": "none", "why": "cancelled: 'flock-hpc judge --submit' goes on from here"},
     "last start was cancelled; did not requeue itself"),
    ("stalled: no game", {"kind": "none", "why": "ended by stalled: no game: see there"},
     "last start ended by stalled: no game; did not requeue itself: see there")])
def test_why_a_start_ended_is_said_once(workspace: Workspace, stop: str, step: Any, note: str) -> None:
    run = run_of(phase="ended", stopped_by=stop, next=step)
    assert job_line(view_of(JobState.PENDING, run), NOW, [run], None, 20).note == note


@pytest.mark.parametrize("state", [JobState.PREEMPTED, JobState.CANCELLED])
def test_what_slurm_and_the_job_agree_on_is_one_fact(workspace: Workspace, state: JobState) -> None:
    found = failure(workspace, view_of(state, run_of(stopped_by=state.value.lower())), 12)
    assert len(found.facts) == 1
    assert words.ended(found.state, found.cause) == state.value.lower()


@pytest.mark.parametrize(("state", "cause", "said"), [
    ("cancelled", "cancelled by user ada", "cancelled by user ada"), ("timeout", "time limit", "timeout: time limit"),
    ("failed", "failed before flock-hpc began", "failed before flock-hpc began"),
    ("failed", "failedness", "failed: failedness"), ("unknown", "unknown", "unknown")])
def test_a_failures_head_says_each_word_once(state: str, cause: str, said: str) -> None:
    assert words.ended(state, cause) == said


def test_one_batch_is_counted_as_one() -> None:
    one = BatchLine(1, PLAN, "cancelled", "7", ("m",), 0, 4, 4)
    assert words.batches((one,)) == "1 batch: cancelled"
    assert words.batches((one, one)) == "2 batches: 2 cancelled"
    assert (words.count(1, "failure"), words.count(2, "failure")) == ("1 failure", "2 failures")
