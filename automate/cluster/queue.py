"""What became of jobs: one squeue call and at most one sacct call for all of them.

Never takes a job that nobody knows for a finished or a failed one: it is UNKNOWN, with the evidence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from automate.cluster.asking import me
from automate.cluster.commands import have, slurm
from automate.errors import ClusterError


class JobState(StrEnum):
    """Slurm's base states, and UNKNOWN where nobody can tell."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETING = "COMPLETING"
    REQUEUED = "REQUEUED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TIMEOUT = "TIMEOUT"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    NODE_FAIL = "NODE_FAIL"
    PREEMPTED = "PREEMPTED"
    DEADLINE = "DEADLINE"
    BOOT_FAIL = "BOOT_FAIL"
    UNKNOWN = "UNKNOWN"

    @property
    def queued(self) -> bool:
        return self in (JobState.PENDING, JobState.REQUEUED)

    @property
    def active(self) -> bool:
        """Queued or running: it will still do something."""
        return self.queued or self in (JobState.RUNNING, JobState.SUSPENDED, JobState.COMPLETING)

    @property
    def ended(self) -> bool:
        return not self.active and self is not JobState.UNKNOWN


_ALIASES = {"CONFIGURING": "RUNNING", "REQUEUE_HOLD": "PENDING", "REQUEUE_FED": "PENDING", "RESV_DEL_HOLD": "PENDING",
            "SPECIAL_EXIT": "PENDING", "SIGNALING": "RUNNING", "STAGE_OUT": "COMPLETING", "STOPPED": "SUSPENDED",
            "RESIZING": "RUNNING", "REVOKED": "CANCELLED"}


NO_NODE = "None assigned"
"""What accounting says instead of a job's nodes."""


@dataclass(frozen=True)
class JobStatus:
    """A job (array tasks: `123_4`) with the state and who says so. `begins`: when Slurm means to start it."""

    job: str
    state: JobState
    evidence: str
    name: str = ""
    reason: str = ""
    elapsed: str = ""
    nodes: str = ""
    node_count: str = ""
    partition: str = ""
    user: str = ""
    exit_code: str = ""
    gone: bool = False
    begins: str = ""

    @property
    def may_act(self) -> bool:
        """Whether it waits or runs, or whether that can't be ruled out."""
        return self.state.active or (self.state is JobState.UNKNOWN and not self.gone)

    @property
    def never_started(self) -> bool:
        """Whether it ended as by a node's failure without a node: its nodes or its partition went away as it waited."""
        waited = self.elapsed != "" and not self.elapsed.strip("0:")
        return self.state is JobState.NODE_FAIL and waited and self.nodes in ("", NO_NODE)


def parse_state(text: str) -> JobState:
    """Slurm's spelling of a state, such as `CANCELLED by 1000` or `OUT_OF_ME+`."""
    word = re.split(r"[\s+]", text.strip(), maxsplit=1)[0].upper()
    word = _ALIASES.get(word, word)
    if word.startswith("OUT_OF_ME"):
        word = "OUT_OF_MEMORY"
    try:
        return JobState(word)
    except ValueError:
        return JobState.UNKNOWN


SQUEUE_FORMAT = "%i|%T|%M|%D|%N|%P|%u|%r;%S|%j"


def parse_squeue(text: str) -> list[JobStatus]:
    """Lines of `squeue -h -r -o SQUEUE_FORMAT`; the name stands last, as it may hold anything."""
    found = []
    for line in text.split("\n"):
        fields = line.strip().split("|", 8)
        if len(fields) == 9:
            job, state, elapsed, count, nodes, partition, user, why, name = fields
            reason, _, start = why.partition(";")
            begins = start if parse_state(state).queued and start[:1].isdigit() else ""
            found.append(JobStatus(job, parse_state(state), "squeue", name, "" if reason == "None" else reason,
                                   elapsed, nodes, count, partition, user, begins=begins))
    return found


SACCT_FIELDS = "JobID,State,ExitCode,Elapsed,NodeList,NNodes,Partition,User,Reason,JobName"


def parse_sacct(text: str) -> list[JobStatus]:
    """Lines of `sacct -X -n -P -o SACCT_FIELDS`. A job that was requeued has several; the last one counts."""
    found = []
    for line in text.split("\n"):
        fields = line.strip().split("|", 9)
        if len(fields) == 10:
            job, state, code, elapsed, nodes, count, partition, user, reason, name = fields
            if reason == "None" and " by " in state:  # CANCELLED by 1000
                reason = state.strip().partition(" ")[2]
            nodes = "" if nodes == NO_NODE else nodes
            found.append(JobStatus(job, parse_state(state), "sacct", name, "" if reason == "None" else reason,
                                   elapsed, nodes, count, partition, user, code))
    return found


