"""How many jobs of a campaign fit into the queue now, and which nodes they are kept away from.

Never submits; what Slurm does not say is no limit here."""

from __future__ import annotations

from automate.arena.running.runlog import read_runs
from automate.campaign.nodes import Excluded, bad_nodes, exclusion
from automate.campaign.state import CampaignState
from automate.cluster import asking
from automate.cluster.base import Cluster
from automate.cluster.limits import Asked, Room, SubmitLimits, room
from automate.cluster.local.executor import LocalCluster
from automate.errors import ClusterError
from automate.workspace import Workspace


def asked_of(workspace: Workspace) -> Asked:
    """As whom and for what this campaign submits."""
    slurm = workspace.settings.slurm
    return Asked(asking.me(), slurm.account, slurm.qos, slurm.partition)


def job_room(workspace: Workspace, cluster: Cluster, state: CampaignState,
             limits: SubmitLimits | None = None) -> Room:
    """How many more jobs the cluster and limits.max_submitted take now; Slurm is asked for its limits if not given."""
    found, own = Room(), workspace.settings.limits.max_submitted
    if own is not None:
        active = len(state.active)
        found = Room.counted(max(0, own - active), lambda more: f"limits.max_submitted={own}; {active + more} "
                             + ("is in the queue" if active + more == 1 else "are in the queue"))
    if cluster.kind != "slurm":
        return found
    known = asking.ask(asked_of(workspace)) if limits is None else limits
    try:
        return found.least(room(known, asking.queued(known, asking.me())))
    except ClusterError:
        return found  # sbatch will say so itself


def excluded_now(workspace: Workspace, cluster: Cluster) -> Excluded:
    """The nodes that new jobs are kept away from."""
    here = cluster.nodes_up() if isinstance(cluster, LocalCluster) else None
    bad = bad_nodes(workspace, read_runs(workspace.runs)) if cluster.kind == "slurm" or here is not None else []
    if not bad:
        return Excluded()
    own = workspace.settings.slurm.exclude
    usable = asking.usable_nodes(workspace.settings.slurm.partition) if here is None else here
    return exclusion(bad, usable, own, asking.expand(own))
