"""The parts of the relay's measurement: a light backend, the relay in a process of its own, and a light client.

python benchmarks/relay_load.py backend|relay|load ...; each is as cheap as Python can make it."""

from __future__ import annotations

import argparse
import asyncio
import resource
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import httptools
import msgspec
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from automate.serving.relay.relay import Answer, Asked, Relay, Target

KEY = "a-key-for-the-measurement-only"
REPLY = msgspec.json.encode({"id": "x", "object": "chat.completion", "created": 1, "model": "light", "choices": [
    {"index": 0, "message": {"role": "assistant", "content": "said " * 80}, "finish_reason": "stop"}]})
_RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(REPLY), REPLY)


class Backend(asyncio.Protocol):
    """Answers every request with the same reply after some seconds."""

    def __init__(self, latency: float) -> None:
        self._latency, self._parser = latency, httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        asyncio.get_running_loop().call_later(self._latency, self._answer)

    def _answer(self) -> None:
        if not self._transport.is_closing():
            self._transport.write(_RESPONSE)


class Asker(asyncio.Protocol):
    """One connection that asks again as soon as it is answered."""

    def __init__(self, request: bytes, counts: list[int]) -> None:
        self._request, self._counts, self._parser = request, counts, httptools.HttpResponseParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._counts[self._parser.get_status_code() != 200] += 1
        self._transport.write(self._request)


def request_of(size: int) -> bytes:
    """A chat request with a prompt of so many bytes."""
    body = msgspec.json.encode({"model": "light", "messages": [{"role": "user", "content": "x" * size}],
                                "temperature": 0.0, "max_tokens": 4096})
    head = ("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate\r\n"
            f"User-Agent: measurement\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n")
    return head.encode() + body


def cpu() -> float:
    """Seconds of CPU that this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def serving_context(certificate: str) -> ssl.SSLContext:
    """A server's, with the certificate and key in this file."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    return context


async def load(args: argparse.Namespace) -> None:
    """Ask for some seconds, and print: requests a second, failures, client's CPU seconds a request, all requests."""
    context = ssl.create_default_context(cafile=args.tls) if args.tls else None
    request, counts, loop = request_of(args.size), [0, 0], asyncio.get_running_loop()
    for _ in range(args.in_flight):
        await loop.create_connection(lambda: Asker(request, counts), "127.0.0.1", args.port, ssl=context,
                                     server_hostname="localhost" if context else None)
    await asyncio.sleep(args.warm)
    before, began, used = counts[0], loop.time(), cpu()
    await asyncio.sleep(args.seconds)
    done = counts[0] - before
    print(done / (loop.time() - began), counts[1], (cpu() - used) / max(1, done), counts[0], flush=True)


async def backend(args: argparse.Namespace) -> None:
    """Serve at a Unix socket and at a TCP port; print the port."""
    loop = asyncio.get_running_loop()
    servers = [await loop.create_unix_server(lambda: Backend(args.latency), args.uds, backlog=4096)]
    for context in [None, serving_context(args.tls)] if args.tls else [None]:
        servers.append(await loop.create_server(lambda: Backend(args.latency), "127.0.0.1", 0, backlog=4096,
                                                ssl=context))
    print(*(server.sockets[0].getsockname()[1] for server in servers[1:]), flush=True)
    await asyncio.Event().wait()


async def relay(args: argparse.Namespace) -> None:
    """Relay to the Unix socket; print the port, and CPU seconds whenever a line comes."""
    target = Target(uds=args.uds)

    async def pick(_: Asked) -> Target | Answer:
        return target

    tls = serving_context(args.tls) if args.tls else None
    one = Relay(KEY, pick, tls=tls, quick=lambda _: target)
    print(await one.start("127.0.0.1"), flush=True)
    asyncio.get_running_loop().add_reader(0, lambda: (sys.stdin.readline(), print(cpu(), flush=True)))
    await asyncio.Event().wait()


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["backend", "relay", "load"])
    parser.add_argument("--uds")
    parser.add_argument("--port", type=int)
    parser.add_argument("--tls", help="PEM file: certificate and key, or the certificate to trust")
    parser.add_argument("--latency", type=float, default=0.05)
    parser.add_argument("--size", type=int, default=8192)
    parser.add_argument("--in-flight", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--warm", type=float, default=1.0)
    args = parser.parse_args(argv)
    uvloop.run({"backend": backend, "relay": relay, "load": load}[args.part](args))


if __name__ == "__main__":
    main()
