"""Clients that are slow, greedy or speak something else: each is ended, and the others are served."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from automate.pools.web import app, connection
from automate.pools.web.limits import Memory, NoMemoryError, Rates, network_of
from tests.unit.pool_web_rig import Web, served

POST = b"POST /message HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"


async def said(web: Web, *parts: bytes, pause: float = 0.0) -> bytes:
    """All that the server says on one connection to which these parts are sent; fails where it never ends it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
    try:
        async with asyncio.timeout(20):
            heard = asyncio.create_task(reader.read())
            for part in parts:
                if not heard.done():
                    writer.write(part)
                    await asyncio.wait([heard], timeout=pause)
            return await heard
    finally:
        writer.close()


@pytest.mark.parametrize("parts", [
    (), (b"GET /health HTTP/1.1\r\nHost:",), (b"\r\n",), (b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /he"),
], ids=["nothing", "half of the headers", "an empty line", "half of the next request"])
async def test_headers_must_come_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                         parts: tuple[bytes, ...]) -> None:
    monkeypatch.setattr(connection, "HEADER_SECONDS", 0.3)
    async with served(tmp_path) as web:
        found = await said(web, *parts, pause=0.1)
        assert b"408 Request Timeout" in found
        assert (await web.get("/health"))[0] == 200


async def test_headers_that_drip_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEADER_SECONDS", 0.3)
    async with served(tmp_path) as web:
        drip = (b"GET /health HTTP/1.1\r\n", *[b"X-%d: y\r\n" % number for number in range(500)])
        assert b"408" in await said(web, *drip, pause=0.05)


async def test_a_connection_without_requests_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from automate.pools.web import serving

    monkeypatch.setattr(serving, "KEEP_ALIVE", 0.2)
    async with served(tmp_path) as web:
        found = await said(web, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert found.startswith(b"HTTP/1.1 200")
        assert found.count(b"HTTP/1.1") == 1


async def test_a_body_must_come_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "GRACE", 0.1)
    async with served(tmp_path, timeout=0.3) as web:
        found = await said(web, POST, b"{", b'"')
        assert found.startswith(b"HTTP/1.1 408")
        assert b"took too long" in found


async def test_headers_have_a_size(tmp_path: Path) -> None:
    async with served(tmp_path) as web:
        found = await said(web, b"GET /health HTTP/1.1\r\n", *[b"X-%d: %s\r\n" % (number, b"y" * 4000)
                                                              for number in range(12)], pause=0.01)
        assert b"431" in found.split(b"\r\n")[0]


async def test_what_is_not_http(tmp_path: Path) -> None:
    async with served(tmp_path) as web:
        for words in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"EHLO me\r\n\r\n",
                      b"GET / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                      b"GET / HTTP/1.1\r\nContent-Length: -5\r\n\r\n"):
            found = await said(web, words)
            assert found.startswith(b"HTTP/1.1 400"), (words, found)
            assert b'"error"' in found
        assert (await web.get("/health"))[0] == 200


async def test_an_address_has_so_many_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECTIONS_EACH", 3)
    async with served(tmp_path) as web:
        held = [await asyncio.open_connection("127.0.0.1", web.port) for _ in range(3)]
        for reader, writer in held:
            writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        assert (await said(web)).startswith(b"HTTP/1.1 503")
        held[0][1].close()
        async with asyncio.timeout(10):
            while True:
                reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
                writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                line = await reader.readline()
                writer.close()
                if line.startswith(b"HTTP/1.1 200"):
                    break
        for _, writer in held:
            writer.close()


# --- the parts --------------------------------------------------------------------------------------
def test_a_bucket_fills_with_time() -> None:
    now = [0.0]
    rates = Rates(2.0, lambda: now[0])
    assert [rates.wait("a") for _ in range(4)] == [0.0] * 4
    assert rates.wait("a") == pytest.approx(0.5)
    assert rates.wait("b") == 0.0
    now[0] = 0.5
    assert rates.wait("a") == 0.0
    assert rates.wait("a") > 0


def test_addresses_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    from automate.pools.web import limits

    monkeypatch.setattr(limits, "ADDRESSES", 10)
    rates = Rates(1.0, lambda: 0.0)
    for number in range(100):
        rates.wait(f"10.0.0.{number}")
    assert len(rates._buckets) == 10


def test_whom_an_address_belongs_to() -> None:
    assert network_of("10.1.2.3") == "10.1.2.3"
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:2") != network_of("2001:db8:0:1::1")
    assert network_of("::ffff:10.1.2.3") == "10.1.2.3"
    assert network_of("fe80::1%eth0") == network_of("fe80::2")
    assert network_of("?") == "?"


def test_memory_is_given_back() -> None:
    memory = Memory(10)
    with pytest.raises(NoMemoryError), memory.share() as take:
        take(7)
        take(4)
    assert memory.left == 10
