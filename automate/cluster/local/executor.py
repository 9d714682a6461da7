"""This machine in a cluster's place: the same job scripts, run by bash, some at a time.

A queue of files and one runner process that ends with the queue; nothing stays behind."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automate import claims
from automate.cluster.base import expand_log
from automate.cluster.queue import JobState, JobStatus, resolve
from automate.cluster.rehearsed.cluster import SILENT, read_state
from automate.cluster.slurm import advice
from automate.errors import StorageError, SubmitError
from automate.journal import read_json, write_json
from automate.processes import process_start

Job = dict[str, Any]


def directives(script: Path) -> dict[str, str]:
    """The #SBATCH options of a script, long form, as Slurm would read them."""
    found: dict[str, str] = {}
    for line in script.read_text(encoding="utf-8").split("\n"):
        if line.startswith("#SBATCH"):
            for word in shlex.split(line.removeprefix("#SBATCH"), comments=True):
                name, _, value = word.removeprefix("--").partition("=")
                found[name] = value.replace("\\\\", "\\")
        elif line and not line.startswith("#"):
            break
    return found


@dataclass(frozen=True)
class LocalQueue:
    """The files of the local queue under one folder."""

    folder: Path

    @property
    def runner_claim(self) -> Path:
        return self.folder / "runner"

    @property
    def runner_log(self) -> Path:
        return self.folder / "runner.log"

    def job_file(self, job: str) -> Path:
        return self.folder / f"{job}.json"

    def cancel_file(self, job: str) -> Path:
        return self.folder / f"{job}.cancel"

    def requeue_file(self, job: str) -> Path:
        """Made by a job that wants to run again when it has ended."""
        return self.folder / f"{job}.requeue"

    @property
    def rehearsal_file(self) -> Path:
        """The scenario that is rehearsed on this queue; absent on an ordinary one."""
        return self.folder / "scenario.json"

    @property
    def cluster_file(self) -> Path:
        """What the runner of a rehearsed cluster says of it."""
        return self.folder / "cluster.json"

    @property
    def refused_file(self) -> Path:
        """A line for each submission that a rehearsed cluster refused."""
        return self.folder / "refused.txt"

    def jobs(self) -> list[Job]:
        """All jobs of the queue, in the order in which they came."""
        found = [record for path in self.folder.glob("local-*.json") if "number" in (record := read_json(path) or {})]
        return sorted(found, key=lambda job: (job["number"], job["index"] or 0))

    def new_number(self) -> int:
        """A job number that nobody else gets: a file made by exclusive create."""
        self.folder.mkdir(parents=True, exist_ok=True)
        taken = [int(path.name[:-3]) for path in self.folder.glob("*.id") if path.name[:-3].isdigit()]
        number = max(taken, default=0)
        while True:
            number += 1
            try:
                os.close(os.open(self.folder / f"{number}.id", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o664))
            except FileExistsError:
                continue
            return number

    def reserve(self, number: int) -> None:
        """Leave the job numbers up to this one to jobs of another place."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"{number}.id").touch()

    def save(self, job: Job) -> None:
        write_json(self.job_file(job["job"]), job)

    def runner_alive(self) -> bool:
        holder = claims.holder_of(self.runner_claim)
        return holder is not None and claims.alive(holder, claims.myself(), claims.no_jobs) is not False


def node_list(text: str | None) -> list[str]:
    """Names in Slurm's short form of a node list: `a,n[1-3,07]`."""
    found = []
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\])?", text or ""):
        head, bracket, inside = part.strip().partition("[")
        if not bracket:
            found.append(head)
            continue
        for piece in inside.rstrip("]").split(","):
            first, _, last = piece.partition("-")
            if first.isdigit() and (last or first).isdigit():
                found += [f"{head}{i:0{len(first)}d}" for i in range(int(first), int(last or first) + 1)]
    return found


