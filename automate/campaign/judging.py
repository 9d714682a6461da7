"""From a list of models to submitted batches: what is due, what is in work already, what is planned and handed over.

Never submits a batch twice, and never touches the files of one that is queued or running."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from automate import claims
from automate.arena.apart import has_foreign_rows, move_foreign_rows
from automate.arena.context import load_answers
from automate.arena.games import Match
from automate.arena.ledger import ModelLedger, rows_are_current
from automate.arena.progress import Progress
from automate.campaign.plans import (
    StoredPlan,
    make_plan,
    new_plan_id,
    read_plans,
    remove_leftovers,
    same_work,
    save_plan,
    write_files,
)
from automate.campaign.state import BatchView, CampaignState, look
from automate.cluster.base import Cluster
from automate.cluster.queue import job_alive
from automate.cluster.slurm import max_array_size
from automate.cluster.submit import Submission, SubmissionBook, chained, hand_over, new_submission, settle_open
from automate.errors import ClaimedError, FlockError, StorageError, SubmitError
from automate.journal import fresh_name
from automate.names import baseline_tag, name_problem
from automate.settings import Judge
from automate.workspace import Workspace


@dataclass(frozen=True)
class Request:
    """What a user asked of `judge`, apart from the settings."""

    models: tuple[str, ...]
    limit_questions: int | None = None
    max_parallel: int | None = None
    array: bool = True


@dataclass
class Prepared:
    """A plan and how it came about."""

    stored: StoredPlan | None
    progress: Progress
    complete: list[str]
    busy: dict[str, BatchView]
    notes: list[str] = field(default_factory=list)


@dataclass
class Submitted:
    """Which batches were accepted, and the error of each that was not."""

    accepted: list[Submission] = field(default_factory=list)
    refused: list[tuple[Submission, SubmitError]] = field(default_factory=list)


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


def _same_campaign(workspace: Workspace, views: Iterable[BatchView]) -> list[BatchView]:
    settings = workspace.settings
    return [view for view in views if view.stored.settings.get("bench") == settings.bench
            and view.stored.settings.get("judge", {}).get("name") == settings.judge.name]


def parallel_of(workspace: Workspace, request: Request) -> int | None:
    """How many batches may run at once; a paid judge with a spending cap runs one, so that the cap holds."""
    if workspace.settings.judge.max_cost is not None:
        return 1
    return request.max_parallel or workspace.settings.limits.max_parallel


def prepare(workspace: Workspace, cluster: Cluster, match: Match, request: Request) -> Prepared:
    """Plan what is due and not in work, and write its files. Hold the submit claim."""
    settle_open(SubmissionBook(workspace.submissions), cluster)
    state = look(workspace)
    progress = Progress(workspace, match, request.models, request.limit_questions)
    active = _same_campaign(workspace, state.active)
    busy = {model: view for view in active for model in view.batch.models if model in progress.models}
    complete = [model for model, due in progress.due.items() if due == 0]
    todo = {model: due for model, due in progress.due.items() if due > 0 and model not in busy}
    prepared = Prepared(None, progress, complete, busy)
    prepared.notes += set_apart(workspace, match, progress.models)
    if request.limit_questions is None:
        prepared.notes += derive_rows(workspace, match, progress, [m for m in complete if m not in busy])
    if todo:
        prepared.stored = _plan(workspace, cluster, match, request, todo, state, prepared.notes)
    return prepared


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


def _plan(workspace: Workspace, cluster: Cluster, match: Match, request: Request, todo: dict[str, int],
          state: CampaignState, notes: list[str]) -> StoredPlan:
    plans = read_plans(workspace)
    in_use = {view.batch.number for view in state.active}
    active_plans = {view.stored.plan.id for view in state.active}
    parts_in_use = {part.part for stored in plans if stored.plan.id in active_plans for part in stored.parts}
    size = max_array_size() if cluster.kind == "slurm" else 1_000_000
    stored = make_plan(
        workspace, todo, size=workspace.settings.batch_size, first=max(in_use, default=0) + 1, max_array_size=size,
        limit_questions=request.limit_questions, plan_id=new_plan_id(workspace),
        first_part=max(parts_in_use, default=0) + 1)
    submitted = {submission.plan for submission in state.submissions}
    if plans and plans[-1].plan.id not in submitted | active_plans and same_work(plans[-1], stored):
        stored = plans[-1]  # the same plan again: the same bytes
    write_files(workspace, stored, match.prompts, parallel_of(workspace, request))
    save_plan(workspace, stored)
    keep = in_use | {batch.number for batch in stored.plan.batches}
    gone = remove_leftovers(workspace, plans, keep, parts_in_use | {part.part for part in stored.parts})
    if gone:
        notes.append(f"files of {len(gone)} earlier batches that are not in use any more were removed")
    return stored


def keep_key(judge: Judge, secrets: Path) -> None:
    """Keep a paid judge's key for its jobs: a file that only this user can read, in no script or environment."""
    key = os.environ.get(judge.api_key_env or "")
    if judge.api_key_env is None or not key:
        return
    try:
        secrets.mkdir(parents=True, exist_ok=True, mode=0o700)
        secrets.chmod(0o700)
        path = secrets / judge.api_key_env
        path.unlink(missing_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(key)
    except OSError as error:
        raise StorageError.of(error, secrets, "keep the judge's key") from error
    del os.environ[judge.api_key_env]  # jobs read the file; sbatch must not export the key


def submissions_of(workspace: Workspace, stored: StoredPlan, cluster: Cluster, request: Request,
                   numbers: Sequence[int] | None = None) -> list[Submission]:
    """The submissions of a plan: an array for each part, or a job for each batch; of `numbers` only, if given."""
    wanted = {batch.number for batch in stored.plan.batches} if numbers is None else set(numbers)
    parallel = parallel_of(workspace, request)
    plan = stored.plan
    if request.array:
        out = []
        for part in stored.parts:
            tasks = {number - part.offset: number for number in part.numbers if number in wanted}
            if tasks:
                out.append(new_submission(plan.id, plan.array_name(part.part), workspace.array_script(part.part),
                                          cluster.kind, tasks, array=True, parallel=parallel))
        return out
    return [new_submission(plan.id, plan.job_name(batch), workspace.batch_script(batch.number), cluster.kind,
                           {0: batch.number}, array=False, parallel=parallel)
            for batch in plan.batches if batch.number in wanted]


def submit(workspace: Workspace, cluster: Cluster, submissions: Iterable[Submission]) -> Submitted:
    """Hand submissions over one after the other; a refused one doesn't keep the others back."""
    keep_key(workspace.settings.judge, workspace.secrets)
    book = SubmissionBook(workspace.submissions)
    done = Submitted()
    for submission in submissions:
        try:
            done.accepted.append(hand_over(book, cluster, chained(submission, done.accepted)))
        except SubmitError as error:
            done.refused.append((submission, error))
    return done


def resubmit(workspace: Workspace, cluster: Cluster, view: BatchView, request: Request) -> Submission:
    """Hand one batch of a plan over again. Raises SubmitError or ClaimedError."""
    claim = submit_claim(workspace)
    try:
        fresh = next((v for v in look(workspace).of_plan(view.stored.plan.id) if v.batch == view.batch), view)
        if fresh.may_act:
            raise ClaimedError(f"batch {view.batch.number} is in the queue again already", where=fresh.job)
        todo = submissions_of(workspace, view.stored, cluster, request, [view.batch.number])
        return hand_over(SubmissionBook(workspace.submissions), cluster, todo[0])
    finally:
        claim.release()


def cancel(workspace: Workspace, state: CampaignState) -> tuple[list[str], list[str]]:
    """Cancel every job of this workspace that waits or runs; (job ids, problems)."""
    from automate.campaign.state import cluster_of_kind

    jobs: dict[str, list[str]] = {}
    for view in state.active:
        if view.job is not None:
            jobs.setdefault("local" if view.job.startswith("local-") else "slurm", []).append(view.job)
    problems: list[str] = []
    for kind, ids in jobs.items():
        cluster = cluster_of_kind(workspace, kind)
        try:
            problems += cluster.cancel(ids) if cluster is not None else [f"no Slurm here to cancel {', '.join(ids)}"]
        except FlockError as error:
            problems.append(str(error))
    cancelled = [job for ids in jobs.values() for job in ids]
    for job in cancelled:
        with contextlib.suppress(OSError):
            (workspace.submissions / f"{job}.cancelled").touch()
    return cancelled, problems
