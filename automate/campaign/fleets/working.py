"""Puts a fleet's worker together inside its job: where its weights are staged, and who keeps the fleet up.

Never stages weights that the job's script would not load."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from automate import __version__
from automate.arena.context import judge_path
from automate.arena.running.loading import prepare_judge
from automate.campaign.rooms import excluded_now
from automate.cluster.own_job import own_job_id, own_node
from automate.errors import ConfigError, FlockError
from automate.fleet_places import FleetPlaces
from automate.fleets.account import own_age, read_worker_runs
from automate.fleets.controller import Controller
from automate.fleets.jobs import check_fleet, cluster_of
from automate.fleets.worker import Worker
from automate.serving.fleet.records import FleetSpec, Group
from automate.serving.fleet.registry import read_spec
from automate.workspace import open_workspace

Say = Callable[[str], None]


def open_worker(root: Path, fleet: str, group: int, version: str, script: Path, say: Say,
                environ: Mapping[str, str]) -> Worker:
    """The worker that a job's script asks for. Raises ConfigError where there is no such fleet or group (any more)."""
    places = FleetPlaces(root, check_fleet(fleet))
    anew = f"stop the fleet ('flock-hpc serve --name {fleet} --stop') and serve again"
    if version != __version__:
        raise ConfigError(f"this job was written by flock-hpc {version}, but {__version__} is installed now",
                          where=str(script), todo=anew)
    spec = read_spec(places)
    if spec is None:
        raise ConfigError(f"there is no fleet '{fleet}' any more", where=str(places.spec), todo="serve again")
    found = next((one for one in spec.groups if one.number == group), None)
    if found is None:
        raise ConfigError(f"the fleet '{fleet}' has no group {group}", where=str(places.spec), todo=anew)
    worker = Worker(places, spec, found, script, say, environ, control=_control(places, spec, say, environ),
                    age=own_age())
    if found.settings == "judge":
        worker.prepare = lambda: stage_judge(places, found, script, say, lambda: worker.why is not None)
    return worker


def stage_judge(places: FleetPlaces, group: Group, script: Path, say: Say,
                stop: Callable[[], bool]) -> Mapping[str, str]:
    """Stage the judge where that pays, and the environment for its server; never fails.

    Not where the settings have meanwhile come to name another judge than the job's script.
    """
    try:
        workspace = open_workspace(places.root)
        source = judge_path(workspace.settings, workspace.root)
        if source is None or f"judge={shlex.quote(str(source))}\n" not in script.read_text(encoding="utf-8"):
            return {}
    except (FlockError, OSError, UnicodeError) as error:
        say(f"weights: not looked at: {error}")
        return {}
    node = own_node()
    seen = sum(len(run.get("loads") or ()) for run in read_worker_runs(places)
               if run.get("node") == node and run.get("group") == group.number)
    return prepare_judge(workspace, lambda: seen + 1, say, stop).environment


def _control(places: FleetPlaces, spec: FleetSpec, say: Say,
             environ: Mapping[str, str]) -> Callable[[], Awaitable[None]]:
    """A turn of the fleet's controller, made when it is first wanted."""
    made: list[Controller] = []

    async def turn() -> None:
        if not made:
            cluster = cluster_of(places.root, spec.executor)
            made.append(Controller(places, spec, cluster, demand=None, say=say, own_job=own_job_id(environ),
                                   exclude=lambda: excluded_now(open_workspace(places.root), cluster).option))
        await made[0].turn()

    return turn
