"""Nodes that break jobs: which ones did, by the jobs' own records and Slurm's, and which of that was forgiven.

Never excludes a node by itself, and never trusts a node's name."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from automate.arena.running.ending import NODE_FAILED
from automate.arena.running.gpu_hours import number
from automate.campaign.state import BatchView
from automate.cluster.asking import is_node
from automate.cluster.queue import JobState, JobStatus
from automate.errors import ConfigError
from automate.fleet_places import FleetPlaces
from automate.fleets.account import read_worker_runs
from automate.fleets.jobs import WorkerJob, fleets_of
from automate.journal import read_json, write_json
from automate.workspace import Workspace

Run = Mapping[str, Any]


@dataclass(frozen=True)
class Death:
    """A server or a job that a node's fault ended. `time` in epoch seconds, 0 where it is not known."""

    node: str
    time: float
    cause: str
    job: str = ""


@dataclass(frozen=True)
class NodeLine:
    """A node that the campaign has run on: starts, games played, deaths by its fault since the last forgiveness."""

    node: str
    starts: int
    games: int
    deaths: int
    bad: bool
    cause: str = ""
    forgiven: float | None = None


def deaths_of(runs: Iterable[Run]) -> list[Death]:
    """Deaths by the node's fault that the jobs' records tell of, starts that a node's failure ended among them."""
    found = []
    for run in runs:
        found += _failed_start(run)
        deaths = run.get("deaths")
        for death in deaths if isinstance(deaths, list) else []:
            if not isinstance(death, dict) or death.get("node_fault") is not True:
                continue
            node = death.get("node") or run.get("node")
            if isinstance(node, str) and is_node(node):
                when = number(death, "time") or number(run, "updated") or 0.0
                found.append(Death(node, when, str(death.get("cause") or "node fault"), str(run.get("job") or "")))
    return found


def _failed_start(run: Run) -> list[Death]:
    """A start that Slurm ended as its node failed: the job is mostly requeued, and never ends NODE_FAIL."""
    node = run.get("node")
    if NODE_FAILED not in (run.get("stopped_by"), run.get("why")) or not isinstance(node, str) or not is_node(node):
        return []
    when = number(run, "ended") or number(run, "updated") or 0.0
    return [Death(node, when, "node failure", str(run.get("job") or ""))]


def failed_jobs(workspace: Workspace) -> list[Death]:
    """Jobs that Slurm says were ended by a node's failure, as `remember_failed` wrote them down."""
    folder = workspace.nodes / "failed"
    records = [read_json(path) or {} for path in sorted(folder.glob("*.json"))] if folder.is_dir() else []
    return [Death(record["node"], number(record, "time") or 0.0, str(record.get("cause")), str(record.get("job")))
            for record in records if is_node(record.get("node"))]


def remember_failed(workspace: Workspace, views: Iterable[BatchView]) -> None:
    """Write down which jobs ended NODE_FAIL, each once: a later look may not see them any more."""
    for view in views:
        if view.status is not None and view.job:
            _remember(workspace, view.job, view.status)


def remember_failed_jobs(workspace: Workspace, jobs: Iterable[WorkerJob]) -> None:
    """The same of the jobs of a fleet's servers."""
    for one in jobs:
        _remember(workspace, one.job, one.status)


def _remember(workspace: Workspace, job: str, status: JobStatus) -> None:
    if status.state is not JobState.NODE_FAIL or status.never_started or not is_node(status.nodes):
        return
    path = workspace.nodes / "failed" / f"{job}.json"
    if status.evidence in ("squeue", "sacct") and not path.exists():
        write_json(path, {"node": status.nodes, "job": job, "time": time.time(), "cause": "NODE_FAIL"})


def fleet_runs(workspace: Workspace) -> list[Run]:
    """What the starts of all fleets' servers say of themselves."""
    return [run for name in fleets_of(workspace.root) for run in read_worker_runs(FleetPlaces(workspace.root, name))]


