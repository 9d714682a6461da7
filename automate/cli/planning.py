"""`plan`: what a campaign will take, before anything is submitted; also what `judge --dry-run` shows of it.

Writes nothing and submits nothing."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from automate.cli.options import SeveralCommand, open_here, selection_options, workspace_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from automate.arena.batches import Batch
    from automate.arena.counting.progress import Progress
    from automate.campaign.forecasts.estimates import Forecast
    from automate.campaign.forecasts.planning import Outlook
    from automate.campaign.forecasts.rates import Interval
    from automate.workspace import Workspace


@click.command("plan", cls=SeveralCommand)
@workspace_option
@selection_options
@click.option("--batch-size", type=click.IntRange(min=1), metavar="N", help="Models a job (default: the settings' 10).")
@click.option("--max-parallel", type=click.IntRange(min=1), metavar="N", help="At most N batches at once.")
@click.option("--fleet", metavar="N|A..B", help="On a fleet of so many servers, next to batches.")
@click.option("--json", "as_json", is_flag=True, help="The forecast as one JSON document.")
@click.pass_context
def plan(ctx: click.Context, workspace_dir: Path | None, all_models: bool, models: tuple[str, ...],
         models_file: Path | None, from_api_config: str | None, missing: bool, baseline: str | None,
         limit_questions: int | None, executor: str | None, batch_size: int | None, max_parallel: int | None,
         fleet: str | None, as_json: bool) -> None:
    """Forecast GPU-hours, each batch's walltime and the finish, and propose --time and batch size. Writes nothing."""
    from automate.campaign.forecasts.planning import look_ahead
    from automate.campaign.selection import select
    from automate.campaign.state import pick_cluster
    from automate.cli.checks import make_console

    workspace = open_here(workspace_dir, baseline=baseline, batch_size=batch_size)
    selection = select(workspace, models=models, models_file=models_file, from_api_config=from_api_config,
                       all_models=all_models)
    cluster = pick_cluster(workspace, executor)
    outlook = look_ahead(workspace, cluster, selection.models, limit_questions, max_parallel,
                         _servers(workspace, fleet, max_parallel))
    if as_json:
        click.echo(as_document(outlook))
        return
    console = make_console()
    for line in (*selection.problems, *outlook.notes):
        _print_folded(console, line)
    print_outlook(console, outlook)


def _servers(workspace: Workspace, fleet: str | None, max_parallel: int | None) -> tuple[int, int] | None:
    """Least and most servers of the fleet that was asked for. Raises ConfigError where there can't be one."""
    if fleet is None:
        return None
    from automate.campaign.fleets.playing import refusal, use_of
    from automate.errors import ConfigError
    from automate.fleets.scaling import parse_replicas

    least, most = parse_replicas(fleet)
    why = refusal(workspace.settings, use_of(least, most), batch_size=None, max_parallel=max_parallel)
    if why is not None:
        raise ConfigError(why, where="--fleet", todo="leave one of them out")
    return least, most


def as_document(outlook: Outlook) -> str:
    """The forecast and the proposal as JSON; seconds, tokens and hours, without limit where null."""
    from dataclasses import asdict

    import orjson

    return orjson.dumps(asdict(outlook), option=orjson.OPT_INDENT_2).decode()


def print_plan_forecast(console: Console, workspace: Workspace, batches: Sequence[Batch], progress: Progress,
                        parallel: int | None, kind: str, fleet: tuple[int, int] | None = None) -> None:
    """What `judge --dry-run` says of its plan. `fleet`: least and most servers, where it is played on a fleet."""
    from automate.campaign.forecasts.planning import outlook_of

    print_outlook(console, outlook_of(workspace, batches, progress, parallel, kind, fleet))


def print_outlook(console: Console, outlook: Outlook) -> None:
    """The forecast, its assumptions and the proposal."""
    from rich.markup import escape

    if not outlook.forecast.games:
        console.print("[green]Nothing to do:[/] no game is due.")
        return
    if outlook.fleet is not None:
        _print_fleet(console, outlook)
    else:
        _print_batches(console, outlook.forecast)
        _print_whole(console, outlook)
    if not outlook.forecast.learned:
        console.print("[yellow]No batch of this judge on these GPUs has ended yet: rates are assumed, and the interval "
                      "is wide.[/] One batch narrows it.")
    fleets = outlook.fleet.fleets if outlook.fleet else ()
    for problem in dict.fromkeys((*outlook.forecast.problems, *(one for fleet in fleets for one in fleet.problems))):
        console.print(f"[red]✘[/] {escape(problem)}")
    _print_assumptions(console, outlook.forecast)
    _print_proposal(console, outlook)


