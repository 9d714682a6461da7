"""`validation retry`: take given-up assignments back."""

from __future__ import annotations

from pathlib import Path

import click

from automate.cli.options import workspace_option
from automate.cli.validation.options import open_validation


@click.command()
@workspace_option
@click.argument("ids", nargs=-1, metavar="ID...", required=True)
@click.option("--force", is_flag=True, help="Also where the API has taken the assignment back.")
def retry(workspace_dir: Path | None, ids: tuple[str, ...], force: bool) -> None:
    """Put given-up assignments back to `fetched`, after their cause was mended; their attempts begin at none."""
    from automate.campaign.validation.circle import Circle
    from automate.campaign.validation.running import take_back
    from automate.errors import ConfigError
    from automate.names import name_problem

    circle = Circle(open_validation(workspace_dir), click.echo)
    for assignment_id in ids:
        problem = name_problem(assignment_id)
        if problem:
            raise ConfigError(f"{assignment_id!r} is no assignment: {problem}", where="ID")
        found = circle.spool.find(assignment_id)
        if found is not None and found.cause == "lost-lease" and not force:
            raise ConfigError("the API has taken it back: another result of it would be refused as well",
                              where=f"assignment {assignment_id}", todo="leave it, or use --force")
        take_back(circle, assignment_id)
        click.echo(f"{assignment_id}: fetched again; next: flock-hpc validation run --submit")
