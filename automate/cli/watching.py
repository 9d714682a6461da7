"""`monitor`, `cancel`, `logs`: look at a campaign, end it, read what its jobs wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from automate.cli.options import Finite, open_here, workspace_option

if TYPE_CHECKING:
    from automate.workspace import Workspace


@click.command()
@workspace_option
@click.option("--baseline", help="Progress against this baseline instead of the settings'.")
@click.option("--watch", is_flag=True, help="A live view, until Ctrl-C or q; without a terminal a line each interval.")
@click.option("--interval", type=Finite(min=2, max=86_400), default=10.0, show_default=True, metavar="SECONDS",
              help="With --watch: how often files are looked at. Slurm is asked at most every 10 s.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of the tables.")
def monitor(workspace_dir: Path | None, baseline: str | None, watch: bool, interval: float, as_json: bool) -> None:
    """Show jobs, progress of each model, logs and failures. Changes nothing."""
    def reopen() -> Workspace:
        return open_here(workspace_dir, baseline=baseline)

    if watch and as_json:
        raise click.UsageError("--watch and --json don't go together: run 'flock-hpc monitor --json' as often as you "
                               "need it")
    if watch:
        from automate.cli.views.live import run_watch

        run_watch(reopen, interval)
        return
    from automate.campaign.monitoring.monitor import snapshot

    picture = snapshot(reopen())
    if as_json:
        import json

        click.echo(json.dumps(picture.as_json(), indent=2, ensure_ascii=False))
        return
    from automate.cli.views.live import text_width
    from automate.cli.views.monitor_text import lines

    for line in lines(picture, text_width()):
        click.echo(line)


@click.command()
@workspace_option
@click.option("--dry-run", is_flag=True, help="Only say which jobs would be cancelled.")
@click.pass_context
def cancel(ctx: click.Context, workspace_dir: Path | None, dry_run: bool) -> None:
    """Cancel every job of this workspace that waits or runs. No other job of yours is touched."""
    from automate.campaign.cancelling import campaign_fleets, small_jobs
    from automate.campaign.cancelling import cancel as cancel_jobs
    from automate.campaign.chain_report import active_reports
    from automate.campaign.kinds import JUDGE, kind_of
    from automate.campaign.state import look

    workspace = open_here(workspace_dir)
    state = look(workspace)
    small, reports = small_jobs(workspace, state), active_reports(workspace, state)
    fleets = campaign_fleets(workspace)
    if not state.active and not small and not reports and not fleets:
        click.echo("no job of this workspace waits or runs")
        return
    if dry_run:
        for job in small:
            click.echo(f"would cancel job {job}: it hands in batches that wait for room")
        for job in reports:
            click.echo(f"would cancel job {job}: it writes the report")
        for view in state.active:
            what = "answers batch" if view.kind == "generate" else "batch"
            click.echo(f"would cancel job {view.job}: {what} {view.batch.number}, {view.state}")
        for _, spec in fleets:
            click.echo(f"would stop the fleet '{spec.name}' and cancel its servers' jobs")
        return
    jobs, problems = cancel_jobs(workspace, state)
    for job in jobs:
        click.echo(f"cancelled job {job}")
    for problem in problems:
        click.echo(problem, err=True)
    if jobs:
        kinds = {kind_of(view.kind) for view in state.active} or {JUDGE}
        commands = " and ".join(f"'{kind.submit}'" for kind in sorted(kinds, key=lambda one: one.command))
        goes = "goes" if len(kinds) == 1 else "go"
        click.echo(f"What was played is kept; {commands} {goes} on from there.")
    else:
        click.echo("No job was cancelled; the campaign goes on as it was.")
    ctx.exit(1 if problems else 0)


@click.command()
@workspace_option
@click.argument("batch", type=click.IntRange(min=1))
@click.option("-f", "--follow", "follow_", is_flag=True, help="Go on showing what is written, until the batch ends.")
@click.option("-n", "--lines", "count", default=40, show_default=True, help="Lines of each log to begin with.")
@click.option("--paths", is_flag=True, help="Only the logs' paths.")
@click.option("--answers", is_flag=True, help="Of the batch that generates answers: those have numbers of their own.")
def logs(workspace_dir: Path | None, batch: int, follow_: bool, count: int, paths: bool, answers: bool) -> None:
    """Show the logs of BATCH (its number): output, errors and the server's own."""
    from automate.campaign.logs import show

    workspace = open_here(workspace_dir)
    show(workspace, batch, click.echo, follow=follow_, count=count, paths_only=paths, answers=answers)
