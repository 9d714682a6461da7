"""Hands batches of a plan over: as many as fit now under every limit, on nodes that are not bad, each once.

Never submits a batch that waits or runs, that a newer plan has taken over, or that there is no room for."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from automate import claims
from automate.arena.engine_job import FleetUse
from automate.campaign.budget import budget_room
from automate.campaign.kinds import Files, under_plan
from automate.campaign.nodes import remember_failed
from automate.campaign.plans import StoredPlan, foreign_files, moved, read_plans, touched, write_anew
from automate.campaign.rooms import excluded_now, job_room
from automate.campaign.state import BatchView, CampaignState, look
from automate.campaign.waiting import asked_for, never_submitted, remember_unsent, without_taken
from automate.cluster.base import Cluster
from automate.cluster.limits import Room, SubmitLimits, limit_words
from automate.cluster.queue import job_alive
from automate.cluster.submit import (
    Submission,
    SubmissionBook,
    chained,
    first_tasks,
    hand_over,
    new_submission,
    settle_open,
)
from automate.errors import ClaimedError, StorageError, SubmitError
from automate.settings import Judge
from automate.workspace import Workspace

if TYPE_CHECKING:
    from automate.campaign.fleets.playing import CampaignFleet


@dataclass(frozen=True)
class Request:
    """What a user asked of `judge` or `generate`, apart from the settings. `fleet`: on which games are to be played."""

    models: tuple[str, ...]
    limit_questions: int | None = None
    max_parallel: int | None = None
    array: bool = True
    fleet: FleetUse | None = None

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """From the JSON of `asdict`. Raises TypeError, KeyError."""
        return cls(**{**data, "models": tuple(data["models"]), "fleet": FleetUse.of(data.get("fleet"))})


@dataclass
class Submitted:
    """What was accepted, the error of each that was not, and the batches that wait for room, with the limit."""

    accepted: list[Submission] = field(default_factory=list)
    refused: list[tuple[Submission, SubmitError]] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    why: str = ""
    notes: list[str] = field(default_factory=list)


def submit_claim(workspace: Workspace) -> claims.Claim:
    """The claim that one planning or submitting command holds. Raises ClaimedError naming the other.

    One that was killed a moment ago is waited for, until its heartbeat has grown old.
    """
    stale = min(workspace.settings.limits.claim_stale, 1.0)
    while True:
        try:
            return claims.take(workspace.submit_claim, stale=stale, job_alive=job_alive)
        except ClaimedError as error:
            if not error.holder_gone:
                raise ClaimedError("another flock-hpc command is planning or submitting in this workspace: "
                                   f"{error.what}", todo="run this again when it is done") from error
        time.sleep(stale / 4)


def parallel_of(workspace: Workspace, request: Request) -> int | None:
    """How many batches may run at once; a paid judge with a spending cap runs one, so that the cap holds."""
    if workspace.settings.judge.max_cost is not None:
        return 1
    return request.max_parallel or workspace.settings.limits.max_parallel


def keep_key(judge: Judge, secrets: Path) -> None:
    """Keep a paid judge's key for its jobs: a file that only this user can read, in no script or environment."""
    key = os.environ.get(judge.api_key_env or "")
    if judge.api_key_env is None or not key:
        return
    folder = secrets / str(os.getuid())
    try:
        secrets.mkdir(parents=True, exist_ok=True)
        folder.mkdir(exist_ok=True, mode=0o700)
        folder.chmod(0o700)
        path = folder / judge.api_key_env
        path.unlink(missing_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(key)
    except OSError as error:
        raise StorageError.of(error, folder, "keep the judge's key") from error
    del os.environ[judge.api_key_env]  # jobs read the file; sbatch must not export the key


def submissions_of(workspace: Workspace, stored: StoredPlan, cluster: Cluster, request: Request,
                   numbers: Sequence[int] | None = None, by: str = "user") -> list[Submission]:
    """The submissions of a plan: an array for each part, or a job for each batch; of `numbers` only, if given."""
    wanted = {batch.number for batch in stored.plan.batches} if numbers is None else set(numbers)
    plan = stored.plan
    parallel = None if plan.use is not None else parallel_of(workspace, request)  # an engine runs beside its servers
    files = Files(workspace, plan.kind)
    if request.array:
        out = []
        for part in stored.parts:
            tasks = {number - part.offset: number for number in part.numbers if number in wanted}
            if tasks:
                out.append(new_submission(plan.id, plan.array_name(part.part), files.array_script(part.part),
                                          cluster.kind, tasks, array=True, parallel=parallel, by=by))
        return out
    return [new_submission(plan.id, plan.job_name(batch), files.script(batch.number), cluster.kind,
                           {0: batch.number}, array=False, parallel=parallel, by=by)
            for batch in plan.batches if batch.number in wanted]


# --- handing over -------------------------------------------------------------------------------------
def hand_in(workspace: Workspace, cluster: Cluster, stored: StoredPlan, request: Request, state: CampaignState, *,
            numbers: Sequence[int] | None = None, by: str = "user", spare: int = 0,
            limits: SubmitLimits | None = None, after: Mapping[int, str] | None = None) -> Submitted:
    """Hand over what fits now of a plan (of `numbers`, if given); the rest stays planned. Hold the submit claim.

    `spare` places are kept free for a refill job where not everything fits. A refused one doesn't keep others back.
    `after`: batch number -> ids of the jobs that it waits for, with `,` between them (all of them) or `?` (any one);
    every batch is a job of its own then. A plan for a fleet gets its fleet first, and its servers after its engine.
    Raises ClaimedError, ConfigError where a fleet of that name is in the way.
    """
    asked, workspace = workspace, under_plan(workspace, stored.plan)
    keep_key(workspace.settings.judge, workspace.secrets)
    request = request if after is None else replace(request, array=False)
    remember_failed(workspace, state.batches)
    done = Submitted()
    todo = submissions_of(workspace, stored, cluster, request, numbers, by)
    wanted = [number for submission in todo for number in submission.tasks.values()]
    lean = without_taken(workspace, state, stored, read_plans(workspace), wanted)
    if lean is not stored:
        stored = write_anew(workspace, lean, None, parallel_of(workspace, request), wanted)
        done.notes.append("models that a newer plan has taken over are left out")
    elif foreign_files(workspace, stored, wanted):
        write_anew(workspace, stored, None, parallel_of(workspace, request), wanted)
        why = "others were in their place"
        if moved(workspace, stored):
            why = f"the workspace was moved from {stored.root}"
        done.notes.append(f"{why}: the files of {len(wanted)} batches were written anew")
    excluded = excluded_now(workspace, cluster)
    done.notes += excluded.notes
    free = job_room(workspace, cluster, state, limits)
    if free.jobs is not None and 1 < free.jobs < len(wanted):
        free = replace(free, jobs=free.jobs - min(spare, free.jobs - 1))
    free = free.least(budget_room(workspace, state))
    fleet = _fleet_for(asked, cluster, stored, state) if free.jobs != 0 else None
    if fleet is not None:
        free, cluster = free.least(fleet.room()), fleet.cluster
        done.notes += fleet.open() if free.jobs != 0 else []
    book = SubmissionBook(workspace.submissions)
    for submission in todo:
        one = _beside(replace(submission, exclude=excluded.option), stored, state, done)
        one = _waiting_for(one, after or {})
        free = _hand_over(book, cluster, one, free, done)
    if fleet is not None and done.accepted:
        done.notes += fleet.staff(free.jobs)
    if done.waiting:
        remember_unsent(workspace, stored.plan.id, done.why)
    return done


def _fleet_for(workspace: Workspace, cluster: Cluster, stored: StoredPlan,
               state: CampaignState) -> CampaignFleet | None:
    """The fleet on which a plan is played; None where its batches start servers of their own."""
    if stored.plan.use is None:
        return None
    from automate.campaign.fleets.playing import fleet_for

    return fleet_for(workspace, cluster, stored.plan, state)


def _beside(submission: Submission, stored: StoredPlan, state: CampaignState, done: Submitted) -> Submission:
    """Keep to the limit of batches at once beside those that are in the queue already; Slurm's own is for an array."""
    limit = submission.parallel
    if limit is None:
        return submission
    active = [view.job for view in state.of_plan(stored.plan.id) if view.may_act and view.job]
    if not active:
        return chained(submission, done.accepted)
    if submission.array:
        if done.accepted or len(active) >= limit:
            return replace(submission, after=done.accepted[-1].job if done.accepted else active[-1].partition("_")[0])
        return replace(submission, parallel=limit - len(active))
    before = [*active, *(entry.job for entry in done.accepted)]
    return replace(submission, after=before[-limit]) if len(before) >= limit else submission


def _waiting_for(submission: Submission, after: Mapping[int, str]) -> Submission:
    """The jobs of which a batch needs what they make, beside the one that the limit of batches at once names.

    Slurm takes `all of` or `any of`, not both: where any one of several is waited for, that alone counts.
    """
    needed = ",".join(after[number] for number in submission.tasks.values() if after.get(number))
    if not needed or "?" in needed or submission.after is None:
        return replace(submission, after=needed or submission.after)
    return replace(submission, after=f"{needed},{submission.after}")


def _hand_over(book: SubmissionBook, cluster: Cluster, submission: Submission, free: Room, done: Submitted) -> Room:
    """Hand over as many tasks as there is room for; half of them where Slurm knows a limit that nobody told us of."""
    count = len(submission.tasks) if free.jobs is None else min(free.jobs, len(submission.tasks))
    part = submission if count == len(submission.tasks) else first_tasks(submission, count)
    while part.tasks:
        try:
            done.accepted.append(hand_over(book, cluster, part))
            break
        except SubmitError as error:
            limit = None if error.unsure else limit_words(error.what)
            if limit is None:
                done.refused.append((part, error))
                break
            free = Room(0, f"sbatch said {limit}")
            part = first_tasks(submission, len(part.tasks) // 2)
    left = sorted(set(submission.tasks.values()) - set(part.tasks.values()))
    free = free.taken(len(part.tasks))
    if left:
        done.waiting += left
        done.why = done.why or free.why
    return free


def hand_in_more(workspace: Workspace, cluster: Cluster, plan: str, request: Request, *, by: str,
                 only: Sequence[int] | None = None, limits: SubmitLimits | None = None) -> Submitted:
    """Hand in what fits of a plan's batches that were never handed in. Raises ClaimedError where another is at it."""
    claim = submit_claim(workspace)
    try:
        settle_open(SubmissionBook(workspace.submissions), cluster)
        state, plans = look(workspace), read_plans(workspace)
        stored = next((one for one in plans if one.plan.id == plan), None)
        if stored is None:
            return Submitted()
        todo = never_submitted(workspace, state, stored, plans)
        todo = todo if only is None else [number for number in todo if number in only]
        if not todo:
            return Submitted()
        return hand_in(workspace, cluster, stored, request, state, numbers=todo, by=by, limits=limits)
    finally:
        claim.release()


def resubmit(workspace: Workspace, cluster: Cluster, view: BatchView, request: Request) -> Submitted:
    """Hand one batch of a plan over again. Raises ClaimedError where it is in work already."""
    claim = submit_claim(workspace)
    try:
        settle_open(SubmissionBook(workspace.submissions), cluster)
        state, plans = look(workspace), read_plans(workspace)
        stored = next((one for one in plans if one.plan.id == view.stored.plan.id), view.stored)
        fresh = next((v for v in state.of_plan(stored.plan.id) if v.batch == view.batch), view)
        if fresh.may_act:
            raise ClaimedError(f"batch {view.batch.number} is in the queue again already", where=fresh.job)
        newer = touched(stored, view.batch, plans, asked_for(workspace, state, plans))
        if newer is not None:
            raise SubmitError(f"plan {newer.plan.id} has taken its models or its number over")
        return hand_in(workspace, cluster, stored, request, state, numbers=[view.batch.number], by="wait")
    finally:
        claim.release()
