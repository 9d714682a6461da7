"""Validation's array jobs on a real Slurm: done, killed, cancelled, out of time, on a node that dies, twice."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from automate.cluster.arrays import submit_array
from automate.cluster.queue import job_alive
from automate.cluster.slurm import SlurmCluster
from automate.errors import SubmitError
from automate.validation.assignments import Assignment, State
from automate.validation.jobs import hand_in, settle, wait
from automate.validation.jobs.handing import HandedIn
from automate.validation.jobs.resources import job_environment
from automate.validation.jobs.task import run_task
from automate.validation.spool import Spool
from automate.workspace import Workspace
from tests.e2e.support import eventually
from tests.rigs.slurm import SlurmRig
from tests.unit.validation_jobs_support import make, put

SECRET = "flk-planted-0123456789abcdef"
STALE = 2.0
SLOW = '''
"""Says that it has started and what it found around it, and waits until it may go on."""
import json, os, time
from pathlib import Path
from automate.validation.modules.base import BaseConfig, BaseInputData, BaseMetrics, BaseValidationModule

class Config(BaseConfig): pass
class Input(BaseInputData): pass
class Metrics(BaseMetrics):
    score: float

class Slow(BaseValidationModule):
    config_schema, input_data_schema, metrics_schema, task_type = Config, Input, Metrics, "slow"
    def __init__(self, config, **kwargs): pass
    def cleanup(self): pass
    def validate(self, data, **kwargs):
        job = kwargs["job"]
        told = json.loads(job.data.read_text())
        around, pid = [], os.getpid()
        while pid > 1:
            environ, stat = (Path(f"/proc/{pid}/{name}").read_text(errors="replace") for name in ("environ", "stat"))
            around.append([pid, environ])
            pid = int(stat.rpartition(")")[2].split()[1])
            if "SLURM_JOB_ID" not in environ:
                break
        Path(told["started"]).write_text(json.dumps([str(job.scratch), around]))
        while not Path(told["go"]).exists():
            time.sleep(0.1)
        return Metrics(score=1.0)

MODULE = Slow
'''


class Bench:
    """A workspace on a real Slurm, whose module `slow` waits for a file."""

    def __init__(self, rig: SlurmRig, root: Path, **settings: Any) -> None:
        self.rig, self.root = rig, root
        slurm = {"mem": "100M", "cpus_per_task": 1, "gpus": 0, "time": "00:10:00", **settings.pop("slurm", {})}
        made = make(root, stale=STALE, settings={"slurm": slurm}, module_folders=["mods"], **settings)
        self.workspace: Workspace = made[0]
        self.spool = Spool(made[0].validation, stale=STALE, job_alive=job_alive)
        self.cluster = SlurmCluster()
        (root / "mods").mkdir()
        (root / "mods" / "slow.py").write_text(SLOW)

    def started(self, name: str) -> Path:
        return self.root / f"{name}.started"

    def go(self, name: str) -> None:
        (self.root / f"{name}.go").touch()

    def slow(self, *names: str) -> None:
        for name in names:
            put(self.spool, name, rows=[{"started": str(self.started(name)), "go": str(self.root / f"{name}.go")}],
                module="slow")

    def hand_in(self) -> HandedIn:
        return hand_in(self.workspace, self.spool, executor="slurm")

    def run(self, name: str) -> str:
        """Hand one in and wait until its module is at work; the job."""
        self.started(name).unlink(missing_ok=True)
        job = self.hand_in().jobs[name]
        eventually(self.started(name).exists, f"a start of {name}", timeout=60)
        return job

    def pids(self, name: str) -> list[int]:
        """The module's process, and those above it within the job."""
        return [pid for pid, _ in json.loads(self.started(name).read_text())[1]]

    def find(self, name: str) -> Assignment:
        found = self.spool.find(name)
        assert found is not None
        return found

    def settled(self, name: str, timeout: float = 120) -> Assignment:
        """What it is once it is in no job's hands any more."""
        def done() -> bool:
            settle(self.workspace, self.spool, self.cluster)
            now = self.find(name)
            return now.state is not State.RUNNING and not (now.state is State.FETCHED and now.handed)

        eventually(done, f"the end of {name}", timeout=timeout)
        return self.find(name)

    def finish(self, name: str) -> Assignment:
        """Hand it in again and let it get through; the cluster's faults must have left it whole."""
        self.go(name)
        assert name in self.hand_in().jobs
        done = self.settled(name)
        assert done.state is State.DONE, done
        return done

    def logs(self) -> str:
        return "".join(path.read_text() for path in sorted(self.spool.places.jobs.rglob("*_log.*")))


