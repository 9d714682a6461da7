"""The life of `pool serve`: the database opened, sockets bound, requests answered, all of it ended in order.

Never serves a database that another process has open, and never leaves its socket behind."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import uvicorn

from automate.errors import FlockError
from automate.pool_places import PoolPlaces
from automate.pools import deeds
from automate.pools.desk import open_office
from automate.pools.web import sockets
from automate.pools.web.app import application
from automate.pools.web.clerk import Clerk
from automate.pools.web.connection import protocol
from automate.pools.web.limits import Memory
from automate.pools.web.public import Front

MEMORY = 8
"""Bodies of the largest size that may be read at once."""
KEEP_ALIVE = 15
TICK = 60.0
"""Seconds between two looks at what the clock would do, with `tick`."""
LOG = logging.getLogger("flock_hpc.pools.web")


@dataclass(frozen=True)
class Wanted:
    """What is served. `clock`: milliseconds since 1970; `say`: a line for who runs it; `tick`: do the clock's work;
    `stop`: ends it, where it is given in place of signals."""

    places: PoolPlaces
    clock: Callable[[], int]
    say: Callable[[str], None]
    tick: bool = False
    stop: asyncio.Event | None = None


class Server(uvicorn.Server):
    """uvicorn's, which leaves signals to `serve`."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(wanted: Wanted) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP, or until `stop` is set.

    Raises as store.open_store; ConfigError for a port that is taken.
    """
    places, http = wanted.places, wanted.places.settings.http
    wait = 0.0 if sockets.answers(places.socket) else places.settings.lock_wait
    clerk = Clerk(lambda: open_office(places, clock=wanted.clock, wait=wait))
    await clerk.start()
    try:
        front = Front(clerk, http, Memory(MEMORY * http.message_bytes), wanted.clock)
        with contextlib.closing(sockets.public(http.host, http.port)) as listening, _private(places) as private:
            await _answer(wanted, front, [listening, private])
    finally:
        await clerk.end()
    wanted.say("the server has ended")


@contextmanager
def _private(places: PoolPlaces) -> Iterator[socket.socket]:
    made = sockets.private(places.socket)
    try:
        yield made
    finally:
        with contextlib.suppress(OSError):
            sockets.remove(places.socket)
        made.close()


async def _answer(wanted: Wanted, front: Front, listening: list[socket.socket]) -> None:
    config = uvicorn.Config(
        application(front, time.monotonic), http=protocol(front.settings.trusted_proxies), ws="none", lifespan="off",
        log_config=None, access_log=False, server_header=False, proxy_headers=False, timeout_keep_alive=KEEP_ALIVE,
        backlog=sockets.BACKLOG, timeout_graceful_shutdown=max(1, round(front.settings.timeout)))
    server = Server(config)
    with _signals(server) if wanted.stop is None else contextlib.nullcontext():
        beside = [asyncio.create_task(_clock(wanted, front.clerk))] if wanted.tick else []
        if wanted.stop is not None:
            beside.append(asyncio.create_task(_stopped(wanted.stop, server)))
        wanted.say(f"Benchmark pools at {sockets.url_of(listening[0])}  (Ctrl-C ends it)")
        try:
            await server.serve(sockets=listening)
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)


async def _stopped(stop: asyncio.Event, server: Server) -> None:
    await stop.wait()
    server.should_exit = True


@contextmanager
def _signals(server: Server) -> Iterator[None]:
    """Asked once, what is in flight is answered first; asked twice, it ends at once."""
    loop = asyncio.get_running_loop()

    def asked() -> None:
        server.force_exit = server.should_exit
        server.should_exit = True

    numbers = [one for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
               if signal.getsignal(one) is not signal.SIG_IGN]  # as nohup has it
    for number in numbers:
        loop.add_signal_handler(number, asked)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def _clock(wanted: Wanted, clerk: Clerk) -> None:
    """Answers of jobs handed in, and what is due, once a minute; the tick itself knows what is due."""
    while True:
        for deed in ("hand_in", "tick"):
            now = wanted.clock()
            try:
                await clerk.call(partial(deeds.do, what=deed, now=now, given={}), changes=True)
            except FlockError as error:
                wanted.say(f"{deed}: {error}")
            except Exception:
                LOG.exception("%s failed", deed)
        await asyncio.sleep(TICK)
