"""How a fleet stands: its models, its workers, its failures, and what the servers' time went into.

Only looks: jobs and the registry's workers come in as they were seen; Slurm may be asked of who uses the fleet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from automate.claims import JobAlive, alive, myself, no_jobs
from automate.cluster import queue
from automate.errors import FlockError
from automate.fleet_places import FleetPlaces
from automate.fleets.account import spent_of
from automate.fleets.eye import Eye, cant_write
from automate.fleets.rows import Job, Run, WorkerRow, number, own_runs, rows_of, text
from automate.fleets.trouble import FleetFailure, failures_of
from automate.serving.fleet.files import read_or_none
from automate.serving.fleet.records import FleetSpec, Group, Spent, Wish
from automate.serving.fleet.registry import Seen, read_wish, users

FleetState = Literal["up", "stopping", "over"]
STATES = ("waiting", "loading", "ready", "draining", "refused", "silent", "unknown", "ended")
"""States of a worker, in the order in which a table shows them."""


@dataclass(frozen=True)
class ModelRow:
    """The servers of one model: `wanted` now, between `least` and `most`; `states`: how many are in which state.

    `spent`: seconds of all its servers, those that have ended included, those of earlier fleets not.
    """

    group: int
    model: str
    also: tuple[str, ...]
    wanted: int
    least: int
    most: int
    states: Mapping[str, int]
    spent: Spent = field(default_factory=Spent)

    @property
    def ready(self) -> int:
        return self.states.get("ready", 0)


@dataclass(frozen=True)
class FleetStatus:
    """A fleet at one moment. `spent`: server-seconds so far and what they went into; `shares`: of each in that.

    `earlier`: what of `spent` went into fleets of this name before it was made anew, where it is a campaign's; the
    rest is that of its workers. `gpu_seconds`: `spent`, each second as often as its server has GPUs. `router`: its
    address where one runs; `users`: how many engines and routers use the fleet now, by kind. `problems`: what could
    not be read.
    """

    name: str
    id: str
    campaign: str | None
    executor: str
    state: FleetState
    models: tuple[ModelRow, ...]
    workers: tuple[WorkerRow, ...]
    spent: Spent = field(default_factory=Spent)
    earlier: Spent = field(default_factory=Spent)
    gpu_seconds: float = 0.0
    shares: Mapping[str, float] = field(default_factory=dict)
    failures: tuple[FleetFailure, ...] = ()
    router: str | None = None
    users: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def wanted(self) -> int:
        return sum(model.wanted for model in self.models)

    @property
    def ready(self) -> int:
        return sum(model.ready for model in self.models)


def fleet_status(places: FleetPlaces, spec: FleetSpec, jobs: Iterable[Job], seen: Mapping[str, Seen] | None,
                 now: float, eye: Eye | None = None, job_alive: JobAlive | None = None) -> FleetStatus:
    """Read what lies in the fleet's folder, and put it together with `jobs` (every job of the fleet that is known) and
    `seen` (Watch.look(); None: as `eye` sees it, one who only looks). `now`: epoch seconds.

    What can't be read is among its `problems`. Give the same `eye` at each look: it knows what it has read.
    `job_alive`: asked of each user of the fleet that is no process of this machine; None: Slurm, where it is on Slurm.
    """
    problems: list[str] = []
    eye = eye or Eye(places)
    seen = eye.workers(spec, problems) if seen is None else seen
    try:
        wish = read_wish(places)
    except FlockError as error:
        wish = Wish()
        problems.append(str(error))
    runs = eye.runs(problems)
    kinds = users_of(places, spec.stale, job_alive or (queue.job_alive if spec.executor == "slurm" else no_jobs))
    router = router_address(places, problems) if "router" in kinds else None  # one that was killed leaves its word
    full = cant_write(places.home) if any(one.life == "silent" for one in seen.values()) else ""
    return status_of(spec, tuple(jobs), seen, runs, now, wish=wish, router=router, users=kinds, problems=problems,
                     full=full)


def status_of(spec: FleetSpec, jobs: Sequence[Job], seen: Mapping[str, Seen], runs: Sequence[Run], now: float, *,
              wish: Wish | None = None, router: str | None = None, users: Mapping[str, int] | None = None,
              problems: Sequence[str] = (), full: str = "") -> FleetStatus:
    """The same, from what was read already. `full`: why nothing can be written into the fleet's folder."""
    wish = wish or Wish()
    rows = sorted(rows_of(spec, jobs, seen, runs, now), key=_order)
    past = own_runs(spec, jobs, seen, runs)[1] if spec.campaign else []
    earlier = spent_of(past, now)
    spent = _sum(row.spent for row in rows) + earlier
    return FleetStatus(
        spec.name, spec.id, spec.campaign, spec.executor, _state(wish, rows),
        tuple(_model(group, wish, rows) for group in spec.groups), tuple(rows), spent, earlier,
        _gpu_seconds(spec, rows, past, now), _shares(spent),
        tuple(failures_of(spec, rows, full)), router, users or {}, tuple(problems))


