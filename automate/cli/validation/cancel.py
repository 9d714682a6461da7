"""`validation cancel`: end the jobs that hold assignments."""

from __future__ import annotations

from pathlib import Path

import click

from automate.cli.options import workspace_option
from automate.cli.validation.options import open_validation


@click.command()
@workspace_option
@click.argument("ids", nargs=-1, metavar="[ID...]")
@click.option("--dry-run", is_flag=True, help="Only say which jobs.")
@click.pass_context
def cancel(ctx: click.Context, workspace_dir: Path | None, ids: tuple[str, ...], dry_run: bool) -> None:
    """Cancel the jobs that hold assignments (of ID only); the assignments go back to `fetched`.

    A loop is no job: end it with Ctrl-C or SIGTERM.
    """
    from automate.campaign.validation.cancelling import cancel_jobs
    from automate.campaign.validation.circle import Circle

    ctx.exit(0 if cancel_jobs(Circle(open_validation(workspace_dir), click.echo), ids, dry_run=dry_run) else 1)
