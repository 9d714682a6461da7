"""`rehearse`: a whole campaign on a rehearsed cluster, its forecast next to what came out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from automate.cli.options import Finite, SeveralCommand, open_here, selection_options, workspace_option

if TYPE_CHECKING:
    from rich.console import Console

    from automate.campaign.rehearsal.outcome import Outcome
    from automate.campaign.rehearsal.rehearse import Rehearsed
    from automate.campaign.selection import Selection
    from automate.cluster.rehearsed.scenario import Scenario
    from automate.workspace import Workspace


def _list(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    """`--list`: the shipped scenarios, each with the line that says what it shows."""
    if not value:
        return
    from automate.cluster.rehearsed.scenario import find_scenario, scenario_names

    for name in scenario_names():
        first = find_scenario(name, Path()).read_text(encoding="utf-8").split("\n", 1)[0]
        click.echo(f"{name:16} {first.lstrip('# ')}")
    ctx.exit(0)


@click.command(cls=SeveralCommand)
@click.argument("scenario")
@workspace_option
@selection_options
@click.option("--batch-size", type=click.IntRange(min=1), metavar="N", help="Models a job (default: the settings' 10).")
@click.option("--max-parallel", type=click.IntRange(min=1), metavar="N", help="At most N batches at once.")
@click.option("--array/--no-array", "array", default=None, help="One array job (default), or one job a batch.")
@click.option("--scale", type=Finite(min=0, min_open=True), metavar="N",
              help="Rehearsed seconds in a second (default: the scenario's, 60 if it names none).")
@click.option("--keep", is_flag=True, help="Keep the rehearsal's workspace, with its scripts and logs.")
@click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=_list,
              help="List the scenarios that ship with flock-hpc.")
@click.pass_context
def rehearse(ctx: click.Context, scenario: str, workspace_dir: Path | None, all_models: bool, models: tuple[str, ...],
             models_file: Path | None, from_api_config: str | None, missing: bool, baseline: str | None,
             limit_questions: int | None, executor: str | None, batch_size: int | None, max_parallel: int | None,
             array: bool | None, scale: float | None, keep: bool) -> None:
    """Play a campaign on a rehearsed cluster: SCENARIO is a shipped one's name, or a YAML file.

    The campaign's own batches, scripts and engine run here against judges whose verdicts mean nothing, in a workspace
    of their own. Nothing of the campaign is touched, and no GPU is needed. Exit 0 when every game was played once.
    """
    from automate.campaign.rehearsal.rehearse import rehearse as play
    from automate.campaign.selection import select, without_complete
    from automate.cli.checks import make_console
    from automate.cluster.rehearsed.scenario import find_scenario, read_scenario

    if executor == "slurm":
        raise click.UsageError("a rehearsal always runs on this machine; leave --executor out")
    console = make_console()
    workspace = open_here(workspace_dir, baseline=baseline, batch_size=batch_size)
    wanted = read_scenario(find_scenario(scenario, Path.cwd()))
    selection = select(workspace, models=models, models_file=models_file, from_api_config=from_api_config,
                       all_models=all_models)
    selection = without_complete(workspace, selection) if missing else selection
    ready = _ready(console, workspace, selection, limit_questions)
    _announce(console, scenario, wanted, ready, scale or wanted.scale)
    done = play(workspace, wanted, ready, limit_questions=limit_questions, max_parallel=max_parallel, array=array,
                keep_folder=keep, scale=scale, console=console,
                say=lambda text: console.print(text, markup=False, style="dim"))
    print_rehearsal(console, done)
    ctx.exit(0 if done.outcome.complete else 1)


def _ready(console: Console, workspace: Workspace, selection: Selection, limit: int | None) -> tuple[str, ...]:
    """The models that can be rehearsed; what keeps the others back is shown. Raises NotReadyError."""
    from automate.campaign.rehearsal.rehearse import as_rehearsed
    from automate.cli.checks import preflight, print_report
    from automate.cluster.local.executor import LocalCluster
    from automate.errors import NotReadyError

    space = as_rehearsed(workspace)
    report = preflight(space, LocalCluster(space.local_queue, space.root), selection, limit)
    if not report.ok:
        print_report(console, report)
    if report.fatal or not report.ready:
        raise NotReadyError("there is nothing to rehearse", todo="mend the errors (✘) above")
    return report.ready


def _announce(console: Console, name: str, scenario: Scenario, models: tuple[str, ...],
              scale: float) -> None:
    nodes = scenario.nodes.all
    console.print(f"Rehearsing {len(models)} model(s) on {len(nodes)} node(s), scenario {name}, "
                  f"{scale:g} times as fast as it would be.", markup=False)
    console.print("[yellow]rehearsal judge: its verdicts mean nothing[/]; this campaign's files are not touched")


def _change(forecast: float, came: float) -> str:
    return f"{(came / forecast - 1) * 100:+.0f} %" if forecast > 0 else ""


def print_rehearsal(console: Console, done: Rehearsed) -> None:
    """The forecast next to what came out, what happened, and what of it is this machine's doing."""
    from rich import box
    from rich.table import Table

    from automate.durations import in_words

    forecast, outcome = done.forecast, done.outcome
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("rehearsed time")
    for column in ("forecast", "8 times of 10", "came out", ""):
        table.add_column(column, justify="right")
    whole, hours = forecast.seconds, forecast.gpu_hours
    table.add_row("first start to last end", in_words(whole.mid), f"{in_words(whole.low)} - {in_words(whole.high)}",
                  in_words(outcome.wall_seconds), _change(whole.mid, outcome.wall_seconds))
    if hours.high or outcome.gpu_hours:
        table.add_row("GPU-hours", f"{hours.mid:.2f}", f"{hours.low:.2f} - {hours.high:.2f}",
                      f"{outcome.gpu_hours:.2f}", _change(hours.mid, outcome.gpu_hours))
    starts = [batch.starts for batch in forecast.batches]
    foreseen = [sum(one[index] for one in starts if one) for index in range(3)]
    table.add_row("starts of jobs", str(foreseen[1]), f"{foreseen[0]} - {foreseen[2]}", str(outcome.starts), "")
    requeues = max(foreseen[1] - len(forecast.batches), 0)
    table.add_row("put into the queue again", str(requeues), "", str(outcome.requeues), "")
    table.add_row("wait for the first start", "not forecast", "", in_words(outcome.wait_seconds), "")
    console.print()
    console.print(table)
    console.print()
    _games(console, outcome)
    _troubles(console, outcome)
    _footnotes(console, done)


