"""`nodes`: which nodes broke jobs, and `nodes forgive`: to use them again."""

from __future__ import annotations

import time
from pathlib import Path

import click

from automate.cli.options import open_here, workspace_option


@click.group(invoke_without_command=True)
@workspace_option
@click.pass_context
def nodes(ctx: click.Context, workspace_dir: Path | None) -> None:
    """Show the nodes that this workspace's jobs ran on, and which of them get no more jobs.

    A node on which limits.bad_node_deaths servers or jobs died of the node's own fault is excluded from new jobs.
    """
    ctx.obj = workspace_dir
    if ctx.invoked_subcommand is None:
        _show(workspace_dir)


@nodes.command()
@workspace_option
@click.argument("names", metavar="NODE...", nargs=-1, required=True)
@click.pass_context
def forgive(ctx: click.Context, workspace_dir: Path | None, names: tuple[str, ...]) -> None:
    """Forget what happened on NODE so far; it gets jobs again."""
    from automate.arena.running.runlog import read_runs
    from automate.campaign.nodes import forgive as forget
    from automate.campaign.nodes import node_table

    workspace = open_here(workspace_dir or ctx.obj)
    known = {line.node: line for line in node_table(workspace, read_runs(workspace.runs))}
    forget(workspace, names)
    for name in names:
        line = known.get(name)
        what = f"{line.deaths} deaths are forgotten" if line and line.deaths else "it had no deaths to forget"
        click.echo(f"{name}: {what}; new jobs may run there")


def _show(workspace_dir: Path | None) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from automate.arena.running.runlog import read_runs
    from automate.campaign.nodes import node_table, remember_failed
    from automate.campaign.state import look
    from automate.cli.checks import make_console
    from automate.errors import StorageError

    workspace, console = open_here(workspace_dir), make_console()
    try:
        remember_failed(workspace, look(workspace).batches)
    except StorageError as error:  # somebody who may only look
        console.print(escape(str(error)))
    found = node_table(workspace, read_runs(workspace.runs))
    if not found:
        console.print("No job of this workspace has named its node yet.")
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ("node", "starts", "games", "deaths", "state"):
        table.add_column(title, justify="left" if title in ("node", "state") else "right", overflow="fold")
    most = workspace.settings.limits.bad_node_deaths
    for line in found:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(line.forgiven)) if line.forgiven is not None else ""
        state = "[red]bad: gets no new jobs[/]" if line.bad else "ok"
        state += f" ({escape(line.cause)})" if line.deaths else ""
        state += f", forgiven {when}" if when else ""
        table.add_row(escape(line.node), str(line.starts), f"{line.games:,}", str(line.deaths), state)
    console.print(table)
    if any(line.bad for line in found):
        console.print(f"A node is bad after {most} deaths of its own fault (limits.bad_node_deaths). "
                      "Take one back with: [bold]flock-hpc nodes forgive NODE[/]", soft_wrap=True)
