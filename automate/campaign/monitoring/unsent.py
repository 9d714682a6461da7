"""Why a planned batch has no job yet, and who will hand it in.

Only reads; asks no Slurm, so that a limit of Slurm's own is told by its refusal alone."""

from __future__ import annotations

from automate.arena.batches import PlanKind
from automate.campaign.budget import budget_room
from automate.campaign.kinds import kind_of, under
from automate.campaign.refill import refills
from automate.campaign.state import BatchView, CampaignState
from automate.campaign.waiting import asked_for, held, limit_then
from automate.workspace import Workspace


def planned(workspace: Workspace, state: CampaignState, due: dict[str, int],
            kind: PlanKind = "judge") -> list[BatchView]:
    """Batches of a kind of work that no job was ever made for, and of which a model has games due and no job.

    Of the newest plan, and of older ones that wait for room where no newer plan has taken them over.
    """
    state = state.of_kind(kind)
    newest = max((view.stored.plan.id for view in state.batches), default="")
    plans = sorted({view.stored.plan.id: view.stored for view in state.batches}.values(), key=lambda one: one.plan.id)
    wait = {(view.stored.plan.id, view.batch.number) for view in held(workspace, state, plans, (), kind)}
    busy = state.busy(kind)
    return [view for view in state.batches
            if view.status is None and (view.stored.plan.id == newest
                                        or (view.stored.plan.id, view.batch.number) in wait)
            and any(due.get(model, 0) and model not in busy for model in view.batch.models)]


def why_unsent(workspace: Workspace, state: CampaignState, view: BatchView) -> str:
    """Why a batch has no job, in words, with the next step."""
    plan, number = view.stored.plan.id, view.batch.number
    submit = f"'{kind_of(view.kind).submit}'"
    if workspace.stopped(plan).exists():
        return f"the campaign was cancelled; {submit} goes on"
    mine = [sub for sub in state.submissions if sub.plan == plan and number in sub.tasks.values()]
    if mine:
        last = max(mine, key=lambda sub: sub.intended)
        if last.refused:
            return f"refused: {last.refused}"
        if last.job is None:
            return f"nobody knows whether it was taken; {submit} finds out"
        return f"the cluster doesn't know its job {last.job} any more; {submit} hands it in again"
    if plan not in asked_for(workspace, state, [view.stored]):
        return f"not submitted: {submit} does that"
    return f"waits for room{_limit(under(workspace, view.kind), state, plan)}; {_who(workspace, state, view)}"


def _limit(workspace: Workspace, state: CampaignState, plan: str) -> str:
    own, active = workspace.settings.limits.max_submitted, len(state.active)
    if own is not None and active >= own:
        return f" (limits.max_submitted={own}; {active} " + ("is in the queue)" if active == 1 else "are in the queue)")
    room = budget_room(workspace, state)
    if room.jobs == 0:
        return f" ({room.why})"
    then = limit_then(workspace, plan)
    return f" (held back by {then} when it was tried)" if then else ""


def _who(workspace: Workspace, state: CampaignState, view: BatchView) -> str:
    small = refills(state)
    if small and workspace.waiting(view.stored.plan.id).exists():
        return f"the small job {small[-1].job} hands it in when a batch ends"
    kind = kind_of(view.kind)
    return f"'{kind.command} --wait' or the next '{kind.submit}' hands it in"
