"""`validation status`: a line for each assignment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from automate.cli.options import workspace_option
from automate.cli.validation.options import open_validation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from automate.validation.status import Line
STATES = ("fetched", "running", "done", "submitted", "failed", "given_up")
COLOURS = {"fetched": "cyan", "running": "blue", "done": "yellow", "submitted": "green", "failed": "magenta",
           "given_up": "red"}


@click.command()
@workspace_option
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="Only assignments in this state.")
@click.option("--all", "everything", is_flag=True, help="Every reported assignment, not only the newest 20.")
@click.option("--json", "as_json", is_flag=True, help="The same as one JSON document.")
def status(workspace_dir: Path | None, states: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """Show each assignment: state, age, deadline, metrics, cause of failure. Changes nothing."""
    from automate.cli.checks import make_console
    from automate.validation.spool import Spool
    from automate.validation.status import status_table

    places = open_validation(workspace_dir).validation
    spool = Spool(places)
    lines = [line for line in status_table(places, spool) if not states or line.state in states]
    if as_json:
        import json
        from dataclasses import asdict

        click.echo(json.dumps([asdict(line) for line in lines], indent=2, ensure_ascii=False))
        return
    console = make_console()
    if not lines:
        console.print("No assignment in the spool. Fetch some: flock-hpc validation fetch MODULE --task_ids ID,ID")
    else:
        print_lines(console, lines if everything else _newest(lines))
    for error in spool.unreadable():
        console.print(str(error), markup=False, style="red")


def _newest(lines: Sequence[Line], most: int = 20) -> list[Line]:
    """All that is outstanding or waits for a person, and the newest of what was reported."""
    reported = [line for line in lines if line.state in ("submitted", "failed")][-most:]
    return [line for line in lines if line.state not in ("submitted", "failed") or line in reported]


def _span(seconds: float) -> str:
    """An age such as 40s, 12m, 3h 20m, 2d 4h."""
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if days:
        return f"{days}d {hours % 24}h"
    return f"{hours}h {minutes % 60}m" if hours else f"{minutes}m" if minutes else f"{int(seconds)}s"


def _left(seconds: float) -> str:
    return f"in {_span(seconds)}" if seconds >= 0 else f"[red]over by {_span(-seconds)}[/]"


def _metrics(line: Line) -> str:
    shown = [f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}"
             for name, value in line.metrics.items()]
    return ", ".join(shown)


def print_lines(console: Console, lines: Sequence[Line]) -> None:
    """The table, why some wait for something or somebody, and a line of totals."""
    from collections import Counter

    from rich import box
    from rich.markup import escape
    from rich.table import Table

    rows = [line for line in lines if line.state in STATES]
    dated = any(line.deadline is not None for line in rows)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ("assignment", "task", "module", "state", "age", *(["deadline"] if dated else []), "metrics or cause"):
        table.add_column(title, overflow="fold")
    for line in rows:
        deadline = [""] if line.deadline is None else [_left(line.deadline)]
        state = line.state + (" (unconfirmed)" if line.unconfirmed else "")
        table.add_row(*(escape(part) for part in (line.id, line.task, line.module)),
                      f"[{COLOURS[line.state]}]{state}[/]", _span(line.age), *(deadline if dated else []),
                      escape(line.cause if line.state == "given_up" else _metrics(line) or line.cause))
    if rows:
        console.print(table)
    told = [line for line in lines if line.problem]
    if told:
        console.print()
    for line in told:
        name = f"task {line.task}" if line.id == "?" and line.task else line.id
        console.print(f"[bold]{escape(name)}[/] {escape(line.state)}: {escape(line.problem)}", soft_wrap=False)
    counts = Counter(line.state for line in rows)
    console.print("\n" + ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state]))
