"""`validation`: Flock AI Arena assignments, from the API through array jobs and back.

Imports click only; each command's module is imported when it is called."""

from __future__ import annotations

import click

from automate.cli.main import LazyGroup

VALIDATION: dict[str, tuple[str, str]] = {
    "modules": ("modules", "Show the modules, each with the state of its environment."),
    "env": ("env", "Build or update a module's isolated environment."),
    "fetch": ("fetch", "Fetch assignments, their data sets and models."),
    "run": ("run", "Validate what is fetched, as an array job or on this machine."),
    "submit": ("submit", "Report finished assignments; safe to repeat."),
    "status": ("status", "A line for each assignment: state, age, deadline, metrics, cause of failure."),
    "loop": ("loop", "All of it, for ever; --once for cron, systemd and scrontab."),
    "test": ("test", "Try a module on local files: no API, no key."),
    "rehearse": ("rehearse", "The whole circle against a bundled stand-in of the API: no account needed."),
    "cancel": ("cancel", "Cancel the jobs that hold assignments."),
    "retry": ("retry", "Take a given-up assignment back, after its cause was mended."),
}


@click.group(cls=LazyGroup, table=VALIDATION, package="automate.cli.validation")
def validation() -> None:
    """Flock AI Arena validation, made for a cluster.

    Assignments are fetched where the internet is, validated on compute nodes without keys, and reported from here.
    Begin with 'flock-hpc validation rehearse', which needs no account.
    """
