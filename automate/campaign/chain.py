"""The chain of answers, games and report: which judging batch waits for which answers, and all of it handed in.

Never makes a batch wait for answers that it does not need, and never submits anything twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from automate.arena.batches import Batch, balance
from automate.arena.context import baseline_map, load_match
from automate.arena.counting.progress import Progress
from automate.arena.games import Match
from automate.campaign.awaited import Awaited
from automate.campaign.budget import same_campaign
from automate.campaign.chain_held import NO_JOB, Chain, Maker, sort_out
from automate.campaign.chain_report import Wanted
from automate.campaign.generating import GenerationPrepared, survey, with_baselines
from automate.campaign.generating import plan as plan_answers
from automate.campaign.handing import Request, Submitted, hand_in
from automate.campaign.judging import derive_rows, moved_notes, set_apart
from automate.campaign.nodes import remember_failed
from automate.campaign.planned import plan_anew
from automate.campaign.plans import StoredPlan
from automate.campaign.refill import arrange, remember
from automate.campaign.refill import wanted as small_job
from automate.campaign.state import BatchView, CampaignState, look
from automate.campaign.waiting import remember_unsent
from automate.cluster.base import Cluster
from automate.cluster.submit import Submission
from automate.errors import DataError
from automate.workspace import Workspace


@dataclass
class Links:
    """The judging half of a chain. `waits`: batch number -> the generation batches whose answers it needs.

    `complete`: models all of whose games are played; `busy`: models of judging batches in the queue; `without`: models
    that have no answers and get none, with the reason; `lost`: models that were asked questions in vain, with the
    counts, and are judged without these. `progress` is None until the baseline has answers.
    """

    stored: StoredPlan | None = None
    waits: dict[int, tuple[Maker, ...]] = field(default_factory=dict)
    progress: Progress | None = None
    complete: list[str] = field(default_factory=list)
    busy: dict[str, BatchView] = field(default_factory=dict)
    without: dict[str, str] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass
class HandedIn:
    """What became of a chain: batches of answers, games that start at once, games that wait for answers.

    `held`: judging batches that nobody handed in, as the answers that they need wait for room themselves.
    """

    answers: Submitted = field(default_factory=Submitted)
    now: Submitted = field(default_factory=Submitted)
    then: Submitted = field(default_factory=Submitted)
    held: list[int] = field(default_factory=list)

    @property
    def parts(self) -> tuple[Submitted, ...]:
        return self.answers, self.now, self.then

    @property
    def accepted(self) -> list[Submission]:
        return [one for part in self.parts for one in part.accepted]

    @property
    def refused(self) -> bool:
        return any(part.refused for part in self.parts)

    @property
    def waits(self) -> bool:
        """Whether batches are left that have no job yet."""
        return bool(self.held) or any(part.waiting for part in self.parts)


def answers_first(workspace: Workspace, cluster: Cluster, request: Request) -> GenerationPrepared:
    """Which answers of the models and of their baselines are due, and can be had; nothing is written for them yet.

    Hold the submit claim. Raises DataError where a baseline has no answers and none can be had.
    """
    wanted = replace(request, models=with_baselines(workspace, request.models))
    prepared = survey(workspace, cluster, wanted)
    bare = {problem.model: problem for problem in prepared.problems}
    coming = makers_of(prepared).keys() | {one.model for one in prepared.good}
    for name in _baselines(workspace):
        if name in coming or workspace.answer_file(name).is_file():
            continue
        problem = bare.get(name)
        why = problem.what if problem else given_up(prepared, name)
        raise DataError(f"the baseline '{name}' has no answers, and none can be generated: {why}",
                        where=problem.where if problem else str(workspace.answer_file(name)),
                        todo=f"{problem.todo}, or name another with --baseline" if problem else
                        "name another with --baseline")
    return prepared


def given_up(prepared: GenerationPrepared, model: str) -> str:
    """Why a model lacks answers that nobody makes."""
    causes = causes_of(prepared, model)
    return f"all were given up ({causes})" if causes else "its files can't be read"


def causes_of(prepared: GenerationPrepared, model: str) -> str:
    """Why answers of a model were given up, with the counts; empty where none were."""
    status = prepared.statuses.get(model)
    return ", ".join(f"{count} {reason}" for reason, count in sorted(status.failed.items())) if status else ""


def makers_of(prepared: GenerationPrepared) -> dict[str, Maker]:
    """Who makes the answers that models lack: batches in the queue, and those that were planned just now."""
    found = {model: (view.stored.plan.id, view.batch.number) for model, view in prepared.busy.items()
             if lacks(prepared, model)}
    if prepared.stored is not None:
        plan = prepared.stored.plan
        found |= {model: (plan.id, batch.number) for batch in plan.batches for model in batch.models}
    return found


def lacks(prepared: GenerationPrepared, model: str) -> bool:
    """Whether answers of a model are not all in its file yet."""
    status = prepared.statuses.get(model)
    return status is None or bool(status.due or status.unwritten)


def align(due: Mapping[str, int], makers: Mapping[str, Maker], needed: Sequence[Maker], size: int,
          first: int) -> tuple[tuple[Batch, ...], dict[int, tuple[Maker, ...]]]:
    """Judging batches that follow the batches of answers: models generated together are judged together.

    Models that have their answers come first, in batches of their own. `needed`: what every batch waits for, as the
    baseline's answers come from there. Returns the batches, numbered from `first`, and what each waits for.
    """
    groups: dict[Maker | None, dict[str, int]] = {None: {}}
    for model, games in due.items():
        groups.setdefault(makers.get(model), {})[model] = games
    batches: list[Batch] = []
    waits: dict[int, tuple[Maker, ...]] = {}
    for maker, part in groups.items():
        if not any(part.values()):
            continue
        mine = balance(part, size, first + len(batches))
        batches += mine
        before = tuple(dict.fromkeys([*([maker] if maker else []), *needed]))
        waits |= {batch.number: before for batch in mine if before}
    return tuple(batches), waits


def link(workspace: Workspace, cluster: Cluster, request: Request, prepared: GenerationPrepared) -> Links:
    """Plan the answers, and the games of all models that have some or get them; write the files.

    Hold the submit claim since `answers_first`.
    """
    plan_answers(workspace, cluster, request, prepared)
    state, makers = look(workspace), makers_of(prepared)
    links, match = Links(), _match(workspace)
    remember_failed(workspace, state.batches)
    links.notes += moved_notes(workspace, state.of_kind("judge"))
    active = [view for view in state.of_kind("judge").active if same_campaign(view, workspace.settings)]
    links.busy = {model: view for view in active for model in view.batch.models if model in request.models}
    if match is not None:
        links.progress = Progress(workspace, match, request.models, request.limit_questions)
        links.notes += set_apart(workspace, match, links.progress.models)
    todo = _due(workspace, request, prepared, makers, links)
    if match is not None and links.progress is not None and request.limit_questions is None:
        links.notes += derive_rows(workspace, match, links.progress, links.complete)
    if todo:
        needed = [makers[name] for name in _baselines(workspace) if name in makers]
        _plan(workspace, cluster, request, todo, makers, needed, state, links)
    return links


def _match(workspace: Workspace) -> Match | None:
    """The match, or None while a baseline has no answers yet."""
    there = all(workspace.answer_file(name).is_file() for name in _baselines(workspace))
    return load_match(workspace) if there else None


def _baselines(workspace: Workspace) -> list[str]:
    return sorted(set(baseline_map(workspace.settings.baseline).values()))


def _due(workspace: Workspace, request: Request, prepared: GenerationPrepared, makers: Mapping[str, Maker],
         links: Links) -> dict[str, int]:
    """Games to plan by model; models that have none to plan are put into `links`.

    Both games of a question count that gets another answer, of the model or of its baseline, though they were played.
    """
    awaited = Awaited(workspace, prepared.counts.asked[:request.limit_questions], makers)
    bare = {problem.model: f"{problem.where}: {problem.what}" for problem in prepared.problems}
    todo: dict[str, int] = {}
    for model in request.models:
        entry = links.progress.models[model] if links.progress is not None else None
        answered = entry.answers > 0 if entry is not None else workspace.answer_file(model).is_file()
        if model in links.busy:
            continue
        if not answered and model not in makers:
            links.without[model] = bare.get(model) or given_up(prepared, model)
            continue
        if causes := causes_of(prepared, model):
            links.lost[model] = causes
        due = awaited.games(model, entry.due_uids if entry is not None else None)
        if due > 0:
            todo[model] = due
        else:
            links.complete.append(model)
    return todo


def _plan(workspace: Workspace, cluster: Cluster, request: Request, todo: Mapping[str, int],
          makers: Mapping[str, Maker], needed: Sequence[Maker], state: CampaignState, links: Links) -> None:
    """Plan these models' games and write the files; those of batches in use are left alone."""

    def spread(first: int) -> tuple[Batch, ...]:
        batches, links.waits = align(todo, makers, needed, workspace.settings.batch_size, first)
        return batches

    links.stored = plan_anew(workspace, cluster, request, todo, state, links.notes, spread=spread)


