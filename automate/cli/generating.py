"""`generate`: plan, show, submit and follow the making of answers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from automate.cli.options import SeveralCommand, batch_options, naming_options, open_here, workspace_option
from automate.cli.submitted import print_submitted, print_waiting, some, wait_for, who_goes_on
from automate.yamlfile import Value

if TYPE_CHECKING:
    from rich.console import Console

    from automate.campaign.generating import GenerationPrepared
    from automate.campaign.handing import Request
    from automate.campaign.selection import Selection
    from automate.cluster.base import Cluster
    from automate.workspace import Workspace


@click.command(cls=SeveralCommand)
@workspace_option
@naming_options
@click.option("--missing", is_flag=True, help="Only models that lack answers: so it is always.")
@batch_options
@click.pass_context
def generate(ctx: click.Context, workspace_dir: Path | None, all_models: bool, models: tuple[str, ...],
             models_file: Path | None, from_api_config: str | None, missing: bool, limit_questions: int | None,
             executor: str | None, batch_size: int | None, dry_run: bool, submit_: bool, wait: bool, skip_missing: bool,
             max_parallel: int | None, max_gpu_hours: float | None, array: bool | None) -> None:
    """Plan batches of models that lack answers, write their scripts, and submit them.

    Without a selection the models file is used, and the baseline first. Without --submit nothing is submitted.
    """
    from rich.markup import escape

    from automate.campaign.handing import Request
    from automate.campaign.selection import names_nothing, select_for_answers
    from automate.campaign.state import pick_cluster
    from automate.cli.checks import make_console

    if submit_ and dry_run:
        raise click.UsageError("give --submit or --dry-run, not both")
    if wait and not submit_:
        raise click.UsageError("--wait needs --submit")
    console = make_console()
    workspace = open_here(workspace_dir, **_flags(batch_size, max_gpu_hours))
    cluster = pick_cluster(workspace, executor, "generate")
    selection = select_for_answers(workspace, models=models, models_file=models_file, from_api_config=from_api_config,
                                   all_models=all_models)
    if names_nothing(selection, models_file):
        console.print(f"[green]Nothing to do:[/] {escape(str(models_file))} names no model.")
        ctx.exit(0)
    use_array = workspace.settings.array if array is None else array
    request = Request(selection.models, limit_questions, max_parallel, use_array)
    ctx.exit(run(console, workspace, cluster, request, selection, submit=submit_, wait=wait, skip=skip_missing))


def _flags(batch_size: int | None, max_gpu_hours: float | None) -> dict[str, Value]:
    flags: dict[str, Value] = {}
    if batch_size is not None:
        flags["generate"] = {"batch_size": batch_size}
    if max_gpu_hours is not None:
        flags["limits"] = {"max_gpu_hours": max_gpu_hours}
    return flags


def run(console: Console, workspace: Workspace, cluster: Cluster, request: Request, selection: Selection, *,
        submit: bool, wait: bool, skip: bool) -> int:
    """Prepare, and submit and follow where asked; the exit status."""
    from automate.campaign.generating import plan, survey
    from automate.campaign.handing import hand_in, submit_claim
    from automate.campaign.refill import wanted as small_job
    from automate.campaign.state import look

    claim = submit_claim(workspace)
    try:
        with console.status("counting answers..."):
            prepared = survey(workspace, cluster, request)
        if not _ready(console, workspace, cluster, selection, prepared, skip=skip):
            return 1
        plan(workspace, cluster, request, prepared)
        print_plan(console, workspace, prepared)
        done = None
        if prepared.stored is not None and submit:
            state, small = look(workspace), small_job(workspace, cluster)
            done = hand_in(workspace, cluster, prepared.stored, request, state, spare=int(small))
            print_submitted(console, cluster, done)
            print_waiting(console, done, who_goes_on(workspace, cluster, prepared.stored, request, state, done, wait))
        else:
            print_how(console, workspace, prepared, request, by_hand=cluster.kind == "slurm")
    finally:
        claim.release()
    status = 1 if done is not None and done.refused else 0
    if wait:
        return max(status, wait_too(console, workspace, cluster, prepared, request, done.why if done else ""))
    if done is not None and done.accepted:
        console.print("Follow it with [bold]flock-hpc monitor[/], end it with [bold]flock-hpc cancel[/].")
    return status


def _ready(console: Console, workspace: Workspace, cluster: Cluster, selection: Selection,
           prepared: GenerationPrepared, *, skip: bool) -> bool:
    """Whether nothing stands in the way; all that does is printed."""
    from automate.campaign.generating_checks import check, fatal
    from automate.cli.checks import print_findings

    print_problems(console, prepared, skip=skip)
    todo = [model for model in prepared.due if model not in prepared.busy]
    if not todo and not selection.problems:
        return True
    report = check(workspace, todo, answers=sum(prepared.due[model] for model in todo), cluster=cluster,
                   executor=cluster.kind, problems=selection.problems)
    stop = fatal(report, skip=skip) or (bool(prepared.problems) and (not skip or not prepared.good))
    if not report.ok:
        print_findings(console, report)
    if stop:
        hint = ", or leave those models out with --skip-missing" if prepared.problems and not skip else ""
        console.print(f"\n[red]Nothing was submitted:[/] mend the errors (✘) above{hint}.")
    return not stop


def print_problems(console: Console, prepared: GenerationPrepared, *, skip: bool) -> None:
    """Why models can't be served: file or setting, what is wrong with it, and what to do; all of them."""
    from rich.markup import escape

    from automate.errors import visible

    mark = "[yellow]![/]" if skip else "[red]✘[/]"
    for problem in prepared.problems:
        left = "; left out" if skip else ""
        console.print(f"{mark} {escape(visible(f'{problem.model}: {problem.where}: {problem.what}'))}{left}")
        console.print(f"    -> {escape(visible(problem.todo))}")


