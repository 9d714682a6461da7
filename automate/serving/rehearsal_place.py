"""What the node of a rehearsed cluster does to a judge that loads there: how long it takes, and whether it dies of it.

Never read outside of a rehearsal: only where the local queue's runner names its file."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from automate.serving.rehearsal_behaviour import Behaviour

FILE, NODE, STARTED = "FLOCK_HPC_REHEARSED_CLUSTER", "FLOCK_HPC_NODE", "FLOCK_HPC_JOB_STARTED"
DIES_AT = 0.4
"""A broken card is found so far into the load."""


@dataclass(frozen=True)
class Place:
    """Seconds that loading takes here, and the last words of a server that dies of this node (None: it lives)."""

    load_seconds: float | None = None
    fault: str | None = None

    def apply(self, behaviour: Behaviour, *, since_job: float) -> Behaviour:
        """The behaviour on this node; a job's first load counts from the job's start, `since_job` seconds ago."""
        if self.load_seconds is None:
            return behaviour
        first = since_job < self.load_seconds
        seconds = self.load_seconds - since_job if first else self.load_seconds
        if self.fault is not None:
            return replace(behaviour, load_seconds=self.load_seconds * DIES_AT, die_while_loading=True)
        return replace(behaviour, load_seconds=seconds)


def place_of(environ: Mapping[str, str]) -> Place:
    """The place of this process; one without effect outside of a rehearsed cluster."""
    try:
        nodes = json.loads(Path(environ[FILE]).read_bytes())["nodes"]
        mine = nodes[environ[NODE]]
        return Place(float(mine["load_seconds"]), mine.get("fault"))
    except (KeyError, OSError, ValueError, TypeError):
        return Place()


def since_job(environ: Mapping[str, str], now: float | None = None) -> float:
    """Seconds since this job's start; infinity where it is not known."""
    try:
        return (time.time() if now is None else now) - float(environ[STARTED])
    except (KeyError, ValueError):
        return float("inf")
