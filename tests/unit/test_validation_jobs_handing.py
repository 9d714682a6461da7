"""Handing in, on a cluster that is a few lines here and on this machine; settling what dead jobs leave; waiting."""

from __future__ import annotations

import functools
import json
import os
import pickle
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from automate import claims
from automate.cluster import arrays, asking
from automate.cluster.arrays import Request, local_alive, local_id, options_of, submit_array
from automate.cluster.queue import JobState, JobStatus
from automate.errors import ClaimedError, ClusterError, ConfigError, SubmitError
from automate.settings import Settings
from automate.validation.assignments import Assignment, Handed, State
from automate.validation.jobs import hand_in, progress, settle, wait
from automate.validation.jobs.handing import HandedIn
from automate.validation.jobs.resources import devices, job_environment, sbatch_options, share, slurm_of
from automate.validation.jobs.task import settings_of
from automate.validation.spool import Spool
from automate.workspace import Workspace
from tests.unit.validation_jobs_support import make, put

SECRET = "flk-planted-0123456789abcdef"


@dataclass
class FakeCluster:
    """Slurm as it looks from here: what it says of jobs, by id; `down`: it doesn't answer."""

    kind: str = "slurm"
    states: dict[str, JobStatus] = field(default_factory=dict)
    named: dict[str, list[str]] = field(default_factory=dict)
    cancelled: list[str] = field(default_factory=list)
    down: bool = False
    others: JobStatus | None = None

    def say(self, job: str, state: JobState, **more: Any) -> None:
        self.states[job] = JobStatus(job, state, "sacct", **more)

    def find(self, name: str, since: float) -> list[str]:
        if self.down:
            raise ClusterError("squeue failed: no controller")
        return self.named.get(name, [])

    def look(self, jobs: Sequence[str], names: Sequence[str] = ()) -> dict[str, JobStatus]:
        if self.down:
            return {job: JobStatus(job, JobState.UNKNOWN, "no controller") for job in jobs}
        lost = "neither squeue nor sacct knows it"
        others = self.others or JobStatus("", JobState.UNKNOWN, lost, gone=True)
        return {job: self.states.get(job) or replace(others, job=job) for job in jobs}

    def cancel(self, jobs: Sequence[str]) -> list[str]:
        self.cancelled += jobs
        return []

    def submit(self, *_: object, **__: object) -> str:
        raise AssertionError("only arrays are submitted")

    def check(self, script: Path) -> str | None:
        return None

    def log_path(self, pattern: str, job: str) -> Path:
        return Path(pattern)


@dataclass
class Accepting:
    """Takes arrays as submitit would; what it was given is kept."""

    calls: list[dict[str, Any]] = field(default_factory=list)
    error: Exception | None = None

    def __call__(self, functions: Sequence[Callable[[], object]], **more: Any) -> tuple[str, ...]:
        if self.error is not None:
            raise self.error
        self.calls.append({"functions": functions, **more})
        number = 100 * len(self.calls)
        return tuple(f"{number}_{index}" for index in range(len(functions))) if len(functions) > 1 else (str(number),)


Made = tuple[Workspace, Spool]
WAITING = JobStatus("", JobState.PENDING, "squeue")


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return make(tmp_path / "space")


