"""The fleet of a round: made of the round's models, and stopped at its end.

Never serves the judge, and leaves a model out that can't be served, with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from automate.campaign.fleets.planning import serve_what, spec_of
from automate.campaign.fleets.serving import make_and_submit
from automate.cluster.base import Cluster
from automate.errors import ConfigError, FlockError, ManyErrors
from automate.fleet_places import FleetPlaces
from automate.fleets.handing import stop
from automate.fleets.jobs import cluster_of, is_over
from automate.pools.answering.job import fleet_of
from automate.pools.round_records import RoundSpec
from automate.serving.fleet.registry import read_spec, read_wish
from automate.workspace import Workspace


def served_by(workspace: Workspace, spec: RoundSpec) -> tuple[list[str], list[FlockError]]:
    """Models of a round that can be served, and what is wrong with the others."""
    able, errors = [], list[FlockError]()
    for model in spec.models:
        try:
            serve_what(workspace, [model], given=spec.models)
            able.append(model)
        except ManyErrors as error:
            errors += error.errors
        except FlockError as error:
            errors.append(error)
    return able, errors


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
    handed = make_and_submit(workspace, cluster, replace(fleet), scripts)
    jobs = [f"job {one.job}" for one in handed.done.submitted]
    refused = [f"{count} server(s) were not accepted: {words}" for _, count, words in handed.done.refused]
    if not jobs:
        raise ConfigError(f"no server of round {spec.name} was submitted: {'; '.join(refused) or 'nobody says why'}",
                          where=fleet.name, todo="run the same command again when there is room")
    return [*handed.notes, f"fleet '{fleet.name}': {', '.join(jobs)}", *refused]


def is_there(workspace: Workspace, name: str) -> bool:
    """Whether a round's fleet serves, or will."""
    places = FleetPlaces(workspace.root, fleet_of(name))
    spec = read_spec(places)
    if spec is None or read_wish(places).stop:
        return False
    return not is_over(places, cluster_of(workspace.root, spec.executor))


def end(workspace: Workspace, name: str) -> None:
    """Stop a round's fleet, where there is one. Raises FlockError."""
    places = FleetPlaces(workspace.root, fleet_of(name))
    spec = read_spec(places)
    if spec is None or read_wish(places).stop:
        return
    cluster = cluster_of(workspace.root, spec.executor)
    if not is_over(places, cluster):
        stop(places, spec, cluster, by="engine")
