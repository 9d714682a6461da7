"""What `judge`, `generate` and others print of batches that were handed over, and how they follow them.

No logic: who goes on with what waits for room is decided by settings and options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from automate.campaign.follow import Follower
    from automate.campaign.handing import Request, Submitted
    from automate.campaign.plans import StoredPlan
    from automate.campaign.state import CampaignState
    from automate.cluster.base import Cluster
    from automate.workspace import Workspace


def print_submitted(console: Console, cluster: Cluster, done: Submitted) -> None:
    """Say what was accepted, and what was refused in whose words."""
    from rich.markup import escape

    for submission in done.accepted:
        numbers = sorted(submission.tasks.values())
        what = f"batch {numbers[0]}" if len(numbers) == 1 else f"{len(numbers)} batches"
        where = "here (local executor)" if cluster.kind == "local" else "to Slurm"
        console.print(f"[green]submitted[/] {what} {where}: job {submission.job}")
    for submission, error in done.refused:
        numbers = sorted(submission.tasks.values())
        console.print(f"[red]not submitted[/] batch {', '.join(map(str, numbers))}: {escape(str(error))}")
    if done.refused:
        console.print("Run the same command again to hand in what is missing; nothing is submitted twice.")


def who_goes_on(workspace: Workspace, cluster: Cluster, stored: StoredPlan, request: Request, state: CampaignState,
                done: Submitted, wait: bool) -> str:
    """Who hands in what waits for room; a small job is submitted where the settings say so."""
    from automate.campaign.kinds import kind_of
    from automate.campaign.refill import arrange
    from automate.campaign.refill import wanted as small_job

    if not done.waiting:
        return ""
    spent = done.why.startswith("limits.max_gpu_hours")
    if small_job(workspace, cluster) and not spent:
        return arrange(workspace, cluster, stored, request, state, done)
    if wait:
        return "this command hands them in when there is room"
    return ("raise it (--max-gpu-hours), or let jobs end that take less than their time limit, and run the same "
            "command again" if spent else
            f"run '{kind_of(stored.plan.kind).submit}' again when jobs have ended, or use --wait, or set "
            "limits.refill: job; nothing is submitted twice")


def print_waiting(console: Console, done: Submitted, who: str) -> None:
    """Say how many batches wait for room, because of what, and who hands them in."""
    from rich.markup import escape

    for note in done.notes:
        console.print(escape(note))
    if done.waiting:
        count = f"{len(done.waiting)} batch" + ("es wait" if len(done.waiting) > 1 else " waits")
        console.print(f"[yellow]{count} for room[/]: {escape(done.why)}", soft_wrap=True)
        console.print(f"  -> {escape(who)}", soft_wrap=True)


def some(names: Sequence[str], most: int = 4) -> str:
    """The first few names, and how many more there are."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def wait_for(console: Console, workspace: Workspace, cluster: Cluster, follower: Follower) -> int:
    """Follow jobs to their end; the exit status: 0 when nothing is due any more, 130 for Ctrl-C."""
    from automate.campaign.following import follow

    pause = workspace.settings.limits.poll if cluster.kind == "slurm" else min(1.0, workspace.settings.limits.poll)
    try:
        return 0 if follow(follower, console, pause=pause) else 1
    except KeyboardInterrupt:
        console.print("\nThe view has ended; the jobs go on. See them with [bold]flock-hpc monitor[/], "
                      "end them with [bold]flock-hpc cancel[/].")
        return 130
