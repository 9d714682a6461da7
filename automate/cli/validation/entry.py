"""The validator's own command: `run.py MODULE --task_ids ... --flock-api-key ... --hf-token ...`.

Fetches, runs and reports on this machine; on a cluster `flock-hpc validation loop` does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from automate.cli.validation.options import TaskIds

if TYPE_CHECKING:
    from automate.yamlfile import Value


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.argument("module")
@click.option("--task_ids", "--task-ids", "task_ids", required=True, type=TaskIds(), metavar="ID,ID...",
              help="Tasks to validate for, with commas between them.")
@click.option("--flock-api-key", envvar="FLOCK_API_KEY", metavar="KEY", help="The API key, or FLOCK_API_KEY.")
@click.option("--hf-token", envvar="HF_TOKEN", metavar="TOKEN", help="The model hub's token, or HF_TOKEN.")
@click.option("--time-sleep", envvar="TIME_SLEEP", type=click.FloatRange(min=1), metavar="SECONDS",
              help="Seconds between retries (default: 180), or TIME_SLEEP.")
@click.option("--assignment-lookup-interval", envvar="ASSIGNMENT_LOOKUP_INTERVAL", type=click.FloatRange(min=1),
              metavar="SECONDS", help="Seconds between two lookups of a task (default: 180), or "
                                      "ASSIGNMENT_LOOKUP_INTERVAL.")
@click.option("--debug", is_flag=True, help="Log every request and reply, with secrets removed; keep scratch folders.")
@click.option("--once", is_flag=True, help="Stop after one assignment was reported, or nothing is to be had.")
@click.pass_context
def run_module(ctx: click.Context, module: str, task_ids: tuple[str, ...], flock_api_key: str | None,
               hf_token: str | None, time_sleep: float | None, assignment_lookup_interval: float | None, debug: bool,
               once: bool) -> None:
    """Validate Flock AI Arena assignments with MODULE on this machine, until it is stopped."""
    from automate.campaign.validation.circle import Circle, Given
    from automate.campaign.validation.running import run_here
    from automate.cli.validation.options import open_validation
    from automate.errors import ConfigError
    from automate.validation.catalogue import find

    given = {"time_sleep": time_sleep, "lookup_interval": assignment_lookup_interval}
    overrides: dict[str, Value] = {"validation": {key: value for key, value in given.items() if value is not None}}
    if not flock_api_key:
        raise ConfigError("no API key", where="--flock-api-key", todo="give --flock-api-key, or export FLOCK_API_KEY")
    workspace = open_validation(None, overrides)
    find(module, workspace.validation)
    workspace = open_validation(None, overrides, make=True)
    circle = Circle(workspace, click.echo, given=Given(flock_api_key, hf_token), executor="local", debug=debug)
    ctx.exit(run_here(circle, module, task_ids, once=once))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status. An error that a user can mend is shown without a traceback."""
    from automate.cli.main import call

    return call(run_module, "run.py", sys.argv[1:] if argv is None else list(argv))
