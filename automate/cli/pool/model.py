"""`pool model`: tell of a model; list models.

Imports click only; the commands are in models.py."""

from __future__ import annotations

import click

from automate.cli.main import LazyGroup

MODEL: dict[str, tuple[str, str]] = {
    "add": ("models", "Tell of a model: a folder here, or a name on the model hub."),
    "list": ("models", "The models."),
}


@click.group(cls=LazyGroup, table=MODEL, package="automate.cli.pool")
def model() -> None:
    """Models that can join pools."""
