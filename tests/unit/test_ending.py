"""What a job does when it must end with games left, and how much time it has."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from automate.arena.batches import MARGIN, drain_lead, drain_signal
from automate.arena.running.ending import NODE_FAULT, TIME_LIMIT, End, GoOn, decide, longest_game, why_ended
from automate.arena.running.job_config import JobConfig
from automate.arena.running.pulse import Standstill
from automate.arena.running.runlog import RunLog, own_node, own_restart, read_runs
from automate.arena.running.telemetry import Telemetry
from automate.arena.running.timelimit import TimeLimit
from automate.cluster import own_job
from automate.cluster.own_job import OwnJob, parse_own_job
from automate.cluster.submit import Submission
from automate.errors import ClusterError
from automate.settings import Settings
from automate.workspace import Workspace

LEFT = End(TIME_LIMIT, left=100, played=50, starts=1)
RUNNING = OwnJob(state="RUNNING", requeue=True)

SHOWN = (
    "JobId=2 ArrayJobId=2 ArrayTaskId=1 JobName=judge-array-1 UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=1 "
    "Nice=0 Account=flock QOS=normal JobState=RUNNING Reason=None Dependency=(null) Requeue=1 Restarts=3 BatchFlag=1 "
    "Reboot=0 ExitCode=0:0 RunTime=00:00:31 TimeLimit=00:01:00 TimeMin=N/A SubmitTime=2026-01-05T08:51:28 "
    "EligibleTime=2026-01-05T08:51:44 StartTime=2026-01-05T08:52:04 EndTime=2026-01-05T08:53:04 Deadline=N/A "
    "PreemptEligibleTime=2026-01-05T08:52:04 PreemptTime=None SuspendTime=None "
    "Command=/camp aign/Requeue=0/judge JobState=FAILED.sh WorkDir=/camp")


def config(root: Path, **settings: object) -> JobConfig:
    built = Settings.model_validate({"judge": {"kind": "rehearsal"}, **settings})
    return JobConfig(Workspace(root, built, "b"), "20260101_000000", 3, ("m",), None, "t", root / "c.yaml")


# --- Slurm's word --------------------------------------------------------------------------------
def test_slurms_word_on_the_own_job() -> None:
    own = parse_own_job(SHOWN.replace("Command=/camp aign/Requeue=0/judge JobState=FAILED.sh", "Command=/c.sh"))
    assert (own.state, own.requeue, own.preempted, own.run_time, own.time_limit) == ("RUNNING", True, False, 31, 60)
    assert own.end_time is not None
    assert not own.timed_out
    assert not own.ending


def test_what_a_path_says_is_not_taken_for_slurms_word() -> None:
    own = parse_own_job(SHOWN)
    assert (own.state, own.requeue) == ("RUNNING", True)


def test_unlimited_and_unknown_times_are_none() -> None:
    own = parse_own_job("JobId=1 JobState=RUNNING TimeLimit=UNLIMITED EndTime=Unknown PreemptTime=2026-01-05T08:52:04")
    assert (own.time_limit, own.end_time, own.requeue, own.preempted) == (None, None, None, True)


@pytest.mark.parametrize(("own", "why"), [
    (None, "SIGTERM"),
    (RUNNING, "SIGTERM"),
    (replace(RUNNING, preempted=True), "preempted"),
    (replace(RUNNING, state="COMPLETING"), "cancelled"),
    (replace(RUNNING, requeued=True, notice="PREEMPTION"), "preempted"),
    (replace(RUNNING, requeued=True), "requeued"),
    (replace(RUNNING, state="COMPLETING", reason="TimeLimit"), TIME_LIMIT),
    (replace(RUNNING, run_time=60.0, time_limit=60.0), TIME_LIMIT),
])
def test_why_a_signal_came(own: OwnJob | None, why: str) -> None:
    assert why_ended(own, "SIGTERM") == why


# --- the decision ----------------------------------------------------------------------------------
@pytest.mark.parametrize(("end", "own", "kind", "words"), [
    (LEFT, RUNNING, "requeue", "100 games are left"),
    (LEFT, None, "requeue", "100 games"),
    (LEFT, replace(RUNNING, requeue=False), "successor", "requeue is off"),
    (replace(LEFT, played=0, played_before=True), RUNNING, "requeue", "100 games"),
    (replace(LEFT, stopped_by=NODE_FAULT), RUNNING, "successor", "away from this node"),
    (replace(LEFT, stopped_by="preempted"), RUNNING, "requeue", "games are left"),
    (replace(LEFT, stopped_by="preempted"), replace(RUNNING, requeued=True), "slurm", "by itself"),
    (replace(LEFT, stopped_by="cancelled"), RUNNING, "none", "cancelled"),
    (replace(LEFT, cancelled=True), RUNNING, "none", "cancelled"),
    (replace(LEFT, left=0), RUNNING, "none", "nothing is left"),
    (replace(LEFT, played=0), RUNNING, "none", "raise slurm.time"),
    (replace(LEFT, played=0, hindered=True), RUNNING, "requeue", "100 games"),
    (replace(LEFT, stopped_by="preempted", played=0, left=None), RUNNING, "requeue", "its games"),
    (replace(LEFT, starts=21), RUNNING, "none", "started 21 times"),
    (replace(LEFT, stopped_by="stalled: no game"), RUNNING, "none", "stalled"),
    (replace(LEFT, stopped_by="SIGTERM"), RUNNING, "none", "SIGTERM"),
])
def test_what_comes_next(end: End, own: OwnJob | None, kind: str, words: str) -> None:
    step = decide(end, own, most=21, local=False)
    assert (step.kind, words in step.why) == (kind, True), step


def test_the_last_start_that_is_allowed_is_made() -> None:
    assert decide(replace(LEFT, starts=20), RUNNING, most=21, local=False).kind == "requeue"


def test_a_local_job_has_no_other_node() -> None:
    assert decide(replace(LEFT, stopped_by=NODE_FAULT), None, most=21, local=True).kind == "requeue"


# --- doing it ----------------------------------------------------------------------------------------
def job(root: Path, environ: dict[str, str], **settings: object) -> tuple[GoOn, RunLog, list[str]]:
    said: list[str] = []
    of = config(root, **settings)
    of.workspace.local_queue.mkdir(parents=True)
    log = RunLog(of.workspace.runs, of.plan, of.batch, judge=of.settings.judge.name)
    log.update()
    return GoOn(of, said.append, environ), log, said


def test_a_local_job_asks_its_runner(tmp_path: Path) -> None:
    go_on, log, said = job(tmp_path, {"FLOCK_HPC_JOB": "local-3_1"})
    step = go_on.finish(log, go_on.end_of(TIME_LIMIT, 7, 5), None)
    assert step.kind == "requeue"
    assert (tmp_path / ".flock-hpc" / "local" / "local-3_1.requeue").exists()
    assert said == ["7 games are left: put into the queue again, start 2 of at most 21"]
    assert read_runs(tmp_path / ".flock-hpc" / "runs")[0]["next"] == {
        "kind": "requeue", "why": "7 games are left", "job": None}


def test_a_cancelled_job_does_not_come_back(tmp_path: Path) -> None:
    go_on, log, said = job(tmp_path, {"FLOCK_HPC_JOB": "local-3"})
    (tmp_path / ".flock-hpc" / "local" / "local-3.cancel").touch()
    assert go_on.finish(log, go_on.end_of("preempted", 7, 5), None).kind == "none"
    assert "not put into the queue again: cancelled" in said[0]


def test_a_refused_requeue_becomes_a_successor_and_its_failure_is_said(tmp_path: Path,
                                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ClusterError("scontrol requeue refused: disabled")

    monkeypatch.setattr(own_job, "requeue", refuse)
    go_on, log, said = job(tmp_path, {"SLURM_JOB_ID": "77", "PATH": str(tmp_path)})
    monkeypatch.setenv("PATH", str(tmp_path))  # no sbatch either
    step = go_on.finish(log, go_on.end_of(TIME_LIMIT, 7, 5), RUNNING)
    assert step.kind == "none"
    assert "disabled" in step.why
    assert "sbatch" in step.why
    assert said == [f"not put into the queue again: {step.why}"]


def test_starts_of_this_batch_are_counted(tmp_path: Path) -> None:
    go_on, _, _ = job(tmp_path, {})
    runs = tmp_path / ".flock-hpc" / "runs"
    for number, plan in enumerate(("20260101_000000", "20260101_000000", "another")):
        (runs / f"x{number}.json").write_text(json.dumps({"plan": plan, "batch": 3}))
    assert go_on.end_of(TIME_LIMIT, 1, 1).starts == 3


def test_no_gpu_hours_left_no_other_start(tmp_path: Path) -> None:
    settings = {"judge": {"kind": "vllm"}, "limits": {"max_gpu_hours": 3}, "slurm": {"gpus": 1, "time": "02:00:00"}}
    go_on, log, said = job(tmp_path, {"FLOCK_HPC_JOB": "local-3"}, **settings)
    name, runs = go_on.config.settings.judge.name, tmp_path / ".flock-hpc" / "runs"
    (runs / "x1.json").write_text(json.dumps({"judge": name, "gpus": 1, "phase": "ended", "seconds": 7200}))
    assert go_on.finish(log, go_on.end_of(TIME_LIMIT, 7, 5), None).kind == "none"
    assert "limits.max_gpu_hours leaves no room" in said[0]
    assert not (tmp_path / ".flock-hpc" / "local" / "local-3.requeue").exists()


# --- the time limit --------------------------------------------------------------------------------
@pytest.mark.parametrize(("drain", "limit", "longest", "lead"), [
    (120, 7200, 0, 120),
    (120, 7200, 400, 535),
    (120, 60, 0, 30),
    (120, float("inf"), 0, 120),
    (1, 7200, 0, 35),
    (1, 1e9, 1e9, 65535),
])
def test_the_lead_before_the_limit(drain: float, limit: float, longest: float, lead: int) -> None:
    assert drain_lead(drain, limit, longest, 20) == lead


def test_the_signal_is_not_one_that_nccl_takes() -> None:
    assert drain_signal(Settings()) == "B:USR2@120"
    assert drain_signal(Settings(), longest_game=1000) == "B:USR2@1285"


def test_the_longest_games_of_this_judge_alone() -> None:
    runs: list[dict[str, object]] = [
        {"judge": "a", "game_seconds": {"p95": 30.0}}, {"judge": "a"}, {"judge": "b", "game_seconds": {"p95": 90.0}}]
    assert longest_game(runs, "a") == 30.0
    assert longest_game([], "a") == 0.0


def test_outside_slurm_nobody_enforces_a_limit(tmp_path: Path) -> None:
    for environ in ({}, {"FLOCK_HPC_JOB": "local-1", "SLURM_JOB_ID": "7"}):
        assert TimeLimit(config(tmp_path), environ, Telemetry()).left() == float("inf")


def test_a_job_that_was_given_more_time_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [7200.0, 90000.0]
    monkeypatch.setattr(own_job, "ask", lambda _: OwnJob(state="RUNNING", run_time=7150.0, time_limit=limits.pop(0)))
    limit = TimeLimit(config(tmp_path), {"SLURM_JOB_ID": "7"}, Telemetry())

    async def check() -> tuple[bool, bool]:
        await limit.ask()
        return limit.left() < limit.lead(), await limit.is_over()

    assert asyncio.run(check()) == (True, False)


def test_games_in_flight_have_what_the_limit_leaves_whatever_the_clock_says(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_job, "ask", lambda _: OwnJob(state="RUNNING", run_time=7100.0, time_limit=7200.0,
                                                         end_time=5.0))
    limit = TimeLimit(config(tmp_path), {"SLURM_JOB_ID": "7"}, Telemetry())
    asyncio.run(limit.ask())
    assert limit.grace() == pytest.approx(100 - 20 - MARGIN, abs=1)


@pytest.mark.parametrize(("left", "early"), [(300.0, 180.0), (100.0, 0.0)])
def test_a_signal_that_came_early_leaves_the_time_until_it_is_due(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: float, early: float) -> None:
    monkeypatch.setattr(own_job, "ask", lambda _: OwnJob(state="RUNNING", run_time=7200 - left, time_limit=7200.0))
    limit = TimeLimit(config(tmp_path), {"SLURM_JOB_ID": "7"}, Telemetry())
    assert limit.early() == 0.0  # nobody was asked yet
    asyncio.run(limit.ask())
    assert limit.early() == pytest.approx(early, abs=1)


def test_a_successor_waits_where_batches_at_once_are_limited(tmp_path: Path) -> None:
    go_on, _, _ = job(tmp_path, {"SLURM_ARRAY_JOB_ID": "10", "SLURM_ARRAY_TASK_ID": "1", "SLURM_JOB_ID": "11"})
    plan = go_on.config.plan
    array = Submission("a", plan, "n", "s", "slurm", {1: 3, 2: 4}, True, parallel=1, job="10")
    other = Submission("b", plan, "n", "s", "slurm", {0: 5}, False, job="20")
    foreign = Submission("c", "another", "n", "s", "slurm", {0: 5}, False, job="30")
    assert go_on.beside([array, other, foreign]) == (1, ["10_2", "20"])
    assert go_on.beside([replace(array, parallel=None), other]) == (None, [])
    assert go_on.beside([]) == (None, [])


# --- standstill ------------------------------------------------------------------------------------
def test_a_standstill_is_games_that_do_not_end_while_the_judge_is_up() -> None:
    watch = Standstill(100)
    assert watch.look(0, 0, True) is None
    assert watch.look(99, 0, True) is None
    assert watch.look(100, 0, True) == 100
    assert watch.look(101, 1, True) is None
    assert watch.look(200, 1, False) is None  # it loads again: that has a limit of its own
    assert watch.look(299, 1, True) is None
    assert watch.look(300, 1, True) == 100


def test_where_and_how_often_a_job_runs() -> None:
    assert own_node({"FLOCK_HPC_NODE": "a", "SLURMD_NODENAME": "b"}) == "a"
    assert own_node({"SLURMD_NODENAME": "b"}) == "b"
    assert own_node({})
    assert [own_restart({"SLURM_RESTART_COUNT": text}) for text in ("3", "", "x")] == [3, 0, 0]
