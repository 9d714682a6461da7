"""Messages a second through `pool serve` with full durability, next to what it stands on.

python benchmarks/pool_serve.py [--messages N] [--connections N] [--rounds N]
Signed transfers over loopback; a bare Starlette app that echoes them; SQLite alone with a commit a message."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import httptools
import orjson
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from automate.pool_places import PoolPlaces
from automate.pools.desk import open_office
from automate.pools.keys import Key, load_key, make_key, verified
from automate.settings_pools import Pools

ECHO = """
import asyncio, sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
async def echo(request):
    return JSONResponse(await request.json())
app = Starlette(routes=[Route("/message", echo, methods=["POST"])])
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error", access_log=False)
"""


class Asker(asyncio.Protocol):
    """One connection that sends the next message as soon as it is answered."""

    def __init__(self, left: list[bytes], statuses: list[int], done: asyncio.Future[None]) -> None:
        self.left, self.statuses, self.done = left, statuses, done
        self.parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.ask()

    def ask(self) -> None:
        if self.left:
            self.transport.write(self.left.pop())
        elif not self.done.done():
            self.done.set_result(None)
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_message_complete(self) -> None:
        self.statuses.append(self.parser.get_status_code())
        self.parser = httptools.HttpResponseParser(self)
        asyncio.get_running_loop().call_soon(self.ask)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError("the server hung up"))


async def flood(port: int, requests: Sequence[bytes], connections: int) -> float:
    """Seconds to have all answered with 200."""
    loop = asyncio.get_running_loop()
    left, statuses = list(reversed(requests)), list[int]()
    ends = [loop.create_future() for _ in range(connections)]
    start = time.perf_counter()
    for end in ends:
        await loop.create_connection(lambda end=end: Asker(left, statuses, end), "127.0.0.1", port)  # type: ignore[misc]
    await asyncio.gather(*ends)
    took = time.perf_counter() - start
    assert statuses == [200] * len(requests), set(statuses)
    return took


def http(body: bytes) -> bytes:
    return b"POST /message HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
        len(body), body)


def now() -> int:
    return time.time_ns() // 1_000_000


def prepare(root: Path) -> tuple[Key, str]:
    """A workspace whose user has money; the user's key and the token's address."""
    (root / "flock-hpc.yaml").write_text(
        "cluster: local\npools: {http: {port: 0, requests_per_second: 10000000}}\n")
    places = PoolPlaces(root, Pools())
    with open_office(places, clock=now, wait=0) as office:
        ann, token = make_key(places.key("ann")), office.exchange.token
        raw = load_key(places.key("genesis")).sign(token, "Mint", tags={"Recipient": ann.address,
                                                                       "Quantity": str(10**12)})
        assert office.exchange.receive([verified(raw, "local")])[0].state == "handled"
    return ann, token


def transfers(key: Key, token: str, count: int) -> list[bytes]:
    """Signed transfers of one unit, to a thousand addresses in turn."""
    return [orjson.dumps(key.sign(token, "Transfer", tags={"Quantity": "1", "Recipient": f"{number % 1000:043d}"}))
            for number in range(count)]


@contextlib.contextmanager
def served(root: Path) -> Iterator[int]:
    """`pool serve` in a process of its own; its port."""
    command = [sys.executable, "-m", "automate", "pool", "serve", "--workspace", str(root)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        found = re.search(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())
        assert found is not None, "pool serve did not start"
        yield int(found[1])
    finally:
        process.terminate()
        assert process.wait(30) == 0


@contextlib.contextmanager
def echoed(port: int) -> Iterator[int]:
    """The bare app in a process of its own."""
    process = subprocess.Popen([sys.executable, "-c", ECHO, str(port)])
    try:
        deadline = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError):
                asyncio.run(_reach(port))
                break
            assert time.monotonic() < deadline, "the bare app did not start"
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(30)


async def _reach(port: int) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()


def alone(root: Path, bodies: Sequence[bytes]) -> float:
    """Seconds for SQLite to keep each body in a commit of its own, as durable as pools."""
    db = sqlite3.connect(root / "alone.sqlite", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE IF NOT EXISTS kept (seq INTEGER PRIMARY KEY, body BLOB)")
    start = time.perf_counter()
    for body in bodies:
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO kept (body) VALUES (?)", (body,))
        db.execute("COMMIT")
    took = time.perf_counter() - start
    db.close()
    return took


def inside(root: Path, bodies: Sequence[bytes], group: int) -> float:
    """Seconds for the exchange alone, without HTTP: proven and handled, `group` messages a commit."""
    places = PoolPlaces(root, Pools())
    with open_office(places, clock=now, wait=5) as office:
        start = time.perf_counter()
        for first in range(0, len(bodies), group):
            messages = [verified(orjson.loads(body), "http") for body in bodies[first:first + group]]
            assert all(one.state == "handled" for one in office.exchange.receive(messages))
        return time.perf_counter() - start


def round_of(root: Path, key: Key, token: str, count: int, connections: int) -> dict[str, float]:
    """Messages a second of each way, one after the other."""
    fast, some = transfers(key, token, count), min(count, 2000)
    few = transfers(key, token, some)
    more = transfers(key, token, count)
    one = transfers(key, token, some)
    found = {"SQLite alone, a commit a message": some / alone(root, few)}
    found["exchange without HTTP, a commit a message"] = some / inside(root, few, 1)
    found[f"exchange without HTTP, {connections} messages a commit"] = count / inside(root, more, connections)
    with served(root) as port:
        found["`pool serve`, 1 connection"] = some / uvloop.run(flood(port, [http(body) for body in one], 1))
        requests = [http(body) for body in fast]
        found[f"`pool serve`, {connections} connections"] = count / uvloop.run(flood(port, requests, connections))
    with echoed(18643) as port:
        found[f"bare Starlette app, echo, {connections} connections"] = count / uvloop.run(
            flood(port, requests, connections))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the database is made (default: a temporary folder)")
    given = parser.parse_args()
    rounds = []
    for _ in range(given.rounds):
        root = Path(tempfile.mkdtemp(prefix="pool-serve-", dir=given.folder))
        try:
            rounds.append(round_of(root, *prepare(root), given.messages, given.connections))
        finally:
            shutil.rmtree(root)
    print("| way | messages/s |\n| --- | --- |")
    for way in rounds[0]:
        rates = [one[way] for one in rounds]
        print(f"| {way} | {statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f}) |")


if __name__ == "__main__":
    main()
