"""`demo`: a whole campaign on bundled examples, shown step by step."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from automate.campaign.demo import Tally


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False), default="demo-campaign")
@click.pass_context
def demo(ctx: click.Context, directory: Path) -> None:
    """Run a campaign in DIRECTORY (default: demo-campaign): a dozen questions, four models, a rehearsal judge."""
    from automate.arena.context import load_match
    from automate.arena.counting.progress import Progress
    from automate.campaign.demo import UNANSWERED, make_demo, models_of, tally
    from automate.campaign.judging import Request
    from automate.campaign.monitoring.monitor import snapshot
    from automate.campaign.selection import Selection
    from automate.campaign.state import pick_cluster
    from automate.cli import generating
    from automate.cli.checks import make_console, preflight, print_report
    from automate.cli.judging import run
    from automate.cli.leaderboard import leaderboard
    from automate.cli.report import report as write_report
    from automate.cli.views.monitor_text import lines
    from automate.workspace import open_workspace

    console = make_console()
    root = directory.resolve()
    make_demo(root, UNANSWERED)
    workspace = open_workspace(root)
    cluster = pick_cluster(workspace, "local")
    models = models_of(workspace)
    selection = Selection(models, (), str(workspace.models_file))
    _step(console, "flock-hpc generate --all --submit --wait", "answers of the models that lack them")
    generating.run(console, workspace, cluster, Request(models), selection, submit=True, wait=True, skip=False)
    _step(console, "flock-hpc validate-only", "everything that can be known before a GPU is asked for")
    report = preflight(workspace, cluster, selection, None)
    print_report(console, report)
    if not report.ok:
        ctx.exit(1)
    _step(console, "flock-hpc judge --all --submit --wait", "the same job scripts that Slurm would run, run here")
    status = run(console, workspace, cluster, Request(models), submit=True, wait=True)
    _step(console, "flock-hpc monitor", "the campaign at a glance")
    for line in lines(snapshot(workspace)):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    _table(console, tally(Progress(workspace, load_match(workspace), models)))
    _step(console, "flock-hpc leaderboard", "scores, intervals, and how far the judge can be trusted")
    _call(ctx, leaderboard, root)
    _step(console, "flock-hpc report", "one page to send to a colleague")
    _call(ctx, write_report, root)
    console.print(f"\nThe workspace is {directory}: look into its results/report.html, generated_judgment_scripts/, "
                  "logs/ and arena-hard-auto/data/.../model_judgment/.", markup=False, soft_wrap=True)
    console.print("Next: [bold]flock-hpc init my-campaign[/]")
    ctx.exit(status)


def _call(ctx: click.Context, command: click.Command, root: Path) -> None:
    with contextlib.suppress(click.exceptions.Exit):
        ctx.invoke(command, workspace_dir=root)


def _step(console: Console, command: str, what: str) -> None:
    console.print(f"\n[bold cyan]$ {command}[/]  [dim]# {what}[/]")


def _table(console: Console, rows: Sequence[Tally]) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="Games by outcome, seen from the model (rehearsal judge: they mean nothing)",
                  box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("model")
    for name in ("wins ≫", "wins >", "ties =", "losses <", "losses ≪", "null"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(escape(row.model), *map(str, (row.win_much, row.win, row.tie, row.loss, row.loss_much, row.null)))
    console.print()
    console.print(table)