def squeue(users: Sequence[str] = ()) -> list[JobStatus]:
    """Every job of this user, and of `users`, that the controller still knows, ended ones included.

    Raises ClusterError.
    """
    whose = ["-u", ",".join(sorted({*users, me()}))] if users else ["--me"]
    said = slurm(["squeue", *whose, "-a", "-h", "-r", "-t", "all", "-o", SQUEUE_FORMAT])
    if said.status != 0:
        raise ClusterError(f"squeue failed: {said.words}", todo="Slurm's controller may be down; try again later")
    return parse_squeue(said.out)


def sacct(jobs: Sequence[str] = (), names: Sequence[str] = (), since: str | None = None,
          everybody: bool = False) -> list[JobStatus]:
    """What accounting says of jobs, by id or by name; of all users' where asked.

    Raises ClusterError where there is no accounting.
    """
    if not have("sacct"):
        raise ClusterError("no command 'sacct' on this machine")
    arguments = ["sacct", "-X", "-n", "-P", "-o", SACCT_FIELDS]
    if everybody:
        arguments.append("--allusers")
    if jobs:
        arguments += ["-j", ",".join(sorted({job.partition("_")[0] for job in jobs}))]
    if names:
        arguments += [f"--name={','.join(names)}"]
    if since:
        arguments += ["-S", since]
    said = slurm(arguments)
    if said.status != 0:
        raise ClusterError(f"sacct failed: {said.words}")
    return parse_sacct(said.out)


def _by_job(statuses: Iterable[JobStatus]) -> dict[str, JobStatus]:
    """Statuses by job id; an array's own id stands for its tasks, one that still acts before one that ended."""
    found = {status.job: status for status in statuses}
    for status in list(found.values()):
        parent = status.job.partition("_")[0]
        if parent not in found or (status.state.active and not found[parent].state.active):
            found[parent] = status
    return found


def resolve(wanted: Iterable[str], first: Iterable[JobStatus], then: Iterable[JobStatus],
            why: str, gone: bool = False) -> dict[str, JobStatus]:
    """The status of each wanted job from squeue's list, else sacct's, else UNKNOWN because of `why`.

    `gone` says that the controller was asked and doesn't hold such jobs: they neither wait nor run, also where
    accounting never heard of their end, as when a controller died before it wrote them down.
    """
    by_first, by_then = _by_job(first), _by_job(then)
    out = {}
    for job in wanted:
        status = by_first.get(job) or by_then.get(job)
        if gone and job not in by_first and status is not None and status.state.active:
            lost = f"squeue doesn't know it, though sacct says {status.state}"
            status = replace(status, state=JobState.UNKNOWN, evidence=lost, gone=True)
        out[job] = status or JobStatus(job, JobState.UNKNOWN, why, gone=gone)
    return out


def look(jobs: Sequence[str], names: Sequence[str] = (), users: Sequence[str] = ()) -> dict[str, JobStatus]:
    """Status of each job, and of every job of this user (and of `users`) that has one of `names`.

    Never raises: what can't be asked is UNKNOWN, with the reason. One squeue call; one sacct call for jobs that
    squeue has lost.
    """
    if not jobs and not names:
        return {}
    try:
        queue = squeue(users)
    except ClusterError as error:
        return resolve(jobs, [], [], error.what)
    known = {status.job for status in queue}
    lost = [job for job in jobs if job not in known]
    accounted: list[JobStatus] = []
    why = "neither squeue nor sacct knows it"
    if lost:
        try:
            accounted = sacct(lost, everybody=bool(users))
        except ClusterError as error:
            why = f"squeue doesn't know it, and {error.what}"
    wanted = set(names)
    out = {status.job: status for status in queue if status.name in wanted}
    return {**out, **resolve(jobs, queue, accounted, why, gone=True)}


def job_alive(job: str) -> bool | None:
    """Whether Slurm still runs or queues a job; None where it can't be asked or doesn't know."""
    if not have("squeue"):
        return None
    try:
        said = slurm(["squeue", "-a", "-h", "-t", "all", "-j", job, "-o", "%T"], timeout=30)
    except ClusterError:
        return None
    if said.status != 0:
        return False if "invalid job id" in said.err.lower() else None
    states = [parse_state(line) for line in said.out.split("\n") if line.strip()]
    if not states:
        return False
    if any(state.active for state in states):
        return True
    return None if JobState.UNKNOWN in states else False
