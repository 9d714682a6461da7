"""Fleets in the monitor: those that are not over, and what the newest campaign's fleet came to after its end.

Reads only the fleets' folders; what Slurm says of their jobs comes from the monitor's own question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from automate.campaign.monitoring.sources import Mark, stamp
from automate.claims import no_jobs
from automate.cluster.local.executor import LocalCluster
from automate.cluster.queue import JobState, JobStatus
from automate.cluster.submit import Submission
from automate.errors import FlockError
from automate.fleet_places import FleetPlaces
from automate.fleets.eye import Eye, fleets_here
from automate.fleets.jobs import WorkerJob, job_ids, submissions_of
from automate.fleets.status import FleetStatus, fleet_status
from automate.serving.fleet.records import FleetSpec
from automate.workspace import Workspace


class Fleets:
    """The fleets of a workspace, looked at again and again. `find` first, then `look` with Slurm's word."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[FleetPlaces, FleetSpec]] = {}
        self._handed: dict[str, list[Submission]] = {}
        self._eyes: dict[str, Eye] = {}
        self._seen: dict[str, tuple[FleetStatus, Mark]] = {}

    def find(self, workspace: Workspace, problems: list[str]) -> list[str]:
        """Take in the fleets that there are; the jobs of those on Slurm that are to be asked about."""
        self._found = fleets_here(workspace.root, problems)
        ids = {spec.id for _, spec in self._found.values()}
        self._seen = {fleet: kept for fleet, kept in self._seen.items() if fleet in ids}
        self._eyes = {name: self._eyes.get(name) or Eye(places) for name, (places, _) in self._found.items()}
        self._handed = {}
        for name, (places, spec) in self._living():
            try:
                self._handed[name] = submissions_of(places, spec)
            except FlockError as error:
                problems.append(str(error))
        return [job for name, (_, spec) in self._living() if spec.executor == "slurm"
                for submission in self._handed.get(name, []) for job in job_ids(submission)]

    def look(self, workspace: Workspace, said: Mapping[str, JobStatus], now: float) -> tuple[FleetStatus, ...]:
        """Every fleet that is not over, and the newest campaign's where that is over. `said`: what Slurm says."""
        for name, (places, spec) in list(self._living()):
            jobs = _jobs(workspace, spec, self._handed.get(name, []), said)
            status = fleet_status(places, spec, jobs, None, now, self._eyes[name], no_jobs)  # no question of its own
            self._seen[spec.id] = status, stamp(places.submissions)
        return _shown([(spec, self._seen[spec.id][0]) for _, spec in self._found.values()])

    def _living(self) -> Iterator[tuple[str, tuple[FleetPlaces, FleetSpec]]]:
        """Fleets but for those that were seen to be over, and for which nothing was handed in since."""
        for name, (places, spec) in self._found.items():
            status, mark = self._seen.get(spec.id, (None, ()))
            if status is None or status.state != "over" or mark != stamp(places.submissions):
                yield name, (places, spec)


def _jobs(workspace: Workspace, spec: FleetSpec, submissions: Sequence[Submission],
          said: Mapping[str, JobStatus]) -> list[WorkerJob]:
    """Every job that was handed in for a fleet, with the cluster's word."""
    handed = {job: one for one in submissions for job in job_ids(one)}
    if spec.executor == "local" and handed:
        said = LocalCluster(workspace.local_queue, workspace.root).look(list(handed), ())
    unknown = "Slurm was not asked"
    return [WorkerJob(job, next(iter(one.tasks.values()), 0), said.get(job) or
                      JobStatus(job, JobState.UNKNOWN, unknown), one) for job, one in handed.items()]


def _shown(fleets: Sequence[tuple[FleetSpec, FleetStatus]]) -> tuple[FleetStatus, ...]:
    living = [status for _, status in fleets if status.state != "over"]
    over = [(spec, status) for spec, status in fleets if status.state == "over" and spec.campaign]
    newest = [max(over, key=lambda one: one[0].created)[1]] if over else []
    return (*living, *newest)
