"""The fleet of a round: made of the round's models, and stopped at its end.

Never serves the judge, and leaves a model out that can't be served, with the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from automate.campaign.fleets.planning import serve_what, spec_of
from automate.campaign.fleets.serving import make_and_submit
from automate.cluster.base import Cluster
from automate.errors import ConfigError, FlockError, ManyErrors
from automate.fleet_places import FleetPlaces
from automate.fleets.account import read_worker_runs
from automate.fleets.handing import stop
from automate.fleets.jobs import cluster_of, is_over, jobs_of
from automate.fleets.looking import trouble
from automate.pools.answering.job import fleet_of
from automate.pools.round_records import RoundSpec
from automate.serving.fleet.registry import read_spec, read_wish
from automate.workspace import Workspace


def served_by(workspace: Workspace, models: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Models (name to folder or hub name) that can be served, and what is wrong with each of the others."""
    able, problems = list[str](), dict[str, str]()
    for model in models:
        try:
            serve_what(workspace, [model], given=models)
            able.append(model)
        except ManyErrors as error:
            problems[model] = "; ".join(one.what for one in error.errors)
        except FlockError as error:
            problems[model] = error.what
    return able, problems


def start(workspace: Workspace, cluster: Cluster, spec: RoundSpec, models: Sequence[str]) -> list[str]:
    """See to it that a round's fleet is there; what a user should know. Raises FlockError."""
    if not models:
        raise ConfigError(f"no model of round {spec.name} can be served", where="pools",
                          todo="mend what is named above; then the same command again")
    if is_there(workspace, spec.name):
        return []
    replicas = workspace.settings.pools.replicas
    fleet, scripts = spec_of(workspace, models, replicas, replicas, name=fleet_of(spec.name), executor=cluster.kind,
                             given=spec.models)
    handed = make_and_submit(workspace, cluster, fleet, scripts)
    jobs = [f"job {one.job}" for one in handed.done.submitted]
    refused = [f"{count} server(s) were not accepted: {words}" for _, count, words in handed.done.refused]
    if not jobs:
        raise ConfigError(f"no server of round {spec.name} was submitted: {'; '.join(refused) or 'nobody says why'}",
                          where=fleet.name, todo="run the same command again when there is room")
    return [*handed.notes, f"fleet '{fleet.name}': {', '.join(jobs)}", *refused]


def is_there(workspace: Workspace, name: str) -> bool:
    """Whether a round's fleet serves, or will."""
    places = FleetPlaces(workspace.root, fleet_of(name))
    return jobs_left(workspace, name) and not read_wish(places).stop


def hopeless(workspace: Workspace, name: str) -> dict[str, str]:
    """Models of which no server could be loaded for a reason that another try does not mend, with the reason."""
    places = FleetPlaces(workspace.root, fleet_of(name))
    spec = read_spec(places)
    if spec is None:
        return {}
    jobs, runs = jobs_of(places, cluster_of(workspace.root, spec.executor), spec), read_worker_runs(places)
    found = {group: trouble(jobs, runs, group) for group in spec.groups}
    return {model: why for group, why in found.items() if why is not None for model in group.names}


def jobs_left(workspace: Workspace, name: str) -> bool:
    """Whether a job of a round's fleet may still act."""
    places = FleetPlaces(workspace.root, fleet_of(name))
    spec = read_spec(places)
    return spec is not None and not is_over(places, cluster_of(workspace.root, spec.executor))


def end(workspace: Workspace, name: str) -> None:
    """Stop a round's fleet, where there is one. Raises FlockError."""
    places = FleetPlaces(workspace.root, fleet_of(name))
    spec = read_spec(places)
    if spec is None or read_wish(places).stop:
        return
    cluster = cluster_of(workspace.root, spec.executor)
    if not is_over(places, cluster):
        stop(places, spec, cluster, by="engine")
