"""`serve`: a fleet of model servers is started, looked at, made larger or smaller, ended."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from automate.cli.options import open_here, workspace_option

if TYPE_CHECKING:
    from rich.console import Console

    from automate.campaign.fleets.serving import Fleet, Handed
    from automate.cluster.base import Cluster
    from automate.fleets.acting import Scaled
    from automate.serving.fleet.records import FleetSpec
    from automate.workspace import Workspace

GOES = {"models": {"replicas", "name", "submit", "executor", "wait"}, "status": {"name", "json"},
        "scale": {"name", "model"}, "stop": {"name", "now"}}
"""Which options go with what is to be done."""


@click.command()
@workspace_option
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@click.option("--replicas", metavar="N|A..B", help="Servers of each model; A..B: as many as are of use (default: 1).")
@click.option("--name", metavar="FLEET", help="The fleet's name (default: 'default'; else the only fleet).")
@click.option("--submit", is_flag=True, help="Submit the servers as array jobs.")
@click.option("--executor", type=click.Choice(["auto", "slurm", "local"]),
              help="Where jobs run (default: Slurm if it is on this machine, else here).")
@click.option("--wait", is_flag=True, help="With --submit: wait until the least number of servers is ready.")
@click.option("--status", is_flag=True, help="Show a fleet, or all: workers, load, cache hits, time left.")
@click.option("--json", is_flag=True, help="With --status: one JSON document.")
@click.option("--scale", metavar="N|A..B", help="Have so many servers from now on.")
@click.option("--model", metavar="MODEL", help="With --scale: of this model only.")
@click.option("--stop", is_flag=True, help="End the fleet: servers finish what they have.")
@click.option("--now", is_flag=True, help="With --stop: do not let them finish.")
@click.pass_context
def serve(ctx: click.Context, /, workspace_dir: Path | None, models: tuple[str, ...],
          **given: str | bool | None) -> None:
    """Serve models by a fleet of servers, which programs and campaigns ask by one address.

    MODEL is the judge by its name, a model of generate.models, a folder with weights, or a name on a hub
    (owner/name). LoRA adapters of one base share servers. Without --submit nothing is submitted.
    """
    what = _what(models, given)
    workspace = open_here(workspace_dir)
    name = str(given["name"]) if given["name"] is not None else None
    if what == "models":
        status = _start(workspace, models, name, **{key: given[key] for key in ("replicas", "submit", "executor",
                                                                               "wait")})
    elif what == "status":
        status = _show(workspace, name, as_json=bool(given["json"]))
    elif what == "scale":
        status = _scale(workspace, name, str(given["scale"]), given["model"])
    else:
        status = _stop(workspace, name, now=bool(given["now"]))
    ctx.exit(status)


def _what(models: tuple[str, ...], given: dict[str, str | bool | None]) -> str:
    """The one thing that is to be done. Raises UsageError for what doesn't go together."""
    wanted = [word for word in ("status", "scale", "stop") if given[word] not in (None, False)]
    if models:
        wanted.insert(0, "models")
    shown = {"models": "MODEL", "status": "--status", "scale": "--scale", "stop": "--stop"}
    if len(wanted) > 1:
        raise click.UsageError(f"{' and '.join(shown[word] for word in wanted)} don't go together: give one of them")
    if not wanted:
        raise click.UsageError("name a MODEL to serve, or give one of --status, --scale, --stop")
    strange = [word for word, value in given.items()
               if value not in (None, False) and word not in GOES[wanted[0]] | {wanted[0]}]
    if strange:
        where = next((shown[key] for key, words in GOES.items() if strange[0] in words), "")
        raise click.UsageError(f"--{strange[0]} goes with {where}, not with {shown[wanted[0]]}")
    if given["wait"] and not given["submit"]:
        raise click.UsageError("--wait needs --submit")
    return wanted[0]


