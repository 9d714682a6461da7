"""The job of a round: its script, handing it over once, and what became of it.

Never submits a round again while a job of it may still act."""

from __future__ import annotations

import hashlib
import sys

from automate import __version__
from automate.arena.engine_job import engine_settings
from automate.cluster.base import Cluster
from automate.cluster.script import directives, log_pattern, render
from automate.cluster.submit import Submission, SubmissionBook, hand_over, new_submission, settle_open
from automate.errors import StorageError
from automate.journal import replace_file
from automate.pool_places import PoolPlaces
from automate.pools.answering.job import LEAD
from automate.pools.round_records import RoundSpec
from automate.settings import Settings, Slurm
from automate.workspace import Workspace


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


def submissions_of(workspace: Workspace, name: str) -> list[Submission]:
    """Every handing over of a round that was not refused, oldest first."""
    found = SubmissionBook(places_of(workspace).submissions).all()
    return [one for one in found if one.plan == name and one.refused is None]


def submit(workspace: Workspace, cluster: Cluster, spec: RoundSpec) -> Submission:
    """Hand a round's job over, unless one of its jobs may still act: that one is given. Raises SubmitError."""
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
