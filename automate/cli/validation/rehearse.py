"""`validation rehearse`: the whole circle, without an account."""

from __future__ import annotations

from pathlib import Path

import click

from automate.cli.options import workspace_option
from automate.cli.validation.options import executor_option, open_validation


@click.command()
@workspace_option
@click.option("--assignments", type=click.IntRange(min=1, max=1000), default=12, show_default=True, metavar="N",
              help="How many submissions the stand-in's tasks have.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the faults' schedule.")
@click.option("--no-faults", is_flag=True, help="A stand-in that never misbehaves.")
@executor_option
@click.pass_context
def rehearse(ctx: click.Context, workspace_dir: Path | None, assignments: int, seed: int, no_faults: bool,
             executor: str | None) -> None:
    """Fetch, run and submit against a bundled stand-in of the API that misbehaves, and check its books at the end."""
    from automate.campaign.validation.rehearsing import rehearse_circle

    workspace = open_validation(workspace_dir)
    ok = rehearse_circle(workspace, assignments=assignments, seed=seed, faults=not no_faults, executor=executor,
                         say=click.echo)
    ctx.exit(0 if ok else 1)
