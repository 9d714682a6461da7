"""What the relay's tests share: an upstream that follows a script, a relay before it, and a client of raw bytes."""

from __future__ import annotations

import asyncio
import inspect
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httptools
import orjson
import pytest
import uvloop

from automate.serving.relay.relay import Answer, Asked, Relay, Target

KEY = "the-fleet's-key"
AUTHORIZATION = f"Authorization: Bearer {KEY}\r\n"
PATIENCE = 20.0
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def both_loops(test: Callable[..., Coroutine[None, None, None]]) -> Callable[..., None]:
    """Run an async test on asyncio's own loop and on uvloop."""

    def run(loop_kind: str, **arguments: Any) -> None:
        with asyncio.Runner(loop_factory=LOOPS[loop_kind]) as runner:
            runner.run(test(**arguments))

    run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
    own = inspect.signature(run).parameters["loop_kind"]
    run.__signature__ = inspect.Signature([own, *inspect.signature(test).parameters.values()])  # type: ignore[attr-defined]
    marked: Callable[..., None] = pytest.mark.parametrize("loop_kind", list(LOOPS))(run)
    return marked


@dataclass
class Seen:
    """A request as it came to the upstream."""

    head: bytes
    body: bytes
    connection: int

    @property
    def headers(self) -> dict[str, str]:
        """Its headers by name in lower case; a name that came twice fails."""
        pairs = [line.split(": ", 1) for line in self.head.decode().split("\r\n")[1:] if line]
        assert len({name.lower() for name, _ in pairs}) == len(pairs)
        return {name.lower(): value for name, value in pairs}


Script = Callable[[Seen, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def ok(body: bytes = b'{"said":1}', extra: str = "") -> bytes:
    """A whole reply."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{extra}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def answer(_: Seen, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(ok())


def say(data: bytes) -> Script:
    """A script that says this and closes."""

    async def play(_: Seen, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        writer.close()

    return play


@dataclass
class Upstream:
    """A model server by script, at a Unix socket."""

    socket: str
    script: Script = answer
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0
    at_once: int = 0
    most_at_once: int = 0
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                seen = await read_request(reader, number)
                self.seen.append(seen)
                self.at_once += 1
                self.most_at_once = max(self.most_at_once, self.at_once)
                try:
                    await self.script(seen, reader, writer)
                finally:
                    self.at_once -= 1
        self.gone.set()
        writer.close()


async def read_request(reader: asyncio.StreamReader, connection: int) -> Seen:
    head = await reader.readuntil(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n")
                   if line.lower().startswith(b"content-length:")), 0)
    return Seen(head, await reader.readexactly(length), connection)


class Count:
    """Counts as the relay tells it."""

    def __init__(self) -> None:
        self.now = self.all = 0

    def began(self) -> None:
        self.now, self.all = self.now + 1, self.all + 1

    def ended(self) -> None:
        self.now -= 1


@dataclass
class Rig:
    """A relay with its upstream; `target`: where requests go."""

    upstream: Upstream
    relay: Relay
    port: int
    count: Count
    asked: list[Asked]
    errors: list[dict[str, Any]]
    target: list[Target | Answer]

    async def quiet(self) -> None:
        """Wait until nothing is in flight."""
        await self.until(lambda: not self.relay.in_flight and not self.count.now)

    async def until(self, ready: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not ready():  # noqa: ASYNC110
                await asyncio.sleep(0.001)


@asynccontextmanager
async def rig(script: Script = answer, **options: Any) -> AsyncIterator[Rig]:
    """A relay before a scripted upstream. In the end nothing is in flight, and no error went to the loop."""
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    with tempfile.TemporaryDirectory() as folder:
        upstream = Upstream(str(Path(folder) / "s"), script)
        server = await asyncio.start_unix_server(upstream.serve, upstream.socket)
        asked: list[Asked] = []
        targets: list[Target | Answer] = [Target(uds=upstream.socket)]

        async def pick(one: Asked) -> Target | Answer:
            asked.append(one)
            return targets[-1]

        count = Count()
        relay = Relay(KEY, options.pop("pick", pick), counting=count, **options)
        built = Rig(upstream, relay, await relay.start("127.0.0.1"), count, asked, errors, targets)
        try:
            yield built
            await built.quiet()
        finally:
            await relay.close()
            server.close()
    assert (relay.in_flight, count.now) == (0, 0)
    assert errors == []


@dataclass
class Reply:
    """A reply as a strict client reads it."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        value: dict[str, Any] = orjson.loads(self.body)["error"]
        assert set(value) == {"message", "type", "param", "code"}
        return value


class Client:
    """A connection of raw bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes | str) -> None:
        self.writer.write(data if isinstance(data, bytes) else data.encode())
        with suppress(ConnectionError):
            await self.writer.drain()

    async def reply(self, *, head_only: bool = False) -> Reply:
        """The next reply. Raises IncompleteReadError or ConnectionError where it is not whole."""
        async with asyncio.timeout(PATIENCE):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {line.split(": ")[0].lower(): line.split(": ", 1)[1] for line in head[1:] if line}
            status = int(head[0].split()[1])
            if head_only or status in (100, 204, 304):
                return Reply(status, headers, b"")
            if "content-length" in headers:
                return Reply(status, headers, await self.reader.readexactly(int(headers["content-length"])))
            if headers.get("transfer-encoding") == "chunked":
                return Reply(status, headers, b"".join([piece async for piece in self.chunks()]))
            return Reply(status, headers, await self.reader.read(-1))

    async def chunks(self) -> AsyncIterator[bytes]:
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            yield (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readexactly(2)

    async def closed(self) -> bytes:
        """What comes until the connection is closed."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read(-1)
            except ConnectionError:
                return b""

    def cut(self) -> None:
        self.writer.transport.abort()


@asynccontextmanager
async def client(port: int) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


def request(body: bytes | str = b"", path: str = "/v1/chat/completions", method: str = "POST", *, key: bool = True,
            extra: str = "") -> bytes:
    """A whole request."""
    data = body if isinstance(body, bytes) else body.encode()
    length = f"Content-Length: {len(data)}\r\n" if data or method == "POST" else ""
    return f"{method} {path} HTTP/1.1\r\nHost: h\r\n{AUTHORIZATION if key else ''}{extra}{length}\r\n".encode() + data


async def ask(port: int, data: bytes) -> Reply:
    """One request on a connection of its own."""
    async with client(port) as one:
        await one.send(data)
        return await one.reply()


class Whole:
    """Reads a stream of replies strictly, by httptools."""

    def __init__(self, data: bytes) -> None:
        self.bodies: list[bytes] = []
        self.done = 0
        self.parser = httptools.HttpResponseParser(self)
        self.parser.feed_data(data)

    def on_message_begin(self) -> None:
        self.bodies.append(b"")

    def on_body(self, body: bytes) -> None:
        self.bodies[-1] += body

    def on_message_complete(self) -> None:
        self.done += 1
