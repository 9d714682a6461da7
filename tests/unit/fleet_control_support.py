"""A cluster made up on the spot, a fleet on disk, and workers that register: for what makes and keeps fleets up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from automate import __version__
from automate.claims import myself
from automate.cluster.base import expand_log
from automate.cluster.queue import JobState, JobStatus
from automate.errors import ClusterError, SubmitError
from automate.fleet_places import FleetPlaces
from automate.fleets.handing import control, make_fleet, submit_workers
from automate.journal import write_json
from automate.serving.fleet.records import FleetSpec, Group, WorkerRecord
from automate.serving.fleet.registry import register

LIMIT = "sbatch: error: QOSMaxSubmitJobPerUserLimit"


@dataclass
class FakeCluster:
    """Keeps jobs in memory. `room`: how many more tasks it takes; `refuses`: its words for every submission."""

    kind: str = "local"
    jobs: dict[str, JobStatus] = field(default_factory=dict)
    room: int | None = None
    refuses: str | None = None
    lost: bool = False
    silent: bool = False
    looks: int = 0
    asked: list[str] = field(default_factory=list)
    submits: list[tuple[str, tuple[int, ...], str | None]] = field(default_factory=list)
    number: int = 0

    def submit(self, script: Path, name: str, indexes: Sequence[int], parallel: int | None,
               after: str | None = None, exclude: str | None = None) -> str:
        self.submits.append((name, tuple(indexes), exclude))
        if self.refuses is not None:
            raise SubmitError(self.refuses)
        if self.room is not None and len(indexes) > self.room:
            raise SubmitError(LIMIT)
        self.number += 1
        for index in indexes:
            self.set(f"{self.number}_{index}", JobState.PENDING, name=name)
        if self.room is not None:
            self.room -= len(indexes)
        if self.lost:
            self.lost = False
            raise SubmitError("sbatch: error: Socket timed out")
        return str(self.number)

    def set(self, job: str, state: JobState, *, name: str = "", reason: str = "") -> None:
        known = self.jobs.get(job)
        self.jobs[job] = JobStatus(job, state, "squeue", name or (known.name if known else ""), reason, nodes="n1")

    def set_all(self, state: JobState) -> None:
        for job in self.jobs:
            self.set(job, state)

    def find(self, name: str, since: float) -> list[str]:
        if self.silent:
            raise ClusterError("Slurm does not answer")
        return sorted({job.partition("_")[0] for job, status in self.jobs.items() if status.name == name})

    def look(self, jobs: Sequence[str], names: Sequence[str] = ()) -> dict[str, JobStatus]:
        self.looks += 1
        self.asked = list(jobs)
        unknown = "Slurm does not answer" if self.silent else "neither squeue nor sacct knows it"
        return {job: self.jobs[job] if job in self.jobs and not self.silent else
                JobStatus(job, JobState.UNKNOWN, unknown, gone=not self.silent) for job in jobs}

    def cancel(self, jobs: Sequence[str]) -> list[str]:
        for job in jobs:
            self.set(job, JobState.CANCELLED)
        return []

    def check(self, script: Path) -> str | None:
        return None

    def log_path(self, pattern: str, job: str) -> Path:
        return expand_log(pattern, job)

    def of(self, state: JobState) -> list[str]:
        return [job for job, status in self.jobs.items() if status.state is state]


def make_spec(places: FleetPlaces, least: int = 2, most: int = 2, *, models: Sequence[str] = ("judge",),
              fleet_id: str = "one", campaign: str | None = None, patience: float = 600.0) -> FleetSpec:
    """A fleet of these models."""
    groups = tuple(Group(number, model, str(places.script(number)), least, most)
                   for number, model in enumerate(models, 1))
    return FleetSpec(places.name, fleet_id, __version__, 1.0, "me", "local", groups, "print", idle=100.0,
                     patience=patience, campaign=campaign)


def make(root: Path, cluster: FakeCluster, spec: FleetSpec | None = None, *, submit: bool = True,
         **values: object) -> tuple[FleetPlaces, FleetSpec]:
    """A fleet on disk with its least servers handed over."""
    places = FleetPlaces(root, "main")
    spec = spec or make_spec(places, **values)  # type: ignore[arg-type]
    make_fleet(places, spec, {group.number: "#!/bin/bash\n" for group in spec.groups}, cluster=cluster)
    if submit:
        with control(places, cluster):
            for group in spec.groups:
                submit_workers(places, spec, cluster, group, group.least, by="user")
    return places, spec


def worker(places: FleetPlaces, spec: FleetSpec, job: str, *, group: int = 1, **values: object) -> WorkerRecord:
    """A worker of a job that registers now."""
    of_group = next(one for one in spec.groups if one.number == group)
    record = WorkerRecord(f"w-{job}", spec.id, group, of_group.model, "127.0.0.1", 1, f"nonce{job}", __version__,
                          myself({}), job, "n1", also=of_group.also)
    record = replace(record, **values)  # type: ignore[arg-type]
    register(places, record)
    return record


def run_record(places: FleetPlaces, job: str, *, group: int = 1, **values: object) -> None:
    """What a start says of itself."""
    name = f"r{len(list(places.runs.glob('*.json'))) if places.runs.is_dir() else 0:04d}-{job}"
    write_json(places.runs / f"{name}.json", {"id": name, "group": group, "model": "judge", "job": job, "node": "n1",
                                              "started": 1.0, "updated": 2.0, "phase": "ended", **values})


def bring_up(places: FleetPlaces, spec: FleetSpec, cluster: FakeCluster, **values: object) -> list[WorkerRecord]:
    """Every job that waits starts, and its server registers."""
    found = []
    for job in cluster.of(JobState.PENDING):
        cluster.set(job, JobState.RUNNING)
        number = next(one.number for one in spec.groups if f"-{one.number}-" in cluster.jobs[job].name)
        found.append(worker(places, spec, job, group=number, **values))
    return found
