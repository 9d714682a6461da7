"""The Slurm rig is a Slurm: jobs, arrays, GPUs, accounting; and it cleans up after itself."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.rigs import slurm as rigs
from tests.rigs.required import missing
from tests.rigs.slurm import SlurmRig


def eventually(condition: Callable[[], bool], timeout: float = 90) -> None:
    """Wait until the condition holds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not so after {timeout:.0f} s"
        time.sleep(0.1)


def submit(rig: SlurmRig, folder: Path, body: str, *options: str) -> str:
    """Submit a script that runs in the folder, and give the job's id."""
    sbatch = ["sbatch", "--parsable", f"--chdir={folder}", *options]
    return rig.run(*sbatch, f"--wrap={body}").stdout.strip()


def states(rig: SlurmRig, job: str, *options: str) -> list[str]:
    """The states that accounting has for a job, one for each task of an array."""
    return rig.run("sacct", "-X", "-n", "-P", "-j", job, "-o", "State", *options).stdout.split("\n")[:-1]


def running(rig: SlurmRig, job: str) -> bool:
    """Whether the job runs according to squeue."""
    return rig.run("squeue", "-h", "-j", job, "-o", "%T", check=False).stdout.strip() == "RUNNING"


@pytest.fixture
def small() -> Iterator[SlurmRig]:
    """A cluster for one test, without accounting, to break things in."""
    if reason := rigs.available(accounting=False):
        missing(reason)
    with SlurmRig(accounting=False) as rig:
        yield rig


def test_a_job_runs_and_is_accounted(slurm: SlurmRig, tmp_path: Path) -> None:
    job = submit(slurm, tmp_path, "echo hello from $SLURMD_NODENAME", "--output=out")
    eventually(lambda: states(slurm, job) == ["COMPLETED"])
    assert (tmp_path / "out").read_text().strip() in {"hello from n1", "hello from n2"}
    assert os.environ["SLURM_CONF"] == slurm.env["SLURM_CONF"]


def test_a_failing_job_is_accounted_as_failed(slurm: SlurmRig, tmp_path: Path) -> None:
    job = submit(slurm, tmp_path, "exit 3")
    eventually(lambda: states(slurm, job) == ["FAILED"])
    assert slurm.run("sacct", "-X", "-n", "-P", "-j", job, "-o", "ExitCode").stdout == "3:0\n"


def test_two_jobs_on_one_node_get_different_gpus(slurm: SlurmRig, tmp_path: Path) -> None:
    body = "echo $CUDA_VISIBLE_DEVICES > part$SLURM_JOB_ID && mv part$SLURM_JOB_ID gpu$SLURM_JOB_ID;"
    body += " while [ ! -e go ]; do sleep 0.1; done"
    large = ("--gres=gpu:1", "--nodelist=n1", "--mem=64G", "--cpus-per-task=8")
    jobs = [submit(slurm, tmp_path, body, *large) for _ in range(2)]
    eventually(lambda: len(list(tmp_path.glob("gpu*"))) == 2)
    waiting = submit(slurm, tmp_path, "true", *large)
    assert {(tmp_path / f"gpu{job}").read_text().strip() for job in jobs} == {"0", "1"}
    assert not running(slurm, waiting)
    (tmp_path / "go").touch()
    eventually(lambda: [states(slurm, job) for job in (*jobs, waiting)] == [["COMPLETED"]] * 3)


def test_an_array_keeps_to_its_limit(slurm: SlurmRig, tmp_path: Path) -> None:
    body = "date +%s.%N > start$SLURM_ARRAY_TASK_ID; sleep 0.5; date +%s.%N > end$SLURM_ARRAY_TASK_ID"
    job = submit(slurm, tmp_path, body, "--array=0-3%2")
    eventually(lambda: states(slurm, job) == ["COMPLETED"] * 4)
    starts, ends = ([float((tmp_path / f"{k}{i}").read_text()) for i in range(4)] for k in ("start", "end"))
    assert all(sum(s <= at < e for s, e in zip(starts, ends, strict=True)) <= 2 for at in starts)


def test_scancel_ends_a_job_and_what_it_started(slurm: SlurmRig, tmp_path: Path) -> None:
    job = submit(slurm, tmp_path, "sleep 1000 & echo $! > pid; wait")
    eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
    slurm.run("scancel", job)
    eventually(lambda: states(slurm, job) == [f"CANCELLED by {os.getuid()}"])
    eventually(lambda: not psutil.pid_exists(int((tmp_path / "pid").read_text())))


def test_test_only_answers_without_submitting(slurm: SlurmRig, tmp_path: Path) -> None:
    before = slurm.run("squeue", "-h", "-o", "%i").stdout
    good = slurm.run("sbatch", "--test-only", "--gres=gpu:2", "--wrap=true")
    assert "to start at" in good.stderr
    bad = slurm.run("sbatch", "--test-only", "--gres=gpu:3", "--wrap=true", check=False)
    assert bad.returncode != 0
    assert "Requested node configuration is not available" in bad.stderr
    assert slurm.run("squeue", "-h", "-o", "%i").stdout == before


