"""A way from the front to a worker beside vllm-router, for paths on which vllm-router loses the client's key.

Never reads what passes: bytes of a private Unix socket go to a worker by TLS, and back."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import ssl
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from automate.serving.places import socket_folder

Choose = Callable[[], str | None]
_PIECE = 1 << 16
_TRIES = 2
NOBODY = b"none of the workers can be reached"
_NOBODY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%b" % (
    len(NOBODY), NOBODY)


class Bridge:
    """Listens at a Unix socket in a private folder; each connection goes to the worker that `choose` names by URL."""

    def __init__(self, context: ssl.SSLContext, choose: Choose) -> None:
        self._context = context
        self._choose = choose
        self._folder: Path | None = None
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """Listen; the socket's path. Raises ServerError."""
        self._folder = socket_folder()
        path = str(self._folder / "bridge.sock")
        self._server = await asyncio.start_unix_server(self._begin, path)
        return path

    async def close(self) -> None:
        """End every connection and remove the socket."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._pass(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far: asyncio.StreamWriter | None = None
        try:
            found = await self._reach()
            if found is None:
                writer.write(_NOBODY)
                return
            back, far = found
            ways = [asyncio.ensure_future(_copy(reader, far)), asyncio.ensure_future(_copy(back, writer))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except (OSError, TimeoutError):
            return
        finally:
            for one in (writer, far):
                if one is not None:
                    with contextlib.suppress(OSError, RuntimeError):
                        one.close()

    async def _reach(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """A connection to a worker; another worker where the first can't be reached: nothing has been sent yet."""
        for url in (self._choose() for _ in range(_TRIES)):
            place = urlsplit(url or "")
            with contextlib.suppress(OSError):
                async with asyncio.timeout(10):
                    if url is not None:
                        return await asyncio.open_connection(place.hostname, place.port, ssl=self._context)
        return None


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while piece := await source.read(_PIECE):
        target.write(piece)
        await target.drain()
