"""The chain of answers, games and report: which judging batch waits for which answers, and all of it handed in.

Never makes a batch wait for answers that it does not need, and never submits anything twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from automate.arena.batches import Batch, balance
from automate.arena.context import baseline_map, load_match
from automate.arena.counting.progress import Progress
from automate.arena.games import Match
from automate.campaign.budget import same_campaign
from automate.campaign.generating import GenerationPrepared, with_baselines
from automate.campaign.generating import prepare as prepare_answers
from automate.campaign.handing import Request, Submitted, hand_in, parallel_of
from automate.campaign.judging import derive_rows, moved_notes, set_apart
from automate.campaign.nodes import remember_failed
from automate.campaign.plans import (
    StoredPlan,
    make_plan,
    new_plan_id,
    of_kind,
    read_plans,
    remove_leftovers,
    same_work,
    save_plan,
    write_files,
)
from automate.campaign.state import BatchView, CampaignState, look
from automate.campaign.waiting import held, remember_unsent
from automate.cluster.base import Cluster
from automate.cluster.slurm import max_array_size
from automate.cluster.submit import Submission
from automate.errors import DataError
from automate.workspace import Workspace

Maker = tuple[str, int]
"""A batch that generates answers: its plan and its number."""


@dataclass
class Links:
    """The judging half of a chain. `waits`: batch number -> the generation batches whose answers it needs.

    `complete`: models all of whose games are played; `busy`: models of judging batches in the queue; `without`: models
    that have no answers and get none, with the reason. `progress` is None until the baseline has answers.
    """

    stored: StoredPlan | None = None
    waits: dict[int, tuple[Maker, ...]] = field(default_factory=dict)
    progress: Progress | None = None
    complete: list[str] = field(default_factory=list)
    busy: dict[str, BatchView] = field(default_factory=dict)
    without: dict[str, str] = field(default_factory=dict)
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
    """Plan the answers of the models and of their baselines, without models that can't be served.

    Hold the submit claim. Raises DataError where a baseline has no answers and none can be had.
    """
    wanted = replace(request, models=with_baselines(workspace, request.models))
    prepared = prepare_answers(workspace, cluster, wanted, skip_problems=True)
    bare, coming = {problem.model: problem for problem in prepared.problems}, makers_of(prepared)
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
    status = prepared.statuses.get(model)
    causes = ", ".join(f"{count} {reason}" for reason, count in sorted(status.failed.items())) if status else ""
    return f"all were given up ({causes})" if causes else "its files can't be read"


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
    """Plan the games of all models that have answers or get them, and write the files. Hold the submit claim."""
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

    A model that gets answers, or whose baseline does, counts with two games a question, less those played.
    """
    fresh = any(name in makers for name in _baselines(workspace))
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
        played = entry.status.wanted - entry.status.due if entry is not None else 0
        due = 2 * prepared.counts.questions - played
        if entry is not None and not fresh and model not in makers:
            due = entry.status.due
        if due > 0:
            todo[model] = due
        else:
            links.complete.append(model)
    return todo


def _plan(workspace: Workspace, cluster: Cluster, request: Request, todo: Mapping[str, int],
          makers: Mapping[str, Maker], needed: Sequence[Maker], state: CampaignState, links: Links) -> None:
    """Plan these models' games and write the files; those of batches in use are left alone."""
    plans, state = of_kind(read_plans(workspace), "judge"), state.of_kind("judge")
    kept = [*state.active, *held(workspace, state, plans, todo)]
    in_use, kept_plans = {view.batch.number for view in kept}, {view.stored.plan.id for view in kept}
    parts = {part.part for stored in plans if stored.plan.id in kept_plans for part in stored.parts}
    size = workspace.settings.batch_size
    batches, links.waits = align(todo, makers, needed, size, max(in_use, default=0) + 1)
    stored = make_plan(
        workspace, todo, size=size, first=batches[0].number, batches=batches,
        max_array_size=max_array_size() if cluster.kind == "slurm" else 1_000_000,
        limit_questions=request.limit_questions, plan_id=new_plan_id(workspace), first_part=max(parts, default=0) + 1)
    touched = {one.plan for one in state.submissions} | {view.stored.plan.id for view in state.active}
    if plans and plans[-1].plan.id not in touched and same_work(plans[-1], stored):
        stored = replace(plans[-1], root=str(workspace.root))  # the same plan again: the same bytes
    write_files(workspace, stored, None, parallel_of(workspace, request))
    save_plan(workspace, stored)
    remove_leftovers(workspace, plans, in_use | {batch.number for batch in batches},
                     parts | {part.part for part in stored.parts})
    links.stored = stored


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
    numbers, after = _sorted_out(state, links, done)
    if numbers:
        done.now = hand_in(workspace, cluster, links.stored, request, state, numbers=numbers, spare=1)
        state = look(workspace)
    if after:
        done.then = hand_in(workspace, cluster, links.stored, request, state, numbers=sorted(after), spare=1,
                            after=after)
    if done.held:
        remember_unsent(workspace, links.stored.plan.id, done.answers.why or "their answers have no job")
    return done


def _sorted_out(state: CampaignState, links: Links, done: HandedIn) -> tuple[list[int], dict[int, str]]:
    """(batches that start at once, the jobs that each of the others waits for); those kept back go to `done.held`."""
    views = {(view.stored.plan.id, view.batch.number): view for view in state.batches if view.kind == "generate"}
    numbers: list[int] = []
    after: dict[int, str] = {}
    for batch in links.stored.plan.batches if links.stored else ():
        makers = [views[maker] for maker in links.waits.get(batch.number, ()) if maker in views]
        jobs = [view.job for view in makers if view.may_act and view.job]
        if any(view.state == "planned" for view in makers):
            done.held.append(batch.number)
        elif jobs:
            after[batch.number] = ",".join(jobs)
        else:
            numbers.append(batch.number)
    return numbers, after
