"""The local queue's runner and jobs of a runner before it, which was killed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from automate import claims
from automate.cluster.local.executor import LocalCluster, LocalQueue
from automate.cluster.local.runner import Runner
from automate.cluster.queue import JobState
from automate.processes import process_start


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[LocalQueue]:
    """A queue with a runner that is alive: this process."""
    made = LocalQueue(tmp_path / "local")
    made.folder.mkdir()
    claim = claims.take(made.runner_claim, stale=1.0)
    yield made
    claim.release()


def running(queue: LocalQueue, number: int, runner: str | None, pid: int, started: str | None) -> None:
    job: dict[str, Any] = {"job": f"local-{number}", "number": number, "index": None, "name": "n", "script": "x",
                           "state": "RUNNING", "created": 1.0, "started": 2.0, "pid": pid, "pid_start": started}
    queue.save(job if runner is None else {**job, "runner": runner})


def states(queue: LocalQueue, tmp_path: Path) -> dict[str, JobState]:
    jobs = [job["job"] for job in queue.jobs()]
    return {job: status.state for job, status in LocalCluster(queue.folder, tmp_path).look(jobs).items()}


def gone() -> int:
    """The id of a process that has ended."""
    with subprocess.Popen(["true"]) as process:
        process.wait()
    return process.pid


def test_a_job_of_a_killed_runner_has_failed_though_another_runner_lives(queue: LocalQueue, tmp_path: Path) -> None:
    running(queue, 1, "the one that was killed", gone(), "1")
    running(queue, 2, None, gone(), "1")
    running(queue, 3, "the one that was killed", os.getpid(), process_start(os.getpid()))
    Runner(queue, nonce="mine").step()
    assert states(queue, tmp_path) == {"local-1": JobState.NODE_FAIL, "local-2": JobState.NODE_FAIL,
                                       "local-3": JobState.RUNNING}


def test_a_runner_leaves_jobs_of_its_own_to_itself(queue: LocalQueue, tmp_path: Path) -> None:
    """Between a job's end and the look that writes down how it ended."""
    running(queue, 1, "mine", gone(), "1")
    Runner(queue, nonce="mine").step()
    assert states(queue, tmp_path) == {"local-1": JobState.RUNNING}
