"""`doctor`: what is wrong with this place, line by line. `bundle`: what a bug report needs, packed."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from automate.cli.options import Finite, open_here, workspace_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from automate.campaign.doctoring.checks import Check

MARKS = {"ok": "[green]✔[/]", "note": "[blue]i[/]", "warning": "[yellow]![/]", "unknown": "[magenta]?[/]",
         "error": "[red]✘[/]"}


@click.command()
@workspace_option
@click.option("--job", "with_job", is_flag=True, help="Also submit a two-minute job that looks at a compute node.")
@click.option("--timeout", type=Finite(min=0, min_open=True, max=604_800), default=600.0, show_default=True,
              metavar="SECONDS", help="How long to wait for that job; then it is cancelled.")
@click.option("--executor", type=click.Choice(["auto", "slurm", "local"]), help="Where jobs run.")
@click.option("--json", "as_json", is_flag=True, help="The lines as one JSON document.")
@click.pass_context
def doctor(ctx: click.Context, workspace_dir: Path | None, with_job: bool, timeout: float, executor: str | None,
           as_json: bool) -> None:
    """Check this machine, the cluster and the workspace. Exit 0 when nothing is wrong.

    With --job a job of two minutes runs on the partition of the settings, in the environment of a batch: it looks at
    GPUs, vLLM, folders, sockets, the judge's disk and whether jobs can requeue themselves. It plays nothing.
    """
    from automate.campaign.doctoring.doctor import examine
    from automate.campaign.doctoring.job import DoctorJob, seen_by_job
    from automate.campaign.state import pick_cluster
    from automate.cli.checks import make_console

    workspace = open_here(workspace_dir)
    cluster = pick_cluster(workspace, executor)
    console = make_console(stderr=True)
    with console.status("looking..."):
        here = examine(workspace, cluster)
    there: list[Check] | None = None
    if with_job:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler)
        job = DoctorJob(workspace, cluster, lambda text: click.echo(text, err=True), timeout)
        there = job.run()
        here = seen_by_job(here, job)
    _print(make_console(), here, there, as_json)
    ctx.exit(1 if any(check.mark == "error" for check in [*here, *(there or [])]) else 0)


def _print(console: Console, here: Sequence[Check], there: Sequence[Check] | None, as_json: bool) -> None:
    if as_json:
        import json

        good = not any(check.mark == "error" for check in [*here, *(there or [])])
        click.echo(json.dumps({"ok": good, "login": [check.as_json() for check in here],
                               "job": None if there is None else [check.as_json() for check in there]},
                              indent=2, ensure_ascii=False))
        return
    _section(console, "On this machine", here)
    if there is not None:
        _section(console, "In the job", there)
    counts = [(name, sum(check.mark == name for check in [*here, *(there or [])])) for name in MARKS]
    console.print("\n" + ", ".join(f"{count} {name}" for name, count in counts if count))


def _section(console: Console, title: str, checks: Sequence[Check]) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("")
    table.add_column(title, overflow="fold", max_width=40)
    table.add_column("finding", overflow="fold")
    for check in checks:
        todo = f"\n[dim]→ {escape(check.todo)}[/]" if check.todo else ""
        table.add_row(MARKS[check.mark.value], escape(check.subject), escape(check.what) + todo)
    console.print()
    console.print(table)


@click.command("doctor-probe", hidden=True)
@click.option("--workspace", type=click.Path(path_type=Path), required=True)
@click.option("--result", type=click.Path(path_type=Path), required=True)
@click.option("--script", type=click.Path(path_type=Path), required=True)
def doctor_probe(workspace: Path, result: Path, script: Path) -> None:
    """Look at the compute node, inside the doctor's job."""
    from automate.campaign.doctoring.probe import probe
    from automate.workspace import open_workspace

    probe(open_workspace(workspace), result, script)


@click.command()
@workspace_option
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option("--lines", default=400, show_default=True, type=click.IntRange(min=1), help="Last lines of each log.")
@click.option("--max-mb", default=20.0, show_default=True, type=Finite(min=0.1, max=1e6),
              help="How large it may be.")
def bundle(workspace_dir: Path | None, file: Path | None, lines: int, max_mb: float) -> None:
    """Pack what a bug report needs into FILE (default: flock-hpc-bundle-<time>.tar.gz here), without secrets.

    Settings, plans, scripts, states and the ends of logs; never answers, questions or judgments. Look through it
    before you send it.
    """
    import time

    from automate.campaign.keeping.bundle import make_bundle
    from automate.workspace import find_root

    target = file or Path(f"flock-hpc-bundle-{time.strftime('%Y%m%d_%H%M%S')}.tar.gz")
    made = make_bundle(find_root(workspace_dir), target, lines=lines, most=int(max_mb * 1e6))
    for entry in made.names:
        click.echo(f"  {entry}")
    click.echo(f"{target}: {len(made.names)} files, {made.bytes / 1e6:.1f} MB; {made.removed} secrets were removed")
    for note in made.notes:
        click.echo(note)
    click.echo("Names of users, machines, models and folders are still in it. Look through it before you send it:\n"
               f"  tar -xzf {target}")
