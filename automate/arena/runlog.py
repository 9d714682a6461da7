"""What a started job says of itself: one small file, replaced by rename, with a heartbeat.

Evidence for the monitor and for submission; never a promise that a job lives."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from automate import claims
from automate.journal import fresh_name, read_json, write_json


def own_job_id(environ: Mapping[str, str] | None = None) -> str | None:
    """This job's id as squeue prints it (array tasks: 123_4), or the local queue's; None outside a job."""
    env = os.environ if environ is None else environ
    local = env.get("FLOCK_HPC_JOB")
    if local:
        return local
    array, task = env.get("SLURM_ARRAY_JOB_ID"), env.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else env.get("SLURM_JOB_ID")


class RunLog:
    """The record of one start of one batch."""

    def __init__(self, folder: Path, plan: str, batch: int) -> None:
        job = own_job_id()
        self.name = fresh_name(f"b{batch}")
        self.path = folder / f"{self.name}.json"
        self.data: dict[str, Any] = {
            "plan": plan, "batch": batch, "job": job, "holder": asdict(claims.myself()), "phase": "starting",
            "started": time.time(),
        }

    def update(self, **values: object) -> None:
        """Change some values and write the record."""
        self.data.update(values, updated=time.time())
        write_json(self.path, self.data)


def read_runs(folder: Path) -> list[dict[str, Any]]:
    """All run records, oldest first."""
    if not folder.is_dir():
        return []
    return [record for path in sorted(folder.glob("*.json")) if (record := read_json(path)) is not None]
