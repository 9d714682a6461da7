"""Puts a fleet's worker together inside its job: where its weights are staged, and who keeps the fleet up.

Never stages weights that the job's script would not load."""

from __future__ import annotations

import shlex
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from pydantic import ValidationError

from automate import __version__
from automate.arena.context import judge_path
from automate.arena.running.gpu_hours import by_files, server_may_go_on, servers_that_fit
from automate.arena.running.loading import prepare_judge
from automate.campaign.plans import read_plans
from automate.campaign.rooms import excluded_now
from automate.cluster.own_job import own_job_id, own_node
from automate.cluster.submit import SubmissionBook
from automate.errors import ConfigError, FlockError
from automate.fleet_places import FleetPlaces
from automate.fleets.account import own_age, read_worker_runs
from automate.fleets.controller import Controller
from automate.fleets.jobs import check_fleet, cluster_of
from automate.fleets.worker import Worker
from automate.serving.fleet.records import FleetSpec, Group
from automate.serving.fleet.registry import read_spec
from automate.settings import Settings
from automate.workspace import Workspace, open_workspace

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
    worker = Worker(places, spec, found, script, say, environ, control=_control(places, spec, found, say, environ),
                    age=own_age())
    if spec.campaign is not None:
        own = own_job_id(environ)
        worker.may_go_on = lambda: server_may_go_on(campaign_of(places, spec), found, own=own)
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


def campaign_of(places: FleetPlaces, spec: FleetSpec) -> Workspace:
    """The workspace with the settings of the campaign whose limits hold for the fleet: the one handed in last for it.

    Those of flock-hpc.yaml where no plan of it can be read. Raises FlockError.
    """
    plain = Workspace(places.root, Settings(), "")
    handed = {one.plan for one in SubmissionBook(plain.submissions).all()} | {spec.campaign}
    mine = [stored for stored in read_plans(plain) if stored.plan.use is not None
            and stored.plan.use.name == places.name and stored.plan.id in handed]
    try:
        return Workspace(places.root, Settings.model_validate(mine[-1].settings), mine[-1].plan.baseline)
    except (IndexError, ValidationError):
        return open_workspace(places.root)


def room_for(places: FleetPlaces, spec: FleetSpec, group: Group) -> int | None:
    """How many more servers of a campaign's fleet limits.max_gpu_hours leaves room for; None: any number."""
    if spec.campaign is None:
        return None
    workspace = campaign_of(places, spec)
    cap = workspace.settings.limits.max_gpu_hours
    return None if cap is None else servers_that_fit(cap, by_files(workspace, None, time.time()), group)


def _control(places: FleetPlaces, spec: FleetSpec, group: Group, say: Say,
             environ: Mapping[str, str]) -> Callable[[], Awaitable[None]]:
    """A turn of the fleet's controller, made when it is first wanted."""
    made: list[Controller] = []

    async def turn() -> None:
        if not made:
            cluster = cluster_of(places.root, spec.executor)
            made.append(Controller(places, spec, cluster, demand=None, say=say, own_job=own_job_id(environ),
                                   exclude=lambda: excluded_now(open_workspace(places.root), cluster).option,
                                   room=lambda: room_for(places, spec, group)))
        await made[0].turn()

    return turn
