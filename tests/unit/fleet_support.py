"""Hand-made fleets for the tests of what is shown of them: records, jobs, starts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from automate.claims import Holder
from automate.cluster.queue import JobState, JobStatus
from automate.fleet_places import FleetPlaces
from automate.serving.fleet.records import FleetSpec, Group, Spent, WorkerRecord
from automate.serving.fleet.registry import Life, Seen

NOW = 1_700_000_000.0
JUDGE = "judge-70b"


@dataclass(frozen=True)
class Job:
    """A job of a fleet, as the controller's module gives it."""

    job: str
    group: int
    status: JobStatus


def spec(*groups: Group, **more: Any) -> FleetSpec:
    """A fleet of one model's servers, where no groups are given."""
    values: dict[str, Any] = {
        "name": "main", "id": "f1", "version": "1.0", "created": NOW - 7200, "user": "ada", "executor": "slurm",
        "groups": groups or (group(),), "print": "p", **more}
    return FleetSpec(**values)


def group(number: int = 1, model: str = JUDGE, **more: Any) -> Group:
    """Servers of a model."""
    return replace(Group(number, model, f"worker_{number}.sh", 4, 4, gpus=1), **more)


def record(task: int, **more: Any) -> WorkerRecord:
    """A registered worker that is at work for an hour."""
    holder = Holder(f"c{task}", "boot", "space", 100, "1", f"700_{task}", 0, "n", NOW - 3600)
    values: dict[str, Any] = {
        "id": f"w{task}", "fleet": "f1", "group": 1, "model": JUDGE, "host": f"c{task}", "port": 4000 + task,
        "nonce": f"n{task}", "version": "1.0", "holder": holder, "job": f"700_{task}", "node": f"c{task}", "beat": 700,
        "since": NOW - 3600, "time": NOW - 2, "until": NOW + 7200, "in_flight": 31, "running": 28.0, "waiting": 3.0,
        "kv_usage": 0.5, "prefix_hits": 440.0, "prefix_queries": 1000.0, "served": 5120,
        "spent": Spent(300.0, 3000.0, 300.0), **more}
    return WorkerRecord(**values)


def seen(worker: WorkerRecord, life: Life = "alive", silence: float = 0.0, why: str = "") -> dict[str, Seen]:
    """It, as a reader of the registry sees it."""
    return {worker.id: Seen(worker, life, silence, why)}


def job(task: int, state: str = "RUNNING", group: int = 1, **more: Any) -> Job:
    """A job of the queue."""
    values: dict[str, Any] = {"evidence": "squeue", "name": f"serve-main-{group}-ab", "elapsed": "1:00:00", **more}
    return Job(f"700_{task}", group, JobStatus(f"700_{task}", JobState(state), **values))


def run(task: int, **more: Any) -> dict[str, Any]:
    """What a start says of itself."""
    return {"id": f"w{task}", "group": 1, "model": JUDGE, "job": f"700_{task}", "node": f"c{task}", "restart": 0,
            "gpus": 1, "started": NOW - 3600, "updated": NOW - 5, "phase": "ready", "served": 5000,
            "spent": {"load": 300.0, "work": 2990.0, "idle": 300.0}, "loads": [300.0], "deaths": [], **more}


def folder_of(root: Path) -> FleetPlaces:
    """A fleet's folder with the record of one start."""
    places = FleetPlaces(root, "main")
    for folder in (places.runs, places.users, places.workers):
        folder.mkdir(parents=True)
    (places.runs / "w1.json").write_bytes(orjson.dumps(run(1)))
    return places


def lay(places: FleetPlaces, worker: WorkerRecord) -> None:
    """A worker's record into the registry."""
    (places.workers / f"{worker.id}.json").write_bytes(orjson.dumps(worker.as_json()))
