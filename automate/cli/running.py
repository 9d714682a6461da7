"""`run`: answers, games and report as one chain of jobs: show it, submit it, follow it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from automate.cli.options import SeveralCommand, batch_options, open_here, selection_options, workspace_option
from automate.yamlfile import Value

if TYPE_CHECKING:
    from rich.console import Console

    from automate.campaign.chain_report import Wanted
    from automate.campaign.generating import GenerationPrepared
    from automate.campaign.handing import Request
    from automate.campaign.selection import Selection
    from automate.cluster.base import Cluster
    from automate.workspace import Workspace


@click.command(cls=SeveralCommand)
@workspace_option
@selection_options
@batch_options
@click.pass_context
def run(ctx: click.Context, workspace_dir: Path | None, all_models: bool, models: tuple[str, ...],
        models_file: Path | None, from_api_config: str | None, missing: bool, baseline: str | None,
        limit_questions: int | None, executor: str | None, batch_size: int | None, dry_run: bool, submit_: bool,
        wait: bool, skip_missing: bool, max_parallel: int | None, max_gpu_hours: float | None,
        array: bool | None) -> None:
    """Generate answers that are missing, judge them, and write the report: a chain of jobs that wait for each other.

    Games of a batch of models begin when the answers of these models are there. Without --submit nothing is submitted.
    """
    from automate.campaign.chain_report import Wanted
    from automate.campaign.handing import Request
    from automate.campaign.selection import names_nothing, select, without_complete
    from automate.cli.checks import make_console

    if submit_ and dry_run:
        raise click.UsageError("give --submit or --dry-run, not both")
    if wait and not submit_:
        raise click.UsageError("--wait needs --submit")
    console = make_console()
    workspace = open_here(workspace_dir, **_flags(baseline, batch_size, max_gpu_hours))
    cluster = _cluster(workspace, executor)
    selection = select(workspace, models=models, models_file=models_file, from_api_config=from_api_config,
                       all_models=all_models)
    named = selection.models
    if missing:
        selection = without_complete(workspace, selection)
    if names_nothing(selection, models_file) or (missing and named and not selection.models):
        console.print("[green]Nothing to do:[/] no model is named, or none has games missing.")
        ctx.exit(0)
    ready = _checked(console, workspace, cluster, selection, limit_questions, skip=skip_missing)
    if ready is None:
        ctx.exit(1)
    use_array = workspace.settings.array if array is None else array
    request = Request(ready, limit_questions, max_parallel, use_array)
    wanted = Wanted(named, baseline, limit_questions)
    ctx.exit(carry_out(console, workspace, cluster, request, wanted, submit=submit_, wait=wait))


def _flags(baseline: str | None, batch_size: int | None, max_gpu_hours: float | None) -> dict[str, Value]:
    flags: dict[str, Value] = {"baseline": baseline, "batch_size": batch_size}
    if batch_size is not None:
        flags["generate"] = {"batch_size": batch_size}
    if max_gpu_hours is not None:
        flags["limits"] = {"max_gpu_hours": max_gpu_hours}
    return flags


def _cluster(workspace: Workspace, executor: str | None) -> Cluster:
    """Where both kinds of jobs run; on this machine as many at a time as the more careful of them allows."""
    from automate.campaign.state import pick_cluster
    from automate.cluster.local.executor import LocalCluster

    found = pick_cluster(workspace, executor), pick_cluster(workspace, executor, "generate")
    return min(found, key=lambda one: one.parallel if isinstance(one, LocalCluster) else 0)


def _checked(console: Console, workspace: Workspace, cluster: Cluster, selection: Selection, limit: int | None, *,
             skip: bool) -> tuple[str, ...] | None:
    """The models that can go through the chain, in their order; None where something stands in the way."""
    from automate.campaign.chain_checks import with_answers_to_come
    from automate.cli.checks import preflight, print_report

    report = with_answers_to_come(workspace, preflight(workspace, cluster, selection, limit))
    if not report.ok:
        print_report(console, report)
        if report.fatal or not report.ready or not skip:
            hint = "" if report.fatal or not report.ready else ", or leave those models out with --skip-missing"
            console.print(f"\n[red]Nothing was planned:[/] mend the errors (✘) above{hint}.")
            return None
    return tuple(name for name in dict.fromkeys(selection.models) if name in report.ready)


def carry_out(console: Console, workspace: Workspace, cluster: Cluster, request: Request, wanted: Wanted, *,
              submit: bool, wait: bool) -> int:
    """Plan the chain and show it; submit and follow it where asked. The exit status."""
    from automate.campaign.chain import answers_first, carry_on, hand_in_all, link
    from automate.campaign.chain_results import are_fresh
    from automate.campaign.handing import submit_claim
    from automate.cli.chain_end import arrange, wait_for_all
    from automate.cli.views.chain_screen import print_chain, print_done, print_how, print_place

    claim = submit_claim(workspace)
    try:
        with console.status("counting answers..."):
            prepared = answers_first(workspace, cluster, request)
        if not may_generate(console, workspace, cluster, prepared):
            return 1
        with console.status("planning..."):
            links = link(workspace, cluster, request, prepared)
        print_chain(console, workspace, prepared, links, len(wanted.models))
        if not submit:
            print_how(console, workspace, prepared, links)
            return 0
        done = hand_in_all(workspace, cluster, request, prepared, links)
        who = "" if wait else carry_on(workspace, cluster, request, wanted, prepared, links, done)
        print_done(console, workspace, cluster, prepared, links, request, done, wait=wait, who=who)
        whole = not (done.waits and (wait or who))  # else the report is handed in when all jobs are
        report = arrange(console, workspace, cluster, wanted, new_jobs=bool(done.accepted)) if whole else None
    finally:
        claim.release()
    status = 1 if done.refused else 0
    if wait:
        return max(status, wait_for_all(console, workspace, cluster, request, wanted, prepared, links, done))
    if done.accepted or report:
        console.print("Follow it with [bold]flock-hpc monitor[/], end it with [bold]flock-hpc cancel[/].")
    elif are_fresh(workspace):
        print_place(console, workspace)
    return status


def may_generate(console: Console, workspace: Workspace, cluster: Cluster, prepared: GenerationPrepared) -> bool:
    """Whether machine and cluster can generate the answers that are due; what stands in the way is printed."""
    from automate.campaign.generating_checks import check, fatal
    from automate.cli.checks import print_findings

    if not prepared.good:
        return True
    models = [one.model for one in prepared.good]
    report = check(workspace, models, answers=sum(prepared.due[model] for model in models), cluster=cluster,
                   executor=cluster.kind)
    if not report.ok:
        print_findings(console, report)
    if fatal(report, skip=False):
        console.print("\n[red]Nothing was submitted:[/] mend the errors (✘) above.")
        return False
    return True
