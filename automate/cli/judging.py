"""`judge`: plan, show, submit, follow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from automate.cli.options import (
    SeveralCommand,
    batch_options,
    fleet_option,
    open_here,
    selection_options,
    workspace_option,
)
from automate.cli.submitted import print_submitted, print_waiting, some, wait_for, who_goes_on
from automate.yamlfile import Value

if TYPE_CHECKING:
    from rich.console import Console

    from automate.arena.engine_job import FleetUse
    from automate.arena.games import Match
    from automate.campaign.judging import Prepared, Request
    from automate.campaign.selection import Selection
    from automate.cluster.base import Cluster
    from automate.workspace import Workspace


@click.command(cls=SeveralCommand)
@workspace_option
@selection_options
@batch_options
@fleet_option
@click.pass_context
def judge(ctx: click.Context, workspace_dir: Path | None, all_models: bool, models: tuple[str, ...],
          models_file: Path | None, from_api_config: str | None, missing: bool, baseline: str | None,
          limit_questions: int | None, executor: str | None, batch_size: int | None, dry_run: bool, submit_: bool,
          wait: bool, skip_missing: bool, max_parallel: int | None, max_gpu_hours: float | None,
          array: bool | None, fleet: str | None) -> None:
    """Plan batches of the selected models, write their scripts, and submit them.

    Without a selection the models file is used. Without --submit nothing is submitted. With --fleet there is one batch
    of all models, played on servers that outlive it.
    """
    from rich.markup import escape

    from automate.campaign.judging import Request
    from automate.campaign.selection import names_nothing, select, without_complete
    from automate.campaign.state import pick_cluster
    from automate.cli.checks import make_console, preflight, print_report

    if submit_ and dry_run:
        raise click.UsageError("give --submit or --dry-run, not both")
    if wait and not submit_:
        raise click.UsageError("--wait needs --submit")
    console = make_console()
    flags: dict[str, Value] = {"baseline": baseline, "batch_size": batch_size}
    if max_gpu_hours is not None:
        flags["limits"] = {"max_gpu_hours": max_gpu_hours}
    workspace = open_here(workspace_dir, **flags)
    use = _fleet_of(workspace, fleet, batch_size, max_parallel) if fleet is not None else None
    cluster = pick_cluster(workspace, executor)
    selection = select(workspace, models=models, models_file=models_file, from_api_config=from_api_config,
                       all_models=all_models)
    if names_nothing(selection, models_file):
        console.print(f"[green]Nothing to do:[/] {escape(str(models_file))} names no model.")
        ctx.exit(0)
    named = selection.models
    selection, rivals = without_generating(console, workspace, selection)
    if named and not selection.models:
        console.print("Nothing else to do: judge them when their answers are there.")
        ctx.exit(0)
    if rivals:
        console.print(f"[red]Nothing was planned:[/] answers of the baseline '{escape(rivals[0])}' are being generated "
                      "at this moment; run the same command again when they are there.")
        ctx.exit(1)
    if missing:
        selection = without_complete(workspace, selection)
        if not selection.models:
            console.print("[green]Nothing to do:[/] no model has games missing.")
            ctx.exit(0)
    report = preflight(workspace, cluster, selection, limit_questions, fleet=use is not None)
    if not report.ok:
        print_report(console, report)
        if report.fatal or not report.ready or not skip_missing:
            _refuse(console, bool(report.fatal), bool(report.ready))
            ctx.exit(1)
    use_array = workspace.settings.array if array is None else array
    request = Request(report.ready, limit_questions, max_parallel, use_array, use)
    ctx.exit(run(console, workspace, cluster, request, submit=submit_, wait=wait))


def _fleet_of(workspace: Workspace, text: str, batch_size: int | None, max_parallel: int | None) -> FleetUse:
    """The fleet that was asked for. Raises UsageError for what can't be."""
    from automate.campaign.fleets.playing import refusal, use_of
    from automate.errors import ConfigError
    from automate.fleets.scaling import parse_replicas

    try:
        use = use_of(*parse_replicas(text))
    except ConfigError as error:
        raise click.BadParameter(f"{error.what}: {error.todo}", param_hint="--fleet") from error
    why = refusal(workspace.settings, use, batch_size=batch_size, max_parallel=max_parallel)
    if why is not None:
        raise click.UsageError(why)
    return use


def _refuse(console: Console, fatal: bool, some_ready: bool) -> None:
    hint = "" if fatal or not some_ready else ", or leave those models out with --skip-missing"
    console.print(f"\n[red]Nothing was planned:[/] mend the errors (✘) above{hint}.")


