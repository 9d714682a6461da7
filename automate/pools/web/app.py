"""The application that uvicorn runs: which routes a connection may use, how often, and for how long.

Never lets an error out as anything but JSON, and never mixes the private socket's routes with HTTP's."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from automate.pools.web import connection
from automate.pools.web.answers import problem
from automate.pools.web.limits import Rates, network_of
from automate.pools.web.private import private_routes
from automate.pools.web.public import Front, routes

LOG = logging.getLogger("flock_hpc.pools.web")
GRACE = 5.0
"""Seconds that a request may take beyond pools.http.timeout, in which a route gives its own answer."""

TODO = {404: "see what there is: /openapi.json", 405: "see /openapi.json for what this address takes"}


def application(front: Front, monotonic: Callable[[], float]) -> ASGIApp:
    """For connections of `connection.Guarded`, which say whether they are private."""
    public: ASGIApp = Guard(_starlette(routes(front)), Rates(front.settings.requests_per_second, monotonic),
                            front.settings.timeout + GRACE)
    if front.settings.trusted_proxies:
        public = ProxyHeadersMiddleware(public, front.settings.trusted_proxies)  # type: ignore[arg-type,assignment]
    private = _starlette(private_routes(front))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        chosen: ASGIApp = private if scope.get("state", {}).get("private") is True else public
        with contextlib.suppress(ClientDisconnect):  # who is gone needs no answer
            await chosen(scope, receive, send)

    return app


def _starlette(found: Sequence[Route]) -> Starlette:
    return Starlette(routes=found, exception_handlers={HTTPException: _http, Exception: _fault})


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = {name: value for name, value in (error.headers or {}).items() if name.lower() == "allow"}
    words = "there is nothing at this address" if error.status_code == 404 else error.detail.lower()
    return problem(error.status_code, words, request.url.path[:200], TODO.get(error.status_code), **headers)


async def _fault(request: Request, error: Exception) -> Response:
    return problem(500, "a fault of this program", todo="tell who runs this server: its log says more")


class Guard:
    """Counts requests of an address, in a second and at once, ends those that take too long, and answers what failed.
    """

    def __init__(self, app: ASGIApp, rates: Rates, timeout: float) -> None:
        self.app, self.rates, self.timeout = app, rates, timeout
        self.running: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = (scope.get("client") or "?")[0]
        wait = self.rates.wait(client)
        if wait:
            seconds = str(max(1, math.ceil(wait)))
            refused = problem(429, "too many requests from this address", todo=f"wait {seconds} s",
                              Retry_After=seconds)
            await refused(scope, receive, send)
            return
        key = network_of(client)
        if self.running[key] >= connection.CONNECTIONS_EACH:
            busy = problem(503, "too many requests at once from this address", todo="use fewer at once",
                           Retry_After="1")
            await busy(scope, receive, send)
            return
        self.running[key] += 1
        try:
            await self._in_time(scope, receive, send)
        finally:
            self.running[key] -= 1
            if not self.running[key]:
                del self.running[key]

    async def _in_time(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            async with asyncio.timeout(self.timeout):
                await self.app(scope, receive, watched)
        except TimeoutError:
            late = problem(408, "the request took too long", todo="send it faster, or in parts", Connection="close")
            if not started:
                await late(scope, receive, send)
            else:
                raise
        except ClientDisconnect:
            raise
        except Exception:
            LOG.exception("a request failed")
            if not started:
                await (await _fault(Request(scope), Exception()))(scope, receive, send)