def _games(console: Console, outcome: Outcome) -> None:
    counts = ", ".join(f"{count} {name}" for name, count in sorted(outcome.outcomes.items())) or "none"
    colour = "green" if outcome.complete else "red"
    console.print(f"[{colour}]{outcome.finished} of {outcome.games} games are finished[/] ({counts}); "
                  f"missing {outcome.lost}, played twice {outcome.twice}; {outcome.rows} rows")
    if outcome.gave_up:
        console.print(f"given up: {outcome.gave_up}", style="red", markup=False)
    if outcome.rounds > 1:
        console.print(f"'judge --submit --wait' had to be given {outcome.rounds} times")


def _troubles(console: Console, outcome: Outcome) -> None:
    from automate.durations import in_words

    for when, words in outcome.events:
        console.print(f"  after {in_words(when)}: {words}", markup=False, soft_wrap=True)
    for line in outcome.unstruck:
        console.print(f"  {line}", style="yellow", markup=False, soft_wrap=True)
    parts = [f"{count} judge server(s) died: {cause}" for cause, count in sorted(outcome.deaths.items())]
    parts += [f"{count} start(s) ended {state}" for state, count in sorted(outcome.ends.items())]
    parts += [f"{outcome.refused} submission(s) refused"] if outcome.refused else []
    parts += [f"kept away from: {', '.join(outcome.excluded)}"] if outcome.excluded else []
    console.print("; ".join(parts) if parts else "no server died, and no job ended badly", markup=False)


def _footnotes(console: Console, done: Rehearsed) -> None:
    own, scale = done.outcome.own_seconds, done.stage.scale
    known = ", ".join(f"{one.name} {one.value}" for one in done.forecast.assumptions)
    console.print(f"The forecast knows the scenario's rates and load times, and nothing of its events: {known}",
                  style="dim", markup=False)
    console.print(f"Of each start about {own:.0f} s of rehearsed time ({own / scale:.1f} s here) is this machine's "
                  "own.", style="dim", markup=False)
    if done.folder:
        console.print(f"Kept: {done.folder}", markup=False, soft_wrap=True)