def run(console: Console, workspace: Workspace, cluster: Cluster, request: Request, *, submit: bool,
        wait: bool, command: str = "flock-hpc judge --submit") -> int:
    """Prepare, and submit and follow where asked; the exit status. `command`: what a user types to submit."""
    from automate.arena.context import load_match
    from automate.campaign.handing import hand_in, parallel_of, submit_claim
    from automate.campaign.judging import prepare
    from automate.campaign.refill import wanted as small_job
    from automate.campaign.state import look
    from automate.cli.planning import print_plan_forecast

    match = load_match(workspace)
    if request.fleet is not None:
        command = f"flock-hpc judge --fleet {request.fleet.words} --submit"
    claim = submit_claim(workspace)
    try:
        with console.status("counting games..."):
            prepared = prepare(workspace, cluster, match, request)
        _print_plan(console, workspace, match, prepared)
        if prepared.stored is not None and not submit:
            use = request.fleet
            print_plan_forecast(console, workspace, prepared.stored.plan.batches, prepared.progress,
                                parallel_of(workspace, request), cluster.kind,
                                (use.least, use.most) if use is not None else None)
            _print_how(console, workspace, prepared, request, command, by_hand=cluster.kind == "slurm")
            return 0
        done = None
        if prepared.stored is not None:
            state, small = look(workspace), small_job(workspace, cluster)
            done = hand_in(workspace, cluster, prepared.stored, request, state, spare=int(small))
            print_submitted(console, cluster, done)
            print_waiting(console, done, who_goes_on(workspace, cluster, prepared.stored, request, state, done, wait))
    finally:
        claim.release()
    status = 1 if done is not None and done.refused else 0
    if wait:
        return max(status, _wait(console, workspace, cluster, prepared, request, done.why if done else "", command))
    if submit and done is not None and done.accepted:
        console.print("Follow it with [bold]flock-hpc monitor[/], end it with [bold]flock-hpc cancel[/].")
    return status


def _print_plan(console: Console, workspace: Workspace, match: Match, prepared: Prepared) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    if match.prompts.notice:
        console.print(f"[yellow]{match.prompts.notice}[/]: {match.prompts.source} (no checkout at "
                      f"{escape(str(workspace.arena_hard))} with config/ and utils/judge_utils.py)")
    if workspace.settings.judge.kind == "rehearsal":
        console.print("[yellow]rehearsal judge: its verdicts mean nothing[/]")
    for note in prepared.notes:
        console.print(escape(note))
    if prepared.complete:
        console.print(f"{len(prepared.complete)} model(s) complete, left out: {escape(some(prepared.complete))}")
    for model, view in prepared.busy.items():
        console.print(f"{escape(model)}: left alone, batch {view.batch.number} is {view.state} (job {view.job})")
    stale = {m: e.status.stale for m, e in prepared.progress.models.items() if e.status.stale}
    if stale:
        console.print(f"{sum(stale.values())} games are due again because prompt, judge or answers changed: "
                      f"{escape(some(list(stale)))}")
    other = sum(e.status.other_prompt for e in prepared.progress.models.values())
    if other:
        console.print(f"{other} games of other programs count as done though their prompt was another (honour_rows)")
    if prepared.stored is None:
        console.print("[green]Nothing to do.[/]" if not prepared.busy else "Nothing else to do.")
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name, justify in (("batch", "right"), ("models", "left"), ("games due", "right")):
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for batch in prepared.stored.plan.batches:
        table.add_row(str(batch.number), escape(some(list(batch.models), 6)), f"{batch.games:,}")
    console.print(table)
    use = prepared.stored.plan.use
    if use is not None:
        where = "beside the first server" if workspace.settings.fleet.engine == "beside" else "in a job without a GPU"
        console.print(f"to be played on the fleet '{escape(use.name)}' of {use.words} servers, by one engine {where}")


def _print_how(console: Console, workspace: Workspace, prepared: Prepared, request: Request, command: str, *,
               by_hand: bool) -> None:
    from rich.markup import escape

    if prepared.stored is None:
        return
    console.print(f"\n{escape(str(workspace.scripts))}/ and {escape(str(workspace.configs))}/ "
                  "were written; nothing was submitted.")
    console.print(f"Submit with:  [bold]{command}[/]  (and the options that you gave)"
                  + (", or by hand:" if by_hand and request.fleet is None else "."))
    if not by_hand or request.fleet is not None:
        return
    if request.array:
        paths = [workspace.array_script(part.part) for part in prepared.stored.parts]
    else:
        paths = [workspace.batch_script(batch.number) for batch in prepared.stored.plan.batches]
    for path in paths[:3]:
        console.print(f"  sbatch {escape(str(path.relative_to(workspace.root)))}", soft_wrap=True)
    if len(paths) > 3:
        console.print(f"  ... and {len(paths) - 3} more")


def _wait(console: Console, workspace: Workspace, cluster: Cluster, prepared: Prepared, request: Request,
          no_room: str, command: str) -> int:
    from automate.campaign.follow import Follower

    plans = {view.stored.plan.id for view in prepared.busy.values()}
    if prepared.stored is not None:
        plans.add(prepared.stored.plan.id)
    if not plans:
        return 0
    return wait_for(console, workspace, cluster, Follower(workspace, cluster, prepared.progress, frozenset(plans),
                                                          request, no_room=no_room, command=command))


def without_generating(console: Console, workspace: Workspace, selection: Selection) -> tuple[Selection, list[str]]:
    """The selection without models whose answers are made at this moment, and the baselines of which that is so.

    Says which models are left out.
    """
    from dataclasses import replace

    from rich.markup import escape

    from automate.arena.context import baseline_map
    from automate.campaign.plans import of_kind, read_plans
    from automate.campaign.state import look

    if not of_kind(read_plans(workspace), "generate"):
        return selection, []
    busy = look(workspace).busy("generate")
    for model in [model for model in selection.models if model in busy]:
        view = busy[model]
        console.print(f"{escape(model)}: left alone, its answers are being generated (batch {view.batch.number}, "
                      f"{view.state}, job {view.job})")
    rivals = [model for model in baseline_map(workspace.settings.baseline).values() if model in busy]
    return replace(selection, models=tuple(model for model in selection.models if model not in busy)), rivals
