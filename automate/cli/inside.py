"""Commands that job scripts call. Not for people; each runs one thing to its end."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click


def say(text: str) -> None:
    """A line in a job's log, with the time."""
    click.echo(f"[{time.strftime('%H:%M:%S')}] {text}")
    sys.stdout.flush()


@click.command("run-batch", hidden=True)
@click.option("--workspace", type=click.Path(path_type=Path), required=True)
@click.option("--config", type=click.Path(path_type=Path), required=True)
@click.option("--sha256", required=True)
@click.option("--version", required=True)
@click.option("--script", type=click.Path(path_type=Path), required=True)
@click.pass_context
def run_batch(ctx: click.Context, workspace: Path, config: Path, sha256: str, version: str, script: Path) -> None:
    """Run one batch inside its job."""
    from automate.arena.running.job import BatchJob
    from automate.arena.running.job_config import read_job_config

    job = BatchJob(read_job_config(workspace, config, sha256, version), script, say)
    try:
        import uvloop

        status = uvloop.run(job.run())
    except ImportError:
        import asyncio

        status = asyncio.run(job.run())
    ctx.exit(status)


@click.command("hand-in", hidden=True)
@click.option("--workspace", type=click.Path(path_type=Path), required=True)
@click.option("--plan", required=True)
@click.pass_context
def hand_in(ctx: click.Context, workspace: Path, plan: str) -> None:
    """Hand in batches that did not fit before: PLAN's, and those of other plans that wait."""
    import os

    from automate.campaign.refill import run
    from automate.workspace import open_workspace

    ctx.exit(run(open_workspace(workspace), say, os.environ))


@click.command("local-runner", hidden=True)
@click.option("--workspace", type=click.Path(path_type=Path), required=True)
@click.pass_context
def local_runner(ctx: click.Context, workspace: Path) -> None:
    """Run the local queue of a workspace until it is empty."""
    from automate.cluster.local.runner import run
    from automate.workspace import open_workspace

    opened = open_workspace(workspace)
    ctx.exit(run(opened.local_queue, opened.settings.limits.claim_stale))
