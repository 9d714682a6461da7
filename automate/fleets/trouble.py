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


def failures_of(spec: FleetSpec, rows: Sequence[WorkerRow]) -> Iterator[FleetFailure]:
    """Failures of living workers, and of each job's last start; a start that was followed by another is history."""
    alive = {row.job for row in rows if row.state != "ended"}
    last: dict[str | None, WorkerRow] = {}
    for row in sorted(rows, key=lambda one: one.started or 0.0):
        last[row.job] = row
    for row in rows:
        if row.state == "ended" and (row.job in alive or last[row.job] is not row):
            continue
        kind = _kind(spec, row)
        if kind:
            yield FleetFailure(row.worker, row.job, row.node, row.model, kind, _cause(row, kind),
                               _todo(spec, row, kind))


def _kind(spec: FleetSpec, row: WorkerRow) -> str:
    if row.state == "silent":
        return "silent"
    if row.state != "ended":
        since = (row.age or 0.0) - row.spent.load
        lost = row.state == "ready" and not row.registered and since > 2 * spec.stale
        return "refused" if row.why else "not_registered" if lost else ""
    if row.job_state in _BY_JOB:
        return _BY_JOB[row.job_state]
    if row.error:
        return "server"
    if row.job_state in _NO_FAILURE or (row.worker and not row.quiet):
        return ""
    return "killed" if row.worker else "script"


def _cause(row: WorkerRow, kind: str) -> str:
    if kind == "refused":
        return f"not used: {row.why}"
    return row.error or row.note or KINDS[kind]


def _todo(spec: FleetSpec, row: WorkerRow, kind: str) -> str:
    where = f"logs/fleets/{spec.name}"
    return {
        "refused": f"end its job ('scancel {row.job}'), so that another takes its place" if row.job else
                   "find out who runs it",
        "silent": "nothing, while its node may come back; its requests went to others",
        "node": "nothing: another server takes its place where one is wanted",
        "host_memory": "raise slurm.mem (generate.slurm.mem), then serve again",
        "not_registered": "look whether its node can write to the workspace's file system",
    }.get(kind, f"see its logs in {where}")
