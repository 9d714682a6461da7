"""`router`: one OpenAI-compatible address over the workers of a fleet."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import signal
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from automate.cli.options import Finite, open_here, workspace_option

if TYPE_CHECKING:
    from automate.fleet_places import FleetPlaces
    from automate.serving.fleet.records import FleetSpec
    from automate.serving.router.front import Front, FrontConfig
    from automate.settings_fleet import Router

POLICIES = ["cache_aware", "consistent_hash", "power_of_two", "round_robin", "random"]


@click.command()
@workspace_option
@click.option("--name", metavar="FLEET", help="Which fleet, where there are several.")
@click.option("--host", metavar="ADDRESS", help="Where to listen (default: fleet.router.host, 127.0.0.1).")
@click.option("--port", type=click.IntRange(0, 65535), metavar="N",
              help="The port (default: fleet.router.port, 8100); 0 for any that is free.")
@click.option("--policy", type=click.Choice(POLICIES), help="How a worker is chosen (default: fleet.router.policy).")
@click.option("--wait", type=Finite(min=0), metavar="SECONDS",
              help="How long a request waits for a worker (default: fleet.router.wait, 600).")
@click.option("--tls", is_flag=True, help="Serve HTTPS, with a certificate of the fleet's own authority.")
def router(workspace_dir: Path | None, name: str | None, tls: bool,
           **given: str | int | float | None) -> None:
    """One address for other programs, over all workers of a fleet, until it is stopped (Ctrl-C).

    It asks for the fleet's key, lists the fleet's models, and passes each request on to a worker of its model. A
    request for a model that has no worker yet waits for one.
    """
    from automate.fleet_places import FleetPlaces

    options = {key: value for key, value in given.items() if value is not None}
    workspace = open_here(workspace_dir)
    settings = workspace.settings.fleet.router.model_copy(update=options)
    _run(FleetPlaces(workspace.root, only(workspace.root, name)), settings, tls)


def only(root: Path, name: str | None) -> str:
    """The fleet that is meant. Raises ConfigError where that isn't clear."""
    from automate.errors import ConfigError
    from automate.fleets.jobs import fleets_of, refuse_others

    refuse_others(root, name)
    found = fleets_of(root)
    if name is not None and name in found:
        return name
    if not found:
        raise ConfigError("there is no fleet in this workspace", where=str(root),
                          todo="start one with: flock-hpc serve MODEL --replicas N --submit")
    if name is None and len(found) == 1:
        return found[0]
    raise ConfigError(f"there is no fleet {name!r}" if name is not None else "there are several fleets",
                      where="--name", todo=f"choose one of: {', '.join(found)}")


def _run(places: FleetPlaces, settings: Router, tls: bool) -> None:
    """The router, again whenever the fleet is made anew, on the faster event loop where that is installed."""
    try:
        import uvloop

        uvloop.run(_serve(places, settings, tls))
    except ImportError:
        asyncio.run(_serve(places, settings, tls))


async def _serve(places: FleetPlaces, settings: Router, tls: bool) -> None:
    stop, again = asyncio.Event(), True
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()

    def asked() -> None:
        if stop.is_set() and task is not None:
            task.cancel()  # asked twice
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
            loop.add_signal_handler(number, asked)
    with contextlib.suppress(asyncio.CancelledError):
        while again and not stop.is_set():
            front, config = _front(places, settings, tls)
            url = await front.start()
            for line in screen(places, url, front.port, config):
                click.echo(line)
            again = await front.run(url, stop)
            if again:
                say(f"the fleet '{places.name}' was made anew; the router begins again, with its new key")
    say("the router has ended")


def _front(places: FleetPlaces, settings: Router, tls: bool) -> tuple[Front, FrontConfig]:
    from automate import __version__
    from automate.errors import ConfigError
    from automate.fleets.jobs import alive_of, cluster_of
    from automate.serving.fleet.registry import read_spec
    from automate.serving.router.front import Front, FrontConfig

    spec = read_spec(places)
    if spec is None:
        raise ConfigError(f"the fleet '{places.name}' has gone", where=str(places.home), todo="serve it again")
    config = FrontConfig(settings, __version__, alive_of(cluster_of(places.root, spec.executor)),
                         lambda model: outlook(places, spec, model), tls)
    return Front(places, spec, config, say), config


def say(text: str) -> None:
    """A line on the screen, with the time."""
    from automate.errors import visible

    with contextlib.suppress(OSError):  # a terminal that has gone does not end the router
        click.echo(f"[{time.strftime('%H:%M:%S')}] {visible(text)}")


def screen(places: FleetPlaces, url: str, port: int, config: FrontConfig) -> list[str]:
    """What is shown at the start: the address and how to use it, never the key itself."""
    import shlex

    key = shlex.quote(str(places.key))
    lines = [f"Router of the fleet '{places.name}': {url}/v1", "", f"  export OPENAI_BASE_URL={url}/v1",
             f"  export OPENAI_API_KEY=$(cat {key})", *([f"  export SSL_CERT_FILE={shlex.quote(str(places.authority))}"]
                                                        if config.tls else []), ""]
    if not is_loopback(config.settings.host) and not config.tls:
        lines.append(f"It listens on {config.settings.host} without TLS: the key travels in clear. Rather use --tls, "
                     f"or --host 127.0.0.1 and: ssh -L {port}:127.0.0.1:{port} THIS_HOST")
    return [*lines, "Ctrl-C ends it."]


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def outlook(places: FleetPlaces, spec: FleetSpec, model: str) -> str:
    """What the jobs of a model do, and where to look, in a sentence or two. Raises FlockError."""
    from automate.fleets.jobs import cluster_of, jobs_of

    groups = {group.number for group in spec.groups if model in group.names}
    jobs = [one for one in jobs_of(places, cluster_of(places.root, spec.executor), spec) if one.group in groups]
    return f"{_counted(Counter(one.status.state.lower() for one in jobs))} Look with: flock-hpc serve --status"


def _counted(counts: Mapping[str, int]) -> str:
    if not counts:
        return "Its servers have no job."
    return f"Jobs of its servers: {', '.join(f'{count} {state}' for state, count in sorted(counts.items()))}."
