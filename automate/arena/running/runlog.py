"""What a started job says of itself: one small file, replaced by rename, with a heartbeat.

Evidence for the monitor and for submission; never a promise that a job lives."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from automate import claims
from automate.cluster.own_job import own_job_id as own_job_id
from automate.cluster.own_job import own_node as own_node
from automate.cluster.own_job import own_restart as own_restart
from automate.journal import fresh_name, read_json, write_json


class RunLog:
    """The record of one start of one batch. Its keys, each absent where it is not known (yet):

    kind (judge, or generate: then games are answers, and there is no judge), plan,
    batch, judge, job, restart, holder, node, gpus (cards asked for), gpu (their name), time_limit (seconds);
    phase (starting, loading, playing, draining, ended), started, updated, ended (epoch seconds), seconds (of this
    start, by a clock that never jumps), play_seconds; due, played, unanswered, in_flight, outcomes, usage (tokens of
    prompts, replies, cached), game_seconds (median, p95, max), rate (games/s over the last minute);
    server (running, waiting, kv_usage, kv_tokens, prompt_rate, output_rate in tokens/s, prefix_hits as a share, time);
    gpu_use (list: index, name, memory_used_mb, memory_total_mb, utilization in percent);
    load (list, one for each server that became ready: seconds, weights in bytes, disk_rate in bytes/s, filesystem,
    staged); deaths (list: cause, what, node, node_fault, time); skipped, status, error, hopeless;
    stopped_by (time limit, stalled, SIGTERM, ...), next (kind: requeue, successor, slurm or none; job; why).
    """

    def __init__(self, folder: Path, plan: str, batch: int, **values: object) -> None:
        job = own_job_id()
        self.name = fresh_name(f"b{batch}")
        self.path = folder / f"{self.name}.json"
        self.data: dict[str, Any] = {
            "plan": plan, "batch": batch, "job": job, "holder": asdict(claims.myself()), "phase": "starting",
            "started": time.time(), "node": own_node(), "restart": own_restart(), **values,
        }

    def update(self, **values: object) -> None:
        """Change some values and write the record; not where the workspace has gone, which would make a ghost of it."""
        self.data.update(values, updated=time.time())
        if self.path.parent.parent.is_dir():
            write_json(self.path, self.data)


def read_runs(folder: Path) -> list[dict[str, Any]]:
    """All run records, oldest first."""
    if not folder.is_dir():
        return []
    return [record for path in sorted(folder.glob("*.json")) if (record := read_json(path)) is not None]
