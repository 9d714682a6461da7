"""`validation env create`: a module's isolated environment, built on the login node."""

from __future__ import annotations

from pathlib import Path

import click

from automate.cli.options import workspace_option
from automate.cli.validation.options import open_validation


@click.group()
def env() -> None:
    """Modules' isolated environments."""


@env.command()
@workspace_option
@click.argument("module")
def create(workspace_dir: Path | None, module: str) -> None:
    """Build MODULE's environment, or update it where its declaration changed; otherwise do nothing."""
    from automate.validation import environments
    from automate.validation.catalogue import find

    places = open_validation(workspace_dir).validation
    state = environments.create(find(module, places), places, say=click.echo)
    click.echo(f"{state.name}: {state.status}" + (f" at {state.folder}" if state.folder else ""))