# --- handing in -----------------------------------------------------------------------------------------
def hand_in_all(workspace: Workspace, cluster: Cluster, request: Request, prepared: GenerationPrepared,
                links: Links) -> HandedIn:
    """Hand in what fits: answers first, then games that need none of them, then games that wait for some.

    A judging batch whose answers wait for room themselves is kept back. Hold the submit claim.
    """
    done = HandedIn()
    if prepared.stored is not None:
        wanted = replace(request, models=with_baselines(workspace, request.models))
        done.answers = hand_in(workspace, cluster, prepared.stored, wanted, look(workspace), spare=1)
    if links.stored is None:
        return done
    state = look(workspace)
    absent = {(view.stored.plan.id, view.batch.number) for view in state.batches
              if view.kind == "generate" and view.state == "planned"}
    every = [batch.number for batch in links.stored.plan.batches]
    numbers, after, done.held = sort_out(state, every, links.waits, absent)
    if numbers:
        done.now = hand_in(workspace, cluster, links.stored, request, state, numbers=numbers, spare=1)
        state = look(workspace)
    if after:
        done.then = hand_in(workspace, cluster, links.stored, request, state, numbers=sorted(after), spare=1,
                            after=after)
    if done.held:
        remember_unsent(workspace, links.stored.plan.id, done.answers.why or NO_JOB)
    return done


def carry_on(workspace: Workspace, cluster: Cluster, request: Request, wanted: Wanted, prepared: GenerationPrepared,
             links: Links, done: HandedIn) -> str:
    """See to it that the small job hands in what has no job yet, and the report after it; says which job.

    Empty where nothing waits, no game is planned, or there is no such job. Hold the submit claim.
    """
    if not done.waits or links.stored is None or not small_job(workspace, cluster):
        return ""
    if prepared.stored is not None and done.answers.waiting:
        remember(workspace, prepared.stored, replace(request, models=with_baselines(workspace, request.models)))
    who = arrange(workspace, cluster, links.stored, request, look(workspace), Submitted(done.accepted),
                  Chain(links.waits, wanted))
    return f"{who}, and then the report" if who.startswith("job ") else ""
