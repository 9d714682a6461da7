"""The relay and its clients: streams, those who go away, those who dawdle, and its own end."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from automate.serving.relay.own import NotOwnError, asked, check_own, owner_of
from automate.serving.relay.relay import Asked, Patience, Target
from tests.unit.relay_rig import (
    PATIENCE,
    Client,
    Seen,
    ask,
    both_loops,
    client,
    ok,
    request,
    rig,
)

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Stepwise:
    """An upstream that sends a piece of a stream whenever it is let."""

    def __init__(self) -> None:
        self.steps: asyncio.Queue[bytes] = asyncio.Queue()
        self.left = asyncio.Event()

    async def __call__(self, _: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM)
        watching = asyncio.create_task(reader.read(1))
        watching.add_done_callback(lambda _: self.left.set())
        try:
            while True:
                step = asyncio.create_task(self.steps.get())
                await asyncio.wait({watching, step}, return_when=asyncio.FIRST_COMPLETED)
                if watching.done():
                    step.cancel()
                    raise ConnectionError
                piece = step.result()
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                if not piece:
                    return
        finally:
            watching.cancel()
            await asyncio.wait({watching})


@both_loops
async def test_a_stream_comes_piece_by_piece() -> None:
    script = Stepwise()
    async with rig(script) as one, client(one.port) as raw:
        await raw.send(request())
        await raw.reader.readuntil(b"\r\n\r\n")
        pieces = raw.chunks()
        for word in (b"one", b"two", b"three"):
            script.steps.put_nowait(word)
            assert await asyncio.wait_for(anext(pieces), PATIENCE) == word  # the next is only sent after this one came
        assert (one.relay.in_flight, one.count.now) == (1, 1)
        script.steps.put_nowait(b"")
        assert [piece async for piece in pieces] == []
        await one.quiet()


@both_loops
async def test_a_client_that_leaves_in_the_middle_ends_the_upstreams_work() -> None:
    script = Stepwise()
    async with rig(script) as one:
        for cut in (True, False):
            script.left.clear()
            async with client(one.port) as raw:
                await raw.send(request())
                await raw.reader.readuntil(b"\r\n\r\n")
                assert one.relay.in_flight == 1
                if cut:
                    raw.cut()
            await asyncio.wait_for(script.left.wait(), PATIENCE)
            await one.quiet()
        assert one.count.all == 2


@both_loops
async def test_a_client_that_leaves_before_the_reply_ends_the_upstreams_work() -> None:
    async def silent(_: Seen, reader: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        assert await reader.read(1) == b""
        raise ConnectionError

    async with rig(silent) as one:
        async with client(one.port) as raw:
            await raw.send(request())
            await one.until(lambda: one.upstream.seen)
            assert one.relay.in_flight == 1
        await asyncio.wait_for(one.upstream.gone.wait(), PATIENCE)
        await one.quiet()


@both_loops
async def test_a_client_that_leaves_while_it_waits_for_a_target_is_forgotten() -> None:
    cancelled, waiting = asyncio.Event(), asyncio.Event()

    async def pick(_: Asked) -> Target:
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    async with rig(pick=pick) as one:
        async with client(one.port) as raw:
            await raw.send(request())
            await asyncio.wait_for(waiting.wait(), PATIENCE)
            assert one.relay.in_flight == 0
        await asyncio.wait_for(cancelled.wait(), PATIENCE)
        assert one.count.all == 0


@both_loops
async def test_who_does_not_read_holds_the_upstream_back_and_loses_nothing() -> None:
    piece, total, sent = b"x" * (64 << 10), 1000, 0

    async def flood(_: Seen, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(piece) * total))
        for _number in range(total):
            writer.write(piece)
            await writer.drain()
            sent += 1

    async with rig(flood) as one:
        reader, writer = await asyncio.open_connection("127.0.0.1", one.port, limit=1 << 16)
        writer.write(request())
        await one.until(lambda: sent)
        before = 0
        while before != sent:  # until the upstream stands still
            before = sent
            await asyncio.sleep(0.2)
        assert 0 < sent < total / 2
        await reader.readuntil(b"\r\n\r\n")
        assert len(await asyncio.wait_for(reader.readexactly(len(piece) * total), PATIENCE)) == len(piece) * total
        writer.close()


@both_loops
async def test_requests_of_one_connection_are_served_one_after_the_other() -> None:
    async def echo(seen: Seen, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0)
        writer.write(ok(seen.body))

    words = [f"{number}:{'x' * (number % 7) * 1000}" for number in range(200)]
    async with rig(echo) as one, client(one.port) as raw:
        sending = asyncio.create_task(raw.send(b"".join(map(request, words))))
        assert [(await raw.reply()).body.decode() for _ in words] == words
        await sending
        assert (one.upstream.most_at_once, one.upstream.connections) == (1, 1)


@both_loops
async def test_a_drained_relay_finishes_what_it_has_and_takes_nothing_new() -> None:
    script = Stepwise()
    async with rig(script) as one, client(one.port) as old, client(one.port) as kept:
        await kept.send(request(method="GET", path="/health", key=False))
        script.steps.put_nowait(b"")
        assert (await kept.reply()).status == 200
        await old.send(request())
        await old.reader.readuntil(b"\r\n\r\n")
        draining = asyncio.create_task(one.relay.drain(PATIENCE))
        await asyncio.sleep(0)
        await kept.send(request())
        for reply in (await kept.reply(), await ask(one.port, request())):
            assert (reply.status, reply.headers["connection"], reply.error["code"]) == (503, "close", 503)
            assert int(reply.headers["retry-after"]) > 0
        assert not draining.done()
        script.steps.put_nowait(b"end")
        script.steps.put_nowait(b"")
        assert [piece async for piece in old.chunks()] == [b"end"]
        await draining
        assert one.relay.in_flight == 0


@both_loops
async def test_the_end_does_not_wait_for_ever() -> None:
    script = Stepwise()
    async with rig(script) as one, client(one.port) as begun, client(one.port) as idle:
        await begun.send(request())
        await begun.reader.readuntil(b"\r\n\r\n")
        await one.relay.drain(0.01)
        assert one.relay.in_flight == 1
        await one.relay.close()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await anext(begun.chunks())
        assert await idle.closed() == b""
        await one.quiet()


@both_loops
async def test_who_waits_for_a_target_at_the_end_is_told() -> None:
    waiting = asyncio.Event()

    async def pick(_: Asked) -> Target:
        waiting.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with rig(pick=pick) as one, client(one.port) as raw:
        await raw.send(request())
        await waiting.wait()
        await one.relay.close()
        assert (await raw.reply()).status == 503
        assert await raw.closed() == b""


QUICK = Patience(stranger=0.2, idle=0.2, head=0.2, body=0.2, stuck=0.2)


@pytest.mark.parametrize(("begun", "status"), [
    (b"", None), (b"POST / HT", 408), (request("abc")[:-2], 408), (request("abc", key=False)[:-2], 408),
    (request(method="GET", path="/health", key=False), 200), (request("abc"), 200),
], ids=["nothing", "a line", "a body", "a body without the key", "an open path", "a request"])
@both_loops
async def test_who_dawdles_is_cut_off(begun: bytes, status: int | None) -> None:
    async with rig(patience=QUICK) as one, client(one.port) as raw:
        await raw.send(begun)
        if status is not None:
            assert (await raw.reply()).status == status
        assert await raw.closed() == b""


@both_loops
async def test_who_never_reads_the_reply_is_cut_off_in_the_end() -> None:
    async def flood(_: Seen, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        while True:
            writer.write(b"x" * 100_000)
            await writer.drain()

    async with rig(flood, patience=QUICK) as one:
        with socket.create_connection(("127.0.0.1", one.port)) as raw:
            raw.sendall(request())
            await asyncio.wait_for(one.upstream.gone.wait(), PATIENCE)
            await one.quiet()


@both_loops
async def test_strangers_do_not_keep_friends_out() -> None:
    async with rig(most=10) as one, client(one.port) as friend:
        await friend.send(request())
        assert (await friend.reply()).status == 200
        strangers = [await asyncio.open_connection("127.0.0.1", one.port) for _ in range(50)]
        await friend.send(request())
        assert (await friend.reply()).status == 200
        assert (await ask(one.port, request())).status == 200
        assert await asyncio.wait_for(strangers[0][0].read(), PATIENCE) == b""
        for _, writer in strangers:
            writer.close()


@both_loops
async def test_a_full_house_closes_on_the_newest() -> None:
    async with rig(most=1) as one, client(one.port) as friend:
        await friend.send(request())
        assert (await friend.reply()).status == 200
        async with client(one.port) as late:
            assert await late.closed() == b""
        await friend.send(request())
        assert (await friend.reply()).status == 200


@both_loops
async def test_an_early_reply_ends_the_connection_it_came_by() -> None:
    async def hasty(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(ok())
        await writer.drain()
        await asyncio.Event().wait()

    async with rig() as one:
        path = one.upstream.socket + "-hasty"
        server = await asyncio.start_unix_server(hasty, path, limit=1024)
        one.target.append(Target(uds=path))
        for _ in range(2):
            assert (await ask(one.port, request("x" * 10_000_000))).status == 200
        server.close()


# --- TLS ----------------------------------------------------------------------------------------------
def certificate(folder: Path) -> Path:
    path = folder / "certificate.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                    "-keyout", path, "-out", folder / "only.pem"], check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + (folder / "only.pem").read_bytes())
    return path


@both_loops
async def test_over_tls_all_is_the_same(tmp_path: Path) -> None:
    path, server = certificate(tmp_path), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(path)
    trusting = ssl.create_default_context(cafile=path)
    script = Stepwise()

    async with rig(script, tls=server) as one:
        async def connect() -> Any:
            reader, writer = await asyncio.open_connection("127.0.0.1", one.port, ssl=trusting,
                                                           server_hostname="localhost")
            return reader, writer

        raw = Client(*await connect())
        await raw.send(request("x" * 300_000))
        await raw.reader.readuntil(b"\r\n\r\n")
        pieces = raw.chunks()
        for word in (b"one", b"y" * 100_000):
            script.steps.put_nowait(word)
            assert await asyncio.wait_for(anext(pieces), PATIENCE) == word
        raw.cut()
        await asyncio.wait_for(script.left.wait(), PATIENCE)
        raw = Client(*await connect())
        await raw.send(request("x" * 3_000_000, key=False))
        assert (await raw.reply()).status == 401
        raw.cut()
        await one.quiet()


# --- whose process it is ------------------------------------------------------------------------------
TABLE = b"""  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     7        0 111 1 0 100 0 0 10 0
   1: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1001        0 222 1 0 20 4 30 10 -1
   2: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1002        0 333 1 0 20 4 30 10 -1
   3: 0100007F:1F90 0100007F:C351 01 00000000:00000000 00:00000000 00000000     0        0 0 1 0 20 4 30 10 -1
