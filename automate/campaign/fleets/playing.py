"""A campaign's fleet: makes it, or uses the one that is there, and submits its servers after the engine.

Never takes a fleet over that serves something else, and never submits a server that limits.max_gpu_hours forbids."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from automate.arena.batches import Plan
from automate.arena.engine_job import FleetUse
from automate.arena.running.gpu_hours import Usage, hours_of_server, servers_that_fit
from automate.campaign.budget import gpu_hours
from automate.campaign.fleets.planning import spec_of
from automate.campaign.rooms import excluded_now
from automate.campaign.state import CampaignState
from automate.cluster.base import Cluster
from automate.cluster.limits import Room
from automate.cluster.local.executor import LocalCluster
from automate.errors import ClaimedError, ConfigError, FlockError
from automate.fleet_places import FleetPlaces
from automate.fleets.handing import control, make_fleet, scale
from automate.fleets.jobs import AT_ONCE, cluster_of, is_over, jobs_of, submit_workers
from automate.serving.fleet.records import FleetSpec, Group
from automate.serving.fleet.registry import read_spec, read_wish
from automate.settings import Settings
from automate.workspace import Workspace

FLEET = "judge"
"""The name of a campaign's fleet, of which there is one a workspace."""
ENDING = 60.0
"""Seconds that a fleet which is being stopped is waited for: its servers finish what they have."""


def use_of(least: int, most: int) -> FleetUse:
    """The fleet of a campaign of this workspace."""
    return FleetUse(FLEET, least, most)


def refusal(settings: Settings, use: FleetUse, *, batch_size: int | None, max_parallel: int | None) -> str | None:
    """Why a campaign can't be played on a fleet as it was asked for, in words; None where it can."""
    if batch_size is not None:
        return "--batch-size means nothing with --fleet: one engine plays the games of all models"
    if max_parallel is not None:
        return f"--max-parallel means nothing with --fleet, which says how many servers there are at once: {use.words}"
    if settings.judge.kind == "openai":
        return "--fleet starts servers of the judge, but judge.kind is openai: somebody else serves it"
    if settings.judge.engine == "upstream":
        return "--fleet needs judge.engine: builtin; upstream's program asks one server only"
    return None


def in_array(use: FleetUse, settings: Settings) -> tuple[int, int]:
    """How many servers are jobs of the fleet's own: all, or one less where the engine's job holds the first."""
    beside = settings.fleet.engine == "beside"
    return use.least - beside, use.most - beside


