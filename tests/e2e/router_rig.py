"""What the router's tests share: a fleet on disk, and its workers as processes (a rehearsal judge behind a relay).

`python -m tests.e2e.router_rig ROOT FLEET GROUP WORKER` is such a worker; it ends on SIGTERM, and unregisters then."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import orjson
import yaml
from aiohttp import web

from automate import __version__
from automate.claims import myself
from automate.errors import StorageError
from automate.fleet_places import FleetPlaces
from automate.journal import write_json
from automate.serving.fleet.keys import make_secrets, server_context
from automate.serving.fleet.records import FleetSpec, Group, WorkerRecord
from automate.serving.fleet.registry import read_spec, register, unregister
from automate.serving.rehearsal import make_app
from automate.serving.rehearsal_behaviour import Behaviour
from automate.serving.relay.relay import Answer, Asked, Relay, Target

PROJECT = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"
DEADLINE = 60.0


def make_fleet(root: Path, groups: dict[str, tuple[str, ...]], name: str = "main", **spec: object) -> FleetPlaces:
    """A fleet with a group for each model (name: its adapters), its folder, key and authority."""
    (root / "flock-hpc.yaml").write_text(yaml.safe_dump({"cluster": "local"}))
    places = FleetPlaces(root, name)
    make_secrets(places)
    for folder in (places.workers, places.gone, places.users, places.home / "retired"):
        folder.mkdir(mode=0o700, exist_ok=True)
    rows = tuple(Group(number, model, f"worker_{number}.sh", 1, 4, also=also)
                 for number, (model, also) in enumerate(groups.items(), 1))
    made = FleetSpec(name, secrets.token_hex(4), __version__, time.time(), "me", "local", rows, "print", heartbeat=0.5,
                     stale=3.0)
    write_json(places.spec, replace(made, **spec).as_json())  # type: ignore[arg-type]
    return places


def until(true: Callable[[], object], what: str, seconds: float = DEADLINE) -> None:
    """Wait until something is so; fails with `what` after a deadline."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.05)


class Child:
    """A process of the test with its output in a file; killed at the end whatever happens."""

    def __init__(self, command: list[str], cwd: Path, log: Path) -> None:
        self.log = log
        with log.open("ab") as file:
            self.process = subprocess.Popen(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                                            env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(PROJECT)})

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(DEADLINE)


@contextlib.contextmanager
def worker(places: FleetPlaces, group: int, name: str, *options: str) -> Iterator[Child]:
    """A worker of the fleet as a process; registered when this returns."""
    command = [sys.executable, "-m", "tests.e2e.router_rig", str(places.root), places.name, str(group), name, *options]
    child = Child(command, PROJECT, places.root / f"{name}.log")
    try:
        until(lambda: places.worker(name).exists() or child.process.poll() is not None, f"worker {name} registers")
        assert child.process.poll() is None, child.text
        yield child
    finally:
        child.end(signal.SIGKILL)


@contextlib.contextmanager
def router(places: FleetPlaces, *options: str, port: int = 0) -> Iterator[tuple[Child, str]]:
    """The command `router`, and the URL with /v1 that it tells."""
    places.root.joinpath("router.log").unlink(missing_ok=True)
    command = [sys.executable, "-m", "automate", "router", "--port", str(port), *options]
    child = Child(command, places.root, places.root / "router.log")
    try:
        until(lambda: "Ctrl-C ends it" in child.text or child.process.poll() is not None, "the router listens")
        assert child.process.poll() is None, child.text
        yield child, child.text.split("OPENAI_BASE_URL=")[1].split()[0]
    finally:
        child.end(signal.SIGKILL)


# --- the worker's process ----------------------------------------------------------------------------
async def serve(places: FleetPlaces, number: int, name: str, options: dict[str, str]) -> None:
    spec = read_spec(places)
    assert spec is not None
    group = next(one for one in spec.groups if one.number == number)
    folder = Path(tempfile.mkdtemp(prefix="rig-"))
    socket = options.pop("uds", str(folder / "s"))
    behaviour = Behaviour(**{key: float(value) for key, value in options.items()})  # type: ignore[arg-type]
    runner = web.AppRunner(make_app(group.model, behaviour, also=group.also), access_log=None)
    await runner.setup()
    if socket == str(folder / "s"):  # else a server is there already
        await web.UnixSite(runner, socket).start()
    nonce = secrets.token_hex(8)
    identity = {"id": name, "nonce": nonce, "fleet": spec.id, "model": group.model, "also": group.also,
                "version": spec.version}

    async def pick(asked: Asked) -> Target | Answer:
        with (places.root / f"{name}.seen").open("ab") as seen:
            seen.write(f"{asked.method} {asked.path}\n".encode())
        if asked.path == "/flock-hpc/worker":
            return Answer(200, orjson.dumps(identity))
        return Target(uds=socket)

    key = places.key.read_text().strip()
    relay = Relay(key, pick, tls=server_context(places, HOST))
    port = await relay.start(HOST)
    record = WorkerRecord(name, spec.id, number, group.model, HOST, port, nonce, spec.version, myself(), None, "here",
                          also=group.also, context=4096, since=time.time())
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    while not stop.is_set():
        record = record.beaten(time.time(), in_flight=relay.in_flight)
        with contextlib.suppress(StorageError):
            register(places, record)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), spec.heartbeat)
    unregister(places, record, "told to")
    await relay.drain(5)
    await relay.close()
    await runner.cleanup()
    shutil.rmtree(folder)


if __name__ == "__main__":
    asyncio.run(serve(FleetPlaces(Path(sys.argv[1]), sys.argv[2]), int(sys.argv[3]), sys.argv[4],
                      dict(word.split("=") for word in sys.argv[5:])))
