"""What `serve` does: a fleet is made and handed over, found by its name, looked at.

Never prints; says nothing of a fleet's key but where it lies."""

from __future__ import annotations

import contextlib
import difflib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from automate.campaign import state
from automate.campaign.nodes import remember_failed_jobs
from automate.campaign.rooms import excluded_now
from automate.cluster.base import Cluster
from automate.cluster.queue import JobState, JobStatus
from automate.errors import ClusterError, ConfigError
from automate.fleet_places import FleetPlaces
from automate.fleets.acting import Scaled, act
from automate.fleets.handing import control, make_fleet, refuse_alive, scale
from automate.fleets.jobs import (
    WorkerJob,
    alive_of,
    cluster_of,
    fleets_of,
    is_over,
    job_ids,
    jobs_of,
    refuse_others,
    submissions_of,
)
from automate.fleets.outlook import outlook
from automate.fleets.scaling import Decision
from automate.fleets.status import FleetStatus, fleet_status
from automate.journal import replace_file
from automate.serving.fleet.keys import read_secrets
from automate.serving.fleet.records import FleetSpec, Group
from automate.serving.fleet.registry import Watch, read_spec, read_wish
from automate.workspace import Workspace

Say = Callable[[str], None]
DEFAULT = "default"
"""A fleet's name where none is given."""


@dataclass
class Handed:
    """What handing a fleet over came to, and what the user is to be told besides."""

    done: Scaled = field(default_factory=Scaled)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fleet:
    """A fleet that is there, with the cluster of its jobs."""

    places: FleetPlaces
    spec: FleetSpec
    cluster: Cluster


# --- made ---------------------------------------------------------------------------------------------
def write_scripts(workspace: Workspace, cluster: Cluster, spec: FleetSpec, scripts: Mapping[int, str]) -> None:
    """Write a fleet's scripts for a look at them, without making the fleet. Raises as make_fleet."""
    places = FleetPlaces(workspace.root, spec.name)
    refuse_others(workspace.root, spec.name)
    with control(places, cluster, patience=0.0):
        refuse_alive(places, cluster)
        for number, text in scripts.items():
            replace_file(places.script(number), text.encode(), 0o755)


def make_and_submit(workspace: Workspace, cluster: Cluster, spec: FleetSpec, scripts: Mapping[int, str]) -> Handed:
    """Make the fleet and hand over the least number of servers of each group, away from bad nodes.

    Raises ConfigError where a fleet of this name is not over, or limits.max_submitted has no room for it, ClaimedError
    where another makes it at this moment.
    """
    places = FleetPlaces(workspace.root, spec.name)
    refuse_others(workspace.root, spec.name)
    _refuse_too_many(workspace, sum(group.least for group in spec.groups))
    handed = Handed()
    with control(places, cluster, patience=0.0) as claim:
        make_fleet(places, spec, scripts, cluster=cluster, claim=claim)
        excluded = excluded_now(workspace, cluster)
        handed.notes = tuple(excluded.notes)
        for group in spec.groups:
            act(places, spec, cluster, group, Decision(group.least, ask=group.least), by="user", done=handed.done,
                exclude=excluded.option)
    return handed


def _refuse_too_many(workspace: Workspace, count: int) -> None:
    """Raises ConfigError where so many more servers do not fit under limits.max_submitted beside what is queued."""
    cap = workspace.settings.limits.max_submitted
    if cap is None or count < 1:
        return
    active = len(state.look(workspace).active)
    for name in fleets_of(workspace.root):
        with contextlib.suppress(ClusterError):  # on a cluster that can't be asked from here
            other = open_fleet(workspace.root, name)
            active += sum(one.status.may_act for one in jobs_of(other.places, other.cluster, other.spec))
    if active + count > cap:
        raise ConfigError(f"limits.max_submitted={cap}: {active} job{'s' * (active != 1)} in the queue, and "
                          f"{count} server{'s' * (count != 1)} asked for", where="limits.max_submitted",
                          todo="ask for fewer with --replicas, wait, or raise limits.max_submitted")


def rescale(workspace: Workspace, fleet: Fleet, bounds: tuple[int, int], model: str | None) -> Handed:
    """Have between `bounds` servers of a model (of each model: None).

    Raises ConfigError for a model it hasn't, where the fleet's secrets are open to others, and where
    limits.max_submitted has no room for the servers that are missing.
    """
    read_secrets(fleet.places)
    groups = fleet.spec.groups if model is None else (group_of(fleet.spec, model),)
    wish, (least, most) = read_wish(fleet.places), bounds
    wanted = {one.number: min(max(wish.wanted_of(one), least), most) for one in groups}
    jobs = jobs_of(fleet.places, fleet.cluster, fleet.spec)
    have = Counter(one.group for one in jobs if one.status.may_act)
    _refuse_too_many(workspace, sum(max(0, count - have[number]) for number, count in wanted.items()))
    remember_failed_jobs(workspace, jobs)
    excluded = excluded_now(workspace, fleet.cluster)
    done = scale(fleet.places, fleet.spec, fleet.cluster, wanted, bounds=dict.fromkeys(wanted, bounds),
                 exclude=excluded.option)
    return Handed(done, tuple(excluded.notes) if done.submitted else ())


