"""What a campaign asks of a cluster, whichever it is: Slurm, or this machine.

Only the protocol; `slurm.py` and `local.py` do it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from automate.cluster.queue import JobStatus


class Cluster(Protocol):
    """Takes job scripts, and says what became of them."""

    kind: str

    def submit(self, script: Path, name: str, indexes: Sequence[int], parallel: int | None,
               after: str | None = None, exclude: str | None = None) -> str:
        """Hand a script over (`indexes`: as an array of these tasks; `after`: when that job has ended).

        `after` may name several jobs: with ? between them, when any of them has ended; with commas, when all have.
        `exclude`: on none of these nodes. Returns the job id. Raises SubmitError.
        """

    def find(self, name: str, since: float) -> list[str]:
        """Ids of jobs with this name handed over since a time (epoch seconds). Raises ClusterError."""

    def look(self, jobs: Sequence[str], names: Sequence[str] = ()) -> dict[str, JobStatus]:
        """The status of each job, and of every job with one of `names`; UNKNOWN with its reason where nobody knows."""

    def cancel(self, jobs: Sequence[str]) -> list[str]:
        """Cancel jobs; returns what went wrong, a line each, which names the job if it concerns only one."""

    def check(self, script: Path) -> str | None:
        """Why the cluster would refuse a script, or None."""

    def log_path(self, pattern: str, job: str) -> Path:
        """A log's path from its pattern (%j, %A, %a) and the job's id."""


def expand_log(pattern: str, job: str) -> Path:
    """Expand Slurm's %j, %A, %a and %% in a log's path."""
    array, _, index = job.partition("_")
    parts: Mapping[str, str] = {"%j": job, "%A": array, "%a": index or "0"}
    text = pattern.replace("%%", "\0")
    for mark, value in parts.items():
        text = text.replace(mark, value)
    return Path(text.replace("\0", "%"))
