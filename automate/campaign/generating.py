"""From a list of models to batches that generate their answers: what is due, in work already, planned and written.

Never submits, and never touches the files of a batch that is queued or running."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from automate.arena.answering.candidates import Candidate, Problem, candidates, groups
from automate.arena.batches import Batch
from automate.arena.context import baseline_map
from automate.campaign.answer_counts import AnswerCounts
from automate.campaign.handing import Request, parallel_of
from automate.campaign.judging import moved_notes
from automate.campaign.kinds import under
from automate.campaign.nodes import remember_failed
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
from automate.campaign.state import BatchView, CampaignState, look
from automate.campaign.waiting import held
from automate.cluster.base import Cluster
from automate.cluster.slurm import max_array_size
from automate.cluster.submit import SubmissionBook, settle_open
from automate.errors import ClaimedError
from automate.workspace import Workspace

if TYPE_CHECKING:
    from automate.arena.answering.due import AnswerStatus


@dataclass
class GenerationPrepared:
    """A plan of answers and how it came about. `due`: answers that each model lacks; `problems`: why some models
    can't be served, which keeps the whole plan from being made unless they are to be skipped."""

    stored: StoredPlan | None
    counts: AnswerCounts
    complete: list[str]
    busy: dict[str, BatchView]
    notes: list[str] = field(default_factory=list)
    due: dict[str, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    @property
    def statuses(self) -> dict[str, AnswerStatus | None]:
        return self.counts.statuses


def with_baselines(workspace: Workspace, models: Sequence[str]) -> tuple[str, ...]:
    """The models and the baselines that they are judged against, which need answers first."""
    return tuple(dict.fromkeys([*baseline_map(workspace.settings.baseline).values(), *models]))


def prepare(workspace: Workspace, cluster: Cluster, request: Request, *,
            skip_problems: bool = False) -> GenerationPrepared:
    """Plan the answers that are due and not in work, and write the files. Hold the submit claim.

    Raises DataError where the questions can't be read. With `skip_problems` models that can't be served are left out.
    """
    settle_open(SubmissionBook(workspace.submissions), cluster)
    workspace, state = under(workspace, "generate"), look(workspace)
    counts = AnswerCounts(workspace, request.models, request.limit_questions)
    mine = state.of_kind("generate")
    busy = {model: view for view in mine.active if view.stored.settings.get("bench") == workspace.settings.bench
            for model in view.batch.models if model in counts.due}
    due = {model: count for model, count in counts.due.items() if count > 0}
    todo = [model for model in due if model not in busy]
    good, bad = candidates(workspace, todo)
    prepared = GenerationPrepared(None, counts, [model for model in counts.due if model not in due], busy, due=due,
                                  problems=bad)
    remember_failed(workspace, state.batches)
    prepared.notes += [*moved_notes(workspace, mine), *_written(prepared)]
    if good and (skip_problems or not bad):
        prepared.stored = _plan(workspace, cluster, request, good, mine, prepared)
    return prepared


def _written(prepared: GenerationPrepared) -> list[str]:
    """Bring answer files up to date that lack answers which the journal has: a job was killed between the two."""
    notes = []
    for model in prepared.complete:
        status = prepared.statuses[model]
        if status is None or not status.unwritten or model in prepared.busy:
            continue
        from automate.arena.answering.ledger import mend_answers  # the engine's room: seldom needed here

        try:
            notes += mend_answers(prepared.counts.workspace, prepared.counts.asked, model)
        except ClaimedError as error:
            notes.append(f"{model}: its answer file can't be brought up to date now: {error.what}")
    return notes


def spread(units: Sequence[Sequence[str]], due: Mapping[str, int], size: int, first: int = 1) -> tuple[Batch, ...]:
    """Spread units of models that share a server over as few batches of at most `size` models as they fit into.

    A unit of more than `size` models is cut; the rest as `balance` does it: those with most answers due first, each to
    the batch with the fewest that has room. Models of a batch are in the order of the units.
    """
    pieces = [tuple(unit[at:at + size]) for unit in units for at in range(0, len(unit), size)]
    load = [sum(due[model] for model in piece) for piece in pieces]
    count = -(-sum(map(len, pieces)) // size)
    bins: list[list[int]] = [[] for _ in range(count)]
    for index in sorted(range(len(pieces)), key=lambda i: (-load[i], i)):
        room = [one for one in bins if sum(len(pieces[i]) for i in one) + len(pieces[index]) <= size]
        if not room:
            bins.append([index])
        else:
            min(room, key=lambda one: sum(load[i] for i in one)).append(index)
    return tuple(Batch(first + at, tuple(model for i in sorted(one) for model in pieces[i]), sum(load[i] for i in one))
                 for at, one in enumerate(one for one in bins if one))


def _plan(workspace: Workspace, cluster: Cluster, request: Request, good: Sequence[Candidate], state: CampaignState,
          prepared: GenerationPrepared) -> StoredPlan:
    """Plan these models, as `judge` plans its own: numbers and files of batches in use are left alone."""
    plans, names = of_kind(read_plans(workspace), "generate"), [one.model for one in good]
    kept = [*state.active, *held(workspace, state, plans, names, "generate")]
    in_use, kept_plans = {view.batch.number for view in kept}, {view.stored.plan.id for view in kept}
    parts = {part.part for stored in plans if stored.plan.id in kept_plans for part in stored.parts}
    units = [group.models for group in groups(good, workspace.settings.generate.max_loras)]
    batches = spread(units, prepared.due, workspace.settings.batch_size, max(in_use, default=0) + 1)
    stored = make_plan(
        workspace, prepared.due, size=workspace.settings.batch_size, first=max(in_use, default=0) + 1,
        max_array_size=max_array_size() if cluster.kind == "slurm" else 1_000_000,
        limit_questions=request.limit_questions, plan_id=new_plan_id(workspace), first_part=max(parts, default=0) + 1,
        kind="generate", batches=batches)
    touched = {submission.plan for submission in state.submissions} | {view.stored.plan.id for view in state.active}
    if plans and plans[-1].plan.id not in touched and same_work(plans[-1], stored):
        stored = plans[-1]  # the same plan again: the same bytes
    if plans and moved(workspace, plans[-1]):
        prepared.notes.append(f"the workspace was moved from {plans[-1].root}: scripts are written for the folder "
                              "where it lies now")
        stored = replace(stored, root=str(workspace.root))
    write_files(workspace, stored, None, parallel_of(workspace, request))
    save_plan(workspace, stored)
    keep = in_use | {batch.number for batch in stored.plan.batches}
    gone = remove_leftovers(workspace, plans, keep, parts | {part.part for part in stored.parts}, "generate")
    if gone:
        prepared.notes.append(f"files of {len(gone)} earlier batches that are not in use any more were removed")
    return stored
