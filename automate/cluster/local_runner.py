"""The local queue's runner: starts pending jobs, some at a time, and writes down how they end.

One at a time for a workspace; it ends when the queue is empty, and its jobs end with it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from automate import claims
from automate.cluster.base import expand_log
from automate.cluster.commands import outside_job
from automate.cluster.local import Job, LocalQueue, directives
from automate.cluster.queue import JobState
from automate.errors import ClaimedError, StorageError
from automate.processes import PR_SET_PDEATHSIG, prctl, process_start

TICK = 0.2
KILL_AFTER = 30.0


def _die_with_runner() -> None:
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@dataclass
class Running:
    """A started job and when it was first asked to end."""

    job: Job
    process: subprocess.Popen[bytes]
    asked: float | None = None


@dataclass
class Runner:
    """Runs the queue under `queue.folder`."""

    queue: LocalQueue
    running: list[Running] = field(default_factory=list)
    stopping: bool = False

    def start(self, job: Job) -> None:
        """Start one job with its log files, as Slurm would."""
        script = Path(job["script"])
        environ = {**outside_job(os.environ), "FLOCK_HPC_JOB": job["job"]}
        if job["index"] is not None:
            environ["SLURM_ARRAY_TASK_ID"] = str(job["index"])
        options = directives(script)
        out, err = (expand_log(options[name], job["job"]) for name in ("output", "error"))
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            with out.open("ab") as out_file, err.open("ab") as err_file:
                process = subprocess.Popen(
                    ["bash", str(script)], stdin=subprocess.DEVNULL, stdout=out_file, stderr=err_file,
                    env=environ, start_new_session=True, preexec_fn=_die_with_runner)  # noqa: PLW1509 - one thread
        except OSError as error:
            self.queue.save({**job, "state": JobState.FAILED.value, "reason": str(error), "ended": time.time()})
            return
        job = {**job, "state": JobState.RUNNING.value, "pid": process.pid, "pid_start": process_start(process.pid),
               "started": time.time(), "host": socket.gethostname()}
        self.queue.save(job)
        self.running.append(Running(job, process))

    def collect(self) -> None:
        """Write down the end of jobs that ended; press those that were cancelled."""
        for entry in list(self.running):
            status = entry.process.poll()
            cancelled = self.stopping or self.queue.cancel_file(entry.job["job"]).exists()
            if status is None:
                if cancelled:
                    self._press(entry)
                continue
            state = JobState.COMPLETED if status == 0 else JobState.CANCELLED if cancelled else JobState.FAILED
            reason = "" if status == 0 else f"exit status {status}" if status > 0 else f"signal {-status}"
            with contextlib.suppress(StorageError):  # a full disk: it is written down when there is room again
                self.queue.save({**entry.job, "state": state.value, "exit": status, "reason": reason,
                                 "ended": time.time()})
                self.running.remove(entry)

    def _press(self, entry: Running) -> None:
        now = time.monotonic()
        number = signal.SIGTERM
        if entry.asked is None:
            entry.asked = now
        elif now - entry.asked < KILL_AFTER:
            return
        else:
            number = signal.SIGKILL
        with contextlib.suppress(OSError):
            os.killpg(entry.process.pid, number)

    def pending(self) -> list[Job]:
        """Jobs that wait; those that were cancelled meanwhile are taken out of the queue."""
        waiting = []
        for job in self.queue.jobs():
            if job["state"] != JobState.PENDING.value:
                continue
            if self.queue.cancel_file(job["job"]).exists():
                self.queue.save({**job, "state": JobState.CANCELLED.value, "ended": time.time()})
            else:
                waiting.append(job)
        return waiting

    def step(self) -> bool:
        """One look at everything; False when there is nothing left to do."""
        self.collect()
        waiting = [] if self.stopping else self.pending()
        for job in waiting:
            if len(self.running) >= job["parallel"]:
                break
            self.start(job)
        return bool(self.running or waiting)


def run(folder: Path, stale: float) -> int:
    """Run the local queue until it is empty. 0 also where another runner is at work already."""
    queue = LocalQueue(folder)
    runner = Runner(queue)

    def stop(*_: object) -> None:
        runner.stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            claim = claims.take(queue.runner_claim, stale=min(stale, 1.0))
        except ClaimedError:
            if queue.runner_alive():
                return 0
            time.sleep(TICK)  # the last one was killed a moment ago
            continue
        beat = time.monotonic()
        while runner.step():
            if time.monotonic() - beat > min(stale, 10.0) / 4:
                beat = time.monotonic()
                claim.beat()
            time.sleep(TICK)
        claim.release()
        if runner.stopping or not runner.pending():
            return 0