# --- found --------------------------------------------------------------------------------------------
def group_of(spec: FleetSpec, model: str) -> Group:
    """The group of a model. Raises ConfigError with near matches."""
    found = spec.group_of(model)
    if found is None:
        names = [name for one in spec.groups for name in one.names]
        near = difflib.get_close_matches(model, names, n=3) or names[:5]
        raise ConfigError(f"the fleet '{spec.name}' serves no model '{model}'", where="--model",
                          todo=f"it serves {', '.join(near)}")
    return found


def find_fleet(root: Path, name: str | None) -> Fleet:
    """The fleet of this name; without one the only fleet, or the only one that is not over. Raises ConfigError."""
    refuse_others(root, name)
    names = fleets_of(root)
    if name is None and len(names) > 1:
        names = [one for one in names if not _over(root, one)] or names
    if name is not None and name not in names:
        raise _no_fleet(root, name, names)
    if not names:
        raise ConfigError("there is no fleet in this workspace", where=str(root),
                          todo="start one with 'flock-hpc serve MODEL --replicas N --submit'")
    if name is None and len(names) > 1:
        raise ConfigError(f"there are {len(names)} fleets: {', '.join(names)}", where="--name",
                          todo="say which one with --name")
    return open_fleet(root, name or names[0])


def open_fleet(root: Path, name: str) -> Fleet:
    """A fleet that is there. Raises ConfigError, DataError, ClusterError."""
    places = FleetPlaces(root, name)
    spec = read_spec(places)
    if spec is None:
        raise _no_fleet(root, name, fleets_of(root))
    return Fleet(places, spec, cluster_of(root, spec.executor))


def _no_fleet(root: Path, name: str, names: list[str]) -> ConfigError:
    near = difflib.get_close_matches(name, names, n=3)
    todo = (f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(names)}" if names else
            "start one with 'flock-hpc serve MODEL --replicas N --submit'")
    return ConfigError(f"there is no fleet '{name}'", where=str(root), todo=todo)


def _over(root: Path, name: str) -> bool:
    """Whether a fleet is surely over."""
    try:
        fleet = open_fleet(root, name)
        return is_over(fleet.places, fleet.cluster)
    except ClusterError:
        return False


# --- looked at ----------------------------------------------------------------------------------------
def status_of(workspace: Workspace, name: str) -> FleetStatus:
    """How a fleet stands now. Where its cluster can't be asked from here its jobs are unknown. Raises DataError."""
    places = FleetPlaces(workspace.root, name)
    spec = read_spec(places)
    if spec is None:
        raise _no_fleet(workspace.root, name, fleets_of(workspace.root))
    try:
        jobs = jobs_of(places, cluster_of(workspace.root, spec.executor), spec)
        remember_failed_jobs(workspace, jobs)
    except ClusterError as error:
        jobs = [WorkerJob(job, next(iter(one.tasks.values())), JobStatus(job, JobState.UNKNOWN, error.what), one)
                for one in submissions_of(places, spec) for job in job_ids(one)]
    return fleet_status(places, spec, jobs, None, time.time())


def warnings_of(root: Path, names: Iterable[str]) -> dict[str, str]:
    """What is wrong with the secrets of these fleets, by name, and what to do: others may have read them."""
    found = {}
    for name in names:
        try:
            read_secrets(FleetPlaces(root, name))
        except ConfigError as error:
            found[name] = str(error)
    return found


def open_fleets(root: Path, name: str | None) -> list[str]:
    """The fleets to show: the one of this name, or all. Raises ConfigError for a name that no fleet has."""
    names = fleets_of(root)
    if name is None:
        return names
    refuse_others(root, name)
    if name not in names:
        raise _no_fleet(root, name, names)
    return [name]


def lacking(places: FleetPlaces, spec: FleetSpec, cluster: Cluster, say: Say) -> tuple[int, str | None]:
    """How many servers are missing to the least number, and why there will be none of some model, where that is so."""
    seen = Watch(places, spec, alive_of(cluster), version=spec.version).look()
    missing, why = 0, None
    for group in spec.groups:
        ready = sum(1 for one in seen.values() if one.usable and one.record.group == group.number)
        short = max(0, group.least - ready)
        missing += short
        if short and not ready:
            why = why or outlook(places, spec, cluster, group.model, say=say)
    return missing, why