def print_plan(console: Console, workspace: Workspace, prepared: GenerationPrepared) -> None:
    """What is complete, in work, due again, given up, and which batches were planned."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    if workspace.settings.generate.kind == "rehearsal":
        console.print("[yellow]rehearsal: its answers mean nothing[/]")
    for note in [*prepared.notes, *_odd(prepared)]:
        console.print(escape(note))
    if prepared.stored is None:
        console.print("[green]Nothing to do.[/]" if not prepared.busy else "Nothing else to do.")
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("batch", justify="right")
    table.add_column("models", overflow="fold")
    table.add_column("answers due", justify="right")
    for batch in prepared.stored.plan.batches:
        table.add_row(str(batch.number), escape(some(batch.models, 6)), f"{batch.games:,}")
    console.print(table)


def _odd(prepared: GenerationPrepared) -> list[str]:
    """What a user should know of models beside the plan, a line each."""
    found = [f"{len(prepared.complete)} model(s) have all their answers, left out: {some(prepared.complete)}"
             ] if prepared.complete else []
    found += [f"{model}: left alone, batch {view.batch.number} is {view.state} (job {view.job})"
              for model, view in prepared.busy.items()]
    known = [status for status in prepared.statuses.values() if status is not None]
    if stale := [one for one in known if one.stale]:
        found.append(f"{sum(one.stale for one in stale)} answers are due again because the question or the model's "
                     f"weights changed: {some([one.model for one in stale])}")
    for one in known:
        if one.problems:
            found.append(f"{one.model}: {len(one.problems)} lines of its answer file or records can't be read, and "
                         f"don't count: {one.problems[0]}")
        if one.duplicates:
            found.append(f"{one.model}: {one.duplicates} rows more than one to a question; the last one counts")
        if one.failed:
            why = ", ".join(f"{count} {reason}" for reason, count in one.failed.items())
            found.append(f"{one.model}: {sum(one.failed.values())} questions were given up ({why})")
    return [*found, *prepared.counts.problems.values()]


def print_how(console: Console, workspace: Workspace, prepared: GenerationPrepared, request: Request, *,
              by_hand: bool) -> None:
    """Where the files are, and how they are submitted."""
    from rich.markup import escape

    if prepared.stored is None:
        return
    plan = prepared.stored
    console.print(f"\n{escape(str(workspace.answer_scripts))}/ and {escape(str(workspace.answer_configs))}/ "
                  "were written; nothing was submitted.")
    console.print("Submit with:  [bold]flock-hpc generate --submit[/]  (and the options that you gave)"
                  + (", or by hand:" if by_hand else "."))
    if not by_hand:
        return
    paths = ([workspace.answer_array_script(part.part) for part in plan.parts] if request.array else
             [workspace.answer_script(batch.number) for batch in plan.plan.batches])
    for path in paths[:3]:
        console.print(f"  sbatch {escape(str(path.relative_to(workspace.root)))}", soft_wrap=True)
    if len(paths) > 3:
        console.print(f"  ... and {len(paths) - 3} more")


def wait_too(console: Console, workspace: Workspace, cluster: Cluster, prepared: GenerationPrepared,
             request: Request, no_room: str) -> int:
    """Follow what was planned, and what makes answers of these models already; the exit status."""
    from automate.campaign.follow import Follower

    plans = {view.stored.plan.id for view in prepared.busy.values()}
    plans |= {prepared.stored.plan.id} if prepared.stored is not None else set()
    if not plans:
        return 0
    follower = Follower(workspace, cluster, None, frozenset(plans), request, prepared.counts, no_room=no_room)
    return wait_for(console, workspace, cluster, follower)
