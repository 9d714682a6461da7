"""A Slurm cluster: sbatch, scancel and limits.

Never submits on its own account: it hands over what it is told, once."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path

from automate.cluster.base import expand_log
from automate.cluster.commands import Said, have, slurm
from automate.cluster.limits import max_tasks
from automate.cluster.queue import JobStatus, look, sacct, squeue
from automate.errors import ClusterError, SubmitError

_OVER = re.compile(r"already (completing|completed|finished)|Invalid job id", re.IGNORECASE)
_JOB_ID = re.compile(r"^(\d+)(;\S+)?$")


def available() -> bool:
    """Whether this machine has Slurm's commands."""
    return have("sbatch") and have("squeue")


def compress(numbers: Sequence[int]) -> str:
    """Numbers as Slurm writes them: 1-3,7."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def parse_submitted(text: str) -> str | None:
    """The job id in what `sbatch --parsable` printed; messages of site plugins around it are passed over."""
    for line in reversed(text.strip().split("\n")):
        match = _JOB_ID.match(line.strip())
        if match:
            return match[1]
    return None


def advice(words: str) -> str:
    """What to do about a refused submission, by Slurm's own words."""
    low = words.lower()
    for pattern, todo in (
        ("unable to contact", "Slurm's controller is down or slow: run the same command again when it answers"),
        ("maxsubmit", "wait until fewer of your jobs are in the queue and run the same command again"),
        ("partition", "set slurm.partition in flock-hpc.yaml to one that 'sinfo' lists"),
        ("account", "set slurm.account to one that 'sacctmgr show assoc user=$USER' lists"),
        ("qos", "set slurm.qos, or wait until fewer of your jobs are in the queue and run the same command again"),
        ("time limit", "lower slurm.time to what the partition allows ('sinfo -o \"%P %l\"')"),
        ("node configuration", "ask for less: slurm.gpus, slurm.mem, slurm.cpus_per_task ('sinfo -o \"%P %c %m %G\"'); "
                               "right after a restart of Slurm, try again in a minute"),
        ("gres", "check slurm.gpus or slurm.gres against 'sinfo -o \"%P %G\"'"),
        ("limit", "wait until fewer of your jobs are in the queue and run the same command again"),
    ):
        if pattern in low:
            return todo
    return "mend what Slurm names and run the same command again; what was accepted is not submitted twice"


class SlurmCluster:
    """The cluster whose commands are on PATH."""

    kind = "slurm"

    def __init__(self, users: Sequence[str] = ()) -> None:
        """`users`: whose jobs are looked at besides one's own."""
        self.users = tuple(users)

    def submit(self, script: Path, name: str, indexes: Sequence[int], parallel: int | None,
               after: str | None = None, exclude: str | None = None) -> str:
        """`sbatch --parsable`; raises SubmitError with Slurm's words."""
        arguments = ["sbatch", "--parsable"]
        if indexes:
            arguments.append(f"--array={compress(indexes)}" + (f"%{parallel}" if parallel else ""))
        if after:
            arguments += [dependency(after), "--kill-on-invalid-dep=yes"]
        if exclude:
            arguments.append(f"--exclude={exclude}")
        said = slurm([*arguments, str(script)])
        job = parse_submitted(said.out)
        if said.status != 0 or job is None:
            raise SubmitError(f"sbatch refused {name}: {said.words}", where=str(script), todo=advice(said.words))
        return job

    def find(self, name: str, since: float) -> list[str]:
        """Jobs of this name: from squeue, and from sacct where there is accounting."""
        found = [status.job for status in squeue(self.users) if status.name == name]
        try:
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since - 120))
            found += [status.job for status in sacct(names=[name], since=stamp)]
        except ClusterError:
            pass  # no accounting here: squeue's word has to do
        parents = {job.partition("_")[0].partition("+")[0] for job in found}
        return sorted((job for job in parents if job.isdigit()), key=int)

    def look(self, jobs: Sequence[str], names: Sequence[str] = ()) -> dict[str, JobStatus]:
        """One squeue call, and one sacct call for those that squeue lost."""
        return look(jobs, names, self.users)

    def cancel(self, jobs: Sequence[str]) -> list[str]:
        """scancel by id, so that no other job is touched; a refused one doesn't keep the others."""
        problems = []
        for start in range(0, len(jobs), 200):
            chunk = jobs[start:start + 200]
            problems += not_cancelled(slurm(["scancel", *chunk]), chunk)
        return problems

    def check(self, script: Path) -> str | None:
        """`sbatch --test-only`: would this be accepted?"""
        said = slurm(["sbatch", "--test-only", str(script)])
        return None if said.status == 0 else said.words

    def log_path(self, pattern: str, job: str) -> Path:
        """A log's path as Slurm expands it."""
        return expand_log(pattern, job)


def not_cancelled(said: Said, jobs: Sequence[str]) -> list[str]:
    """A line for each job that scancel refused, as it named them; one for all where it named none."""
    named = re.findall(r"job id (\d[\w+]*)[,:;]? ?([^\n]*)", said.err)
    refused = [(job, words) for job, words in named if not _OVER.search(words)]
    if said.status == 0 or (named and not refused):
        return []
    if not named:
        return [f"job {job}: {said.words}" for job in jobs]
    return [f"job {job}: {' '.join(words.split()) or 'scancel refused it'}" for job, words in refused]


def dependency(after: str) -> str:
    """sbatch's option for a job that waits for others: all of `1,2`, any of `1?2`."""
    mark = "?" if "?" in after else ","
    return "--dependency=" + mark.join(f"afterany:{job}" for job in after.split(mark))


def max_array_size(default: int = 1001) -> int:
    """One more than the most tasks of one array: MaxArraySize, or less by SchedulerParameters' max_array_tasks."""
    try:
        said = slurm(["scontrol", "show", "config"])
    except ClusterError:
        return default
    most = max_tasks(said.out)
    return default if most is None else most + 1
