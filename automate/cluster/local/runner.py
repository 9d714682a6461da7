"""The local queue's runner: starts pending jobs, some at a time, and writes down how they end.

One at a time for a workspace; it ends when the queue is empty, and its jobs end with it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from automate import claims
from automate.cluster.base import expand_log
from automate.cluster.commands import outside_job
from automate.cluster.local.executor import LocalQueue, directives, node_list
from automate.cluster.local.jobs import Running
from automate.cluster.local.place import Place, ThisMachine
from automate.cluster.local.schedule import Job, schedule
from automate.cluster.queue import JobState
from automate.errors import ClaimedError, FlockError, StorageError
from automate.processes import PR_SET_PDEATHSIG, prctl, process_start


def _die_with_runner() -> None:
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@dataclass
class Runner:
    """Runs the queue under `queue.folder` on the nodes of `place`."""

    queue: LocalQueue
    place: Place = field(default_factory=ThisMachine)
    running: list[Running] = field(default_factory=list)
    stopping: bool = False
    nonce: str = ""
    """Of its claim: says in a job's record who started it."""

    def start(self, job: Job, node: str) -> None:
        """Start one job with its log files, as Slurm would."""
        script = Path(job["script"])
        self.queue.requeue_file(job["job"]).unlink(missing_ok=True)
        options = directives(script)
        out, err = (expand_log(options[name], job["job"]) for name in ("output", "error"))
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            with out.open("ab") as out_file, err.open("ab") as err_file:
                process = subprocess.Popen(
                    ["bash", str(script)], stdin=subprocess.DEVNULL, stdout=out_file, stderr=err_file,
                    env=self._environ(job, node), start_new_session=True,
                    preexec_fn=_die_with_runner)  # noqa: PLW1509 - one thread
        except OSError as error:
            self.queue.save({**job, "state": JobState.FAILED.value, "reason": str(error), "ended": time.time()})
            return
        job = {**job, "state": JobState.RUNNING.value, "pid": process.pid, "pid_start": process_start(process.pid),
               "started": time.time(), "ended": None, "host": node, "reason": "",
               "runner": self.nonce}
        self.queue.save(job)
        self.running.append(Running.of(job, process, options, err))

    def _environ(self, job: Job, node: str) -> dict[str, str]:
        environ = {**outside_job(os.environ), **self.place.environ(node), "FLOCK_HPC_JOB": job["job"],
                   "FLOCK_HPC_NODE": node, "FLOCK_HPC_JOB_STARTED": f"{time.time():.3f}"}
        if job["index"] is not None:
            environ["SLURM_ARRAY_TASK_ID"] = str(job["index"])
        if job.get("restart"):
            environ["SLURM_RESTART_COUNT"] = str(job["restart"])
        return environ

    def collect(self) -> None:
        """Write down the end of jobs that ended; press those that were cancelled or are at their time limit."""
        for entry in list(self.running):
            status = entry.process.poll()
            cancelled = self.stopping or self.queue.cancel_file(entry.job["job"]).exists()
            if status is None:
                if cancelled:
                    entry.end(JobState.CANCELLED, self.place.kill_wait)
                entry.tick(time.monotonic(), self.place.kill_wait)
                continue
            with contextlib.suppress(StorageError):  # a full disk: it is written down when there is room again
                self._settle(entry, status, cancelled)
                self.running.remove(entry)

    def _settle(self, entry: Running, status: int, cancelled: bool) -> None:
        """One start has ended: for good, or the job waits for its next start."""
        state, reason = entry.outcome(status, cancelled=cancelled)
        now, job = time.time(), entry.job
        starts = [*job.get("starts", ()), {"node": job["host"], "started": job["started"], "ended": now,
                                           "state": state.value, "exit": status}]
        wanted = self.queue.requeue_file(job["job"])
        again = not cancelled and (wanted.exists() or (entry.ending is not None and entry.ending.requeue))
        if not again:
            self.queue.save({**job, "state": state.value, "exit": status, "reason": reason, "ended": now,
                             "starts": starts})
            return
        self.queue.save({**job, "state": JobState.PENDING.value, "reason": "BeginTime", "starts": starts,
                         "restart": job.get("restart", 0) + 1, "begin": now + self.place.requeue_delay,
                         "exclude": [*(job.get("exclude") or ()), *self.place.avoid(job["host"])],
                         "started": None, "ended": None})
        wanted.unlink(missing_ok=True)

    def pending(self) -> list[Job]:
        """Jobs that wait; those that were cancelled meanwhile are taken out of the queue."""
        waiting = []
        for job in self.queue.jobs():
            if job["state"] != JobState.PENDING.value:
                self._orphan(job)
                continue
            if self.queue.cancel_file(job["job"]).exists():
                self.queue.save({**job, "state": JobState.CANCELLED.value, "ended": time.time()})
            else:
                waiting.append(job)
        return waiting

    def _orphan(self, job: Job) -> None:
        """A job that another runner started, which was killed, has failed once its process is gone."""
        if (job["state"] == JobState.RUNNING.value and job.get("runner") != self.nonce
                and process_start(job["pid"]) != job["pid_start"]):
            self.queue.save({**job, "state": JobState.NODE_FAIL.value, "ended": time.time(),
                             "reason": "its process is gone, and the local runner that started it"})

    def step(self) -> bool:
        """One look at everything; False when there is nothing left to do."""
        self.collect()
        waiting = [] if self.stopping else [self._with_exclude(job) for job in self.pending()]
        self.place.step(self.running, self.queue)
        starts, reasons = schedule(waiting, [entry.job for entry in self.running], self.place.nodes, now=time.time(),
                                   queue_wait=self.place.queue_wait, own_machine=self.place.own_machine)
        for job, node in starts:
            self.start(job, node)
        for job in waiting:
            why = reasons.get(job["job"])
            if why is not None and why != job.get("reason"):
                self.queue.save({**job, "reason": why})
        return bool(self.running or waiting)

    def _with_exclude(self, job: Job) -> Job:
        """A job with the nodes that it must not start on: the submission's, else its script's."""
        if job.get("exclude") or "exclude_of_script" in job:
            return job
        try:
            named = node_list(directives(Path(job["script"])).get("exclude"))
        except (OSError, ValueError):
            named = []
        return {**job, "exclude": named, "exclude_of_script": True}

    def work(self, claim: claims.Claim, stale: float) -> None:
        """Step until the queue is empty, and nobody wants to hand more in."""
        beat = time.monotonic()
        while self.step() or (self.place.stays_open() and not self.stopping):
            if not self.place.stays_open(default=True):
                self.stopping = True
            if time.monotonic() - beat > min(stale, 10.0) / 4:
                beat = time.monotonic()
                claim.beat()
            time.sleep(self.place.tick)


def make_place(queue: LocalQueue) -> Place:
    """Where the jobs of a queue run: on a rehearsed cluster if there is a scenario, else on this machine."""
    if not queue.rehearsal_file.is_file():
        return ThisMachine()
    from automate.cluster.rehearsed.place import RehearsedCluster

    return RehearsedCluster.of(queue)


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
            time.sleep(runner.place.tick)  # the last one was killed a moment ago
            continue
        runner.nonce = claim.holder.nonce
        with contextlib.suppress(FlockError):
            runner.place = make_place(queue)
        runner.work(claim, stale)
        claim.release()
        if runner.stopping or not runner.pending():
            return 0
