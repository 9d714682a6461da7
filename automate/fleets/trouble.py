"""What went wrong in a fleet, with its cause and the next step: one line a worker.

Pure. A server that ended because it was asked to, or at its time limit, is no failure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from automate.fleets.rows import WorkerRow
from automate.serving.fleet.records import FleetSpec

KINDS = {
    "refused": "registered, and not used: another model, version or process answers at its address",
    "not_registered": "its server is ready by its own word, and is not in the registry",
    "silent": "its heartbeat is missed, and its job may still run",
    "server": "its server died or could not be started",
    "node": "its node failed",
    "killed": "it ended without a last word",
    "host_memory": "it used more of its node's memory than it may",
    "script": "its job ended before its server was started",
}
"""Class of a failure -> what it stands for."""
_BY_JOB = {"NODE_FAIL": "node", "BOOT_FAIL": "node", "OUT_OF_MEMORY": "host_memory"}
_NO_FAILURE = ("CANCELLED", "TIMEOUT", "PREEMPTED", "DEADLINE")


@dataclass(frozen=True)
class FleetFailure:
    """A worker in trouble: `kind` is one of KINDS, `cause` in words, `todo` the next step."""

    worker: str
    job: str | None
    node: str
    model: str
    kind: str
    cause: str
    todo: str


def failures_of(spec: FleetSpec, rows: Sequence[WorkerRow], full: str = "") -> Iterator[FleetFailure]:
    """Failures of living workers, and of each job's last start; a start that was followed by another is history.

    `full`: why nothing can be written into the fleet's folder; empty where it can.
    """
    serving = {row.job for row in rows if row.state in ("loading", "ready", "draining")}
    alive = {row.job for row in rows if row.state != "ended"}
    last: dict[str | None, WorkerRow] = {}
    for row in sorted(rows, key=lambda one: one.started or 0.0):
        last[row.job] = row
    for row in rows:
        if row.state == "ended" and (row.job in alive or last[row.job] is not row):
            continue
        kind = _kind(spec, row)
        if kind:
            yield FleetFailure(row.worker, row.job, row.node, row.model, kind, _cause(row, kind, full),
                               _todo(spec, row, kind, full, stray=row.job in serving or not row.job_state))


def _kind(spec: FleetSpec, row: WorkerRow) -> str:
    if row.state in ("silent", "refused"):
        return row.state
    if row.state != "ended":
        since = (row.age or 0.0) - row.spent.load
        lost = row.state == "ready" and not row.registered and since > 2 * spec.stale
        return "not_registered" if lost else ""
    if row.job_state in _BY_JOB:
        return _BY_JOB[row.job_state]
    if row.error:
        return "server"
    if row.job_state in _NO_FAILURE or (row.worker and not row.quiet):
        return ""
    if row.worker:
        return "killed"
    return "" if row.job_state == "UNKNOWN" else "script"


def _cause(row: WorkerRow, kind: str, full: str) -> str:
    if kind == "refused":
        return f"not used: {row.why}"
    if kind == "silent" and full:
        return f"{row.note}, and nothing can be written into the fleet's folder ({full})"
    return row.error or row.note or KINDS[kind]


def _todo(spec: FleetSpec, row: WorkerRow, kind: str, full: str, *, stray: bool) -> str:
    """The next step. `stray`: no job of the fleet stands behind this record alone."""
    where = f"logs/fleets/{spec.name}"
    return {
        "refused": f"find out who wrote it, and remove workers/{row.worker}.json from the fleet's folder" if stray else
                   f"end its job ('scancel {row.job}'), so that another takes its place",
        "silent": "make room there: it may well live, and can't say so" if full else
                  "look whether its node can be reached, and can write to the workspace (space, quota); it is used "
                  "again after its next heartbeat",
        "node": "nothing: another server takes its place where one is wanted",
        "host_memory": "raise slurm.mem (generate.slurm.mem), then serve again",
        "not_registered": "look whether its node can write to the workspace's file system",
    }.get(kind, f"see its logs in {where}")
