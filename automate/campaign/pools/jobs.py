"""The job of a round: its script, handing it over once, and what became of it.

Never submits a round again while a job of it may still act."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from automate import __version__, claims
from automate.arena.engine_job import engine_settings
from automate.cluster.base import Cluster
from automate.cluster.queue import job_alive
from automate.cluster.script import directives, log_pattern, render
from automate.cluster.submit import Submission, SubmissionBook, hand_over, new_submission, settle_open
from automate.errors import ClaimedError, StorageError
from automate.journal import replace_file
from automate.pool_places import PoolPlaces
from automate.pools.answering.job import LEAD
from automate.pools.round_records import RoundSpec
from automate.settings import Settings, Slurm
from automate.workspace import Workspace

PAUSE = 0.1
"""Seconds between two looks at the claim of another command."""
_alone: ContextVar[bool] = ContextVar("alone", default=False)


def places_of(workspace: Workspace) -> PoolPlaces:
    """Where the pools of a workspace lie."""
    return PoolPlaces(workspace.root, workspace.settings.pools)


def slurm_of(settings: Settings) -> Slurm:
    """What a round's job asks Slurm for: as an engine's job, where pools.slurm says nothing else; never a GPU."""
    asked = settings.pools.slurm.model_dump(exclude_none=True, exclude={"gpus", "gres"})
    beside = settings.fleet.model_copy(update={"engine": "job"})
    return engine_settings(settings.model_copy(update={"fleet": beside})).slurm.model_copy(update=asked)


def job_name(workspace: Workspace, name: str) -> str:
    """The name of a round's jobs, unlike that of any other workspace's."""
    tag = hashlib.sha256(f"{workspace.root}\0{name}".encode()).hexdigest()[:6]
    return f"pool-{name}-{tag}"


def script_text(workspace: Workspace, spec: RoundSpec, python: str = sys.executable) -> str:
    """The text of a round's job script."""
    places = places_of(workspace)
    logs = {kind: log_pattern(places.logs, f"{spec.name}_%j.{suffix}")
            for kind, suffix in (("output", "out"), ("error", "err"))}
    context = {
        "directives": directives(slurm_of(workspace.settings), name=job_name(workspace, spec.name), gpus=False,
                                 signal=f"B:USR2@{LEAD}", **logs),
        "round": spec.name, "count": spec.count, "models": list(spec.models), "version": __version__,
        "workspace": workspace.root, "script": places.script(spec.name), "python": python,
        "environment": sorted(workspace.settings.environment.items()),
    }
    return render("pool_evaluate.sh.j2", context, workspace.templates)


def write_script(workspace: Workspace, spec: RoundSpec) -> None:
    """Write a round's script. Raises ConfigError, StorageError."""
    places = places_of(workspace)
    try:
        places.logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError.of(error, places.logs, "make the folder of logs") from error
    replace_file(places.script(spec.name), script_text(workspace, spec).encode(), 0o755)


@contextmanager
def alone(workspace: Workspace) -> Iterator[None]:
    """Nobody else looks whether a round has a job, and hands one over, meanwhile; another command that does is waited
    for, up to pools.lock_wait. Who holds it already may enter again. Raises ClaimedError naming the other."""
    if _alone.get():
        yield
        return
    claim = _claimed(workspace)
    held = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(held)
        claim.release()


def _claimed(workspace: Workspace) -> claims.Claim:
    stale = min(workspace.settings.limits.claim_stale, 1.0)
    until = time.monotonic() + workspace.settings.pools.lock_wait
    while True:
        try:
            return claims.take(places_of(workspace).rounds_claim, stale=stale, job_alive=job_alive)
        except ClaimedError as error:
            if time.monotonic() >= until:
                raise ClaimedError(f"another flock-hpc command hands evaluations over: {error.what}",
                                   where=error.where, todo="run this again when it is done") from error
        time.sleep(PAUSE)


def submissions_of(workspace: Workspace, name: str) -> list[Submission]:
    """Every handing over of a round that was not refused, oldest first."""
    found = SubmissionBook(places_of(workspace).submissions).all()
    return [one for one in found if one.plan == name and one.refused is None]


def submit(workspace: Workspace, cluster: Cluster, spec: RoundSpec) -> Submission:
    """Hand a round's job over, unless one of its jobs may still act: that one is given. Raises SubmitError,
    ClaimedError."""
    with alone(workspace):
        return _submit(workspace, cluster, spec)


def _submit(workspace: Workspace, cluster: Cluster, spec: RoundSpec) -> Submission:
    book = SubmissionBook(places_of(workspace).submissions)
    settle_open(book, cluster)
    handed = submissions_of(workspace, spec.name)
    jobs = [one.job for one in handed if one.job is not None]
    known = cluster.look(jobs) if jobs else {}
    acting = [one for one in handed if one.job is None or known[one.job].may_act]
    if acting:
        return acting[-1]
    write_script(workspace, spec)
    return hand_over(book, cluster, new_submission(
        spec.name, job_name(workspace, spec.name), places_of(workspace).script(spec.name), cluster.kind, {0: 1},
        array=False, parallel=None))