@dataclass
class CampaignFleet:
    """The fleet of one plan, on its way to being handed in. `workspace` with the settings of its servers."""

    workspace: Workspace
    cluster: Cluster
    plan: Plan
    use: FleetUse
    spec: FleetSpec
    scripts: dict[int, str]
    used: Usage
    adopted: bool = False

    @property
    def places(self) -> FleetPlaces:
        return FleetPlaces(self.workspace.root, self.use.name)

    @property
    def group(self) -> Group:
        """The judge's servers."""
        return self.spec.groups[0]

    def room(self) -> Room:
        """Whether a server fits under limits.max_gpu_hours; it is the engine that is not handed in where none does."""
        cap, each = self.workspace.settings.limits.max_gpu_hours, hours_of_server(self.group)
        if self._fits() != 0 or self.group.most < 1 or self.there() is not None:
            return Room()
        return Room(0, f"limits.max_gpu_hours={cap or 0:g}; {self.used.total:.2f} used or set aside, a server of the "
                       f"fleet takes up to {each:.2f}")

    def _fits(self) -> int | None:
        return servers_that_fit(self.workspace.settings.limits.max_gpu_hours, self.used, self.group)

    def open(self) -> list[str]:
        """See to it that the fleet is there: as it is, or made. What a user should know. Raises FlockError."""
        old = self.there()
        if old is None:
            make_fleet(self.places, self.spec, self.scripts, cluster=self.cluster)
            return []
        if (old.print, old.executor, old.version) != (self.spec.print, self.spec.executor, self.spec.version):
            raise ConfigError(
                f"there is a fleet '{old.name}' already, and it serves something else (it was made by {old.user} with "
                f"flock-hpc {old.version}, with other settings of the judge, or for another cluster)",
                where=str(self.places.home),
                todo=f"stop it with 'flock-hpc serve --stop --name {old.name}', or wait for its end; then "
                     "the same command again")
        self.spec, self.adopted = old, True
        return [f"the fleet '{old.name}' is there already and is used"]

    def there(self) -> FleetSpec | None:
        """The fleet of this name as it is, where it is not over. One that is ending is waited for a little.

        Raises ClaimedError where that takes long.
        """
        until = time.monotonic() + ENDING
        while True:
            old = read_spec(self.places)
            if old is None or is_over(self.places, self._cluster_of(old)):
                return None
            if not read_wish(self.places).stop:
                return old
            if time.monotonic() > until:
                raise ClaimedError(f"the fleet '{old.name}' is being stopped, and not over yet",
                                   where=str(self.places.home), todo="run the same command again when it is over")
            time.sleep(0.5)

    def _cluster_of(self, spec: FleetSpec) -> Cluster:
        """Where the jobs of a fleet of this name are."""
        return self.cluster if spec.executor == self.cluster.kind else cluster_of(self.workspace.root, spec.executor)

    def staff(self, places_left: int | None) -> list[str]:
        """Submit the servers that are missing to the least number, as far as limits allow; what a user should know.

        What can't be submitted now is asked for by the engine, as soon as it runs.
        """
        if self.group.least < 1:
            return []
        limits = [limit for limit in (self._fits(), places_left) if limit is not None]
        try:
            if self.adopted:
                return self._more(min(limits, default=self.use.most))
            with control(self.places, self.cluster):
                return self._submit(min([self.group.least, *limits]))
        except FlockError as error:
            return [f"no server of the fleet could be submitted yet; its engine asks again: {error.what}"]

    def _submit(self, count: int) -> list[str]:
        """The first servers of a new fleet."""
        job = ""
        if count:
            done = submit_workers(self.places, self.spec, self.cluster, self.group, count, by="user",
                                  exclude=excluded_now(self.workspace, self.cluster).option)
            count, job = len(done.tasks), f" as job {done.job}"
        notes = [f"fleet '{self.use.name}' of {self.use.words}: {_servers(count)} submitted{job}"]
        if count < self.group.least:
            notes.append(f"{_servers(self.group.least - count)} more are asked for by the engine when there is room")
        return notes

    def _more(self, room: int) -> list[str]:
        """As many servers of a fleet that is there as this campaign asks for, if it has less."""
        least, most = in_array(self.use, self.workspace.settings)
        number, wish = self._its_group().number, read_wish(self.places)
        low, high = wish.bounds_of(self._its_group())
        have = sum(one.status.may_act and one.group == number
                   for one in jobs_of(self.places, self.cluster, self.spec))
        wanted = max(wish.wanted_of(self._its_group()), min(least, have + room))
        done = scale(self.places, self.spec, self.cluster, {number: wanted},
                     bounds={number: (max(low, least), max(high, most))},
                     exclude=excluded_now(self.workspace, self.cluster).option)
        more = sum(len(one.tasks) for one in done.submitted)
        told = " (asked of the engine that is in control of it)" if done.left_to else ""
        return [f"fleet '{self.use.name}': {_servers(have)} there, {_servers(wanted)} wanted; {more} submitted{told}"]

    def _its_group(self) -> Group:
        return next((one for one in self.spec.groups if one.number == self.group.number), self.group)


def _servers(count: int) -> str:
    return f"{count} server" + "s" * (count != 1)


def fleet_for(workspace: Workspace, cluster: Cluster, plan: Plan, state: CampaignState) -> CampaignFleet | None:
    """The fleet that a plan is played on, as it is to be; None where its batches start servers of their own.

    `workspace` with the plan's settings. Raises ConfigError where its servers' scripts can't be made.
    """
    if plan.use is None:
        return None
    if isinstance(cluster, LocalCluster):  # engine and servers run side by side
        cluster = LocalCluster(cluster.queue.folder, cluster.root, AT_ONCE)
    least, most = in_array(plan.use, workspace.settings)
    spec, scripts = spec_of(workspace, [workspace.settings.judge.name], least, most, name=plan.use.name,
                            executor=cluster.kind, campaign=plan.id)
    return CampaignFleet(workspace, cluster, plan, plan.use, spec, scripts, gpu_hours(workspace, state))


def keep_clear(workspace: Workspace, environ: Mapping[str, str]) -> Callable[[], str | None]:
    """Tells an engine in its job from which nodes new servers are kept away. `workspace` with the servers' settings."""
    executor = "local" if environ.get("FLOCK_HPC_JOB") else "slurm"
    return lambda: excluded_now(workspace, cluster_of(workspace.root, executor)).option
