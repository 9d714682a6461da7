"""The end of a chain: the report job is handed in, `run --wait` follows everything up to it, and shows the results.

No logic of its own: the follower decides what is handed over again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from automate.cli.views.chain_screen import print_results

if TYPE_CHECKING:
    from rich.console import Console

    from automate.campaign.chain import HandedIn, Links
    from automate.campaign.chain_report import Wanted
    from automate.campaign.generating import GenerationPrepared
    from automate.campaign.handing import Request
    from automate.cluster.base import Cluster
    from automate.workspace import Workspace


def arrange(console: Console, workspace: Workspace, cluster: Cluster, wanted: Wanted, *, new_jobs: bool) -> str | None:
    """Hand the report job in where one is needed; its id."""
    from rich.markup import escape

    from automate.campaign.chain_report import arrange_report
    from automate.campaign.chain_results import are_fresh
    from automate.errors import FlockError

    try:
        job = arrange_report(workspace, cluster, wanted, new_jobs=new_jobs, fresh=are_fresh(workspace))
    except FlockError as error:
        console.print(f"[yellow]no report job[/]: {escape(str(error))}\n  -> 'flock-hpc report' writes the report "
                      "when the games are played")
        return None
    if job is None:
        return None
    when = "when all games have ended" if job.after else "now"
    console.print(f"[green]submitted[/] the report: job {job.job}, starts {when}")
    return job.job


def wait_for_all(console: Console, workspace: Workspace, cluster: Cluster, request: Request, wanted: Wanted,
                 prepared: GenerationPrepared, links: Links, done: HandedIn) -> int:
    """Follow all of it to the report, and show that; the exit status."""
    from automate.campaign.follow import Follower
    from automate.campaign.late import LateProgress
    from automate.cli.submitted import wait_for

    plans = {view.stored.plan.id for view in (*prepared.busy.values(), *links.busy.values())}
    plans |= {stored.plan.id for stored in (prepared.stored, links.stored) if stored is not None}
    status = 0
    if plans:
        late = LateProgress(workspace, request.models, request.limit_questions)
        no_room = next((part.why for part in done.parts if part.why), "")
        follower = Follower(workspace, cluster, late, frozenset(plans), request, prepared.counts,
                            no_room=no_room, command="flock-hpc run --submit")
        status = wait_for(console, workspace, cluster, follower)
    if status == 130:
        return status
    if any(workspace.stopped(plan).exists() for plan in plans):
        console.print("[yellow]The chain was cancelled.[/]")
        return 1
    return max(status, _wait_for_report(console, workspace, cluster, wanted))


def _wait_for_report(console: Console, workspace: Workspace, cluster: Cluster, wanted: Wanted) -> int:
    """Wait for the report job, hand another in where games were played after it, and show the leaderboard."""
    import time

    from automate.campaign.chain_report import active_reports
    from automate.campaign.chain_results import are_fresh
    from automate.campaign.handing import submit_claim
    from automate.campaign.state import look

    pause = workspace.settings.limits.poll if cluster.kind == "slurm" else min(1.0, workspace.settings.limits.poll)
    try:
        for last in (False, True):
            while active_reports(workspace, look(workspace)):
                time.sleep(pause)
            if are_fresh(workspace) or last:
                break
            claim = submit_claim(workspace)
            try:
                arrange(console, workspace, cluster, wanted, new_jobs=False)
            finally:
                claim.release()
    except KeyboardInterrupt:
        console.print("\nThe view has ended; the report job goes on.")
        return 130
    return print_results(console, workspace)
