"""`pool dataset`: make a data set, load its questions, look at it.

Imports click only; the commands are in datasets.py."""

from __future__ import annotations

import click

from automate.cli.main import LazyGroup

DATASET: dict[str, tuple[str, str]] = {
    "create": ("datasets", "Make a data set and load its questions; the same again loads what is new."),
    "info": ("datasets", "What a data set holds, and how far its evaluations are."),
    "models": ("datasets", "The models that are evaluated on a data set, with counts."),
    "list": ("datasets", "The data sets."),
}


@click.group(cls=LazyGroup, table=DATASET, package="automate.cli.pool")
def dataset() -> None:
    """Questions that models are evaluated on."""
