"""From a list of models to submitted batches: what is due, what is in work already, what is planned and handed over.

Never submits a batch twice, and never touches the files of one that is queued or running."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from automate import claims
from automate.arena.apart import has_foreign_rows, move_foreign_rows
from automate.arena.context import load_answers
from automate.arena.counting.progress import Progress
from automate.arena.games import Match
from automate.arena.ledger import ModelLedger, rows_are_current
from automate.campaign.budget import same_campaign
from automate.campaign.cancelling import cancel
from automate.campaign.handing import (
    Request,
    Submitted,
    hand_in,
    keep_key,
    parallel_of,
    resubmit,
    submissions_of,
    submit_claim,
)
from automate.campaign.nodes import remember_failed
from automate.campaign.planned import plan_anew
from automate.campaign.plans import StoredPlan, moved
from automate.campaign.state import BatchView, CampaignState, look
from automate.cluster.base import Cluster
from automate.cluster.queue import job_alive
from automate.cluster.submit import SubmissionBook, settle_open
from automate.errors import ClaimedError
from automate.journal import fresh_name
from automate.names import baseline_tag, name_problem
from automate.workspace import Workspace

__all__ = ["Prepared", "Request", "Submitted", "cancel", "derive_rows", "hand_in", "keep_key", "parallel_of",
           "prepare", "resubmit", "set_apart", "submissions_of", "submit_claim"]


@dataclass
class Prepared:
    """A plan and how it came about."""

    stored: StoredPlan | None
    progress: Progress
    complete: list[str]
    busy: dict[str, BatchView]
    notes: list[str] = field(default_factory=list)


def prepare(workspace: Workspace, cluster: Cluster, match: Match, request: Request) -> Prepared:
    """Plan what is due and not in work, and write its files. Hold the submit claim."""
    settle_open(SubmissionBook(workspace.submissions), cluster)
    state = look(workspace)
    progress = Progress(workspace, match, request.models, request.limit_questions)
    active = [view for view in state.of_kind("judge").active if same_campaign(view, workspace.settings)]
    busy = {model: view for view in active for model in view.batch.models if model in progress.models}
    complete = [model for model, due in progress.due.items() if due == 0]
    todo = {model: due for model, due in progress.due.items() if due > 0 and model not in busy}
    prepared = Prepared(None, progress, complete, busy)
    remember_failed(workspace, state.batches)
    prepared.notes += moved_notes(workspace, state)
    prepared.notes += set_apart(workspace, match, progress.models)
    if request.limit_questions is None:
        prepared.notes += derive_rows(workspace, match, progress, [m for m in complete if m not in busy])
    if todo:
        prepared.stored = plan_anew(workspace, cluster, request, todo, state, prepared.notes, prompts=match.prompts,
                                     use=request.fleet)
    return prepared


def moved_notes(workspace: Workspace, state: CampaignState) -> list[str]:
    """That jobs in the queue still name the folder in which the workspace lay before."""
    return [f"batch {view.batch.number} (job {view.job}) was submitted when the workspace lay in {view.stored.root}; "
            "its script names that folder. Cancel it with 'flock-hpc cancel' and submit again, or move the workspace "
            "back"
            for view in state.active if moved(workspace, view.stored)]


def set_apart(workspace: Workspace, match: Match, models: Collection[str]) -> list[str]:
    """Move rows of other models that were judged against another baseline, since the setting was changed."""
    folder, notes = workspace.judgments, []
    if baseline_tag(workspace.settings.baseline) != workspace.default_baseline or not folder.is_dir():
        return []
    for path in sorted(folder.glob("*.jsonl")):
        if path.stem in models or name_problem(path.stem) or not has_foreign_rows(path, match.baseline_names):
            continue
        try:
            claim = claims.take(workspace.claim(path.stem), stale=workspace.settings.limits.claim_stale,
                                job_alive=job_alive)
        except ClaimedError as error:
            notes.append(f"{path.stem}: rows against another baseline can't be set apart now: {error.what}")
            continue
        try:
            moved = move_foreign_rows(workspace, path.stem, path, match.baseline_names)
            notes += [f"{path.stem}: {count} rows judged against '{name}' were set apart"
                      for name, count in moved.items()]
        finally:
            claim.release()
    return notes


def derive_rows(workspace: Workspace, match: Match, progress: Progress, models: Sequence[str]) -> list[str]:
    """Derive upstream's file anew for models whose records changed their meaning while nothing was played.

    So it is when a setting is changed back: the journal has the games, the file still has the others.
    """
    notes = []
    for model in models:
        entry = progress.models[model]
        if rows_are_current(workspace, model, entry.games, entry.recorded):
            continue
        answers = load_answers(workspace, model)
        if answers is None:
            continue
        try:
            claim = claims.take(workspace.claim(model), stale=workspace.settings.limits.claim_stale,
                                job_alive=job_alive)
        except ClaimedError as error:
            notes.append(f"{model}: its judgment file can't be brought up to date now: {error.what}")
            continue
        ledger = ModelLedger(workspace, model, match, answers, workspace.settings.limits.attempts)
        try:
            ledger.open(fresh_name("rows"))
            notes += [*ledger.notes, f"{model}: its judgment file was derived anew from the journal"]
        finally:
            ledger.close()
            claim.release()
    return notes