@pytest.fixture(autouse=True)
def no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm of this machine, if any, is not asked."""
    from automate.cluster.limits import SubmitLimits
    from automate.validation.jobs import handing

    monkeypatch.setattr(asking, "ask", lambda asked: SubmitLimits())
    monkeypatch.setattr(asking, "queued", lambda limits, user: [])
    monkeypatch.setattr(handing, "max_array_size", lambda: 1001)


def submit(made: Made, cluster: FakeCluster | None = None, submitting: Any = None, **more: Any) -> HandedIn:
    return hand_in(*made, executor="slurm", cluster=cluster or FakeCluster(), usable=lambda module: None,
                   submit=submitting or Accepting(), **more)


def find(made: Made, assignment_id: str) -> Assignment:
    found = made[1].find(assignment_id)
    assert found is not None
    return found


# --- handing in --------------------------------------------------------------------------------------
def test_each_assignment_goes_to_one_task_and_knows_it(made: Made) -> None:
    for name in ("a1", "a2", "a3"):
        put(made[1], name)
    taking = Accepting()
    report = submit(made, submitting=taking)
    assert report.jobs == {"a1": "100_0", "a2": "100_1", "a3": "100_2"} and report.kept == {}
    handed = find(made, "a2").handed
    assert handed is not None and handed.job == "100_1" and handed.executor == "slurm"
    assert handed.name == taking.calls[0]["name"] == report.arrays[0].name
    assert taking.calls[0]["folder"] == made[1].places.jobs / handed.name
    again = submit(made, FakeCluster(others=WAITING), submitting=taking)
    assert len(taking.calls) == 1 and again.arrays == [] and "100_1 already" in again.kept["a2"]


def test_several_assignments_a_task_and_the_most_urgent_first(tmp_path: Path) -> None:
    made = make(tmp_path / "space", per_task=2)
    for name, deadline in (("a1", None), ("a2", 900.0), ("a3", 500.0)):
        put(made[1], name, deadline=deadline)
    taking = Accepting()
    assert submit(made, submitting=taking).jobs == {"a3": "100_0", "a2": "100_0", "a1": "100_1"}
    assert submit(made, FakeCluster(others=WAITING), submitting=taking, ids=["a1", "none"]).kept == {
        "a1": "handed to job 100_1 already", "none": "it is not in the spool"}
    functions = pickle.loads(pickle.dumps(taking.calls[0]["functions"]))
    assert functions[0].args[:2] == (str(made[0].root), ("a3", "a2"))


def test_most_and_ids_choose(made: Made) -> None:
    for name in ("a1", "a2", "a3"):
        put(made[1], name)
    assert list(submit(made, most=1).jobs) == ["a1"]
    assert list(submit(made, ids={"a3"}).jobs) == ["a3"]


def test_what_cannot_be_done_now_is_kept_with_its_reason(made: Made) -> None:
    put(made[1], "a1", problem="the data set did not download")
    put(made[1], "a2", needs_model=True)
    report = hand_in(*made, executor="slurm", cluster=FakeCluster(), submit=Accepting(),
                     usable=lambda module: "its environment was never built")
    assert report.arrays == [] and report.kept["a1"].startswith("the data set")
    assert report.kept["a2"] == "its files are not all there yet"
    put(made[1], "a3")
    report = hand_in(*made, executor="slurm", cluster=FakeCluster(), submit=Accepting(), ids=["a3"],
                     usable=lambda module: "its environment was never built")
    assert report.kept == {"a3": "its environment was never built"}


def test_limits_of_the_queue_split_and_hold_back(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    from automate.cluster.limits import Limit, SubmitLimits
    from automate.validation.jobs import handing

    for number in range(6):
        put(made[1], f"a{number}")
    monkeypatch.setattr(handing, "max_array_size", lambda: 3)
    monkeypatch.setattr(asking, "ask", lambda asked: SubmitLimits((Limit("MaxSubmitJobs=5", 5),)))
    taking = Accepting()
    report = submit(made, submitting=taking)
    assert [len(call["functions"]) for call in taking.calls] == [2, 2, 1]
    assert report.jobs["a4"] == "300" and "MaxSubmitJobs=5" in report.kept["a5"]


def test_a_refusal_has_slurms_words_and_leaves_everything_as_it_was(made: Made) -> None:
    put(made[1], "a1")
    cluster = FakeCluster()
    with pytest.raises(SubmitError, match="Invalid partition"):
        submit(made, cluster, Accepting(error=SubmitError("sbatch refused x: Invalid partition name specified")))
    assert find(made, "a1").handed is None and find(made, "a1").ready


def test_an_array_that_was_taken_though_sbatch_failed_is_cancelled(made: Made) -> None:
    put(made[1], "a1")

    class Named(FakeCluster):
        def find(self, name: str, since: float) -> list[str]:
            return ["77"]

    cluster = Named()
    with pytest.raises(SubmitError):
        submit(made, cluster, Accepting(error=SubmitError("sbatch refused x: timed out")))
    assert cluster.cancelled == ["77"] and find(made, "a1").handed is None


def test_where_nobody_knows_whether_it_was_taken_it_is_not_handed_in_again(made: Made) -> None:
    put(made[1], "a1")
    cluster = FakeCluster(down=True)
    with pytest.raises(SubmitError):
        submit(made, cluster, Accepting(error=SubmitError("sbatch refused x: no answer")))
    assert submit(made, cluster).arrays == []
    cluster.down = False
    assert list(submit(made, cluster).jobs) == ["a1"]  # no job has that name: it was never taken


def test_a_command_that_died_after_sbatch_does_not_lead_to_a_second_job(made: Made) -> None:
    put(made[1], "a1")

    class Died(Exception):
        pass

    with pytest.raises(Died):
        submit(made, submitting=Accepting(error=Died()))
    handed = find(made, "a1").handed
    assert handed is not None and handed.job == ""
    cluster = FakeCluster(named={handed.name: ["88"]})
    cluster.say("88", JobState.PENDING)
    assert submit(made, cluster).arrays == [] and find(made, "a1").handed == handed
    cluster.say("88", JobState.FAILED)
    assert list(submit(made, cluster).jobs) == ["a1"] and find(made, "a1").attempts == 0


def test_a_task_that_was_faster_than_the_command_keeps_what_it_wrote(made: Made) -> None:
    put(made[1], "a1")
    spool = made[1]

    class Fast(Accepting):
        def __call__(self, functions: Sequence[Callable[[], object]], **more: Any) -> tuple[str, ...]:
            found = find(made, "a1")
            assert found.handed is not None and found.handed.job == ""
            spool.move(replace(found, handed=None, attempts=1), State.FETCHED, "to be tried again", "network")
            return ("100",)

    submit(made, submitting=Fast())
    assert find(made, "a1").handed is None and find(made, "a1").attempts == 1


def test_two_commands_at_once_the_second_says_who_holds_it(made: Made) -> None:
    put(made[1], "a1")
    claim = claims.take(made[1].places.claim("run"), stale=90)
    with pytest.raises(ClaimedError, match=f"process {os.getpid()}"):
        submit(made)
    claim.release()
    assert submit(made).arrays


def test_the_environment_of_jobs_holds_no_key(made: Made) -> None:
    put(made[1], "a1")
    taking = Accepting()
    around = {"PATH": "/bin", "FLOCK_API_KEY": SECRET, "HF_TOKEN": SECRET, "MINE": f"a{SECRET}b", "OPENAI_API_KEY": "k"}
    submit(made, submitting=taking, environ=around)
    assert taking.calls[0]["environ"] == {"PATH": "/bin"}
    assert SECRET.encode() not in pickle.dumps([taking.calls[0]["functions"], taking.calls[0]["slurm"]])


def test_what_jobs_ask_slurm_for_comes_from_three_layers() -> None:
    settings = Settings.model_validate({
        "slurm": {"partition": "gpu", "account": "me", "time": "01:00:00", "gres": "gpu:a100:4",
                  "options": {"reservation": "r", "exclusive": True}},
        "validation": {"slurm": {"time": "00:20:00", "gpus": 1}, "module_slurm": {"rl": {"gpus": 0, "mem": "4G"}}},
        "environment": {"OMP_NUM_THREADS": "4"}})
    lora = sbatch_options(slurm_of(settings, "lora"))
    assert (lora["partition"], lora["account"], lora["time"], lora["gres"]) == ("gpu", "me", "00:20:00", "gpu:1")
    assert lora["reservation"] == "r" and lora["exclusive"] is True and lora["mem"] == "64G"
    rl = sbatch_options(slurm_of(settings, "rl"))
    assert "gres" not in rl and rl["mem"] == "4G" and rl["time"] == "00:20:00"
    assert job_environment(settings, {"A": "1"}) == {"A": "1", "OMP_NUM_THREADS": "4"}


def test_gpus_are_shared_out_to_local_workers() -> None:
    assert devices({"CUDA_VISIBLE_DEVICES": "2,GPU-x"}, ["nvidia0"]) == ["2", "GPU-x"]
    assert devices({}, ["nvidiactl", "nvidia10", "nvidia2", "nvidia-uvm"]) == ["2", "10"]
    assert [share(["0", "1", "2"], worker, 2) for worker in range(2)] == ["0,2", "1"]
    assert [share(["0"], worker, 3) for worker in range(3)] == ["0", "0", "0"]
    assert share([], 0, 1) is None


# --- the array itself ----------------------------------------------------------------------------------
def sbatch_script(request: Request) -> str:
    from submitit.slurm.slurm import _make_sbatch_string

    return str(_make_sbatch_string(command="run", folder=request.folder, map_count=len(request.functions),
                                   **options_of(request)))


def test_the_script_of_an_array_asks_for_what_it_was_told(tmp_path: Path) -> None:
    request = Request((print, print), tmp_path / "50%x", "flock-validation-lora-1", {
        "time": "00:00:30", "partition": "p q", "exclusive": True, "overcommit": None, "hold": False}, "slurm", 1)
    text = sbatch_script(request)
    lines = text.splitlines()
    for line in ("--job-name=flock-validation-lora-1", "--time=00:00:30", "--partition='p q'", "--exclusive",
                 "--overcommit", "--array=0-1%1", "--no-requeue", "--signal=B:USR2@6",
                 f"--output={tmp_path}/50%%x/%A_%a_0_log.out"):
        assert f"#SBATCH {line}" in lines, line
    assert "hold" not in text and "wckey" not in text and "srun" not in text


def test_a_folder_that_submitit_would_rewrite_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="%j"):
        submit_array([print], folder=tmp_path / "a%job", name="x", slurm={}, executor="local", environ={})


def fake_sbatch(folder: Path, text: str) -> dict[str, str]:
    """An environment whose `sbatch` is a few lines of shell."""
    folder.mkdir()
    for name in ("sbatch", "squeue", "srun"):
        file = folder / name
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def test_sbatch_gets_the_environment_it_is_given_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                              capfd: pytest.CaptureFixture[str]) -> None:
    environ = fake_sbatch(tmp_path / "bin", f"env > {tmp_path}/seen; echo Submitted batch job 42")
    monkeypatch.setenv("PATH", environ["PATH"])
    monkeypatch.setenv("FLOCK_API_KEY", SECRET)
    monkeypatch.setenv("SLURM_JOB_ID", "9")
    given = {**environ, "SLURM_CPUS_PER_TASK": "7", "SUBMITIT_EXECUTOR": "x", "SLURM_CONF": "/c", "KEPT": "1"}
    jobs = submit_array([functools.partial(print, 1), print], folder=tmp_path / "jobs", name="n", slurm={},
                        executor="slurm", environ=given)
    assert jobs == ("42_0", "42_1")
    seen = (tmp_path / "seen").read_text()
    assert SECRET not in seen and "SLURM_CPUS" not in seen and "SLURM_JOB_ID" not in seen and "SUBMITIT" not in seen
    assert "KEPT=1" in seen and "SLURM_CONF=/c" in seen
    assert sorted(path.name for path in (tmp_path / "jobs").glob("4*")) == [
        "42_0_submitted.pkl", "42_1_submitted.pkl", "42_submission.sh"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("text", "unsure", "words"), [
    ("echo 'sbatch: error: invalid partition specified: nope' >&2; exit 1", False, "invalid partition"),
    ("echo hello", True, "hello"), ("kill -9 $$", False, "refused")])
def test_sbatchs_errors_are_one_error_with_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str,
                                                    unsure: bool, words: str,
                                                    capfd: pytest.CaptureFixture[str]) -> None:
    environ = fake_sbatch(tmp_path / "bin", text)
    monkeypatch.setenv("PATH", environ["PATH"])
    with pytest.raises(SubmitError, match=words) as raised:
        submit_array([print], folder=tmp_path / "jobs", name="n", slurm={}, executor="slurm", environ=environ)
    assert raised.value.unsure is unsure and raised.value.todo
    assert capfd.readouterr() == ("", "")


def test_a_missing_sbatch_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SubmitError, match="no command 'sbatch'"):
        submit_array([print], folder=tmp_path / "jobs", name="n", slurm={}, executor="slurm", environ={})


def test_ids_of_local_jobs_tell_one_process_from_the_next() -> None:
    mine = local_id(os.getpid())
    assert local_alive(mine) is True
    assert local_alive(mine.rpartition(":")[0] + ":1") is False
    assert local_alive(f"elsewhere:{os.getpid()}:5") is None and local_alive("12_3") is None


# --- on this machine ----------------------------------------------------------------------------------
def test_local_workers_do_it_and_no_more_of_them_than_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOCK_API_KEY", SECRET)
    made = make(tmp_path / "space", local_parallel=2)
    for number in range(4):
        put(made[1], f"a{number}", rows=[{"value": number}])
    put(made[1], "broken", rows=["no object"])
    report = hand_in(*made, executor="local", usable=lambda module: None)
    assert len(set(report.jobs.values())) == 2 and sorted(report.jobs) == ["a0", "a1", "a2", "a3", "broken"]
    put(made[1], "late")
    second = hand_in(*made, executor="local", ids=["late"], usable=lambda module: None)
    shown: list[str] = []
    last = wait(*made, None, report.jobs, show=lambda one: shown.append(str(one)), poll=0.1,
                until=time.monotonic() + 90)
    assert (last.done, last.again, last.left) == (4, 1, 0) and len(shown) >= 2
    assert second.jobs or "local_parallel=2" in second.kept["late"]
    if second.jobs:
        wait(*made, None, second.jobs, poll=0.1, until=time.monotonic() + 90)
    scores = {one.id: json.loads(one.result_file.read_text())["payload"]["score"]
              for one in made[1].listed(State.DONE)}
    assert {name: scores[name] for name in ("a0", "a1", "a2", "a3")} == {"a0": 0.0, "a1": 1.0, "a2": 2.0, "a3": 3.0}
    broken = find(made, "broken")
    assert broken.attempts == 1 and broken.handed is None and broken.cause == "data"
    found = [path for path in made[0].root.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert found == []
    for job in set(report.jobs.values()) | set(second.jobs.values()):
        while local_alive(job):
            time.sleep(0.05)


# --- settling ---------------------------------------------------------------------------------------
def running(made: Made, assignment_id: str = "a1", job: str = "7_0", **more: Any) -> Assignment:
    spool = made[1]
    handed = Handed(job, "flock-validation-example-1", "slurm", 5.0)
    return spool.move(replace(put(spool, assignment_id, **more), handed=handed), State.RUNNING, "started", job=job)


@pytest.mark.parametrize(("state", "cause"), [
    (JobState.TIMEOUT, "time-limit"), (JobState.PREEMPTED, "preempted"), (JobState.NODE_FAIL, "node-failure"),
    (JobState.OUT_OF_MEMORY, "out-of-memory"), (JobState.CANCELLED, "cancelled"), (JobState.FAILED, "killed")])
def test_a_dead_job_is_settled_by_slurms_word(made: Made, state: JobState, cause: str) -> None:
    running(made)
    cluster = FakeCluster()
    cluster.say("7_0", state)
    settled = settle(*made, cluster)
    assert [one.id for one in settled.again] == ["a1"] and settled.changed == 1
    now = find(made, "a1")
    assert (now.state, now.cause, now.attempts, now.handed, now.ready) == (State.FETCHED, cause, 1, None, True)


def test_the_last_start_leads_to_a_person_and_never_to_a_failure(made: Made) -> None:
    running(made, attempts=2)
    cluster = FakeCluster()
    cluster.say("7_0", JobState.NODE_FAIL)
    assert [one.id for one in settle(*made, cluster).given_up] == ["a1"]
    assert find(made, "a1").state is State.GIVEN_UP and find(made, "a1").cause == "node-failure"


@pytest.mark.parametrize(("outcome", "where"), [
    ("completed", State.DONE), ("partial", State.DONE), ("failed", State.FETCHED), ("recoverable", State.FETCHED)])
def test_a_finished_result_of_a_dead_job_is_taken(made: Made, outcome: str, where: State) -> None:
    one = running(made)
    (one.folder / "result.json").write_text(json.dumps(
        {"assignment_id": "a1", "outcome": outcome, "module": "example", "payload": {"score": 1.0}}))
    cluster = FakeCluster()
    cluster.say("7_0", JobState.TIMEOUT)
    settled = settle(*made, cluster)
    assert find(made, "a1").state is where and len(settled.taken) == (where is State.DONE)
    if where is State.FETCHED:
        assert not (find(made, "a1").folder / "result.json").exists()


def test_unknown_is_not_dead(made: Made) -> None:
    spool = made[1]
    running(made)
    me = replace(claims.myself({}), host="elsewhere", job="55")
    claim = claims.take(spool.places.assignment_claim("a1"), stale=0.1, me=me)
    os.utime(claim.path, (1.0, 1.0))
    settled = settle(*made, FakeCluster(down=True))
    assert settled.changed == 0 and "may be alive" in settled.waiting[0][1]
    assert find(made, "a1").state is State.RUNNING
    spool.job_alive = {"55": False}.get
    assert settle(*made, FakeCluster(down=True)).again[0].cause == "killed"


def test_slurm_is_given_a_moment_to_say_how_a_job_ended(made: Made) -> None:
    running(made)
    cluster = FakeCluster()
    cluster.say("7_0", JobState.COMPLETING)
    assert settle(*made, cluster).changed == 0
    assert settle(*made, cluster, lambda: time.time() + 900).again[0].cause == "killed"


def test_an_event_of_a_clock_that_was_ahead_is_not_waited_for(made: Made) -> None:
    running(made)
    cluster = FakeCluster()
    cluster.say("7_0", JobState.COMPLETING)
    assert settle(*made, cluster, lambda: time.time() - 60).changed == 0
    assert settle(*made, cluster, lambda: time.time() - 400 * 86400).again[0].cause == "killed"


def handed_over(made: Made, assignment_id: str, job: str = "7_0") -> Assignment:
    one = put(made[1], assignment_id)
    return made[1].save(replace(one, handed=Handed(job, "flock-validation-example-1", "slurm", 5.0)))


@pytest.mark.parametrize(("status", "attempts"), [
    (JobStatus("7_0", JobState.CANCELLED, "sacct"), 0),
    (JobStatus("7_0", JobState.UNKNOWN, "nobody", gone=True), 0),
    (JobStatus("7_0", JobState.NODE_FAIL, "sacct", elapsed="00:00:00"), 0),
    (JobStatus("7_0", JobState.PREEMPTED, "sacct"), 0),
    (JobStatus("7_0", JobState.FAILED, "sacct", elapsed="00:00:03"), 1),
    (JobStatus("7_0", JobState.COMPLETED, "sacct", elapsed="00:00:03"), 1)])
def test_what_a_gone_job_never_started_is_free_again(made: Made, status: JobStatus, attempts: int) -> None:
    handed_over(made, "a1")
    settled = settle(*made, FakeCluster(states={"7_0": status}))
    now = find(made, "a1")
    assert (now.handed, now.attempts, now.state) == (None, attempts, State.FETCHED)
    assert [one.id for one in settled.again] == ["a1"] and "7_0" in now.history[-1].what


def test_a_job_that_died_at_another_assignment_counts_for_that_one_only(made: Made) -> None:
    running(made, "a1")
    handed_over(made, "a2")
    cluster = FakeCluster(states={"7_0": JobStatus("7_0", JobState.FAILED, "sacct", elapsed="00:10:00")})
    settle(*made, cluster)
    assert (find(made, "a1").attempts, find(made, "a2").attempts) == (1, 0)


def test_jobs_that_never_start_anything_lead_to_a_person(made: Made) -> None:
    one = handed_over(made, "a1")
    made[1].save(replace(one, attempts=2))
    cluster = FakeCluster(states={"7_0": JobStatus("7_0", JobState.FAILED, "sacct", elapsed="00:00:03")})
    assert settle(*made, cluster).given_up[0].cause == "never-started"
    assert find(made, "a1").state is State.GIVEN_UP


def test_a_job_has_the_settings_with_which_it_was_handed_in(made: Made) -> None:
    workspace, spool = made
    put(spool, "a1")
    changed = workspace.settings.validation.model_copy(update={"metrics": "old", "attempts": 9})
    flags = replace(workspace, settings=workspace.settings.model_copy(update={"validation": changed}))
    report = hand_in(flags, spool, executor="slurm", cluster=FakeCluster(), usable=lambda module: None,
                     submit=Accepting())
    assert settings_of(workspace.root, report.arrays[0].name) == flags.settings
    assert settings_of(workspace.root, "another") == workspace.settings


@pytest.mark.parametrize("status", [JobStatus("7_0", JobState.PENDING, "squeue"),
                                    JobStatus("7_0", JobState.RUNNING, "squeue"),
                                    JobStatus("7_0", JobState.UNKNOWN, "squeue failed")])
def test_what_waits_for_a_job_that_may_come_stays_with_it(made: Made, status: JobStatus) -> None:
    handed_over(made, "a1")
    settled = settle(*made, FakeCluster(states={"7_0": status}))
    assert settled.changed == 0 and find(made, "a1").handed is not None
    assert len(settled.waiting) == (status.state is JobState.UNKNOWN)


def test_without_slurm_to_ask_nothing_of_slurms_is_freed(made: Made) -> None:
    handed_over(made, "a1")
    assert "no Slurm" in settle(*made, None).waiting[0][1]
    assert find(made, "a1").handed is not None


def test_old_folders_of_jobs_are_removed_and_those_in_use_are_not(made: Made) -> None:
    handed_over(made, "a1")
    folder = made[1].places.jobs
    for name in ("flock-validation-example-1", "old", "young"):
        (folder / name).mkdir(parents=True)
        (folder / name / "x.out").touch()
    for name in ("flock-validation-example-1", "old"):
        os.utime(folder / name, (1.0, 1.0))
    submit(made, FakeCluster(others=WAITING))
    assert sorted(path.name for path in folder.iterdir()) == ["flock-validation-example-1", "young"]


def test_settling_leaves_a_handing_in_that_is_under_way_alone(made: Made) -> None:
    handed_over(made, "a1", job="")
    claim = claims.take(made[1].places.claim("run"), stale=90)
    assert settle(*made, FakeCluster()).changed == 0
    claim.release()
    assert settle(*made, FakeCluster()).changed == 1


def test_progress_counts_each_once(made: Made) -> None:
    handed_over(made, "a1")
    put(made[1], "a2")
    running(made, "a3")
    made[1].move(put(made[1], "a4"), State.DONE)
    made[1].move(put(made[1], "a5"), State.GIVEN_UP)
    now = progress(made[1], ["a1", "a2", "a3", "a4", "a5", "a6"])
    assert (now.waiting, now.again, now.running, now.done, now.given_up, now.gone) == (1, 1, 1, 1, 1, 1)
    assert now.left == 2


def test_submitit_is_used_in_one_file_only() -> None:
    root = Path(arrays.__file__).resolve().parents[1]
    users = [path for path in root.rglob("*.py") if "import submitit" in path.read_text()]
    assert users == [Path(arrays.__file__).resolve()]
