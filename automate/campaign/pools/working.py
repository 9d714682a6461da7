"""What a round's job is given from above: the workspace, nodes to keep clear of, and how its servers come back.

Never asks a model anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from automate.arena.running.fleet_revival import Revival
from automate.campaign.fleets.playing import keep_clear
from automate.cluster.base import Cluster
from automate.fleet_places import FleetPlaces
from automate.pools.answering.fleet import Revive
from automate.pools.answering.job import RoundJob, check_version, fleet_of
from automate.serving.fleet.records import FleetSpec
from automate.workspace import open_workspace

Say = Callable[[str], None]


def open_round(root: Path, name: str, version: str, say: Say, environ: Mapping[str, str]) -> RoundJob:
    """A round's job in its own process. Raises ConfigError, WorkspaceError."""
    check_version(version, f"round {name}")
    workspace = open_workspace(root)
    return RoundJob(workspace, name, say, environ, reviver(FleetPlaces(workspace.root, fleet_of(name)), say),
                    keep_clear(workspace, environ))


def reviver(places: FleetPlaces, say: Say) -> Revive:
    """How a fleet's servers are asked for again where they ended before the job began."""

    def make(spec: FleetSpec, cluster: Cluster, left: Callable[[], int],
             others: Callable[[], bool]) -> Callable[[bool], None]:
        turns = [Revival(places, spec, group, cluster, left=left, others=others, say=say) for group in spec.groups]

        def turn(controls: bool) -> None:
            for one in turns:
                one.turn(controls=controls)

        return turn

    return make
