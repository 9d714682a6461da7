"""`pool evaluate`, `pool tick` and `pool schedule`: ask what is due, and what a clock does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from automate.cli.options import workspace_option
from automate.cli.pool.options import (
    IdCommand,
    answer_of,
    counter,
    executor_option,
    now_ms,
    open_pools,
    rows_of,
)

if TYPE_CHECKING:
    from automate.campaign.pools.evaluating import Evaluated


@click.command(cls=IdCommand)
@workspace_option
@click.argument("pool", required=False)
@click.option("--submit", "submit_", is_flag=True, help="Start what is due; without it only say what would be done.")
@click.option("--wait", is_flag=True, help="With --submit: follow it to its end.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N",
              help="At most N questions (default: pools.evaluate_limit, 1000).")
@executor_option
@click.pass_context
def evaluate(ctx: click.Context, workspace_dir: Path | None, pool: str | None, submit_: bool, wait: bool,
             limit: int | None, executor: str | None) -> None:
    """Ask the models of POOL what they have not been asked yet, on the cluster, through the fleet.

    Without POOL: the models of all open pools. Answers of jobs that are over, or under way, are handed in first. Safe
    to repeat. With --wait, leaderboards are up to date at the end, and the exit status is 1 where questions were left
    open.
    """
    if wait and not submit_:
        raise click.UsageError("--wait needs --submit")
    from automate.cli.checks import make_console
    from automate.cli.views.pools_rounds import print_due, print_evaluated

    with counter(workspace_dir, make=False) as desk:
        found = {} if pool is None else answer_of(desk.desk.ask("pool", id=pool))
    done = _evaluate(workspace_dir, pool, executor, limit, submit=submit_, wait=wait)
    with counter(workspace_dir, make=False) as desk:
        due = rows_of(desk.desk.ask("due", dataset=found.get("dataset")))
        datasets = {one["id"] for one in rows_of(desk.desk.ask("datasets")) if one["open_pools"]}
    if found:
        meant = {one["process"] for one in found["models"]}
        due = [one for one in due if one["process"] in meant]
    else:
        due = [one for one in due if one["dataset"] in datasets]
    console = make_console()
    print_evaluated(console, done)
    print_due(console, due)
    if due and not submit_:
        click.echo(f"nothing was started; to ask what is due: flock-hpc pool evaluate "
                   f"{pool + ' ' if pool else ''}--submit", err=True)
    ctx.exit(1 if wait and not done.done else 0)


def _evaluate(workspace_dir: Path | None, pool: str | None, executor: str | None, limit: int | None, *, submit: bool,
              wait: bool = False) -> Evaluated:
    """By a desk that has the database only while it asks, so that others get at it meanwhile."""
    from automate.campaign.pools.desks import Opening
    from automate.campaign.pools.evaluating import evaluate as run
    from automate.errors import visible

    workspace, places = open_pools(workspace_dir)
    return run(workspace, Opening(places, now_ms), pool=pool, executor=executor, submit=submit, wait=wait, limit=limit,
               say=lambda text: click.echo(visible(text), err=True))


@click.command()
@workspace_option
@executor_option
@click.option("--submit/--no-submit", "submit_", default=True,
              help="Hand over jobs for what is due (default), or leave that to 'pool evaluate'.")
def tick(workspace_dir: Path | None, executor: str | None, submit_: bool) -> None:
    """Do what a clock would do now: hand answers in, evaluate (hourly), leaderboards and rewards (daily).

    What is due since the last tick is done once, also after a week, and when two run at once. Says nothing where
    there was nothing to do.
    """
    from automate.cli.views.pools_rounds import ticked

    with counter(workspace_dir, make=False):
        pass  # there is a database; each of what follows opens it for itself
    before = _evaluate(workspace_dir, None, executor, None, submit=False)
    with counter(workspace_dir, make=False) as desk:
        done = answer_of(desk.desk.do("tick"))
        waits = answer_of(desk.desk.ask("waiting"))["queued"]
    after = None
    if submit_ and (waits or before.rounds):
        after = _evaluate(workspace_dir, None, executor, 0, submit=True)
    for line in ticked(before, done, after):
        click.echo(line)


@click.command()
@workspace_option
@click.option("--cron", is_flag=True, help="Lines for crontab -e.")
@click.option("--scrontab", is_flag=True, help="Lines for Slurm's scrontab -e.")
@click.option("--systemd", is_flag=True, help="A service and a timer for systemd.")
@click.option("--node", metavar="NAME", help="With --scrontab: the machine whose disk has the database.")
def schedule(workspace_dir: Path | None, cron: bool, scrontab: bool, systemd: bool, node: str | None) -> None:
    """Print the lines that make a real clock run 'pool tick' each hour. Installs nothing."""
    from automate.pools.schedule import lines

    kinds = [kind for kind, asked in (("cron", cron), ("scrontab", scrontab), ("systemd", systemd)) if asked]
    if len(kinds) != 1:
        raise click.UsageError("choose one of --cron, --scrontab, --systemd")
    workspace, _ = open_pools(workspace_dir)
    if node is not None and not scrontab:
        raise click.UsageError("--node goes with --scrontab")
    text = lines(kinds[0], workspace.root, executable(), host=node)  # type: ignore[arg-type]
    click.echo(text, nl=not text.endswith("\n"))


def executable() -> str:
    """The whole path of this flock-hpc: a clock has another PATH."""
    import shutil
    import sys

    beside = Path(sys.executable).with_name("flock-hpc")
    return str(beside) if beside.is_file() else shutil.which("flock-hpc") or "flock-hpc"
