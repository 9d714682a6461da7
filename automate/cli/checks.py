"""`validate-only`: preflight as a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from automate.cli.options import SeveralCommand, open_here, selection_options, workspace_option

if TYPE_CHECKING:
    from rich.console import Console

    from automate.arena.preflight.check import Report
    from automate.campaign.selection import Selection
    from automate.cluster.base import Cluster
    from automate.workspace import Workspace

MARKS = {"ok": "[green]✔[/]", "note": "[blue]i[/]", "warning": "[yellow]![/]", "error": "[red]✘[/]"}


def make_console(*, stderr: bool = False) -> Console:
    """A console that wraps at the terminal's width, and at 120 columns where there is no terminal."""
    import shutil

    from rich.console import Console

    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal:
        console = Console(stderr=stderr, highlight=False, width=max(120, shutil.get_terminal_size().columns))
    return console


def print_report(console: Console, report: Report) -> None:
    """The findings, and how many models are ready; none is where an error concerns all of them."""
    print_findings(console, report)
    if report.fatal:
        count = len(report.fatal)
        console.print(f"\n[red]No model is ready: {count} error{'s concern' if count > 1 else ' concerns'} all of them"
                      f"{f'; {len(report.blocked)} have errors of their own' if report.blocked else ''}[/]")
        return
    colour = "green" if report.ok else "yellow" if report.ready else "red"
    console.print(f"\n[{colour}]{len(report.ready)} model(s) ready, {len(report.blocked)} not ready[/]")


def print_findings(console: Console, report: Report) -> None:
    """One line a finding: mark, code, subject, what, and what to do."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("")
    table.add_column("code", no_wrap=True)
    table.add_column("subject", overflow="fold", max_width=48)
    table.add_column("finding", overflow="fold")
    for finding, following in zip(report.findings, [*report.findings[1:], None], strict=True):
        last = following is None or (following.code, following.todo) != (finding.code, finding.todo)
        todo = f"\n[dim]→ {escape(finding.todo)}[/]" if finding.todo and last else ""
        table.add_row(MARKS[finding.level.value], finding.code, escape(finding.subject), escape(finding.what) + todo)
    if report.findings:
        console.print(table)


def preflight(workspace: Workspace, cluster: Cluster, selection: Selection, limit: int | None, *,
              fleet: bool = False) -> Report:
    """Run all checks on a selection. `fleet`: those of a fleet too."""
    from automate.arena.preflight.check import check

    return check(workspace, selection.models, cluster=cluster, executor=cluster.kind, limit_questions=limit,
                 list_problems=selection.problems, fleet=fleet)


@click.command("validate-only", cls=SeveralCommand)
@workspace_option
@selection_options
@click.option("--fleet", is_flag=True, help="Also what a campaign on a fleet of servers needs.")
@click.option("--json", "as_json", is_flag=True, help="The findings as one JSON document.")
@click.pass_context
def validate_only(ctx: click.Context, workspace_dir: Path | None, all_models: bool, models: tuple[str, ...],
                  models_file: Path | None, from_api_config: str | None, missing: bool, baseline: str | None,
                  limit_questions: int | None, executor: str | None, fleet: bool,
                  as_json: bool) -> None:
    """Check models, answers, baseline, judge, prompts, cluster, disk and commands. Exit 0 when all is ready.

    Where Flock validation is in use, its key, tasks, modules and files too.
    """
    from automate.campaign.selection import select, without_complete
    from automate.campaign.state import pick_cluster
    from automate.campaign.validation_checks import validation_in_use, validation_report

    workspace = open_here(workspace_dir, baseline=baseline)
    validation = validation_report(workspace) if validation_in_use(workspace) else None
    if validation is not None and not _campaign_here(ctx, workspace):
        _show_validation(validation, as_json=as_json)
        ctx.exit(0 if validation.ok else 1)
    selection = select(workspace, models=models, models_file=models_file, from_api_config=from_api_config,
                       all_models=all_models)
    if missing:
        selection = without_complete(workspace, selection)
        if not selection.models:
            click.echo("Nothing to do: no model has games missing.")
            if validation is not None:
                _show_validation(validation, as_json=as_json)
            ctx.exit(0 if validation is None or validation.ok else 1)
    report = preflight(workspace, pick_cluster(workspace, executor), selection, limit_questions, fleet=fleet)
    _show(report, validation, as_json=as_json)
    ctx.exit(0 if report.ok and (validation is None or validation.ok) else 1)


def _campaign_here(ctx: click.Context, workspace: Workspace) -> bool:
    """Whether there is a campaign to check: a list of models, or models named on the command line."""
    named = ("models", "models_file", "from_api_config", "all_models")
    return workspace.models_file.exists() or any(ctx.params[name] for name in named)


def _show(report: Report, validation: Report | None, *, as_json: bool) -> None:
    if as_json:
        from dataclasses import asdict

        ok = report.ok and (validation is None or validation.ok)
        own = {} if validation is None else {"validation": asdict(validation)["findings"]}
        _print_json({"ok": ok, **asdict(report), **own})
        return
    print_report(make_console(), report)
    if validation is not None:
        _show_validation(validation, as_json=False)


def _show_validation(validation: Report, *, as_json: bool) -> None:
    if as_json:
        from dataclasses import asdict

        _print_json({"ok": validation.ok, "findings": [], "ready": [], "blocked": [],
                     "validation": asdict(validation)["findings"]})
        return
    console = make_console()
    console.print("\nFlock validation\n")
    print_findings(console, validation)
    errors = len(validation.fatal)
    warned = any(finding.level.value == "warning" for finding in validation.findings)
    console.print(f"\n[{'yellow' if warned else 'green'}]Flock validation {'has warnings' if warned else 'is ready'}[/]"
                  if validation.ok else
                  f"\n[red]Flock validation is not ready: {errors} error{'s' if errors > 1 else ''}[/]")


def _print_json(value: dict[str, Any]) -> None:
    import json

    click.echo(json.dumps(value, indent=2, ensure_ascii=False))