def forgiven(workspace: Workspace) -> dict[str, float]:
    """When each node was forgiven last."""
    paths = sorted(workspace.nodes.glob("*.json")) if workspace.nodes.is_dir() else []
    found = {path.stem: number(read_json(path) or {}, "forgiven") for path in paths}
    return {node: when for node, when in found.items() if when is not None and is_node(node)}


def forgive(workspace: Workspace, nodes: Sequence[str], now: float | None = None) -> None:
    """Forget the deaths that these nodes had until now. Raises ConfigError for what is no node's name."""
    for node in nodes:
        if not is_node(node):
            raise ConfigError(f"{node!r} can't be a node's name", where="nodes forgive",
                              todo="give names as 'flock-hpc nodes' lists them")
    for node in nodes:
        write_json(workspace.nodes / f"{node}.json", {"forgiven": time.time() if now is None else now})


def all_deaths(workspace: Workspace, runs: Iterable[Run]) -> list[Death]:
    """Every death by a node's fault, forgiven ones too; a job that its own record tells of counts once a node.

    `runs`: of batches and of fleets' servers.
    """
    told = deaths_of(runs)
    jobs = {(death.job, death.node) for death in told}
    return sorted([*told, *(death for death in failed_jobs(workspace) if (death.job, death.node) not in jobs)],
                  key=lambda death: death.time)


def node_table(workspace: Workspace, runs: Sequence[Run]) -> list[NodeLine]:
    """A line for each node that any job ran on or died on; bad ones first, then by name.

    `runs`: of batches; those of fleets' servers are added.
    """
    lines: dict[str, NodeLine] = {}
    runs = [*runs, *fleet_runs(workspace)]
    for run in runs:
        node = run.get("node")
        if isinstance(node, str) and is_node(node):
            old = lines.get(node, NodeLine(node, 0, 0, 0, False))
            lines[node] = replace(old, starts=old.starts + 1, games=old.games + int(number(run, "played") or 0))
    pardons, most = forgiven(workspace), workspace.settings.limits.bad_node_deaths
    for death in all_deaths(workspace, runs):
        old = lines.get(death.node, NodeLine(death.node, 0, 0, 0, False))
        count = old.deaths + (death.time > pardons.get(death.node, -1.0))
        lines[death.node] = replace(old, deaths=count, bad=count >= most, cause=death.cause)
    found = [replace(line, forgiven=pardons.get(line.node)) for line in lines.values()]
    return sorted(found, key=lambda line: (not line.bad, line.node))


def bad_nodes(workspace: Workspace, runs: Sequence[Run]) -> list[str]:
    """Nodes with at least limits.bad_node_deaths deaths of their own fault since they were forgiven last, sorted."""
    return sorted(line.node for line in node_table(workspace, runs) if line.bad)


@dataclass(frozen=True)
class Excluded:
    """What to exclude (for sbatch, with the settings' own), the bad nodes in it, and what the user is to be told."""

    option: str | None = None
    nodes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def exclusion(bad: Sequence[str], usable: set[str] | None, own: str | None, own_nodes: set[str]) -> Excluded:
    """Which bad nodes to exclude. `usable`: nodes of the partition that are up (None: nobody can say); `own`: what the
    settings exclude already, as a list for Slurm, and as names in `own_nodes`.
    """
    if not bad:
        return Excluded()
    names = ", ".join(bad)
    if usable is None:
        return Excluded(notes=(f"bad nodes ({names}) can't be excluded now: sinfo doesn't name the partition's nodes",))
    there = sorted(set(bad) & usable - own_nodes)
    if not there:
        return Excluded()
    names = ", ".join(there)
    if not usable - own_nodes - set(there):
        return Excluded(notes=(f"not excluded: {names}. Servers died there of the node's fault, but without them the "
                               "partition has no node left that is up",))
    option = ",".join([*([own] if own else []), *there])
    return Excluded(option, tuple(there), (f"excluded from new jobs: {names} (servers died there of the node's fault; "
                                           "'flock-hpc nodes' shows them, 'flock-hpc nodes forgive' takes them back)",))
