"""Who a client is behind a proxy, and clients that go away in the middle of a body."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from automate.pools.web import connection
from automate.settings_pools import PoolHttp
from tests.unit.pool_web_rig import Web, served


async def statuses(web: Web, *forwarded: str) -> list[int]:
    return [(await web.get("/openapi.json", **({"X-Forwarded-For": one} if one else {})))[0] for one in forwarded]


SLOW: dict[str, Any] = {"requests_per_second": 0.001}


async def test_without_a_proxy_the_header_says_nothing(tmp_path: Path) -> None:
    async with served(tmp_path, **SLOW) as web:
        assert await statuses(web, "10.0.0.1", "10.0.0.2") == [200, 429]


async def test_a_proxys_clients_are_told_apart(tmp_path: Path) -> None:
    async with served(tmp_path, trusted_proxies=["127.0.0.0/8"], **SLOW) as web:
        assert await statuses(web, "10.0.0.1", "10.0.0.2", "10.0.0.1", "", "") == [200, 200, 429, 200, 429]


async def test_what_a_client_says_before_the_proxy_is_not_believed(tmp_path: Path) -> None:
    async with served(tmp_path, trusted_proxies=["127.0.0.1"], **SLOW) as web:
        assert await statuses(web, "1.1.1.1, 10.0.0.1", "2.2.2.2, 10.0.0.1", "10.0.0.1, 127.0.0.1") == [200, 429, 429]


async def test_another_address_is_no_proxy(tmp_path: Path) -> None:
    async with served(tmp_path, trusted_proxies=["10.9.9.9"], **SLOW) as web:
        assert await statuses(web, "10.0.0.1", "10.0.0.2") == [200, 429]


async def held(web: Web, forwarded: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A request whose body doesn't come."""
    reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
    writer.write(f"POST /message HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: {forwarded}\r\nContent-Length: 9\r\n\r\n"
                 .encode())
    await writer.drain()
    return reader, writer


async def test_a_proxy_has_the_connections_of_all_its_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECTIONS_EACH", 2)
    async with served(tmp_path, trusted_proxies=["127.0.0.1"]) as web:
        open_now = [await held(web, "10.0.0.1") for _ in range(3)]
        done, _ = await asyncio.wait([asyncio.create_task(reader.readline()) for reader, _ in open_now],
                                     timeout=10, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result().split()[1] for task in done] == [b"503"]
        assert (await web.get("/health", **{"X-Forwarded-For": "10.0.0.2"}))[0] == 200
        for _, writer in open_now:
            writer.close()


async def test_a_client_that_goes_away_is_no_fault(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        async with served(tmp_path) as web:
            for _ in range(3):
                _, writer = await held(web, "10.0.0.1")
                writer.write(b"{")
                await writer.drain()
                assert (await web.get("/health"))[0] == 200
                writer.close()
                await writer.wait_closed()
            assert (await web.get("/health"))[0] == 200
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("proxies", [["*"], ["proxy.example"], ["0.0.0.0/0"], ["::/0"], ["10.0.0.1:80"], [""]])
def test_what_is_no_proxy(proxies: list[str]) -> None:
    with pytest.raises(ValidationError):
        PoolHttp(trusted_proxies=proxies)


def test_networks_as_they_are_meant() -> None:
    assert PoolHttp(trusted_proxies=["10.0.0.7/24", "::1", "10.1.1.1/32"]).trusted_proxies == [
        "10.0.0.0/24", "::1", "10.1.1.1"]
