"""The router's throughput next to requests that go straight to the workers: front, vllm-router and worker relays.

python benchmarks/router.py [--rounds N] [--in-flight N] [--policy P ...]; all on loopback, one table."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import resource
import secrets
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import httptools
import msgspec
import orjson
import psutil
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from automate.claims import myself
from automate.fleet_places import FleetPlaces
from automate.serving.fleet.keys import client_context, make_secrets, read_secrets, server_context
from automate.serving.fleet.records import FleetSpec, Group, WorkerRecord
from automate.serving.fleet.registry import register
from automate.serving.relay.relay import Answer, Asked, Relay, Target
from automate.serving.router.process import RouterLaunch, RouterProcess
from benchmarks.relay_load import Backend
from benchmarks.support import busy, print_table, spread, wait_for_quiet

ROOT, HOST, MODEL, VERSION = Path(__file__).resolve().parents[1], "127.0.0.1", "light", "0.1.0"
QUESTIONS = 64
GOAL = 0.8


class Asker(asyncio.Protocol):
    """One connection that asks again, another question each time, as soon as it is answered."""

    def __init__(self, requests: Sequence[bytes], first: int, counts: list[int]) -> None:
        self._requests, self._next, self._counts = requests, first, counts
        self._parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._counts[self._parser.get_status_code() != 200] += 1
        self._ask()

    def _ask(self) -> None:
        self._next = (self._next + 1) % len(self._requests)
        self._transport.write(self._requests[self._next])


def request_of(number: int, size: int, key: str) -> bytes:
    """A chat request about one question, with a prompt of so many bytes."""
    text = f"question {number} " + "".join(chr(97 + (number * 7 + i * i) % 26) for i in range(size - 14))
    body = msgspec.json.encode({"model": MODEL, "messages": [{"role": "user", "content": text}], "temperature": 0.0,
                                "max_tokens": 4096})
    head = ("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nUser-Agent: measurement\r\n"
            f"Authorization: Bearer {key}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n")
    return head.encode() + body


# --- parts: each in a process of its own ---------------------------------------------------------------
async def worker(places: FleetPlaces, name: str, latency: float) -> None:
    """A worker: its relay with TLS before a light backend in the same process; beats until it is killed."""
    spec = FleetSpec.of(orjson.loads(places.spec.read_bytes()), "")
    loop, socket = asyncio.get_running_loop(), str(places.root / f"{name}.sock")
    server = await loop.create_unix_server(lambda: Backend(latency), socket, backlog=4096)
    target, nonce = Target(uds=socket), secrets.token_hex(8)
    said = orjson.dumps({"id": name, "nonce": nonce, "fleet": spec.id, "model": MODEL, "also": [], "version": VERSION})

    def quick(asked: Asked) -> Target | Answer:
        if asked.path.endswith(("/render", "/tokenize")):
            return Answer(200, b'{"token_ids":[1,2,3],"count":3,"tokens":[1,2,3]}')
        return Answer(200, said) if asked.path in ("/flock-hpc/worker", "/health") else target

    async def pick(asked: Asked) -> Target | Answer:
        return quick(asked)

    relay = Relay(places.key.read_text().strip(), pick, tls=server_context(places, HOST), quick=quick)
    port = await relay.start(HOST)
    record = WorkerRecord(name, spec.id, 1, MODEL, HOST, port, nonce, VERSION, myself(), None, "here")
    while server.is_serving():
        record = record.beaten(time.time())
        register(places, record)
        await asyncio.sleep(spec.heartbeat)


async def load(places: FleetPlaces, ports: Sequence[int], args: argparse.Namespace, tls: ssl.SSLContext | None) -> None:
    """Ask for some seconds; print requests a second, failures, and CPU seconds a request of this process."""
    key = places.key.read_text().strip()
    requests = [request_of(number, args.size, key) for number in range(QUESTIONS)]
    counts, loop = [0, 0], asyncio.get_running_loop()
    for number in range(args.in_flight):
        await loop.create_connection(lambda first=number: Asker(requests, first, counts), HOST,
                                     ports[number % len(ports)], ssl=tls, server_hostname=HOST if tls else None)
    await asyncio.sleep(args.warm)
    before, began, used = counts[0], loop.time(), _cpu()
    await asyncio.sleep(args.seconds)
    done = counts[0] - before
    print(done / (loop.time() - began), counts[1], (_cpu() - used) / max(1, done), flush=True)


def _cpu() -> float:
    return sum(resource.getrusage(resource.RUSAGE_SELF)[:2])


# --- the measurement -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class Run:
    """Requests a second, and CPU microseconds a request of client, front and vllm-router."""

    rate: float
    client: float
    front: float = 0.0
    router: float = 0.0


def make_fleet(root: Path) -> FleetPlaces:
    """A fleet of one model on disk."""
    places = FleetPlaces(root, "bench")
    (root / "flock-hpc.yaml").write_text("cluster: local\n")
    make_secrets(places)
    for folder in (places.workers, places.users, places.gone):
        folder.mkdir(exist_ok=True)
    group = Group(1, MODEL, "worker_1.sh", 1, 4)
    spec = FleetSpec("bench", "b1", VERSION, time.time(), "me", "local", (group,), "p", heartbeat=1.0)
    places.spec.write_bytes(orjson.dumps(spec.as_json()))
    return places


def measure(places: FleetPlaces, ports: Sequence[int], args: argparse.Namespace, tls: bool) -> tuple[float, float]:
    """Requests a second, and the client's CPU seconds a request; ends the program where requests failed."""
    words = [sys.executable, __file__, "--part", "load", "--root", str(places.root), "--seconds", str(args.seconds),
             "--in-flight", str(args.in_flight), "--size", str(args.size), "--ports", *map(str, ports)]
    done = subprocess.run([*words, *(["--tls"] if tls else [])], text=True, check=True, stdout=subprocess.PIPE)
    rate, failed, used = map(float, done.stdout.split())
    if failed:
        sys.exit(f"{failed:.0f} requests failed")
    return rate, used