"""


@pytest.mark.skipif(sys.byteorder != "little", reason="the table is one of a little-endian machine")
def test_the_owner_is_that_of_the_other_end() -> None:
    server = ("127.0.0.1", 8080)
    assert owner_of(TABLE, server, ("127.0.0.1", 50000)) == 1001
    assert owner_of(TABLE, server, ("127.0.0.1", 50001)) is None  # nobody has accepted it yet
    assert owner_of(TABLE, server, ("127.0.0.1", 50002)) is None
    assert owner_of(b"", server, ("127.0.0.1", 50000)) is None


@both_loops
async def test_a_process_of_ones_own_is_used() -> None:
    async with rig() as one:
        server = await asyncio.start_server(one.upstream.serve, "127.0.0.1")
        one.target.append(Target(port=server.sockets[0].getsockname()[1], own=True))
        assert [(await ask(one.port, request())).status for _ in range(3)] == [200] * 3
        server.close()


OTHERS = """
import os, socket
one = socket.create_server(("127.0.0.1", 0))
os.setuid(65534)
print(one.getsockname()[1], flush=True)
while True:
    other, _ = one.accept()
    other.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 4\\r\\n\\r\\nfake")
    print(other.recv(65536), flush=True)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
@both_loops
async def test_another_users_process_gets_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", OTHERS], stdout=subprocess.PIPE) as process:  # noqa: ASYNC220
        assert process.stdout is not None
        port = int(process.stdout.readline())
        async with rig() as one:
            one.target.append(Target(port=port, own=True, forward_key=True))
            reply = await ask(one.port, request("a secret game"))
        process.kill()
        assert (reply.status, "another user" in reply.error["message"]) == (502, True)
        assert process.stdout.read() in (b"", b"b''\n")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux answers such questions")
def test_the_kernel_says_whose_a_connection_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as ours:
        theirs, mine = ours.getpeername(), ours.getsockname()
        assert asked(theirs, mine) is None  # nobody has accepted it yet
        held, _ = server.accept()
        with held:
            assert asked(theirs, mine) == os.geteuid()
            assert asked((theirs[0], 1), mine) is None


@both_loops
async def test_without_the_table_nobody_is_ones_own(tmp_path: Path) -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1")
    port = server.sockets[0].getsockname()[1]
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, "127.0.0.1", port)
    (tmp_path / "table").write_bytes(TABLE.replace(b"0100007F:1F90", b"0100007F:%04X" % port).replace(
        b"0100007F:C350", b"0100007F:%04X" % transport.get_extra_info("sockname")[1]))
    for table, what in ((tmp_path / "none", "can't be read"), (tmp_path / "table", "another user")):
        with pytest.raises(NotOwnError, match=what):
            await check_own(transport, table)
    transport.close()
    server.close()
