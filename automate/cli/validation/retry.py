"""`validation retry`: take given-up assignments back."""

from __future__ import annotations

from pathlib import Path

import click

from automate.cli.options import workspace_option
from automate.cli.validation.options import open_validation


@click.command()
@workspace_option
@click.argument("ids", nargs=-1, metavar="ID...", required=True)
def retry(workspace_dir: Path | None, ids: tuple[str, ...]) -> None:
    """Put given-up assignments back to `fetched`, after their cause was mended; their attempts begin at none."""
    from automate.campaign.validation.circle import Circle
    from automate.campaign.validation.running import take_back

    circle = Circle(open_validation(workspace_dir), click.echo)
    for assignment_id in ids:
        take_back(circle, assignment_id)
        click.echo(f"{assignment_id}: fetched again; next: flock-hpc validation run --submit")
