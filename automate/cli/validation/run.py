"""`validation run`: one array job over what is fetched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from automate.cli.options import workspace_option
from automate.cli.validation.options import end_on_sigterm, executor_option, open_validation

if TYPE_CHECKING:
    from automate.validation import jobs
    from automate.yamlfile import Value


@click.command()
@workspace_option
@click.argument("ids", nargs=-1, metavar="[ID...]")
@click.option("--submit", "submit_", is_flag=True, help="Hand them over; without it only say which would be.")
@click.option("--wait", is_flag=True, help="With --submit: follow the job to its end.")
@click.option("--max", "most", type=click.IntRange(min=1), metavar="N", help="At most N assignments.")
@click.option("--per-task", type=click.IntRange(min=1), metavar="N",
              help="Assignments one array task does, one after the other (default: validation.per_task).")
@executor_option
@click.pass_context
def run(ctx: click.Context, workspace_dir: Path | None, ids: tuple[str, ...], submit_: bool, wait: bool,
        most: int | None, per_task: int | None, executor: str | None) -> None:
    """Validate what is fetched (or the assignments named by ID): an array job, one task an assignment."""
    from automate.campaign.validation.circle import Circle
    from automate.campaign.validation.running import run_fetched

    overrides: dict[str, Value] = {"validation": {"per_task": per_task}} if per_task else {}
    end_on_sigterm()
    circle = Circle(open_validation(workspace_dir, overrides), click.echo, executor=executor)
    with progress_bar() as show:
        went = run_fetched(circle, ids=ids or None, most=most, submit=submit_, wait=wait, show=show)
    if submit_ and went:
        click.echo("next: flock-hpc validation submit")
    ctx.exit(0 if went else 1)


@contextmanager
def progress_bar() -> Iterator[Callable[[jobs.Progress], None] | None]:
    """A bar on a terminal; nothing elsewhere, where lines are printed instead."""
    from automate.cli.checks import make_console

    console = make_console()
    if not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeElapsedColumn(),
                  console=console) as bar:
        task = bar.add_task("", total=None)

        def show(now: jobs.Progress) -> None:
            text = f"{now.waiting} waiting, {now.running} running" + (f", {now.again} again" if now.again else "") + (
                f", {now.given_up} given up" if now.given_up else "")
            bar.update(task, total=len(now.ids), completed=len(now.ids) - now.left, description=text)

        yield show