# --- a fleet is started ---------------------------------------------------------------------------------
def _start(workspace: Workspace, models: tuple[str, ...], name: str | None, *, replicas: str | bool | None,
           submit: str | bool | None, executor: str | bool | None, wait: str | bool | None) -> int:
    from automate.campaign.fleets.planning import spec_of
    from automate.campaign.fleets.serving import DEFAULT, make_and_submit, write_scripts
    from automate.campaign.state import pick_cluster
    from automate.cli.checks import make_console
    from automate.fleets.scaling import parse_replicas

    console = make_console()
    least, most = parse_replicas(str(replicas) if replicas is not None else "1")
    cluster = pick_cluster(workspace, str(executor) if executor else None)
    spec, scripts = spec_of(workspace, models, least, most, name=DEFAULT if name is None else name,
                            executor=cluster.kind)
    if not submit:
        write_scripts(workspace, cluster, spec, scripts)
        _print_spec(console, workspace, spec)
        console.print("\nScripts were written; nothing was submitted.\n"
                      "Submit with the same command and [bold]--submit[/].")
        return 0
    handed = make_and_submit(workspace, cluster, spec, scripts)
    _print_spec(console, workspace, spec)
    _print_done(console, cluster, spec, handed)
    if not handed.done.submitted:
        console.print("[red]No server was submitted.[/] Mend what is named above and run the same command again.")
        return 1
    _print_how(console, workspace, spec, asked=name is not None)
    return _wait(console, workspace, spec, cluster) if wait else 0


def _print_spec(console: Console, workspace: Workspace, spec: FleetSpec) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from automate.cli.submitted import some
    from automate.durations import in_words

    if "rehearsal" in {workspace.settings.judge.kind if group.settings == "judge" else workspace.settings.generate.kind
                       for group in spec.groups}:
        console.print("[yellow]rehearsal servers: what they say means nothing[/]")
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in ("model", "adapters", "servers", "GPUs each", "time limit", "script"):
        table.add_column(column, overflow="fold")
    for group in spec.groups:
        number = str(group.least) if group.least == group.most else f"{group.least} to {group.most}"
        limit = "none" if group.time_limit is None else in_words(group.time_limit)
        script = Path(group.script)
        shown = script.relative_to(workspace.root) if script.is_relative_to(workspace.root) else script
        table.add_row(escape(group.model), escape(some(list(group.also))), number, str(group.gpus), limit,
                      escape(str(shown)))
    console.print(f"Fleet [bold]{escape(spec.name)}[/]")
    console.print(table)


def _print_done(console: Console, cluster: Cluster, spec: FleetSpec, handed: Handed) -> None:
    from rich.markup import escape

    names = {group.number: group.model for group in spec.groups}
    done: Scaled = handed.done
    for note in handed.notes:
        console.print(escape(note), soft_wrap=True)
    where = "here (local executor)" if cluster.kind == "local" else "to Slurm"
    for one in done.submitted:
        model = names.get(next(iter(one.tasks.values())), "")
        console.print(f"[green]submitted[/] {_servers(len(one.tasks))} of {escape(model)} {where}: job {one.job}")
    for number, count, words in done.refused:
        console.print(f"[yellow]not accepted[/] {_servers(count)} of {escape(names.get(number, ''))}: {escape(words)}",
                      soft_wrap=True)
    if done.refused and done.submitted:
        console.print("  -> the fleet asks for them again as soon as one of its servers runs")
    if done.cancelled:
        console.print(f"cancelled {', '.join(map(escape, done.cancelled))}", soft_wrap=True)
    if done.retired:
        console.print(f"asked to finish what {_they(done.retired)} and to end: {escape(', '.join(done.retired))}",
                      soft_wrap=True)
    for problem in done.problems:
        console.print(f"[red]{escape(problem)}[/]", soft_wrap=True)


def _servers(count: int) -> str:
    return f"{count} server" + "s" * (count != 1)


def _they(some: Sequence[str]) -> str:
    return "it has" if len(some) == 1 else "they have"


def _print_how(console: Console, workspace: Workspace, spec: FleetSpec, *, asked: bool) -> None:
    """How to follow and use it. Where the key lies, never the key."""
    from rich.markup import escape

    from automate.durations import in_words
    from automate.fleet_places import FleetPlaces

    named = f" --name {spec.name}" if asked else ""
    places = FleetPlaces(workspace.root, spec.name)
    for what, line in (("Follow it", f"flock-hpc serve --status{named}"), ("Use it", f"flock-hpc router{named}"),
                       ("End it", f"flock-hpc serve --stop{named}")):
        console.print(f"{what + ':':<11}[bold]{escape(line)}[/]")
    console.print(f"{'Its key:':<11}{escape(str(places.key))} (only you can read it; the router asks for it)",
                  soft_wrap=True)
    console.print(f"Servers end by themselves when neither a router nor a campaign has used them for "
                  f"{in_words(spec.idle)}.")


