"""The doctor on a real Slurm: its job on a compute node, one that never starts, and one that is stopped."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.support import command, environment, eventually, flock, make_workspace, said
from tests.rigs.slurm import SlurmRig

VLLM = '__version__ = "0.0.test"\n'


@pytest.fixture
def workspace(tmp_path: Path, slurm: SlurmRig) -> Path:
    """A workspace with a judge's folder and an environment in which there is something called vLLM."""
    root = make_workspace(tmp_path / "w", cluster="generic", executor="slurm", judge={
        "kind": "vllm", "path": "judge", "environment": {"venv": "venv", "variables": {"WHERE": "inside"}}})
    (root / "judge").mkdir()
    (root / "judge/config.json").write_text('{"num_hidden_layers": 1, "num_attention_heads": 1, "hidden_size": 8}')
    (root / "judge/model.safetensors").write_bytes(b"\0" * 2_000_000)
    (root / "venv/bin").mkdir(parents=True)
    (root / "venv/bin/activate").write_text(f'export PATH="{root}/venv/bin:$PATH" PYTHONPATH="{root}/site"\n')
    (root / "venv/bin/vllm").write_text(f"#!{sys.executable}\n")
    (root / "venv/bin/vllm").chmod(0o755)
    (root / "site").mkdir()
    (root / "site/vllm.py").write_text(VLLM)
    return root


@pytest.fixture
def full(slurm: SlurmRig) -> Iterator[None]:
    """A cluster whose nodes are all taken."""
    job = slurm.run("sbatch", "--parsable", "--exclusive", "-N2", "--mem=0", "-t5", "-o/dev/null", "--wrap=sleep 300")
    number = job.stdout.strip()
    eventually(lambda: slurm.run("squeue", "-h", "-j", number, "-o%T").stdout.strip() == "RUNNING", "it runs")
    yield
    slurm.run("scancel", number)
    eventually(lambda: not queued(slurm), "nothing in the queue")


def queued(slurm: SlurmRig, name: str = "") -> list[str]:
    """Names of the jobs in the queue that begin so."""
    return [line for line in slurm.run("squeue", "-h", "-o%j").stdout.split("\n") if line and line.startswith(name)]


def doctor(root: Path, *args: str) -> tuple[int, dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """Exit status, and the lines of the login node and of the job by what they are about."""
    done = flock("doctor", "--json", *args, cwd=root)
    found = json.loads(done.stdout)
    by = [{line["subject"]: line for line in found[part] or []} for part in ("login", "job")]
    return done.returncode, by[0], by[1]


def test_a_job_on_a_node_looks_at_what_a_batch_would_find(workspace: Path, slurm: SlurmRig) -> None:
    status, login, job = doctor(workspace, "--job")
    assert status == 0, [line for line in [*login.values(), *job.values()] if line["mark"] == "error"]
    assert job["node"]["what"].startswith(("n1 (", "n2 ("))
    assert "vLLM 0.0.test" in job["vLLM"]["what"]
    assert str(workspace / "venv/bin/vllm") in job["environment"]["what"]
    for subject in ("requeue", "sbatch from the node", "a request", "Unix socket", "loopback port", "offline", "clock",
                    "folder: records", "folder: judgments", "judge's folder", "disk rate", "questions", "answers"):
        assert job[subject]["mark"] == "ok", job[subject]
    assert login["workspace"]["what"].endswith("sees it")
    assert login["controller"]["mark"] == login["accounting"]["mark"] == login["partition test"]["mark"] == "ok"
    assert not queued(slurm, "doctor")


def test_wrong_settings_are_told_before_any_job(workspace: Path) -> None:
    text = (workspace / "flock-hpc.yaml").read_text()
    wrong = "slurm:\n  partition: nope\n  account: nobody\n"
    (workspace / "flock-hpc.yaml").write_text(text.replace("slurm:\n", wrong))
    status, login, job = doctor(workspace, "--job")
    assert status == 1
    assert login["partition nope"]["todo"].startswith("set slurm.partition in flock-hpc.yaml to one of: ")
    assert "you may not charge 'nobody'" in login["account"]["what"]
    assert "sbatch refused" in job["job"]["what"] and job["job"]["mark"] == "error"


def test_a_job_that_waits_too_long_is_cancelled_with_its_reason(workspace: Path, slurm: SlurmRig, full: None) -> None:
    status, _, job = doctor(workspace, "--job", "--timeout", "4")
    assert status == 1
    assert "did not start within 4 s: Resources" in job["job"]["what"]
    eventually(lambda: not queued(slurm, "doctor"), "the doctor's job has left the queue")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_doctor_that_is_stopped_takes_its_job_with_it(workspace: Path, slurm: SlurmRig, full: None,
                                                       number: signal.Signals) -> None:
    with subprocess.Popen(command("doctor", "--job"), cwd=workspace, env=environment(), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True) as process:
        eventually(lambda: queued(slurm, "doctor"), "the doctor's job waits")
        process.send_signal(number)
        out, _ = process.communicate(timeout=60)
    assert "is cancelled" in out and process.returncode == 130
    eventually(lambda: not queued(slurm, "doctor"), "the doctor's job has left the queue")


def test_a_job_of_a_killed_doctor_is_cleared_by_the_next(workspace: Path, slurm: SlurmRig, full: None) -> None:
    with subprocess.Popen(command("doctor", "--job"), cwd=workspace, env=environment(), stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as process:
        eventually(lambda: queued(slurm, "doctor"), "the doctor's job waits")
        process.kill()
    done = flock("doctor", "--job", "--timeout", "2", cwd=workspace)
    assert "of an earlier doctor was still in the queue; it is cancelled now" in said(done)
    eventually(lambda: not queued(slurm, "doctor"), "the doctor's jobs have left the queue")
