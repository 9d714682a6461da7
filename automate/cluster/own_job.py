"""What a job asks of its own cluster from inside: what became of it, and to be put into the queue again.

Never decides whether to go on, and never ends a process."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from automate.cluster.commands import have, slurm
from automate.durations import seconds_of
from automate.errors import ClusterError, StorageError

ASK_TIMEOUT = 15.0


def own_job_id(environ: Mapping[str, str] | None = None) -> str | None:
    """This job's id as squeue prints it (array tasks: 123_4), or the local queue's; None outside a job."""
    env = os.environ if environ is None else environ
    local = env.get("FLOCK_HPC_JOB")
    if local:
        return local
    array, task = env.get("SLURM_ARRAY_JOB_ID"), env.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else env.get("SLURM_JOB_ID")


def own_node(environ: Mapping[str, str] | None = None) -> str:
    """This node as Slurm (or the local queue) names it; else the host's name."""
    env = os.environ if environ is None else environ
    return env.get("FLOCK_HPC_NODE") or env.get("SLURMD_NODENAME") or socket.gethostname()


def own_restart(environ: Mapping[str, str] | None = None) -> int:
    """How often this job was requeued before this start."""
    count = (os.environ if environ is None else environ).get("SLURM_RESTART_COUNT") or "0"
    return int(count) if count.isdigit() else 0


@dataclass(frozen=True)
class OwnJob:
    """Slurm's word on the job that asks: seconds, epoch seconds; None where it does not say.

    `requeued`: Slurm itself has put it into the queue again, and ends this start; `notice`: why, as the node wrote into
    the job's log.
    """

    state: str = ""
    reason: str = ""
    end_time: float | None = None
    run_time: float | None = None
    time_limit: float | None = None
    requeue: bool | None = None
    preempted: bool = False
    requeued: bool = False
    notice: str = ""

    @property
    def timed_out(self) -> bool:
        """Whether the time limit has been reached."""
        reached = self.run_time is not None and self.time_limit is not None and self.run_time >= self.time_limit
        return reached or self.reason == "TimeLimit"

    @property
    def ending(self) -> bool:
        """Whether Slurm itself is ending the job already: cancelled, requeued, or timed out."""
        return self.state not in ("", "RUNNING", "SUSPENDED", "CONFIGURING")


def _moment(text: str) -> float | None:
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None


def _seconds(text: str) -> float | None:
    seconds = seconds_of(text)
    if seconds == float("inf") and not (":" in text and not text.strip("0:-")):
        return None
    return 0.0 if seconds == float("inf") else seconds  # it has run for no time yet


def parse_own_job(text: str, restarts: int = 0) -> OwnJob:
    """One line of `scontrol show job -o`; values may hold spaces, so keys are looked for by name.

    `restarts`: how often the asking start says that its job was started before.
    """
    pairs = re.findall(r"(?:^|\s)([A-Za-z:/]+)=(\S*)", text)
    found: dict[str, str] = dict(reversed(pairs))  # a path that holds such words stands behind Slurm's own
    return OwnJob(
        state=found.get("JobState", ""), reason=found.get("Reason", ""), end_time=_moment(found.get("EndTime", "")),
        run_time=_seconds(found.get("RunTime", "")), time_limit=_seconds(found.get("TimeLimit", "")),
        requeue={"0": False, "1": True}.get(found.get("Requeue", "")),
        preempted=found.get("PreemptTime", "None") not in ("None", "Unknown", ""),
        requeued=int(found.get("Restarts", "0")) > restarts if found.get("Restarts", "0").isdigit() else False,
    )


_NOTICE = re.compile(r"\*\*\* JOB \d+ ON \S+ CANCELLED AT \S+(?: DUE TO ([A-Z ]+))?")


def last_notice(log: str) -> str:
    """Why a node ended a job, by the last line that it wrote into the job's log: PREEMPTION, NODE FAILURE; or ""."""
    found = _NOTICE.findall(log)
    return found[-1].strip() if found else ""


def _own_notice() -> str:
    """The node's last word in this process's own standard error, where that is a file."""
    try:
        with Path("/proc/self/fd/2").resolve(strict=True).open("rb") as log:
            log.seek(max(0, log.seek(0, 2) - 65536))
            return last_notice(log.read().decode(errors="replace"))
    except (OSError, ValueError):
        return ""


def ask(environ: Mapping[str, str]) -> OwnJob | None:
    """What Slurm says of the job with this environment; None outside Slurm or where it can't be asked."""
    job = environ.get("SLURM_JOB_ID")
    if not job or environ.get("FLOCK_HPC_JOB") or not have("scontrol"):
        return None
    try:
        said = slurm(["scontrol", "show", "job", "-o", job], timeout=ASK_TIMEOUT)
    except ClusterError:
        return None
    if said.status != 0:
        return None
    restarts = environ.get("SLURM_RESTART_COUNT") or "0"
    own = parse_own_job(said.out, int(restarts) if restarts.isdigit() else 0)
    return replace(own, notice=_own_notice()) if own.requeued else own


def requeue(environ: Mapping[str, str], local_queue: Path) -> None:
    """Have this very job run again from its beginning, once it has ended. Raises ClusterError with Slurm's words.

    Slurm ends a job that asks for this: nothing may be left to do. A job of the local executor leaves a file for its
    runner.
    """
    local = environ.get("FLOCK_HPC_JOB")
    if local:
        try:
            (local_queue / f"{local}.requeue").touch()
        except OSError as error:
            raise StorageError.of(error, local_queue, "ask to be started again") from error
        return
    job = environ.get("SLURM_JOB_ID")
    if not job:
        raise ClusterError("this is no job of a cluster")
    said = slurm(["scontrol", "requeue", job], timeout=ASK_TIMEOUT)
    if said.status != 0:
        raise ClusterError(f"scontrol requeue refused: {said.words}")


def postpone(environ: Mapping[str, str], after: str | None) -> None:
    """Have this very Slurm job run again when one of some jobs has ended (`after`: ids with ? between them).

    Raises ClusterError with Slurm's words. Slurm sends SIGTERM at once: ignore it before, and end soon after.
    """
    job = environ.get("SLURM_JOB_ID")
    if not job:
        raise ClusterError("this is no job of a cluster")
    said = slurm(["scontrol", "requeue", job], timeout=ASK_TIMEOUT)
    if said.status != 0:
        raise ClusterError(f"scontrol requeue refused: {said.words}")
    if after:  # where this fails, the job runs again soon and looks once more
        names = "?".join(f"afterany:{one}" for one in after.split("?"))
        slurm(["scontrol", "update", f"JobId={job}", f"Dependency={names}"], timeout=ASK_TIMEOUT)
