"""The relay under connections that never begin TLS, in a process that may open few files; refusals."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from automate.serving.relay import client as relay_client
from automate.serving.relay.relay import Answer, Asked, Patience, Target
from automate.serving.relay.terms import error_answer
from tests.unit.relay_rig import KEY, PATIENCE, ask, both_loops, client, ok, request, rig
from tests.unit.test_relay_clients import certificate

LIMIT, FLOOD = 256, 400
RELAY = """
import asyncio, os, resource, ssl, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), int(sys.argv[2])))
from automate.serving.relay.relay import Answer, Relay

async def pick(asked):
    opened = [open(os.devnull) for _ in range(40)]  # what the process does besides
    for one in opened:
        one.close()
    return Answer(200, b"{}")

async def main():
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(sys.argv[1])
    print(await Relay(sys.argv[3], pick, tls=tls).start("127.0.0.1"), flush=True)
    await asyncio.Event().wait()

if sys.argv[4] == "uvloop":
    import uvloop as loop
else:
    loop = asyncio
loop.run(main())
"""


@contextmanager
def child(path: Path, kind: str) -> Iterator[int]:
    """A relay with TLS in a process that may open few files; its port."""
    with subprocess.Popen([sys.executable, "-c", RELAY, str(path), str(LIMIT), KEY, kind],
                          stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


@contextmanager
def flood(port: int) -> Iterator[None]:
    """Hundreds of connections on which nothing is said; new ones come all the time, none is given up."""
    held: list[socket.socket] = []
    stop, full = threading.Event(), threading.Event()

    def run() -> None:
        while not stop.is_set():
            held.append(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
            if len(held) >= FLOOD:
                full.set()
                held.pop(0).close()
                stop.wait(0.01)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert full.wait(PATIENCE)
        yield
    finally:
        stop.set()
        thread.join(PATIENCE)
        for one in held:
            one.close()


def say(port: int, tls: ssl.SSLContext) -> bytes:
    """A keyed request by a connection of its own: the first line of the reply."""
    with (socket.create_connection(("127.0.0.1", port), timeout=8) as raw,
          tls.wrap_socket(raw, server_hostname="localhost") as sock):
        sock.sendall(request())
        return sock.recv(1 << 16).partition(b"\r\n")[0]


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_connections_without_tls_keep_nobody_out(tmp_path: Path, kind: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    path = certificate(tmp_path)
    tls = ssl.create_default_context(cafile=path)
    with child(path, kind) as port, flood(port):
        assert [say(port, tls) for _ in range(20)] == [b"HTTP/1.1 200 OK"] * 20


@both_loops
async def test_who_never_begins_tls_is_counted_and_cut_off(tmp_path: Path) -> None:
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificate(tmp_path))
    async with rig(tls=server, most=4, patience=Patience(handshake=PATIENCE / 2)) as one:
        silent = [await asyncio.open_connection("127.0.0.1", one.port) for _ in range(6)]
        for reader, _ in silent[:2]:
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await asyncio.wait_for(reader.readexactly(1), PATIENCE / 4)
        for _, writer in silent:
            writer.close()
    async with rig(tls=server, patience=Patience(handshake=0.1)) as one:
        reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await asyncio.wait_for(reader.readexactly(1), PATIENCE)
        writer.close()
        assert not one.relay._house.arriving
        assert not one.relay._house.strangers


@both_loops
async def test_who_is_cut_off_reads_why_and_then_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The relay ends its side after a refusal, while the client still sends: nothing of the answer is lost by that."""
    monkeypatch.setattr(relay_client, "LINGER", 1000.0)
    async with rig(largest=1000) as one, client(one.port) as raw:
        await raw.send(b"".join((request("x" * 5000)[:200], b"x" * 100)))
        assert (await raw.reply()).status == 413
        assert await asyncio.wait_for(raw.reader.read(), PATIENCE) == b""  # though it isn't closed yet
        await raw.send(b"x" * 4000)


@both_loops
async def test_a_coded_body_is_refused_and_a_plain_one_is_not() -> None:
    async def echo(seen: object, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(ok())

    def coded(how: str, *, key: bool = True) -> bytes:
        return request("abc", key=key).replace(b"\r\n", f"\r\nContent-Encoding: {how}\r\n".encode(), 1)

    async with rig(echo) as one:
        for how in ("gzip", "GZIP", "identity, gzip", "zstd"):
            reply = await ask(one.port, coded(how))
            assert (reply.status, "Content-Encoding" in reply.error["message"]) == (415, True)
        assert (await ask(one.port, coded("gzip", key=False))).status == 401
        assert not one.upstream.seen
        assert (await ask(one.port, coded("identity"))).status == 200


def text(status: int, body: bytes, extra: bytes = b"") -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Type: text/plain\r\n%bContent-Length: %d\r\n\r\n%b" % (
        status, extra, len(body), body)


@both_loops
async def test_a_plain_error_is_mended_where_the_target_says_so_and_nothing_else_is() -> None:
    replies = [text(503, b"none"), text(503, b"none"), ok(b'{"said":2}'), text(422, b"wrong"), text(200, b"fine"),
               ok(b"{}").replace(b"200 OK", b"503 No"), text(500, b"x" * 9000)]
    asked: list[tuple[str, int, bytes, bool]] = []

    async def script(_: object, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(replies.pop(0))

    async with rig(script) as one:
        target = Target(uds=one.upstream.socket, mend=True)
        one.target.append(target)

        async def mend(request: Asked, status: int, body: bytes, waited: float) -> Target | Answer:
            assert one.relay.in_flight == 1
            asked.append((request.path, status, body, waited > 0))
            return target if status == 503 else error_answer(status, body.decode())

        one.relay._trade.mend = mend
        async with client(one.port) as raw:
            for expected in (200, 422, 200, 503, 500):
                await raw.send(request())
                assert (await raw.reply()).status == expected
        assert [(status, body, again) for _, status, body, again in asked] == [
            (503, b"none", False), (503, b"none", True), (422, b"wrong", False)]
        one.target.append(replace(target, mend=False))
        replies.append(text(503, b"none"))
        assert (await ask(one.port, request())).body == b"none"
        assert (len(asked), one.relay.in_flight, one.count.now) == (3, 0, 0)