def _print_batches(console: Console, forecast: Forecast) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in ("batch", "models", "games", "tokens", "walltime", "80 % between", "starts"):
        table.add_column(name, justify="right", overflow="fold")
    shown = forecast.batches if len(forecast.batches) <= 12 else forecast.batches[:10]
    for batch in shown:
        starts = "never ends" if batch.starts is None else str(batch.starts[1])
        table.add_row(str(batch.size.number), str(batch.size.models), f"{batch.size.games:,}",
                      _millions(batch.size.prompt_tokens), _time(batch.seconds.mid), _range(batch.seconds), starts)
    console.print(table)
    if len(shown) < len(forecast.batches):
        console.print(f"... and {len(forecast.batches) - len(shown)} more batches like these")


def _print_whole(console: Console, outlook: Outlook) -> None:
    forecast = outlook.forecast
    console.print(f"\n{forecast.games:,} games, about {_millions(forecast.prompt_tokens)} prompt tokens and "
                  f"{_millions(forecast.output_tokens)} tokens of verdicts")
    if forecast.gpu_hours.mid:
        most = (f"; at most, by the time limit: {forecast.gpu_hours_at_most:,.0f}"
                if math.isfinite(forecast.gpu_hours_at_most) else "")
        console.print(f"[bold]GPU-hours[/]  {_hours(forecast.gpu_hours.mid)}  (80 %: {_hours(forecast.gpu_hours.low)} "
                      f"to {_hours(forecast.gpu_hours.high)}){most}")
    else:
        console.print("[bold]GPU-hours[/]  none: no GPU is asked for")
    queue = "" if outlook.local else (", plus waiting in the queue" if forecast.wait is None else
                                      f", plus waiting in the queue (so far {_time(forecast.wait)} at the median)")
    console.print(f"[bold]finish[/]     {_time(forecast.seconds.mid)} after the first start  (80 %: "
                  f"{_range(forecast.seconds)}), {forecast.parallel} batch(es) at once{queue}")
    if outlook.money is not None:
        console.print(f"[bold]money[/]      {outlook.money.mid:.2f} at the settings' prices  (80 %: "
                      f"{outlook.money.low:.2f} to {outlook.money.high:.2f})")
        if outlook.max_cost is not None and outlook.money.mid > outlook.max_cost:
            console.print(f"[yellow]more than judge.max_cost ({outlook.max_cost:g}): the rest will stay due[/]")


def _print_fleet(console: Console, outlook: Outlook) -> None:
    """A fleet next to batches: a column for each."""
    from rich.table import Table

    from automate.cli.views.fleet_plan import comparison

    assert outlook.fleet is not None
    forecast = outlook.forecast
    console.print(f"{forecast.games:,} games, about {_millions(forecast.prompt_tokens)} prompt tokens and "
                  f"{_millions(forecast.output_tokens)} tokens of verdicts\n")
    titles, rows = comparison(outlook.fleet)
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for at, title in enumerate(titles):
        table.add_column(title, justify="right" if at else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    wait = outlook.fleet.fleets[0].wait
    if not outlook.local:
        console.print("plus waiting in the queue" + ("" if wait is None else f" (so far {_time(wait)} at the median)"))


def _print_assumptions(console: Console, forecast: Forecast) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold", style="dim")
    for one in forecast.assumptions:
        table.add_row(f"  {escape(one.name)}", escape(one.value), escape(one.source))
    console.print("\nIt rests on:")
    console.print(table)


def _print_proposal(console: Console, outlook: Outlook) -> None:
    proposal = outlook.proposal
    if proposal is None:
        return
    console.print(f"\nProposed:  [bold]--time={proposal.time}[/]  batch_size: [bold]{proposal.batch_size}[/]  "
                  f"at once: [bold]{proposal.parallel}[/]")
    for note in proposal.notes:
        _print_folded(console, note, "  ")
    if len(proposal.finishes) > 1:
        ways = ", ".join(f"{count} at once {_time(seconds)}" for count, seconds in proposal.finishes)
        _print_folded(console, f"finish: {ways}", "  ")


def _print_folded(console: Console, text: str, indent: str = "") -> None:
    """A note; what doesn't fit its first line is indented below it."""
    import textwrap

    console.print(textwrap.fill(text, max(console.width, 20), initial_indent=indent, subsequent_indent=f"{indent}  ",
                                break_on_hyphens=False), markup=False, soft_wrap=True)


def _time(seconds: float) -> str:
    from automate.durations import in_words

    return in_words(seconds) if math.isfinite(seconds) else "never"


def _range(one: Interval) -> str:
    return f"{_time(one.low)} to {_time(one.high)}"


def _hours(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def _millions(tokens: float) -> str:
    return f"{tokens / 1e6:,.1f} M" if tokens >= 1e5 else f"{tokens:,.0f}"
