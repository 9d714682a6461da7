"""`status` and `repair`: what is missing or invalid, and exactly that done.

`status` changes nothing; `repair` deletes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from automate.cli.options import SeveralCommand, open_here, workspace_option

if TYPE_CHECKING:
    from rich.console import Console

    from automate.campaign.state import CampaignState
    from automate.workspace import Workspace

F = TypeVar("F", bound=Callable[..., Any])


def which_models(function: F) -> F:
    """How models are selected, and against what they are counted."""
    for option in (
        click.option("--limit-questions", type=click.IntRange(min=1), metavar="N", help="Only the first N questions."),
        click.option("--baseline", help="Games against this model instead of the settings' baseline."),
        click.option("--from-api-config", is_flag=False, flag_value="", default=None, metavar="[GLOB]",
                     help="Names from api_config.yaml that match GLOB (default: models_pattern of the settings)."),
        click.option("--models-file", type=click.Path(path_type=Path, dir_okay=False),
                     help="Names from this file instead, one a line."),
        click.option("--models", multiple=True, metavar="NAME...", help="These models."),
        click.option("--all", "all_models", is_flag=True, help="Every model of the models file (the default)."),
        workspace_option,
    ):
        function = option(function)
    return function


@click.command(cls=SeveralCommand)
@which_models
@click.option("--lists", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Write lists of models that lack something, for --models-file of judge and generate.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of the table.")
@click.option("--check", is_flag=True, help="Exit with 1 if anything is not complete.")
@click.pass_context
def status(ctx: click.Context, workspace_dir: Path | None, all_models: bool, models: tuple[str, ...],
           models_file: Path | None, from_api_config: str | None, baseline: str | None, limit_questions: int | None,
           lists: Path | None, as_json: bool, check: bool) -> None:
    """Show which answers and judgments are complete, missing, incomplete, invalid or stale, and why."""
    from automate.arena.audit import audit
    from automate.arena.audit_lists import write_lists
    from automate.campaign.repairing import at_work
    from automate.campaign.selection import select
    from automate.cli.views.status_text import as_document, print_audit, print_totals

    workspace = open_here(workspace_dir, baseline=baseline)
    selection = select(workspace, models=models, models_file=models_file, from_api_config=from_api_config,
                       all_models=all_models)
    found = audit(workspace, selection.models, limit_questions)
    state, problems = _jobs(workspace)
    busy = at_work(workspace, state) if state else {}
    problems = [*selection.problems, *problems]
    written = write_lists(lists, found, workspace.settings.bench) if lists else {}
    if as_json:
        import json

        click.echo(json.dumps(as_document(workspace, found, busy, problems), indent=2, ensure_ascii=False))
    else:
        console = _console()
        print_audit(console, found, busy)
        print_totals(console, found, problems, len({id(view) for views in busy.values() for view in views}))
        for path, count in written.items():
            console.print(f"{path}: {count}", markup=False, soft_wrap=True)
    refused = any("can't be used" in problem for problem in selection.problems)
    ctx.exit(1 if check and (refused or not found.complete) else 0)


def _console() -> Console:
    """A console as wide as its terminal; where there is none, as COLUMNS says, else 120 columns."""
    import shutil

    from rich.console import Console

    console = Console(highlight=False)
    width = shutil.get_terminal_size((120, 40)).columns
    return console if console.is_terminal else Console(highlight=False, width=width)


def _jobs(workspace: Workspace) -> tuple[CampaignState | None, list[str]]:
    """The jobs of the workspace, if any was ever planned; a cluster that can't be asked is a problem, not an error."""
    from automate.campaign.state import look
    from automate.errors import FlockError

    try:
        state = look(workspace, max_age=10.0) if workspace.plans.is_dir() else None
    except FlockError as error:
        return None, [f"jobs can't be looked at: {error}"]
    asked = state is not None and any(one.executor == "slurm" for one in state.submissions)
    problem = state.queue_problem if state is not None and asked else None
    return state, [f"Slurm can't be asked: {' '.join(problem.split())[:120]}"] if problem else []


@click.command(cls=SeveralCommand)
@which_models
@click.option("--dry-run", is_flag=True, help="Only say what would run; change nothing.")
@click.option("--submit", "submit_", is_flag=True, help="Submit the jobs.")
@click.option("--wait", is_flag=True, help="With --submit: follow the jobs to their end.")
@click.option("--nulls", is_flag=True, help="Ask games again that ended unparsed or refused.")
@click.option("--executor", type=click.Choice(["auto", "slurm", "local"]),
              help="Where jobs run (default: Slurm if it is on this machine, else here).")
@click.pass_context
def repair(ctx: click.Context, workspace_dir: Path | None, all_models: bool, models: tuple[str, ...],
           models_file: Path | None, from_api_config: str | None, baseline: str | None, limit_questions: int | None,
           dry_run: bool, submit_: bool, wait: bool, nulls: bool, executor: str | None) -> None:
    """Do exactly what is missing or invalid: mend files, then generate answers, then judge. Deletes nothing.

    Without --submit files are mended and scripts are written, and nothing is submitted.
    """
    from automate.campaign.repairing import mend, plan_repair
    from automate.campaign.selection import names_nothing, select
    from automate.campaign.state import pick_cluster
    from automate.cli.repairs import carry_out
    from automate.cli.views.status_text import print_repair

    if submit_ and dry_run:
        raise click.UsageError("give --submit or --dry-run, not both")
    if wait and not submit_:
        raise click.UsageError("--wait needs --submit")
    workspace = open_here(workspace_dir, baseline=baseline)
    selection = select(workspace, models=models, models_file=models_file, from_api_config=from_api_config,
                       all_models=all_models)
    console = _console()
    for problem in selection.problems:
        console.print(problem, markup=False, soft_wrap=True)
    if names_nothing(selection, models_file):
        console.print(f"Nothing to do: {models_file} names no model.", markup=False)
        ctx.exit(0)
    plan = plan_repair(workspace, selection.models, limit_questions=limit_questions, nulls=nulls)
    print_repair(console, plan)
    if dry_run or plan.nothing:
        ctx.exit(0)
    for note in mend(workspace, plan):
        console.print(note, markup=False, soft_wrap=True)
    cluster = pick_cluster(workspace, executor, "generate" if plan.answers else "judge")
    ctx.exit(carry_out(console, workspace, cluster, plan, limit_questions, submit=submit_, wait=wait))
