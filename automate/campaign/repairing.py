"""What a repair would do, exactly: files to mend, answers to generate, games to judge; and the mending itself.

Never submits anything, never deletes a row, and leaves alone what a job is at work on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from automate.arena.audit import Audit, ModelAudit, audit
from automate.arena.audit_mend import mend_answers, mend_judgments
from automate.arena.benchmark import read_models_file, read_questions
from automate.campaign.awaited import Awaited
from automate.campaign.budget import same_campaign
from automate.campaign.judging import derive_rows
from automate.campaign.state import BatchView, CampaignState, look
from automate.workspace import Workspace

ASKED_AGAIN = ("unparsed", "refused")
"""Final nulls that may end otherwise when they are asked again; a prompt that is too long stays so."""


@dataclass(frozen=True)
class Repair:
    """What is missing or invalid and not in work: models in the order in which they are taken.

    `answers`: to be generated (`questions` counts them); `judgments`: to be judged now, `later`: when their answers
    are there (`games` counts both). `mend_answers`, `mend_judgments`: files with lines that don't count. `attempts`:
    how often a game is asked at most, where final nulls are asked again; `again`: the models of which they are.
    `busy`: left alone, by the batch at work.
    """

    audit: Audit
    answers: tuple[str, ...]
    judgments: tuple[str, ...]
    later: tuple[str, ...]
    mend_answers: tuple[str, ...]
    mend_judgments: tuple[str, ...]
    questions: Mapping[str, int]
    games: Mapping[str, int]
    busy: Mapping[str, tuple[BatchView, ...]]
    attempts: int | None = None
    again: frozenset[str] = frozenset()

    @property
    def nothing(self) -> bool:
        """Whether there is nothing to do now."""
        return not (self.answers or self.judgments or self.later or self.mend_answers or self.mend_judgments)


def plan_repair(workspace: Workspace, models: Sequence[str] | None = None, *, limit_questions: int | None = None,
                nulls: bool = False, state: CampaignState | None = None) -> Repair:
    """What a repair of these models (default: the models file's) would do. With `nulls` final nulls are due again.

    Raises DataError where questions or the models file can't be read.
    """
    names = read_models_file(workspace.models_file).names if models is None else models
    found = audit(workspace, names, limit_questions)
    busy = at_work(workspace, look(workspace) if state is None else state)
    asked = {one.model: one for one in (*found.baselines, *(model.answers for model in found.models))}
    idle = {model for model in asked if "generate" not in {view.kind for view in busy.get(model, ())}}
    free = {model.model for model in found.models if model.model not in busy}
    attempts = more_attempts(found) if nulls else None
    coming = {model for model, one in asked.items() if one.due}
    games = _games(workspace, found, coming, limit_questions, attempts)
    ready = not any(one.due for one in found.baselines)
    judged = [model for model in found.models if games.get(model.model) and model.model in free]
    now = [model.model for model in judged if ready and not _waits(model)]
    return Repair(
        found, tuple(model for model in asked if asked[model].due and model in idle), tuple(now),
        tuple(model.model for model in judged if model.model not in now),
        tuple(model for model in asked if asked[model].to_mend and model in idle),
        tuple(model.model for model in found.models if model.games.to_mend and model.model in free),
        {model: one.due for model, one in asked.items() if one.due}, games,
        {model: views for model, views in busy.items() if model in asked}, attempts,
        frozenset(one.model for one in found.models if attempts is not None and _may_end_otherwise(one)))


def _waits(model: ModelAudit) -> bool:
    """Whether a model's games wait for answers."""
    return bool(model.answers.due or model.answers.problem)


def _games(workspace: Workspace, found: Audit, coming: Collection[str], limit_questions: int | None,
           attempts: int | None) -> dict[str, int]:
    """Games to be played by model, also those of questions that get another answer. `coming`: models that answer."""
    questions = read_questions(workspace.questions, workspace.settings.bench)[:limit_questions]
    entries = dict(found.progress.models) if found.progress is not None else {}
    if attempts is not None:
        again = [model.model for model in found.models if _may_end_otherwise(model)]
        more = audit(with_attempts(workspace, attempts), again, limit_questions)
        entries |= more.progress.models if more.progress is not None else {}
    awaited = Awaited(workspace, questions, coming)
    games = {one.model: awaited.games(one.model, entries[one.model].due_uids if one.model in entries else None)
             for one in found.models}
    return {model: count for model, count in games.items() if count}


def _may_end_otherwise(model: ModelAudit) -> bool:
    return any(model.games.nulls.get(reason) for reason in ASKED_AGAIN)


def more_attempts(found: Audit) -> int | None:
    """How often a game must be asked at most so that final nulls are asked once more; None where there are none."""
    tried = [0]
    for model in found.models:
        entry = found.progress.models[model.model] if found.progress and _may_end_otherwise(model) else None
        if entry is not None:
            wanted = {game.key for game in entry.games}
            tried += [len(records) for key, records in entry.recorded.failures.items()
                      if key in wanted and records[-1].get("outcome") in ASKED_AGAIN]
    return max(tried) + 1 if max(tried) else None


def with_attempts(workspace: Workspace, attempts: int | None) -> Workspace:
    """The workspace with another limits.attempts; never fewer than its own."""
    limits = workspace.settings.limits
    if attempts is None or attempts <= limits.attempts:
        return workspace
    settings = workspace.settings.model_copy(update={"limits": limits.model_copy(update={"attempts": attempts})})
    return replace(workspace, settings=settings)


def at_work(workspace: Workspace, state: CampaignState) -> dict[str, tuple[BatchView, ...]]:
    """Batches that wait or run, of either kind, by model; those of another bench, judge or baseline don't count."""
    found: dict[str, tuple[BatchView, ...]] = {}
    for view in state.active:
        mine = (view.stored.settings.get("bench") == workspace.settings.bench if view.kind == "generate"
                else same_campaign(view, workspace.settings))
        for model in view.batch.models if mine else ():
            found[model] = (*found.get(model, ()), view)
    return found


def mend(workspace: Workspace, repair: Repair) -> list[str]:
    """Do what needs no model: lines that don't count leave their files, old files are kept; notes of all of it."""
    questions = read_questions(workspace.questions, workspace.settings.bench)
    notes = [note for model in repair.mend_answers for note in mend_answers(workspace, questions, model)]
    match, progress = repair.audit.match, repair.audit.progress
    if match is None or progress is None:
        return notes
    for model in repair.mend_judgments:
        notes += mend_judgments(workspace, match, model)
    left = [model.model for model in repair.audit.models
            if model.games.state == "complete" and model.model not in repair.busy]
    return notes + (derive_rows(workspace, match, progress, left) if progress.limit == len(match.questions) else [])
