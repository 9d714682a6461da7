"""`pool serve`: messages over HTTP, and leaderboards as pages."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import time
from collections.abc import Coroutine
from pathlib import Path

import click

from automate.cli.options import open_here, workspace_option


@click.command()
@workspace_option
@click.option("--host", metavar="ADDRESS", help="Where to listen (default: pools.http.host, 127.0.0.1).")
@click.option("--port", type=click.IntRange(0, 65535), metavar="N",
              help="The port (default: pools.http.port, 8642); 0 for any that is free.")
@click.option("--tick", is_flag=True,
              help="Do what a clock would do as well: hand answers in, evaluate, leaderboards, rewards. Jobs are "
                   "left to `pool evaluate --submit` and `pool tick`.")
def serve(workspace_dir: Path | None, host: str | None, port: int | None, tick: bool) -> None:
    """Take signed messages over HTTP and show leaderboards as pages, until it is stopped (Ctrl-C).

    Other commands work as before while it runs: they reach the state through it.
    """
    from automate.pool_places import PoolPlaces
    from automate.pools.web.serving import Wanted
    from automate.pools.web.serving import serve as run_server

    workspace = open_here(workspace_dir)
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    settings = workspace.settings.pools
    settings = settings.model_copy(update={"http": settings.http.model_copy(update=given)})
    if not is_loopback(settings.http.host):
        say(f"It listens on {settings.http.host} without TLS. Messages are signed, so that nobody can alter them, but "
            "all can be read on their way; put it behind a proxy with TLS where that matters.")
    wanted = Wanted(PoolPlaces(workspace.root, settings), lambda: time.time_ns() // 1_000_000, say, tick)
    run(run_server(wanted))


def run(work: Coroutine[object, object, None]) -> None:
    """On the faster event loop where that is installed."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


def say(text: str) -> None:
    """A line on the screen, with the time."""
    from automate.errors import visible

    with contextlib.suppress(OSError):  # a terminal that has gone does not end the server
        click.echo(f"[{time.strftime('%H:%M:%S')}] {visible(text)}")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
