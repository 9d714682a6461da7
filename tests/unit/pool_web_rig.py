"""A served workspace for tests: `pool serve` in this process, on a free port, with people who have money."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from automate.pool_places import PoolPlaces
from automate.pools.web.serving import Wanted, serve
from tests.unit.pool_support import Bench, Clock, named_key, pool_places

READY = 20


@dataclass
class Web:
    """`get` and `post` give status, headers and body (JSON where it is)."""

    places: PoolPlaces
    url: str
    token: str
    pool: str
    session: aiohttp.ClientSession
    said: list[str]
    clock: Clock
    anchors: int = 0
    ids: dict[str, str] = field(default_factory=dict)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def transfer(self, quantity: object = "5", who: str = "ann", **tags: str) -> dict[str, Any]:
        """A signed transfer to bob."""
        self.anchors += 1
        named = {"Recipient": named_key("bob").address, "Quantity": str(quantity), **tags}
        return named_key(who).sign(self.token, "Transfer", tags=named, anchor=str(self.anchors), timestamp=1)

    async def get(self, path: str, **headers: str) -> tuple[int, Any, Any]:
        async with self.session.get(self.url + path, headers=headers) as response:
            return response.status, response.headers, await _body(response)

    async def post(self, body: object, path: str = "/message", **headers: str) -> tuple[int, Any, Any]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.session.post(self.url + path, data=data, headers=headers) as response:
            return response.status, response.headers, await _body(response)

    async def balance(self, who: str) -> int:
        key = named_key(who)
        self.anchors += 1
        raw = key.sign(self.token, "Balance", anchor=f"b{self.anchors}", timestamp=1)
        status, _, body = await self.post(raw)
        assert status == 200, body
        tags = {tag["name"]: tag["value"] for tag in body["replies"][0]["Tags"]}
        return int(tags["Balance"])


async def _body(response: aiohttp.ClientResponse) -> Any:
    text = await response.text()
    return json.loads(text) if response.content_type == "application/json" and text else text


@asynccontextmanager
async def served(root: Path, prepare: Callable[[Bench], object] | None = None, **http: Any) -> AsyncIterator[Web]:
    """A workspace where ann has 100 and bob nothing, served until the end of the block."""
    given = {"host": "127.0.0.1", "port": 0, "requests_per_second": 10_000, **http}
    with Bench(root) as bench:
        bench.mint("ann", 100)
        if prepare is not None:
            prepare(bench)
        token, pool, clock = bench.exchange.token, bench.exchange.pool, bench.clock
    places = pool_places(root, http=given)
    said, stop = list[str](), asyncio.Event()
    task = asyncio.create_task(serve(Wanted(places, clock, said.append, stop=stop)))
    async with asyncio.timeout(READY):
        while not said and not task.done():  # noqa: ASYNC110 - a line on a screen is no event
            await asyncio.sleep(0.01)
    if task.done():
        task.result()
    url = said[0].split("at ")[1].split()[0]
    try:
        async with aiohttp.ClientSession() as session:
            yield Web(places, url, token, pool, session, said, clock)
    finally:
        stop.set()
        async with asyncio.timeout(READY):
            await task
