"""Batches that somebody asked to hand in and that had no room yet: which wait, and which a newer plan took over.

Never submits, and never changes a batch that was handed in once."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

from automate.arena.batches import PlanKind
from automate.campaign.plans import StoredPlan, same_judge, superseded
from automate.campaign.state import BatchView, CampaignState
from automate.journal import read_json, write_json
from automate.workspace import Workspace


def count_of(batches: Collection[int]) -> str:
    """1 batch, 2 batches."""
    return f"{len(batches)} batch" + ("es" if len(batches) != 1 else "")


def remember_unsent(workspace: Workspace, plan: str, why: str) -> None:
    """Write down that a plan was to be handed in and did not fit as a whole, and because of which limit."""
    write_json(workspace.unsent(plan), {"plan": plan, "why": why})


def limit_then(workspace: Workspace, plan: str) -> str:
    """The limit by which a plan's batches did not fit when somebody last tried; empty where that is not known."""
    data = read_json(workspace.unsent(plan))
    return str((data or {}).get("why") or "").partition(";")[0]


def asked_for(workspace: Workspace, state: CampaignState, plans: Sequence[StoredPlan]) -> set[str]:
    """Ids of plans that were handed in, at least in part, or that wait for room as a whole."""
    found = {submission.plan for submission in state.submissions if submission.job and submission.tasks}
    return found | {one.plan.id for one in plans
                    if workspace.unsent(one.plan.id).exists() or workspace.waiting(one.plan.id).exists()}


def taken_over(workspace: Workspace, state: CampaignState, view: BatchView,
               plans: Sequence[StoredPlan]) -> StoredPlan | None:
    """The newest plan that a batch's models went over to, where newer plans that were handed in have them all."""
    return superseded(view.stored, view.batch, plans, asked_for(workspace, state, plans))


def never_submitted(workspace: Workspace, state: CampaignState, stored: StoredPlan,
                    plans: Sequence[StoredPlan]) -> list[int]:
    """Batches of a plan that nobody has handed in, and that no newer plan has taken over; none of a cancelled plan.

    Nor one whose number a job of another plan has: its files are in use.
    """
    if workspace.stopped(stored.plan.id).exists():
        return []
    others = {view.batch.number for view in state.active
              if view.stored.plan.id != stored.plan.id and view.kind == stored.plan.kind}
    return [view.batch.number for view in state.of_plan(stored.plan.id)
            if view.state == "planned" and view.batch.number not in others
            and taken_over(workspace, state, view, plans) is None]


def held(workspace: Workspace, state: CampaignState, plans: Sequence[StoredPlan],
         models: Collection[str], kind: PlanKind = "judge") -> list[BatchView]:
    """Batches of all plans that wait for room, and that a new plan for these models does not take over as a whole.

    `kind`: of the new plan.
    """
    asked = asked_for(workspace, state, plans)
    return [view for view in state.batches
            if view.state == "planned" and view.stored.plan.id in asked
            and not workspace.stopped(view.stored.plan.id).exists()
            and not (same_judge(view.stored, workspace, kind) and set(view.batch.models) <= set(models))
            and superseded(view.stored, view.batch, plans, asked) is None]


def without_taken(workspace: Workspace, state: CampaignState, stored: StoredPlan, plans: Sequence[StoredPlan],
                  numbers: Collection[int]) -> StoredPlan:
    """A plan whose batches of these numbers, if never handed in, leave models out that newer plans have taken over.

    The same object where nothing is left out. The games of such a batch are its share of what was due.
    """
    asked = asked_for(workspace, state, plans)
    newer = [one for one in plans if one.plan.id > stored.plan.id and one.plan.id in asked]
    new = {view.batch.number for view in state.of_plan(stored.plan.id) if view.state == "planned"} & set(numbers)
    taken = {model for one in newer if same_judge(stored, one) for batch in one.plan.batches for model in batch.models}
    batches = []
    for batch in stored.plan.batches:
        rest = tuple(model for model in batch.models if model not in taken)
        if batch.number in new and rest and rest != batch.models:
            games = math.ceil(batch.games * len(rest) / len(batch.models))
            batches.append(replace(batch, models=rest, games=games))
        else:
            batches.append(batch)
    if tuple(batches) == stored.plan.batches:
        return stored
    return replace(stored, plan=replace(stored.plan, batches=tuple(batches)))