@pytest.fixture
def bench(slurm: SlurmRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    one = Bench(slurm, tmp_path / "space")
    yield one
    slurm.run("scancel", "--me", check=False)


def test_an_array_does_each_once_and_sees_no_key(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FLOCK_API_KEY", "HF_TOKEN", "OPENAI_API_KEY", "MY_COPY"):
        monkeypatch.setenv(name, SECRET)
    for number in range(4):
        put(bench.spool, f"a{number}", rows=[{"value": number}, {"value": number + 2}])
    bench.slow("look")
    bench.go("look")
    report = bench.hand_in()
    assert len(report.arrays) == 2 and len(set(report.jobs.values())) == 5
    last = wait(bench.workspace, bench.spool, bench.cluster, report.jobs, poll=0.2)
    assert (last.done, last.left) == (5, 0), bench.logs()
    for number in range(4):
        done = bench.find(f"a{number}")
        assert json.loads(done.result_file.read_text())["payload"] == {"score": number + 1.0}
        assert [event.job for event in done.history] == [report.jobs[f"a{number}"]] * 2
    scratch, around = json.loads(bench.started("look").read_text())
    assert len(around) >= 3 and "SLURM_JOB_ID" in around[-2][1] and not Path(scratch).exists()
    assert all(SECRET not in environ for _, environ in around)
    files = [path for folder in (bench.root, bench.rig.run_dir) for path in folder.rglob("*")
             if path.is_file() and not path.is_symlink() and "db" not in path.parts]
    assert any(path.name == "environment" for path in files) or any("job." in str(path) for path in files)
    found = []
    for path in files:
        with contextlib.suppress(OSError):
            if SECRET.encode() in path.read_bytes():
                found.append(path)
    assert found == []


@pytest.mark.parametrize("whom", ["module", "task", "all"])
def test_killed_processes_cost_one_start_and_nothing_else(bench: Bench, whom: str) -> None:
    bench.slow("a1")
    bench.run("a1")
    pids = bench.pids("a1")
    module, guard, task = pids[:3]
    for pid in {"module": [module], "task": [task], "all": [task, guard, module]}[whom]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    back = bench.settled("a1")
    assert (back.state, back.attempts, back.cause) == (State.FETCHED, 1, "killed"), bench.logs()
    eventually(lambda: not any(psutil.pid_exists(pid) for pid in (module, guard, task)), "the end of all processes")
    done = bench.finish("a1")
    assert done.attempts == 1 and len(list((done.folder / "logs").iterdir())) == 2


def test_a_running_job_that_is_cancelled_puts_it_back_itself(bench: Bench) -> None:
    bench.slow("a1")
    bench.rig.run("scancel", bench.run("a1"))
    eventually(lambda: bench.find("a1").state is State.FETCHED, "the assignment's return", timeout=60)
    back = bench.find("a1")
    assert (back.attempts, back.handed, back.cause) == (1, None, "cancelled"), bench.logs()
    bench.finish("a1")


def test_a_waiting_job_that_is_cancelled_costs_no_start(slurm: SlurmRig, tmp_path: Path) -> None:
    bench = Bench(slurm, tmp_path / "space", slurm={"options": {"hold": True}})
    bench.slow("a1")
    job = bench.hand_in().jobs["a1"]
    assert bench.hand_in().jobs == {} and settle(bench.workspace, bench.spool, bench.cluster).changed == 0
    slurm.run("scancel", job)
    eventually(lambda: settle(bench.workspace, bench.spool, bench.cluster).changed == 1, "the cancelled job")
    back = bench.find("a1")
    assert (back.state, back.attempts, back.handed) == (State.FETCHED, 0, None)


def test_the_time_limit_is_met_in_time_to_put_it_back(slurm: SlurmRig, tmp_path: Path) -> None:
    bench = Bench(slurm, tmp_path / "space", slurm={"time": "00:01:00"})
    bench.slow("a1")
    job = bench.run("a1")
    eventually(lambda: bench.find("a1").state is State.FETCHED, "the assignment's return", timeout=150)
    back = bench.find("a1")
    assert (back.attempts, back.cause) == (1, "time-limit"), bench.logs()
    assert f"job {job}" not in bench.logs()


def test_a_node_that_dies_is_told_by_slurm(rough: SlurmRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in rough.env.items():
        monkeypatch.setenv(name, value)
    bench = Bench(rough, tmp_path / "space")
    bench.slow("a1")
    job = bench.run("a1")
    node = rough.run("squeue", "-h", "-r", "-j", job, "-o", "%N").stdout.strip()
    rough.kill_slurmd(node, jobs=True)
    try:
        back = bench.settled("a1", timeout=180)
        assert (back.state, back.attempts, back.cause) == (State.FETCHED, 1, "node-failure"), bench.logs()
    finally:
        rough.start_slurmd(node)
    eventually(lambda: "idle 2" in rough.run("sinfo", "-ho%T %D", "-p", "test", check=False).stdout, "the node")
    bench.finish("a1")


def test_of_two_arrays_over_the_same_one_does_it_and_the_other_says_why(bench: Bench) -> None:
    bench.slow("a1", "a2")
    first = bench.hand_in()
    second = submit_array(
        [functools.partial(run_task, str(bench.root), ("a1", "a2"), "again", STALE)] * 2,
        folder=bench.spool.places.jobs / "again", name="again",
        slurm={"mem": "100M", "cpus-per-task": 1, "time": "00:10:00"}, executor="slurm",
        environ=job_environment(bench.workspace.settings, os.environ))
    eventually(lambda: bench.started("a1").exists() and bench.started("a2").exists(), "both starts", timeout=60)
    eventually(lambda: "left alone" in bench.logs(), "the second's words", timeout=60)
    bench.go("a1")
    bench.go("a2")
    eventually(lambda: all(job_alive(job) is False for job in (*first.jobs.values(), *second)), "all jobs' end",
               timeout=60)
    for name in ("a1", "a2"):
        done = bench.find(name)
        assert done.state is State.DONE and done.attempts == 0
        assert [event.what for event in done.history] == ["started", "validated"]
    assert "held by job" in bench.logs()


def test_slurms_refusal_is_one_error(slurm: SlurmRig, tmp_path: Path) -> None:
    bench = Bench(slurm, tmp_path / "space", slurm={"partition": "nowhere"})
    bench.slow("a1")
    with pytest.raises(SubmitError, match="invalid partition"):
        bench.hand_in()
    assert bench.find("a1").handed is None


def test_a_preempted_job_puts_it_back_and_is_not_requeued(rough: SlurmRig, tmp_path: Path,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in rough.env.items():
        monkeypatch.setenv(name, value)
    bench = Bench(rough, tmp_path / "space", slurm={"partition": "low"})
    bench.slow("a1")
    job = bench.run("a1")
    for _ in range(2):
        rough.run("sbatch", "-p", "high", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 20")
    back = bench.settled("a1")
    assert (back.state, back.attempts, back.cause) == (State.FETCHED, 1, "preempted"), bench.logs()
    eventually(lambda: job_alive(job) is False, "the end of the preempted job")
    rough.run("scancel", "-p", "high", "--me")
    bench.finish("a1")


KILLED_BETWEEN = """
import os, sys
from pathlib import Path
from automate.validation.jobs import handed, hand_in
from automate.validation.spool import Spool
from automate.workspace import open_workspace
handed.write_down = lambda *_: os.kill(os.getpid(), 9)
workspace = open_workspace(Path(sys.argv[1]))
hand_in(workspace, Spool(workspace.validation), executor="slurm")
"""


def test_a_command_killed_right_after_sbatch_leads_to_one_run(bench: Bench) -> None:
    bench.slow("a1")
    killed = subprocess.run([sys.executable, "-c", KILLED_BETWEEN, str(bench.root)], check=False)
    assert killed.returncode == -signal.SIGKILL
    eventually(bench.started("a1").exists, "the start")
    time.sleep(1.5)  # the dead command's claim grows old
    assert bench.hand_in().jobs == {}
    bench.go("a1")
    done = bench.settled("a1")
    assert done.state is State.DONE and [event.what for event in done.history] == ["started", "validated"]