def test_squeue_lists_my_jobs(slurm: SlurmRig, tmp_path: Path) -> None:
    one = submit(slurm, tmp_path, "sleep 1000", "--job-name=one")
    many = submit(slurm, tmp_path, "sleep 1000", "--job-name=many", "--array=0-1", "--begin=now+1hour")
    eventually(lambda: running(slurm, one))
    listed = slurm.run("squeue", "--me", "-h", "-r", "-o", "%i|%T|%j").stdout.splitlines()
    slurm.run("scancel", one, many)
    assert {f"{one}|RUNNING|one", f"{many}_0|PENDING|many", f"{many}_1|PENDING|many"} <= set(listed)


def test_a_requeued_job_runs_again_soon(slurm: SlurmRig, tmp_path: Path) -> None:
    body = 'touch run${SLURM_RESTART_COUNT:-0}; [ -n "$SLURM_RESTART_COUNT" ] || sleep 1000'
    job = submit(slurm, tmp_path, body)
    eventually((tmp_path / "run0").exists)
    slurm.run("scontrol", "requeue", job)
    eventually(lambda: states(slurm, job, "--duplicates") == ["REQUEUED", "COMPLETED"])
    assert (tmp_path / "run1").exists()


def test_a_limit_set_with_sacctmgr_is_enforced() -> None:
    if reason := rigs.available():
        missing(reason)
    with SlurmRig(enforce="associations,limits,qos", max_array_size=5) as rig:
        rig.run("sacctmgr", "-i", "add", "qos", "small", "set", "MaxSubmitJobsPerUser=2")
        rig.run("sacctmgr", "-i", "modify", "account", "flock", "set", "qos+=small")
        submission = ("sbatch", "--qos=small", "--hold", "--wrap=true")
        eventually(lambda: rig.run(*submission, check=False).returncode == 0)
        rig.run(*submission)
        assert "QOSMaxSubmitJobPerUserLimit" in rig.run(*submission, check=False).stderr
        assert "Invalid job array" in rig.run("sbatch", "--array=0-5", "--wrap=true", check=False).stderr


def test_jobs_outlive_restarts_of_the_daemons(small: SlurmRig, tmp_path: Path) -> None:
    job = submit(small, tmp_path, "while [ ! -e go ]; do sleep 0.1; done; touch done", "--nodelist=n1")
    eventually(lambda: running(small, job))
    small.restart_ctld()
    old = small.slurmd_pids["n1"]
    small.kill_slurmd("n1")
    assert set(small.slurmd_pids) == {"n2"}
    small.start_slurmd("n1")
    assert small.slurmd_pids["n1"] != old
    assert running(small, job)
    (tmp_path / "go").touch()
    eventually(lambda: not running(small, job))
    assert (tmp_path / "done").exists()


def test_a_dead_node_takes_its_jobs_along(small: SlurmRig, tmp_path: Path) -> None:
    for node in rigs.NODES:
        submit(small, tmp_path, f"echo $$ > {node}; exec sleep 1000", f"--nodelist={node}")
    eventually(lambda: all((tmp_path / node).exists() for node in rigs.NODES))
    pids = [int((tmp_path / node).read_text()) for node in rigs.NODES]
    small.kill_slurmd("n1", jobs=True)
    eventually(lambda: not psutil.pid_exists(pids[0]))
    assert psutil.pid_exists(pids[1])


def leftovers(run_dir: Path) -> list[str]:
    """Command lines of all processes that have to do with a rig's folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            places = [process.cwd(), *process.cmdline(), *process.environ().values()]
            places += [file.path for file in process.open_files()]
            if str(run_dir) in " ".join(places) and process.pid != os.getpid():
                found.append(f"{process.pid} {process.cmdline()}")
    return found


def test_stop_leaves_nothing(tmp_path: Path) -> None:
    if reason := rigs.available():
        missing(reason)
    with SlurmRig() as rig:
        stubborn = "trap '' TERM; touch there; for i in $(seq 100); do sleep 10; done"
        submit(rig, tmp_path, stubborn)
        eventually((tmp_path / "there").exists)
        assert leftovers(rig.run_dir)
    assert leftovers(rig.run_dir) == []
    assert not rig.run_dir.exists()
    rig.start()
    rig.stop()


def test_nothing_is_left_where_the_owner_is_killed(tmp_path: Path) -> None:
    if reason := rigs.available():
        missing(reason)
    owner = subprocess.Popen([sys.executable, rigs.__file__, "up", str(tmp_path)])
    eventually((tmp_path / "env").exists)
    conf = Path((tmp_path / "env").read_text().strip().removeprefix("export SLURM_CONF="))
    env = {**os.environ, "SLURM_CONF": str(conf)}
    body = f"--wrap=touch {tmp_path}/there; env -i sleep 1000"
    subprocess.run(["sbatch", "--output=/dev/null", "--export=NONE", body], env=env, check=True)
    eventually((tmp_path / "there").exists)
    assert leftovers(conf.parent)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    eventually(lambda: not leftovers(conf.parent) and not conf.parent.exists())


def test_up_ends_cleanly_on_sigterm(tmp_path: Path) -> None:
    if reason := rigs.available():
        missing(reason)
    owner = subprocess.Popen([sys.executable, rigs.__file__, "up", str(tmp_path / "new")])
    eventually((tmp_path / "new/env").exists)
    owner.terminate()
    assert owner.wait(60) == 0
    assert list((tmp_path / "new").iterdir()) == []


def test_shell_passes_the_exit_status_on() -> None:
    if reason := rigs.available():
        missing(reason)
    command = [sys.executable, rigs.__file__, "shell", "--", "sh", "-c", "sinfo -h -o %D && exit 7"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (7, "2\n")
