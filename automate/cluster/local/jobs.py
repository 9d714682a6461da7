"""A started job of the local queue: signals before and at its time limit, its end, and what is written down of it.

Never decides which job starts; ends only processes of its own jobs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from automate.cluster.local.schedule import Job, Notice, may_requeue, time_limit, warning
from automate.cluster.queue import JobState
from automate.processes import descendants

KILL_WAIT = 30.0
WORDS = {
    JobState.TIMEOUT: "DUE TO TIME LIMIT", JobState.PREEMPTED: "DUE TO PREEMPTION",
    JobState.NODE_FAIL: "DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS", JobState.CANCELLED: "",
}


@dataclass
class Ending:
    """Why a job is being ended, when it is killed (monotonic), and whether it is put into the queue again."""

    state: JobState
    kill_at: float
    requeue: bool = False
    killed: bool = False


@dataclass
class Running:
    """A started job. `began` by the monotonic clock; `limit` in seconds; `notice`: the signal before the limit."""

    job: Job
    process: subprocess.Popen[bytes]
    began: float
    limit: float
    notice: Notice | None
    log: Path
    requeues: bool = True
    ending: Ending | None = None

    @classmethod
    def of(cls, job: Job, process: subprocess.Popen[bytes], options: Mapping[str, str], log: Path) -> Running:
        """A job that was started just now, with what its script asks for."""
        return cls(job, process, time.monotonic(), time_limit(options), warning(options), log, may_requeue(options))

    def tick(self, now: float, kill_wait: float) -> None:
        """Send what is due: the notice, SIGTERM at the limit, SIGKILL some time after."""
        if self.ending is not None:
            if now >= self.ending.kill_at and not self.ending.killed:
                self.kill()
        elif now - self.began >= self.limit:
            self.end(JobState.TIMEOUT, kill_wait)
        elif self.notice is not None and now - self.began >= self.limit - self.notice.lead:
            number, self.notice = self.notice.number, None
            with contextlib.suppress(OSError):
                os.kill(self.process.pid, number)

    def end(self, state: JobState, grace: float, *, requeue: bool = False) -> None:
        """Tell the job to end; kill it after `grace` seconds, at once where there are none."""
        if self.ending is not None:
            return
        self.ending = Ending(state, time.monotonic() + grace, requeue and self.requeues)
        self._say(state)
        if grace <= 0:
            self.kill()
        else:
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kill every process of the job."""
        if self.ending is not None:
            self.ending.killed = True
        for pid in descendants(self.process.pid):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def _say(self, state: JobState) -> None:
        """What slurmd writes into a job's log when it ends it."""
        now = time.strftime("%Y-%m-%dT%H:%M:%S")
        line = f"slurmstepd: error: *** JOB {self.job['job']} ON {self.job['host']} CANCELLED AT {now} {WORDS[state]}"
        with contextlib.suppress(OSError), self.log.open("a") as file:
            file.write(f"{line.rstrip()} ***\n")

    def outcome(self, status: int, *, cancelled: bool) -> tuple[JobState, str]:
        """The state in which the job ended, and why."""
        reason = "" if status == 0 else f"exit status {status}" if status > 0 else f"signal {-status}"
        if cancelled and status != 0:
            return JobState.CANCELLED, reason
        if self.ending is not None and self.ending.state is not JobState.CANCELLED:
            return self.ending.state, {JobState.TIMEOUT: "TimeLimit", JobState.PREEMPTED: "Preempted",
                                       JobState.NODE_FAIL: "NodeFailure"}.get(self.ending.state, reason)
        return (JobState.COMPLETED if status == 0 else JobState.FAILED), reason
