"""A stand-in judge for rehearsals: it speaks as much of vLLM's interface as a campaign uses, at once.

Never judges anything: its verdicts are hashes of the answers, and every reply says that it means nothing."""

from __future__ import annotations

import argparse
import asyncio
import hmac
import importlib
import os
import signal
import socket
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from automate.serving.rehearsal_behaviour import Behaviour, add_behaviour_arguments
from automate.serving.rehearsal_judge import NOTICE, RehearsalJudge, error_reply
from automate.serving.rehearsal_place import place_of, since_job

HEADER = "X-Flock-HPC-Rehearsal"
LARGEST_BODY = 64 << 20
_SHUTDOWN_S = 0.01


def _key_check(api_key: str) -> Middleware:
    expected = f"Bearer {api_key}".encode()

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        path = request.path
        if path == "/v1" or path.startswith("/v1/"):
            given = request.headers.get("Authorization", "").encode(errors="surrogateescape")
            if not hmac.compare_digest(given, expected):
                return error_reply("Unauthorized", 401)
        return await handler(request)

    return check


async def _mark(_: web.Request, response: web.StreamResponse) -> None:
    response.headers[HEADER] = "verdicts mean nothing"


async def _unknown(request: web.Request) -> web.Response:
    return error_reply(f"there is no {request.method} {request.path}", 404)


def make_app(model: str, behaviour: Behaviour, api_key: str | None = None,
             also: Sequence[str] = ()) -> web.Application:
    """The stand-in judge as an application; its runner should cancel handlers whose client has gone."""
    judge = RehearsalJudge(model, behaviour, also)
    app = web.Application(client_max_size=LARGEST_BODY, middlewares=[_key_check(api_key)] if api_key else ())
    app.router.add_get("/health", judge.health)
    app.router.add_get("/metrics", judge.metrics)
    app.router.add_get("/v1/models", judge.models)
    app.router.add_post("/v1/chat/completions", judge.chat)
    app.router.add_post("/v1/completions", judge.complete)
    app.router.add_post("/tokenize", judge.tokenize)
    app.router.add_route("*", "/{path:.*}", _unknown)
    app.on_startup.append(judge.start)
    app.on_shutdown.append(judge.end)
    app.on_response_prepare.append(_mark)
    return app


def _clear_stale_socket(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(f"{path} is there already and is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except (ConnectionError, TimeoutError):
            path.unlink(missing_ok=True)
        else:
            raise FileExistsError(f"somebody listens on {path} already")


async def _listen_on_socket(runner: web.AppRunner, path: Path) -> tuple[str, Callable[[], None]]:
    _clear_stale_socket(path)
    mask = os.umask(0o177)
    try:
        await web.UnixSite(runner, path, backlog=4096).start()
    finally:
        os.umask(mask)
    mine = path.stat().st_ino

    def remove() -> None:
        if path.exists() and path.stat().st_ino == mine:
            path.unlink()

    return f"unix:{path}", remove


async def _listen(runner: web.AppRunner, args: argparse.Namespace) -> tuple[str, Callable[[], None]]:
    if args.uds is not None:
        return await _listen_on_socket(runner, args.uds)
    await web.TCPSite(runner, args.host, args.port, backlog=4096).start()
    host, port = runner.addresses[0][:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}", lambda: None


async def _serve(args: argparse.Namespace, behaviour: Behaviour) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    app = make_app(args.model, behaviour, os.environ.get("VLLM_API_KEY") or None, args.also)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    try:
        address, remove = await _listen(runner, args)
        notice = f"flock-hpc rehearsal judge {args.model} listening on {address}: {NOTICE}"
        print(notice, file=sys.stderr, flush=True)
        try:
            await ended.wait()
        finally:
            remove()
    finally:
        await runner.cleanup()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The judge's name, where it listens, and how it behaves."""
    parser.add_argument("--model", required=True, metavar="NAME", help="the model it says it serves")
    parser.add_argument("--also", action="append", default=[], metavar="NAME",
                        help="another model that it serves, as an adapter is served")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--uds", type=Path, metavar="PATH", help="listen on this Unix socket")
    where.add_argument("--port", type=int, metavar="N", help="listen on this TCP port; 0 takes a free one")
    parser.add_argument("--host", default="127.0.0.1", help="address for --port (default: %(default)s)")
    add_behaviour_arguments(parser)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        return None
    return factory


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM; the key, if any, is in VLLM_API_KEY."""
    parser = argparse.ArgumentParser(prog="python -m automate.serving.rehearsal", description=__doc__)
    add_arguments(parser)
    args = parser.parse_args(argv)
    try:
        place = place_of(os.environ)
        behaviour = place.apply(Behaviour.from_args(args), since_job=since_job(os.environ))
    except ValueError as error:
        parser.error(str(error))
    if place.fault is not None:
        print(place.fault, file=sys.stderr, flush=True)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as loop:
            loop.run(_serve(args, behaviour))
    except OSError as error:
        print(f"flock-hpc rehearsal judge cannot listen: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