def _elapsed(job: Job) -> str:
    if not job.get("started"):
        return "0:00"
    seconds = int((job.get("ended") or time.time()) - job["started"])
    hours, rest = divmod(seconds, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


def _status(job: Job, runner: bool) -> JobStatus:
    state, reason, evidence = JobState(job["state"]), job.get("reason", ""), "local queue"
    if state is JobState.PENDING and not runner:
        state, reason = JobState.CANCELLED, "the local runner ended before it was started"
    elif state is JobState.RUNNING and process_start(job["pid"]) != job["pid_start"] and not runner:
        state, reason = JobState.NODE_FAIL, "its process is gone, and the local runner with it"
    return JobStatus(job["job"], state, evidence, job["name"], reason, _elapsed(job), job.get("host", ""),
                     "1", "local", "", str(job.get("exit", "")))


class LocalCluster:
    """Runs job scripts on this machine. `root` is the workspace, for the runner's command line."""

    kind = "local"

    def __init__(self, folder: Path, root: Path, parallel: int = 1) -> None:
        self.queue = LocalQueue(folder)
        self.root = root
        self.parallel = parallel

    def submit(self, script: Path, name: str, indexes: Sequence[int], parallel: int | None,
               after: str | None = None, exclude: str | None = None) -> str:
        """Queue a script and see to it that a runner is at work. Raises SubmitError or StorageError.

        This machine is the only node, so `exclude` means nothing here; it does on a rehearsed cluster.
        """
        if not script.is_file():
            raise SubmitError("no such script", where=str(script))
        self._refuse(name, script, max(1, len(indexes)))
        try:
            number = self.queue.new_number()
            running = self.queue.runner_alive()
            if not running:
                self._drop_orphans()
            tasks: list[int | None] = [*indexes] or [None]
            for index in tasks:
                job = f"local-{number}" + (f"_{index}" if index is not None else "")
                self.queue.save({
                    "job": job, "number": number, "index": index, "name": name, "script": str(script),
                    "state": JobState.PENDING.value, "created": time.time(), "parallel": parallel or self.parallel,
                    "at_once": parallel, "after": re.split("[?,]", after) if after else [],
                    "after_all": "," in (after or ""), "exclude": node_list(exclude),
                })
            if not self.queue.runner_alive():
                self._start_runner()
        except OSError as error:
            raise StorageError.of(error, self.queue.folder, "queue a job") from error
        return f"local-{number}"

    def _refuse(self, name: str, script: Path, more: int) -> None:
        """Say no in Slurm's words where a rehearsed cluster does."""
        state = read_state(self.queue.cluster_file)
        if state is not None:
            active = sum(1 for job in self.queue.jobs() if JobState(job["state"]).active)
            words = state.refusal(active, more)
            if words is not None:
                with self.queue.refused_file.open("a") as file:
                    file.write(f"{time.time():.3f} {name}\n")
                raise SubmitError(f"sbatch refused {name}: {words}", where=str(script), todo=advice(words))

    def _drop_orphans(self) -> None:
        for job in self.queue.jobs():
            status = _status(job, runner=False)
            if status.state.value != job["state"]:
                self.queue.save({**job, "state": status.state.value, "reason": status.reason, "ended": time.time()})

    def open(self) -> None:
        """Start the runner of a rehearsed cluster before there is a job. Raises SubmitError."""
        self._spawn_runner()
        self._wait_for(self.queue.cluster_file.exists)

    def nodes_up(self) -> set[str] | None:
        """The nodes of a rehearsed cluster that are up; None where this machine is the only one."""
        state = read_state(self.queue.cluster_file)
        return None if state is None else {name for name, node in state.nodes.items() if node["up"]}

    def _start_runner(self) -> None:
        self._spawn_runner()
        self._wait_for(lambda: self.queue.runner_alive() or not any(j["state"] == "PENDING" for j in self.queue.jobs()))

    def _spawn_runner(self) -> None:
        with self.queue.runner_log.open("ab") as log:
            subprocess.Popen(
                [sys.executable, "-m", "automate", "local-runner", "--workspace", str(self.root)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=self.root)

    def _wait_for(self, started: Callable[[], bool]) -> None:
        for _ in range(200):
            if started():
                return
            time.sleep(0.05)
        raise SubmitError("the local runner did not start", where=str(self.queue.runner_log),
                          todo="see its log for the reason")

    def find(self, name: str, since: float) -> list[str]:
        """Jobs of this name queued since then."""
        found = {job["number"] for job in self.queue.jobs() if job["name"] == name and job["created"] >= since}
        return [f"local-{number}" for number in sorted(found)]

    def look(self, jobs: Sequence[str], names: Sequence[str] = ()) -> dict[str, JobStatus]:
        """Status of each job from the queue's files and the process table."""
        state = read_state(self.queue.cluster_file)
        if state is not None and state.silent():
            return resolve(jobs, [], [], SILENT)
        runner = self.queue.runner_alive()
        known = [_status(job, runner) for job in self.queue.jobs()]
        named = {status.job: status for status in known if status.name in set(names)}
        return {**named, **resolve(jobs, known, [], "the local queue doesn't know it", gone=True)}

    def cancel(self, jobs: Sequence[str]) -> list[str]:
        """Ask the runner to end jobs; without a runner, end what is left of them."""
        runner = self.queue.runner_alive()
        wanted = set(jobs) | {job.partition("_")[0] for job in jobs if "_" not in job}
        for job in self.queue.jobs():
            if (job["job"] in wanted or job["job"].partition("_")[0] in wanted) and JobState(job["state"]).active:
                self.queue.cancel_file(job["job"]).touch()
                if not runner and job.get("pid") and process_start(job["pid"]) == job["pid_start"]:
                    with contextlib.suppress(OSError):
                        os.killpg(job["pid"], signal.SIGTERM)
        return []

    def check(self, script: Path) -> str | None:
        """bash's own word on the script's syntax."""
        done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True, check=False)
        return None if done.returncode == 0 else done.stderr.strip()

    def log_path(self, pattern: str, job: str) -> Path:
        """A log's path as the runner expands it."""
        return expand_log(pattern, job)
