"""`validation modules`: what there is, and the state of each environment."""

from __future__ import annotations

from pathlib import Path

import click

from automate.cli.options import workspace_option
from automate.cli.validation.options import open_validation

MARKS = {"ready": "[green]✔ ready[/]", "current": "[green]✔ this Python[/]", "missing": "[yellow]○ not built[/]",
         "outdated": "[yellow]! outdated[/]"}


@click.command()
@workspace_option
@click.option("--json", "as_json", is_flag=True, help="The same as one JSON document.")
def modules(workspace_dir: Path | None, as_json: bool) -> None:
    """Show the modules, where they come from, and whether their environments are built."""
    from automate.validation import environments
    from automate.validation.catalogue import everything, missing_folders

    places = open_validation(workspace_dir).validation
    found = [(source, environments.state(source, places)) for source in everything(places)]
    if as_json:
        import json

        click.echo(json.dumps([{"module": source.name, "origin": source.origin, "environment": state.name,
                                "status": state.status, "manager": state.manager, "why": state.why}
                               for source, state in found], indent=2))
        return
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from automate.cli.checks import make_console

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ("module", "from", "environment", "state", "manager"):
        table.add_column(title, overflow="fold")
    names = [source.name for source, _ in found]
    for source, state in found:
        why = f"\n[dim]{escape(state.why)}[/]" if state.why else ""
        shown = MARKS.get(state.status, state.status) + why
        if state.status == "current" and state.why:
            shown = "[yellow]! this Python[/]" + why
        if names.count(source.name) > 1:
            shown = "[red]✘ two modules have this name: rename yours[/]"
        table.add_row(escape(source.name), source.origin, escape(state.name), shown, state.manager)
    console = make_console()
    console.print(table)
    for folder in missing_folders(places):
        console.print(f"validation.module_folders: there is no folder {folder}", style="red", markup=False)
    if any(state.status in ("missing", "outdated") for _, state in found):
        console.print("Build one with: [bold]flock-hpc validation env create MODULE[/]")
