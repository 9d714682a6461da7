"""The monitor's sums over all starts: GPU-hours, bad nodes, and when the campaign is expected to end.

Only counts what records say; where they say too little there is no number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from automate.arena.running.gpu_hours import gpus_of
from automate.campaign import budget
from automate.campaign.forecasts.forecast import expected_end
from automate.campaign.kinds import JUDGE, under
from automate.campaign.monitoring.picture import BadNode, Finish
from automate.campaign.nodes import node_table
from automate.campaign.state import CampaignState
from automate.workspace import Workspace

Run = Mapping[str, Any]


def gpu_hours(workspace: Workspace, state: CampaignState, runs: Sequence[Run]) -> tuple[float | None, float | None]:
    """GPU-hours used, and set aside for jobs in the queue; None where the campaign's jobs have no GPU."""
    kinds = {view.kind for view in state.batches} | {JUDGE.name}
    if not any(gpus_of(under(workspace, kind).settings) for kind in kinds):
        return None, None
    usage = budget.gpu_hours(workspace, state, runs)
    return usage.used, usage.reserved


def bad_nodes(workspace: Workspace, runs: Sequence[Run]) -> tuple[BadNode, ...]:
    """Nodes on which servers died of the node's own fault as often as the settings allow, and that nobody forgave."""
    return tuple(BadNode(line.node, line.deaths, line.cause) for line in node_table(workspace, runs) if line.bad)


def finish(workspace: Workspace, state: CampaignState, due: Mapping[str, int], runs: Sequence[Run],
           now: float) -> Finish | None:
    """When all that waits or runs is expected to be done; None where nobody can tell."""
    end = expected_end(workspace, state, due, runs, now)
    return None if end is None else Finish(end.mid, end.low, end.high, "what waits or runs, without time in the queue")