@contextlib.contextmanager
def child(words: Sequence[str], cwd: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended at the end."""
    with log.open("wb") as out:
        process = subprocess.Popen(words, cwd=cwd, stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


@contextlib.contextmanager
def front(places: FleetPlaces, policy: str) -> Iterator[tuple[int, psutil.Process, psutil.Process]]:
    """The command `router`: its port, its process, and vllm-router's."""
    log = places.root / "router.log"
    with child([sys.executable, "-m", "automate", "router", "--port", "0", "--policy", policy], places.root,
               log) as process:
        while " started with " not in log.read_text():
            if process.poll() is not None:
                sys.exit(log.read_text())
            time.sleep(0.1)
        own = psutil.Process(process.pid)
        below = max(own.children(recursive=True), key=lambda one: one.create_time())
        yield int(log.read_text().split("OPENAI_BASE_URL=http://127.0.0.1:")[1].split("/")[0]), own, below


def used_by(process: psutil.Process) -> float:
    """CPU seconds of a process."""
    return float(sum(process.cpu_times()[:2]))


def through(places: FleetPlaces, policy: str, args: argparse.Namespace) -> Run:
    """One run through front, vllm-router and workers."""
    with front(places, policy) as (port, own, below):
        warm = argparse.Namespace(**{**vars(args), "seconds": 1.0})
        measure(places, [port], warm, tls=False)
        before, asked = (used_by(own), used_by(below)), args.seconds + args.warm
        rate, client = measure(places, [port], args, tls=False)
        asked *= rate
        return Run(rate, client, (used_by(own) - before[0]) / asked, (used_by(below) - before[1]) / asked)


def alone(places: FleetPlaces, policy: str, urls: Sequence[str], args: argparse.Namespace) -> Run:
    """One run through vllm-router without a front before it."""
    async def run() -> Run:
        launch = RouterLaunch(MODEL, policy, read_secrets(places).authority, places.root / "alone.log")
        process = await RouterProcess.start(launch, urls)
        try:
            return Run(*await asyncio.to_thread(measure, places, [process.port], args, False))
        finally:
            await process.end()

    return asyncio.run(run())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--warm", type=float, default=1.0)
    parser.add_argument("--in-flight", type=int, default=256)
    parser.add_argument("--size", type=int, default=8192, help="bytes of a prompt")
    parser.add_argument("--latency", type=float, default=0.05, help="seconds that the backend takes")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--policy", nargs="+", default=["consistent_hash", "power_of_two", "cache_aware"])
    parser.add_argument("--part", choices=["worker", "load"], help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--ports", type=int, nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--tls", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.part == "worker":
        uvloop.run(worker(FleetPlaces(args.root, "bench"), args.worker, args.latency))
    elif args.part == "load":
        places = FleetPlaces(args.root, "bench")
        uvloop.run(load(places, args.ports, args, client_context(read_secrets(places)) if args.tls else None))
    else:
        play(args)


def play(args: argparse.Namespace) -> None:
    """Every route by turns, and the table."""
    runs: dict[str, list[Run]] = {}
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        places = make_fleet(Path(name))
        for number in range(args.workers):
            words = [sys.executable, __file__, "--part", "worker", "--root", name, "--worker", f"w{number}",
                     "--latency", str(args.latency)]
            stack.enter_context(child(words, ROOT, places.root / f"w{number}.log"))
        while len(list(places.workers.glob("w*.json"))) < args.workers:
            time.sleep(0.1)
        records = [orjson.loads(path.read_bytes()) for path in places.workers.glob("w*.json")]
        ports = [record["port"] for record in records]
        urls = [f"https://{HOST}:{port}" for port in ports]
        wait_for_quiet(20)
        for _ in range(args.rounds):
            runs.setdefault("direct to the workers", []).append(Run(*measure(places, ports, args, tls=True)))
            for policy in args.policy:
                runs.setdefault(f"vllm-router alone, {policy}", []).append(alone(places, policy, urls, args))
                runs.setdefault(f"router, {policy}", []).append(through(places, policy, args))
    show(runs)


def show(runs: dict[str, list[Run]]) -> None:
    """The table."""
    direct = runs["direct to the workers"]
    rows = []
    for route, played in runs.items():
        ratio = statistics.median(one.rate / other.rate for one, other in zip(played, direct, strict=True))
        used = [[getattr(one, name) for one in played] for name in ("client", "front", "router")]
        rows.append([route, spread([one.rate for one in played]), f"{ratio:.2f}",
                     *(f"{statistics.median(values) * 1e6:.0f}" if any(values) else "-" for values in used)])
    print_table(["route", "requests/s", "next to direct", "client, CPU µs", "front, CPU µs", "vllm-router, CPU µs"],
                rows)
    print(f"goal: at least {GOAL}; {busy()}")


if __name__ == "__main__":
    main()