def _wait(console: Console, workspace: Workspace, spec: FleetSpec, cluster: Cluster) -> int:
    """Wait until each model has its least number of servers; 1 where it will not have them, 130 for Ctrl-C."""
    import time

    from automate.campaign.fleets.serving import lacking
    from automate.fleet_places import FleetPlaces

    places = FleetPlaces(workspace.root, spec.name)
    said: set[str] = set()

    def tell(words: str) -> None:
        if words not in said:
            said.add(words)
            console.print(words, soft_wrap=True, markup=False)

    try:
        while True:
            missing, why = lacking(places, spec, cluster, tell)
            if not missing:
                console.print("[green]ready[/]")
                return 0
            if why is not None:
                console.print(f"[red]there will be no server:[/] {why}", soft_wrap=True)
                return 1
            time.sleep(1.0 if cluster.kind == "local" else 15.0)
    except KeyboardInterrupt:
        console.print("\nThe view has ended; the servers go on.")
        return 130


# --- a fleet is looked at, changed, ended ---------------------------------------------------------------
def _show(workspace: Workspace, name: str | None, *, as_json: bool) -> int:
    import json
    from dataclasses import asdict

    from rich.markup import escape

    from automate.campaign.fleets.serving import open_fleets, status_of, warnings_of
    from automate.cli.checks import make_console
    from automate.cli.views.fleets import fleet_table
    from automate.fleets.jobs import fleets_of_others, theirs

    found = [status_of(workspace, one) for one in open_fleets(workspace.root, name)]
    others = fleets_of_others(workspace.root) if name is None else {}
    warnings = warnings_of(workspace.root, [one.name for one in found if one.state != "over"])
    if as_json:
        document = {"fleets": [asdict(one) for one in found], "others": others, "warnings": warnings}
        click.echo(json.dumps(document, indent=2, ensure_ascii=False, default=str))
        return 0
    console = make_console()
    for other, user in others.items():
        console.print(theirs(other, user), markup=False, soft_wrap=True)
    if not found and not others:
        console.print("There is no fleet in this workspace. Start one with "
                      "[bold]flock-hpc serve MODEL --replicas N --submit[/].")
    for number, one in enumerate(found):
        if number:
            console.print()
        if one.name in warnings:
            console.print(f"[red]not safe:[/] {escape(warnings[one.name])}", soft_wrap=True)
        console.print(fleet_table(one))
    return 0


def _scale(workspace: Workspace, name: str | None, replicas: str, model: str | bool | None) -> int:
    from automate.campaign.fleets.serving import find_fleet, rescale
    from automate.cli.checks import make_console
    from automate.fleets.scaling import parse_replicas

    bounds = parse_replicas(replicas)
    console, fleet = make_console(), find_fleet(workspace.root, name)
    handed = rescale(workspace, fleet, bounds, str(model) if model is not None else None)
    _print_done(console, fleet.cluster, fleet.spec, handed)
    done = handed.done
    if done.left_to is not None:
        console.print(f"An engine is in control of the fleet and does it within seconds ({done.left_to}).",
                      markup=False, soft_wrap=True)
    elif not (done.submitted or done.cancelled or done.retired or done.refused):
        console.print("It has as many servers as that already.")
    return 1 if done.problems or (done.refused and not done.submitted) else 0


def _stop(workspace: Workspace, name: str | None, *, now: bool) -> int:
    from rich.markup import escape

    from automate.campaign.fleets.serving import find_fleet
    from automate.cli.checks import make_console
    from automate.fleets.handing import stop

    console = make_console()
    fleet: Fleet = find_fleet(workspace.root, name)
    done = stop(fleet.places, fleet.spec, fleet.cluster, now=now)
    if done.cancelled:
        console.print(f"cancelled {escape(', '.join(done.cancelled))}", soft_wrap=True)
    if done.ending:
        console.print(f"asked to finish what {_they(done.ending)} and to end: {escape(', '.join(done.ending))}",
                      soft_wrap=True)
    if not done.cancelled and not done.ending:
        console.print(f"The fleet '{escape(fleet.spec.name)}' is over: no job of it waits or runs.")
    for problem in done.problems:
        console.print(f"[red]{escape(problem)}[/]", soft_wrap=True)
    return 1 if done.problems else 0
