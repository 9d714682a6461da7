"""Commands that job scripts call. Not for people; each runs one thing to its end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

if TYPE_CHECKING:
    from automate.arena.running.job import Job
    from automate.fleets.worker import Worker
    from automate.pools.answering.job import RoundJob


def say(text: str) -> None:
    """A line in a job's log, with the time."""
    click.echo(f"[{time.strftime('%H:%M:%S')}] {text}")
    sys.stdout.flush()


def _batch_options(function: F) -> F:
    """What a batch's script says of itself: its workspace, its YAML and that file's hash, its version and path."""
    for name in ("--script", "--config", "--workspace"):
        function = click.option(name, type=click.Path(path_type=Path), required=True)(function)
    for name in ("--version", "--sha256"):
        function = click.option(name, required=True)(function)
    return function


@click.command("run-batch", hidden=True)
@_batch_options
@click.pass_context
def run_batch(ctx: click.Context, workspace: Path, config: Path, sha256: str, version: str, script: Path) -> None:
    """Run one batch inside its job."""
    from automate.arena.running.job_config import read_job_config
    from automate.arena.running.judging import BatchJob

    job = BatchJob(read_job_config(workspace, config, sha256, version), script, say)
    if job.config.servers is not None:
        import os
        from dataclasses import replace

        from automate.campaign.fleets.playing import keep_clear

        job.exclude = keep_clear(replace(job.config.workspace, settings=job.config.servers), os.environ)
    ctx.exit(_run(job))


@click.command("run-answers", hidden=True)
@_batch_options
@click.pass_context
def run_answers(ctx: click.Context, workspace: Path, config: Path, sha256: str, version: str, script: Path) -> None:
    """Generate one batch of answers inside its job."""
    from automate.arena.answering.job import AnswerJob
    from automate.arena.running.job_config import ANSWERING, read_job_config

    ctx.exit(_run(AnswerJob(read_job_config(workspace, config, sha256, version, ANSWERING), script, say)))


@click.command("run-worker", hidden=True)
@click.option("--workspace", type=click.Path(path_type=Path), required=True)
@click.option("--fleet", required=True)
@click.option("--group", type=int, required=True)
@click.option("--version", required=True)
@click.option("--script", type=click.Path(path_type=Path), required=True)
@click.pass_context
def run_worker(ctx: click.Context, workspace: Path, fleet: str, group: int, version: str, script: Path) -> None:
    """Run one model server of a fleet inside its job."""
    import os

    from automate.campaign.fleets.working import open_worker

    ctx.exit(_run(open_worker(workspace, fleet, group, version, script, say, os.environ)))


@click.command("run-round", hidden=True)
@click.option("--workspace", type=click.Path(path_type=Path), required=True)
@click.option("--round", "name", required=True)
@click.option("--version", required=True)
@click.pass_context
def run_round(ctx: click.Context, workspace: Path, name: str, version: str) -> None:
    """Answer one round of benchmark pools inside its job."""
    import os

    from automate.campaign.pools.working import open_round

    ctx.exit(_run(open_round(workspace, name, version, say, os.environ)))


def _run(job: Job | Worker | RoundJob) -> int:
    """A job to its end, on the faster event loop where that is installed; its exit status."""
    try:
        import uvloop

        return uvloop.run(job.run())
    except ImportError:
        import asyncio

        return asyncio.run(job.run())


@click.command("hand-in", hidden=True)
@click.option("--workspace", type=click.Path(path_type=Path), required=True)
@click.option("--plan", required=True)
@click.pass_context
def hand_in(ctx: click.Context, workspace: Path, plan: str) -> None:
    """Hand in batches that did not fit before: PLAN's, and those of other plans that wait."""
    import os

    from automate.campaign.refilling import run
    from automate.workspace import open_workspace

    ctx.exit(run(open_workspace(workspace), say, os.environ))


@click.command("write-report", hidden=True)
@click.option("--workspace", type=click.Path(path_type=Path), required=True)
@click.option("--version", required=True)
@click.option("--baseline")
@click.option("--limit-questions", type=int)
@click.option("--model", "models", multiple=True)
@click.pass_context
def write_report(ctx: click.Context, workspace: Path, version: str, baseline: str | None, limit_questions: int | None,
                 models: tuple[str, ...]) -> None:
    """Write leaderboard, curves and report of these models at the end of a chain."""
    from automate.campaign.chain_report import Wanted, check_version
    from automate.campaign.chain_results import write_results
    from automate.workspace import open_workspace

    check_version(version, workspace)
    opened = open_workspace(workspace, {"baseline": baseline} if baseline is not None else {})
    ctx.exit(write_results(opened, Wanted(models, baseline, limit_questions), say))


@click.command("local-runner", hidden=True)
@click.option("--workspace", type=click.Path(path_type=Path), required=True)
@click.pass_context
def local_runner(ctx: click.Context, workspace: Path) -> None:
    """Run the local queue of a workspace until it is empty."""
    from automate.cluster.local.runner import run
    from automate.workspace import open_workspace

    opened = open_workspace(workspace)
    ctx.exit(run(opened.local_queue, opened.settings.limits.claim_stale))
