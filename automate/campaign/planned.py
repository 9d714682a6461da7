"""From what is due to a plan on disk, for games and answers alike: numbers that are free, batches, parts, files.

Never touches the files of batches that are queued, running, or held back for room."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from automate.arena.batches import Batch, PlanKind, balance
from automate.arena.engine_job import FleetUse
from automate.arena.prompts import Prompts
from automate.campaign.handing import Request, parallel_of
from automate.campaign.plans import (
    StoredPlan,
    make_plan,
    moved,
    new_plan_id,
    of_kind,
    read_plans,
    remove_leftovers,
    same_work,
    save_plan,
    write_files,
)
from automate.campaign.state import CampaignState
from automate.campaign.waiting import held
from automate.cluster.base import Cluster
from automate.cluster.slurm import max_array_size
from automate.workspace import Workspace

Spread = Callable[[int], tuple[Batch, ...]]
"""Makes the batches of a plan, numbered from the given number on."""


def plan_anew(workspace: Workspace, cluster: Cluster, request: Request, todo: Mapping[str, int], state: CampaignState,
              notes: list[str], *, kind: PlanKind = "judge", spread: Spread | None = None,
              prompts: Prompts | None = None, use: FleetUse | None = None) -> StoredPlan:
    """Plan these models and write the files; the plan before it again where that would run the same work.

    `todo`: model -> games or answers that are due. `spread` makes the batches, else they are balanced; with `use` there
    is one of all models. The settings of `workspace` are those of the kind of work. What a user should know is added to
    `notes`. Hold the submit claim.
    """
    plans, state, size = of_kind(read_plans(workspace), kind), state.of_kind(kind), workspace.settings.batch_size
    kept = [*state.active, *held(workspace, state, plans, todo, kind)]
    in_use, kept_plans = {view.batch.number for view in kept}, {view.stored.plan.id for view in kept}
    parts = {part.part for stored in plans if stored.plan.id in kept_plans for part in stored.parts}
    first = max(in_use, default=0) + 1
    size = max(size, len(todo)) if use is not None else size
    stored = make_plan(
        workspace, todo, size=size, first=first, kind=kind, plan_id=new_plan_id(workspace),
        batches=spread(first) if spread is not None else balance(todo, size, first),
        max_array_size=max_array_size() if cluster.kind == "slurm" else 1_000_000,
        limit_questions=request.limit_questions, first_part=max(parts, default=0) + 1, use=use)
    handed = {one.plan for one in state.submissions} | {view.stored.plan.id for view in state.active}
    if plans and plans[-1].plan.id not in handed and same_work(plans[-1], stored):
        stored = plans[-1]  # the same plan again: the same bytes
    if plans and moved(workspace, plans[-1]):
        notes.append(f"the workspace was moved from {plans[-1].root}: scripts are written for the folder where it lies "
                     "now")
        stored = replace(stored, root=str(workspace.root))
    write_files(workspace, stored, prompts, parallel_of(workspace, request))
    save_plan(workspace, stored)
    keep = in_use | {batch.number for batch in stored.plan.batches}
    gone = remove_leftovers(workspace, plans, keep, parts | {part.part for part in stored.parts}, kind)
    if gone:
        notes.append(f"files of {len(gone)} earlier batches that are not in use any more were removed")
    return stored
