"""From what is known of jobs, batches and models to the monitor's lines.

Writes nothing; reads a model's answers only where its games can't be counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from automate.arena.batches import PlanKind
from automate.arena.context import load_answers
from automate.arena.counting.progress import ModelProgress
from automate.arena.games import ModelStatus
from automate.campaign.answer_counts import AnswerCounts
from automate.campaign.monitoring.failures import ended_words, next_words
from automate.campaign.monitoring.picture import AnswerLine, BatchLine, JobLine, ModelLine
from automate.campaign.monitoring.reasons import explain
from automate.campaign.monitoring.unsent import planned, why_unsent
from automate.campaign.monitoring.vitals import Vitals, vitals
from automate.campaign.state import BatchView, CampaignState
from automate.errors import FlockError
from automate.workspace import Workspace


def job_line(view: BatchView, now: float, runs: Sequence[Mapping[str, Any]], load: float | None,
             requeues: int) -> JobLine:
    """A batch's job that waits or runs. `load`: seconds that loading usually takes; `requeues`: of the settings."""
    status = view.status
    if status is None:
        raise ValueError("a batch without a job")
    key = view.stored.plan.id, view.batch.number
    starts = sum(1 for run in runs if (run.get("plan"), run.get("batch")) == key)
    said = vitals(view.run, now)
    stopped = said.phase == "ended"
    seen = Vitals() if stopped or view.state == "queued" else said
    why = explain(status.reason) if view.state == "queued" else explain("")
    return JobLine(
        status.job, view.batch.number, view.stored.plan.id, status.name or view.stored.plan.job_name(view.batch),
        view.state, status.reason, status.evidence, status.elapsed, status.nodes, status.node_count, status.partition,
        status.user, words=why.words, advice=why.advice, never=why.never, begins=status.begins,
        phase=_phase(view, seen), phase_seconds=seen.phase_seconds, load_expected=load, age=seen.age, rate=seen.rate,
        played=seen.played, due=seen.due, in_flight=seen.in_flight, unanswered=seen.unanswered, starts=starts,
        server=seen.server, gpu_use=seen.gpu_use, note=_note(view, seen, stopped, starts, requeues), kind=view.kind)


def _phase(view: BatchView, seen: Vitals) -> str:
    if view.state != "running":
        return ""
    if view.status is not None and view.status.state.value in ("SUSPENDED", "COMPLETING"):
        return view.status.state.value.lower()
    return seen.phase or "starting"


def _note(view: BatchView, seen: Vitals, stopped: bool, starts: int, requeues: int) -> str:
    """What happened to the job before: its last start's end, or deaths of its server."""
    if view.run is not None and stopped:
        return "; ".join(part for part in (ended_words(view.run), next_words(view.run, starts, requeues)) if part)
    if seen.deaths:
        whose = "model" if view.kind == "generate" else "judge"
        return f"its {whose} server died {len(seen.deaths)}x (last: {seen.deaths[-1]}) and was started again"
    return ""


def latest_views(state: CampaignState) -> list[BatchView]:
    """The batch with the newest job of each model and kind of work, each batch once."""
    latest: dict[tuple[str, str], BatchView] = {}
    for view in state.batches:
        for model in view.batch.models:
            if view.status is not None:
                latest[view.kind, model] = view
    found = {(view.stored.plan.id, view.batch.number): view for view in latest.values()}
    return list(found.values())


def batch_lines(workspace: Workspace, state: CampaignState, models: Iterable[ModelLine],
                answers: Iterable[AnswerLine] = ()) -> tuple[BatchLine, ...]:
    """Every batch that counts: those that act, those that were each model's last, and those not handed in yet."""
    games = {model.model: (model.games, model.wanted, model.due) for model in models}
    replies = {line.model: (line.done, line.wanted, line.due) for line in answers}
    return (*_batch_lines(workspace, state.of_kind("judge"), games, "judge"),
            *_batch_lines(workspace, state.of_kind("generate"), replies, "generate"))


def _batch_lines(workspace: Workspace, state: CampaignState, counts: Mapping[str, tuple[int, int, int]],
                 kind: PlanKind) -> Iterable[BatchLine]:
    unsent = planned(workspace, state, {name: due for name, (_, _, due) in counts.items()}, kind)
    views = {(view.stored.plan.id, view.batch.number): view for view in [*latest_views(state), *state.active, *unsent]}
    for view in sorted(views.values(), key=lambda one: (one.batch.number, one.stored.plan.id)):
        mine = [counts[model] for model in view.batch.models if model in counts]
        done, wanted, due = (sum(one[place] for one in mine) for place in range(3))
        yield BatchLine(
            view.batch.number, view.stored.plan.id, view.state, view.job, view.batch.models, done, wanted, due,
            why_unsent(workspace, state, view) if view.status is None else "",
            counted=len(mine) == len(view.batch.models) and all(one[1] for one in mine), kind=kind)


def answer_lines(counts: AnswerCounts | None, state: CampaignState) -> tuple[AnswerLine, ...]:
    """A line for each model whose answers are counted, with the generation batch that had it last."""
    if counts is None:
        return ()
    batch_of = {model: view.batch.number for view in state.of_kind("generate").batches if view.status
                for model in view.batch.models}
    found = []
    for model, status in counts.statuses.items():
        batch, problem = batch_of.get(model), counts.problems.get(model, "")
        found.append(AnswerLine(model, counts.questions, 0, counts.questions, batch=batch, problem=problem)
                     if status is None else
                     AnswerLine(model, status.wanted, status.done, status.due, status.empty, status.stale,
                                dict(status.failed), batch))
    return tuple(found)


def _state(status: ModelStatus | None, answers: int, missing: int) -> str:
    if answers == 0:
        return "no answers"
    if status is None:
        return "unknown"
    if missing:
        return "incomplete"
    if status.due == 0 and status.wanted > 0:
        return "complete"
    return "partial" if status.wanted > status.due else "waiting"


def model_line(model: str, entry: ModelProgress, batch: int | None) -> ModelLine:
    """A model whose games are counted."""
    status = entry.status
    return ModelLine(
        model, _state(status, entry.answers, entry.missing), entry.answers, entry.empty, entry.missing,
        status.questions_done, status.wanted - status.due, status.wanted, status.due, dict(status.nulls),
        status.unverified, status.other_prompt, status.short_labels, status.stale, status.retrying,
        batch, tuple(entry.problems[:5]))


def bare_line(workspace: Workspace, model: str) -> ModelLine:
    """A model's line where games can't be counted, as the baseline or the questions can't be read."""
    try:
        answers = load_answers(workspace, model)
    except FlockError:
        answers = None
    count = len(answers.texts) if answers else 0
    return ModelLine(model, _state(None, count, 0), count, answers.empty if answers else 0, 0, 0, 0, 0, 0, {}, 0, 0, 0,
                     0, 0, None)
