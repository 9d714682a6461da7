"""What is seen of a fleet now, put together: what is wished, its jobs, its registered servers, and how starts went.

Never changes anything; asks the cluster once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from automate.cluster.base import Cluster
from automate.cluster.queue import JobState, JobStatus
from automate.fleet_places import FleetPlaces
from automate.fleets.account import read_worker_runs
from automate.fleets.ending import CANCELLED, IDLE, RETIRED, STOPPED, UNUSED
from automate.fleets.jobs import WorkerJob, jobs_of
from automate.fleets.scaling import Demand, GroupView, Server
from automate.serving.fleet.records import FleetSpec, Group, Wish
from automate.serving.fleet.registry import Seen, Watch, is_retired, read_wish

HOPELESS = 2
"""After so many starts in a row that failed before they were ready, of a cause that stays, no more are asked for."""
TRIES = 6
"""After so many in a row, of whatever cause."""
Run = Mapping[str, Any]


@dataclass(frozen=True)
class Look:
    """A fleet at one moment. `quiet`: seconds without a request of each worker; `retired`: workers asked to end."""

    wish: Wish
    jobs: tuple[WorkerJob, ...]
    seen: Mapping[str, Seen]
    runs: tuple[Run, ...]
    retired: frozenset[str] = frozenset()
    quiet: Mapping[str, float] = field(default_factory=dict)

    def of_group(self, group: Group) -> list[WorkerJob]:
        return [one for one in self.jobs if one.group == group.number]


def look(places: FleetPlaces, spec: FleetSpec, cluster: Cluster, watch: Watch,
         known: dict[str, JobStatus] | None = None) -> Look:
    """Read and ask (`known`: as of `jobs_of`). Raises StorageError where the fleet's folder is lost."""
    seen = watch.look()
    retired = frozenset(worker for worker in seen if is_retired(places, worker))
    jobs = tuple(jobs_of(places, cluster, spec, known))
    return Look(read_wish(places), jobs, seen, tuple(read_worker_runs(places)), retired)


def view_of(now: Look, group: Group, *, demand: Demand | None = None, ends: bool = False, slow: bool = False,
            idle: float = 900.0) -> GroupView:
    """One group, as `decide` takes it. A server that was asked to end counts no more."""
    queued: list[str] = []
    loading: list[str] = []
    ready: list[Server] = []
    held = 0
    by_job = {one.record.job: one for one in now.seen.values() if one.life != "gone"}
    for order, one in enumerate(now.of_group(group)):
        found = by_job.get(one.job)
        if one.status.state is JobState.COMPLETING:
            held += _last(now.runs, one.job).get("why") == CANCELLED  # fewer are wanted as soon as it has ended
        elif not one.status.may_act:
            continue
        elif one.status.state.queued:
            queued.append(one.job)
        elif found is not None and found.record.id in now.retired:
            continue
        elif found is not None and found.usable:
            ready.append(_server(found, now, order))
        elif found is None and _goes(now.runs, one.job):
            continue
        elif found is None and one.status.state.active and not _is_ending(now.runs, one.job):
            loading.append(one.job)
        else:
            held += 1
    least, most = now.wish.bounds_of(group)
    failed = tuple(one.job for one in failed_starts(now.jobs, now.runs, group))
    beside = tuple(_server(one, now, 0) for one in now.seen.values()
                   if one.usable and not one.record.job and one.record.group == group.number)
    return GroupView(least, most, now.wish.wanted_of(group), tuple(queued), tuple(loading), tuple(ready), held, demand,
                     ends, slow, failed, trouble(now.jobs, now.runs, group), idle, beside)


def _server(one: Seen, now: Look, order: int) -> Server:
    record = one.record
    return Server(record.id, record.job or "", max(record.in_flight, record.running or 0.0), record.waiting or 0.0,
                  now.quiet.get(record.id, 0.0), float(order))


def _is_ending(runs: Sequence[Run], job: str) -> bool:
    """Whether a job's last start says of itself that it is at its end."""
    return _last(runs, job).get("phase") in ("draining", "ended")


def _goes(runs: Sequence[Run], job: str) -> bool:
    """Whether it is at its end, and does not come back: it was asked to end, or nobody needed it."""
    return _is_ending(runs, job) and _last(runs, job).get("why") in (RETIRED, STOPPED, IDLE, UNUSED)


def _last(runs: Sequence[Run], job: str) -> Run:
    return next((run for run in reversed(runs) if run.get("job") == job), {})


def given_up(now: Look) -> dict[str, int]:
    """Jobs that end or ended because nobody needed them, or that somebody cancelled by hand, with their groups.

    Each lowers what is wanted, once: `Wish.dropped` names those that have.
    """
    return {one.job: one.group for one in now.jobs
            if one.job not in now.wish.dropped and (one.status.state is JobState.CANCELLED or _needless(one, now.runs))}


def _needless(one: WorkerJob, runs: Sequence[Run]) -> bool:
    """Whether nobody needed it: by its last word, also before the cluster says that it has ended."""
    ends = one.status.state.ended or (not one.status.state.queued and _is_ending(runs, one.job))
    return ends and _last(runs, one.job).get("why") in (IDLE, UNUSED)


# --- starts that fail ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class Failed:
    """A job that ended before its server was ready."""

    job: str
    why: str
    hopeless: bool


def failed_starts(jobs: Sequence[WorkerJob], runs: Sequence[Run], group: Group) -> list[Failed]:
    """The jobs of a group that failed before they were ready, since the last one that was; oldest first."""
    found: list[Failed] = []
    for one in sorted((one for one in jobs if one.group == group.number), key=lambda one: _moment(one, runs)):
        mine = [run for run in runs if run.get("job") == one.job]
        if any(run.get("loads") or run.get("phase") == "ready" for run in mine):
            found = []
        elif (failed := _failed(one, mine)) is not None:
            found.append(failed)
    return found


def _moment(job: WorkerJob, runs: Iterable[Run]) -> float:
    ends = [float(run.get("ended") or run.get("updated") or 0.0) for run in runs if run.get("job") == job.job]
    return max([job.submission.intended, *ends])


def _failed(job: WorkerJob, runs: Sequence[Run]) -> Failed | None:
    """How a job that was never ready failed; None where it did not, or somebody ended it."""
    if job.status.may_act or job.status.state in (JobState.CANCELLED, JobState.PREEMPTED, JobState.COMPLETED):
        return None
    last = runs[-1] if runs else {}
    error = last.get("error") or last.get("why")
    why = str(error).split("\n")[0] if error else f"its job ended {job.status.state} {job.status.reason}".strip()
    return Failed(job.job, why, bool(last.get("hopeless")))


def trouble(jobs: Sequence[WorkerJob], runs: Sequence[Run], group: Group) -> str | None:
    """Why no more servers of a group are asked for, by how its last starts went; None while there is hope."""
    failed = failed_starts(jobs, runs, group)
    last = failed[-HOPELESS:]
    if len(last) == HOPELESS and all(one.hopeless for one in last):
        return (f"the last {len(last)} servers of '{group.model}' could not be started: {last[-1].why} "
                f"(job {last[-1].job})")
    if len(failed) >= TRIES:
        return (f"the last {len(failed)} servers of '{group.model}' failed before they were ready, last: "
                f"{failed[-1].why} (job {failed[-1].job})")
    return None
