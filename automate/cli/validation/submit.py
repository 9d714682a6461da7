"""`validation submit`: report what is finished."""

from __future__ import annotations

from pathlib import Path

import click

from automate.cli.options import workspace_option
from automate.cli.validation.options import debug_option, end_on_sigterm, open_validation


@click.command()
@workspace_option
@debug_option
@click.pass_context
def submit(ctx: click.Context, workspace_dir: Path | None, debug: bool) -> None:
    """Report finished assignments. Safe to repeat: what was accepted is not reported again."""
    from automate.campaign.validation.circle import Circle
    from automate.campaign.validation.running import submit_finished

    end_on_sigterm()
    circle = Circle(open_validation(workspace_dir), click.echo, debug=debug)
    ctx.exit(0 if submit_finished(circle) else 1)
