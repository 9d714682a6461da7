"""`validation fetch`: assignments, data sets and models, on disk before a GPU is asked for."""

from __future__ import annotations

from pathlib import Path

import click

from automate.cli.options import workspace_option
from automate.cli.validation.options import debug_option, end_on_sigterm, open_validation, task_ids_option


@click.command()
@workspace_option
@click.argument("module")
@task_ids_option
@click.option("--max", "most", type=click.IntRange(min=1), metavar="N",
              help="At most N assignments outstanding (default: validation.max_outstanding).")
@click.option("--once", is_flag=True, help="Ask each task once at most; don't wait for the next lookup.")
@debug_option
def fetch(workspace_dir: Path | None, module: str, task_ids: tuple[str, ...], most: int | None, once: bool,
          debug: bool) -> None:
    """Fetch assignments of MODULE for the tasks, with their data sets and models.

    Goes on until N are outstanding or no task has a submission; a rate limit is waited for.
    """
    from automate.campaign.validation.circle import Circle
    from automate.campaign.validation.fetching import fetch_until

    end_on_sigterm()
    circle = Circle(open_validation(workspace_dir, make=True), click.echo, debug=debug)
    admitted = fetch_until(circle, module, task_ids, most=most, once=once)
    click.echo(f"{admitted} fetched" + ("; next: flock-hpc validation run --submit" if admitted else ""))
