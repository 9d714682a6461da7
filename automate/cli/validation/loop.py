"""`validation loop`: settle, submit, fetch and hand in, for ever."""

from __future__ import annotations

from pathlib import Path

import click

from automate.cli.options import workspace_option
from automate.cli.validation.options import debug_option, executor_option, open_validation, task_ids_option


@click.command()
@workspace_option
@click.argument("module")
@task_ids_option
@click.option("--once", is_flag=True, help="One turn, for cron, systemd and scrontab.")
@click.option("--max", "most", type=click.IntRange(min=1), metavar="N",
              help="At most N assignments outstanding (default: validation.max_outstanding).")
@executor_option
@debug_option
@click.pass_context
def loop(ctx: click.Context, workspace_dir: Path | None, module: str, task_ids: tuple[str, ...], once: bool,
         most: int | None, executor: str | None, debug: bool) -> None:
    """Fetch, validate and report for MODULE and the tasks, until it is stopped (SIGTERM or Ctrl-C).

    It may be killed at any moment and started again: what it knows is on disk. One runs in a workspace at a time.
    """
    from automate.campaign.validation.circle import Circle
    from automate.campaign.validation.running import run_loop

    circle = Circle(open_validation(workspace_dir, make=True), click.echo, executor=executor, debug=debug)
    ctx.exit(run_loop(circle, module, task_ids, most=most, once=once))