def _gpu_seconds(spec: FleetSpec, rows: Sequence[WorkerRow], past: Sequence[Run], now: float) -> float:
    """Seconds times GPUs: of each start as it says itself, else as many as its group has."""
    gpus = {group.number: group.gpus for group in spec.groups}
    own = sum(row.spent.total * (gpus.get(row.group, 0) if row.gpus is None else max(0.0, row.gpus)) for row in rows)
    return own + sum(spent_of([run], now).total * max(0.0, number(run, "gpus") or 0.0) for run in past)


def _order(row: WorkerRow) -> tuple[int, int, float, str]:
    """Living ones first; of those that have ended the newest first."""
    ended = row.state == "ended"
    last = 2 if ended else int(row.state == "refused")
    return last, row.group, -(row.started or 0.0) if ended else (row.started or float("inf")), row.job or ""


def _state(wish: Wish, rows: Sequence[WorkerRow]) -> FleetState:
    if any(row.state != "ended" for row in rows):
        return "stopping" if wish.stop else "up"
    return "over" if wish.stop or rows else "up"


def _model(group: Group, wish: Wish, rows: Sequence[WorkerRow]) -> ModelRow:
    mine = [row for row in rows if row.group == group.number]
    counts = {state: sum(1 for row in mine if row.state == state) for state in STATES}
    least, most = wish.bounds_of(group)
    beside = sum(1 for row in mine if row.job is None and row.state not in ("ended", "refused"))  # in an engine's job
    return ModelRow(group.number, group.model, group.also, wish.wanted_of(group) + beside, least, most,
                    {state: count for state, count in counts.items() if count}, _sum(row.spent for row in mine))


def _sum(parts: Iterable[Spent]) -> Spent:
    total = Spent()
    for part in parts:
        total += part
    return total


def _shares(spent: Spent) -> dict[str, float]:
    if spent.total <= 0:
        return {}
    return {"load": spent.load / spent.total, "work": spent.work / spent.total, "idle": spent.idle / spent.total}


def router_address(places: FleetPlaces, problems: list[str]) -> str | None:
    """What the router says of its address; None where none does."""
    try:
        record = read_or_none(places.router)
    except FileNotFoundError:
        return None
    except OSError as error:
        problems.append(f"{places.router}: can't be read: {error.strerror or error}")
        return None
    return text(record, "url") or text(record, "address") or None


def users_of(places: FleetPlaces, stale: float, job_alive: JobAlive = no_jobs) -> dict[str, int]:
    """Who uses the fleet, by kind. One that is known to be gone doesn't count, however young its heartbeat is."""
    found: dict[str, int] = {}
    me, word = myself(), _once(job_alive)
    try:
        for one in users(places, job_alive=word, stale=stale, me=me):
            if alive(one.holder, me, word) is not False:
                found[one.who] = found.get(one.who, 0) + 1
    except FlockError:
        return found  # no folder: nobody can say
    return found


def _once(job_alive: JobAlive) -> JobAlive:
    """The same, asked once of each job, and no more when it could not say: a Slurm that hangs does so for long."""
    told: dict[str, bool | None] = {}

    def word(job: str) -> bool | None:
        if job not in told:
            told[job] = None if None in told.values() else job_alive(job)
        return told[job]

    return word
