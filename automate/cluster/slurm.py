"""A Slurm cluster: sbatch, scancel and limits.

Never submits on its own account: it hands over what it is told, once."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path

from automate.cluster.base import expand_log
from automate.cluster.commands import have, slurm
from automate.cluster.queue import JobStatus, look, sacct, squeue
from automate.errors import ClusterError, SubmitError

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
        ("partition", "set slurm.partition in flock-hpc.yaml to one that 'sinfo' lists"),
        ("account", "set slurm.account to one that 'sacctmgr show assoc user=$USER' lists"),
        ("qos", "set slurm.qos, or wait until fewer of your jobs are in the queue and run the same command again"),
        ("time limit", "lower slurm.time to what the partition allows ('sinfo -o \"%P %l\"')"),
        ("node configuration", "ask for less: slurm.gpus, slurm.mem, slurm.cpus_per_task ('sinfo -o \"%P %c %m %G\"')"),
        ("gres", "check slurm.gpus or slurm.gres against 'sinfo -o \"%P %G\"'"),
        ("limit", "wait until fewer of your jobs are in the queue and run the same command again"),
    ):
        if pattern in low:
            return todo
    return "mend what Slurm names and run the same command again; what was accepted is not submitted twice"


class SlurmCluster:
    """The cluster whose commands are on PATH."""

    kind = "slurm"

    def submit(self, script: Path, name: str, indexes: Sequence[int], parallel: int | None,
               after: str | None = None) -> str:
        """`sbatch --parsable`; raises SubmitError with Slurm's words."""
        arguments = ["sbatch", "--parsable"]
        if indexes:
            arguments.append(f"--array={compress(indexes)}" + (f"%{parallel}" if parallel else ""))
        if after:
            arguments.append(f"--dependency=afterany:{after}")
        said = slurm([*arguments, str(script)])
        job = parse_submitted(said.out)
        if said.status != 0 or job is None:
            raise SubmitError(f"sbatch refused {name}: {said.words}", where=str(script), todo=advice(said.words))
        return job

    def find(self, name: str, since: float) -> list[str]:
        """Jobs of this name: from squeue, and from sacct where there is accounting."""
        found = [status.job for status in squeue() if status.name == name]
        try:
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since - 120))
            found += [status.job for status in sacct(names=[name], since=stamp)]
        except ClusterError:
            pass  # no accounting here: squeue's word has to do
        parents = {job.partition("_")[0].partition("+")[0] for job in found}
        return sorted((job for job in parents if job.isdigit()), key=int)

    def look(self, jobs: Sequence[str], names: Sequence[str] = ()) -> dict[str, JobStatus]:
        """One squeue call, and one sacct call for those that squeue lost."""
        return look(jobs, names)

    def cancel(self, jobs: Sequence[str]) -> list[str]:
        """scancel by id, so that no other job is touched."""
        problems = []
        for start in range(0, len(jobs), 200):
            said = slurm(["scancel", "--quiet", *jobs[start:start + 200]])
            if said.status != 0:
                problems.append(f"scancel: {said.words}")
        return problems

    def check(self, script: Path) -> str | None:
        """`sbatch --test-only`: would this be accepted?"""
        said = slurm(["sbatch", "--test-only", str(script)])
        return None if said.status == 0 else said.words

    def log_path(self, pattern: str, job: str) -> Path:
        """A log's path as Slurm expands it."""
        return expand_log(pattern, job)


def max_array_size(default: int = 1001) -> int:
    """The cluster's MaxArraySize: array indexes stay below it."""
    try:
        said = slurm(["scontrol", "show", "config"])
    except ClusterError:
        return default
    match = re.search(r"^MaxArraySize\s*=\s*(\d+)", said.out, re.MULTILINE)
    return int(match[1]) if match and int(match[1]) > 0 else default
