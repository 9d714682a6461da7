"""How a fleet stands: its models, its workers, its failures, and what the servers' time went into.

Only looks, and asks no Slurm: jobs and the registry's workers come in as they were seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from automate.errors import FlockError
from automate.fleet_places import FleetPlaces
from automate.fleets.eye import Eye
from automate.fleets.rows import Job, Run, WorkerRow, rows_of, text
from automate.fleets.trouble import FleetFailure, failures_of
from automate.journal import read_json
from automate.serving.fleet.files import age_of
from automate.serving.fleet.records import FleetSpec, Group, Spent, Wish
from automate.serving.fleet.registry import Seen, read_wish

FleetState = Literal["up", "stopping", "over"]
STATES = ("waiting", "loading", "ready", "draining", "silent", "unknown", "ended")
"""States of a worker, in the order in which a table shows them."""


@dataclass(frozen=True)
class ModelRow:
    """The servers of one model: `wanted` now, between `least` and `most`; `states`: how many are in which state.

    `spent`: seconds of all its servers, those that have ended included.
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

    `gpu_seconds`: the same seconds, each as often as its server has GPUs. `router`: its address where one runs;
    `users`: how many engines and routers use the fleet now, by kind. `problems`: what could not be read.
    """

    name: str
    id: str
    campaign: str | None
    executor: str
    state: FleetState
    models: tuple[ModelRow, ...]
    workers: tuple[WorkerRow, ...]
    spent: Spent = field(default_factory=Spent)
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
                 now: float, eye: Eye | None = None) -> FleetStatus:
    """Read what lies in the fleet's folder, and put it together with `jobs` (every job of the fleet that is known) and
    `seen` (Watch.look(); None: as `eye` sees it, one who only looks). `now`: epoch seconds.

    What can't be read is among its `problems`. Give the same `eye` at each look: it knows what it has read.
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
    users = _users(places.users, spec.stale)
    router = router_address(places, problems) if "router" in users else None  # one that was killed leaves its word
    return status_of(spec, tuple(jobs), seen, runs, now, wish=wish, router=router, users=users, problems=problems)


def status_of(spec: FleetSpec, jobs: Sequence[Job], seen: Mapping[str, Seen], runs: Sequence[Run], now: float, *,
              wish: Wish | None = None, router: str | None = None, users: Mapping[str, int] | None = None,
              problems: Sequence[str] = ()) -> FleetStatus:
    """The same, from what was read already."""
    wish = wish or Wish()
    rows = sorted(rows_of(spec, jobs, seen, runs, now), key=_order)
    spent = _sum(row.spent for row in rows)
    gpus = {group.number: group.gpus for group in spec.groups}
    return FleetStatus(
        spec.name, spec.id, spec.campaign, spec.executor, _state(wish, rows),
        tuple(_model(group, wish, rows) for group in spec.groups), tuple(rows), spent,
        sum(row.spent.total * gpus.get(row.group, 0) for row in rows), _shares(spent),
        tuple(failures_of(spec, rows)), router, users or {}, tuple(problems))


def _order(row: WorkerRow) -> tuple[int, int, float, str]:
    """Living ones first; of those that have ended the newest first."""
    ended = row.state == "ended"
    return int(ended), row.group, -(row.started or 0.0) if ended else (row.started or float("inf")), row.job or ""


def _state(wish: Wish, rows: Sequence[WorkerRow]) -> FleetState:
    if any(row.state != "ended" for row in rows):
        return "stopping" if wish.stop else "up"
    return "over" if wish.stop or rows else "up"


def _model(group: Group, wish: Wish, rows: Sequence[WorkerRow]) -> ModelRow:
    mine = [row for row in rows if row.group == group.number]
    counts = {state: sum(1 for row in mine if row.state == state) for state in STATES}
    least, most = wish.bounds_of(group)
    beside = sum(1 for row in mine if row.job is None and row.state != "ended")  # in an engine's job: not wished for
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
        record = read_json(places.router)
    except FlockError as error:
        problems.append(str(error))
        return None
    return text(record, "url") or text(record, "address") or None


def _users(folder: Path, stale: float) -> dict[str, int]:
    """Who uses the fleet, by kind: files that were written not long ago, by the file system's own clock."""
    found: dict[str, int] = {}
    for path in sorted(folder.glob("[!.]*.json")):
        try:
            who = text(read_json(path), "who")
            if who and abs(age_of(path) or 0.0) < 2 * stale:
                found[who] = found.get(who, 0) + 1
        except FlockError:
            continue  # nobody can say
    return found
