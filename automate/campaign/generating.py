"""From a list of models to batches that generate their answers: what is due, in work already, planned and written.

Never submits, and never touches the files of a batch that is queued or running."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from automate.arena.answering.candidates import Candidate, Problem, candidates, groups
from automate.arena.batches import Batch
from automate.arena.context import baseline_map
from automate.campaign.answer_counts import AnswerCounts
from automate.campaign.handing import Request
from automate.campaign.judging import moved_notes
from automate.campaign.kinds import under
from automate.campaign.nodes import remember_failed
from automate.campaign.planned import plan_anew
from automate.campaign.plans import StoredPlan
from automate.campaign.state import BatchView, CampaignState, look
from automate.cluster.base import Cluster
from automate.cluster.submit import SubmissionBook, settle_open
from automate.errors import ClaimedError
from automate.workspace import Workspace

if TYPE_CHECKING:
    from automate.arena.answering.due import AnswerStatus


@dataclass
class GenerationPrepared:
    """A plan of answers and how it came about. `due`: answers that each model lacks; `problems`: why some models
    can't be served, which keeps the whole plan from being made unless they are to be skipped; `good`: the others.
    `state`: batches of answers, as they were when that was found out."""

    stored: StoredPlan | None
    counts: AnswerCounts
    complete: list[str]
    busy: dict[str, BatchView]
    notes: list[str] = field(default_factory=list)
    due: dict[str, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    good: list[Candidate] = field(default_factory=list)
    state: CampaignState = field(default_factory=lambda: CampaignState((), ()))

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
    prepared = survey(workspace, cluster, request)
    if skip_problems or not prepared.problems:
        plan(workspace, cluster, request, prepared)
    return prepared


def survey(workspace: Workspace, cluster: Cluster, request: Request) -> GenerationPrepared:
    """What is due and not in work, and who can be served; nothing is planned or written for them yet.

    Hold the submit claim. Raises DataError where the questions can't be read.
    """
    settle_open(SubmissionBook(workspace.submissions), cluster)
    workspace, state = under(workspace, "generate"), look(workspace)
    counts = AnswerCounts(workspace, request.models, request.limit_questions)
    mine = state.of_kind("generate")
    busy = {model: view for view in mine.active if view.stored.settings.get("bench") == workspace.settings.bench
            for model in view.batch.models if model in counts.due}
    due = {model: count for model, count in counts.due.items() if count > 0}
    good, bad = candidates(workspace, [model for model in due if model not in busy])
    prepared = GenerationPrepared(None, counts, [model for model in counts.due if model not in due], busy, due=due,
                                  problems=bad, good=good, state=mine)
    remember_failed(workspace, state.batches)
    prepared.notes += [*moved_notes(workspace, mine), *_written(prepared)]
    return prepared


def plan(workspace: Workspace, cluster: Cluster, request: Request, prepared: GenerationPrepared) -> None:
    """Plan the models of a survey that can be served, and write the files. Hold the submit claim since then."""
    if not prepared.good:
        return
    workspace = under(workspace, "generate")
    units = [group.models for group in groups(prepared.good, workspace.settings.generate.max_loras)]
    due = {one.model: prepared.due[one.model] for one in prepared.good}
    prepared.stored = plan_anew(
        workspace, cluster, request, due, prepared.state, prepared.notes, kind="generate",
        spread=lambda first: spread_out(units, due, workspace.settings.batch_size, first,
                                        set(baseline_map(workspace.settings.baseline).values())))


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


def spread_out(units: Sequence[Sequence[str]], due: Mapping[str, int], size: int, first: int,
               baselines: Collection[str]) -> tuple[Batch, ...]:
    """Batches of units of models that share a server; `baselines` in batches of their own, first: all games need them,
    and would wait for every other model of their batch."""
    ahead = [[model for model in unit if model in baselines] for unit in units]
    rest = [[model for model in unit if model not in baselines] for unit in units]
    batches = spread([unit for unit in ahead if unit], due, size, first)
    return (*batches, *spread([unit for unit in rest if unit], due, size, first + len(batches)))


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
