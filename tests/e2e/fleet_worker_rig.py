"""One worker of a fleet under bash, by the very script that its job would run; asked by plain urllib."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from automate import claims
from automate.campaign.fleets.planning import spec_of
from automate.fleet_places import FleetPlaces
from automate.journal import write_json
from automate.serving.fleet.keys import client_context, make_secrets, read_secrets
from automate.serving.fleet.records import FleetSpec, Wish
from automate.serving.fleet.registry import write_wish
from automate.workspace import open_workspace
from tests.e2e.support import JUDGE, environment, eventually, make_workspace, processes_of

JOB = "local-7"


@dataclass
class Rig:
    """A fleet with one group, and the workers of it that the test started."""

    root: Path
    places: FleetPlaces
    spec: FleetSpec
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8))

    @property
    def log(self) -> Path:
        return self.places.logs / "worker.out"

    def text(self) -> str:
        return " ".join(self.log.read_text().split()) if self.log.exists() else ""

    def start(self, **environ: str) -> subprocess.Popen[bytes]:
        """Run the job's script as the local queue does."""
        self.places.logs.mkdir(parents=True, exist_ok=True)
        env = environment({"FLOCK_HPC_JOB": JOB, "FLOCK_HPC_NODE": "n1", **environ})
        with self.log.open("ab") as log:
            process = subprocess.Popen(["bash", str(self.places.script(1))], env=env, stdin=subprocess.DEVNULL,
                                       stdout=log, stderr=log, start_new_session=True)
        self.started.append(process)
        return process

    def registered(self) -> list[dict[str, Any]]:
        """The records in the registry, oldest first."""
        found = []
        for path in self.places.workers.glob("*.json"):
            with contextlib.suppress(OSError, ValueError):
                found.append(json.loads(path.read_text()))
        return sorted(found, key=lambda record: record["since"])

    def gone(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted(self.places.gone.glob("*.json"))]

    def runs(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted(self.places.runs.glob("*.json"))]

    def ready(self, count: int = 1) -> dict[str, Any]:
        """Wait until so many workers are registered; the newest record."""
        def enough() -> bool:
            assert any(one.poll() is None for one in self.started), self.text()
            return len(self.registered()) >= count
        eventually(enough, "a registered worker", timeout=60)
        return self.registered()[-1]

    def ended(self, process: subprocess.Popen[bytes], timeout: float = 60) -> int:
        """Wait until a worker has ended; its exit status."""
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end: {self.text()}") from None

    def nothing_left(self) -> None:
        """No process of the fleet runs any more."""
        eventually(lambda: not processes_of(self.root), "no process left over", timeout=30)

    # --- requests -------------------------------------------------------------------------------
    def ask(self, record: dict[str, Any], path: str, body: object = None, *, key: str | None = "own",
            timeout: float = 60) -> tuple[int, Any]:
        """(status, JSON or text) of one request by TLS, with the fleet's key, another, or none."""
        secrets = read_secrets(self.places)
        headers = {"Content-Type": "application/json"}
        if key is not None:
            headers["Authorization"] = f"Bearer {secrets.key if key == 'own' else key}"
        request = urllib.request.Request(f"https://{record['host']}:{record['port']}{path}", headers=headers,
                                         data=None if body is None else json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=timeout, context=client_context(secrets)) as response:
                return response.status, _json(response.read())
        except urllib.error.HTTPError as error:
            return error.code, _json(error.read())

    def chat(self, record: dict[str, Any], text: str = "hello", model: str = "", **options: Any) -> tuple[int, Any]:
        body = {"model": model or self.spec.groups[0].model, "messages": [{"role": "user", "content": text}],
                "max_tokens": 8}
        return self.ask(record, "/v1/chat/completions", body, **options)

    def chat_later(self, record: dict[str, Any], text: str) -> Future[tuple[int, Any]]:
        """A request that is on its way when this returns."""
        future = self.threads.submit(self.chat, record, text)
        eventually(lambda: self.in_flight(record) > 0, "a request in flight", timeout=30)
        return future

    def in_flight(self, record: dict[str, Any]) -> float:
        """Requests that the model server has now, by its own metrics."""
        _, text = self.ask(record, "/metrics")
        return sum(float(line.split()[-1]) for line in str(text).splitlines() if "num_requests_running{" in line)

    def part(self, word: str) -> psutil.Process:
        """The process of the fleet whose command line holds this word."""
        return next(one for one in processes_of(self.root).values() if word in one.cmdline())

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.nothing_left()


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode()


@contextlib.contextmanager
def fleet(root: Path, *, rehearsal: dict[str, Any] | None = None, server: dict[str, Any] | None = None,
          judge: dict[str, Any] | None = None, least: int = 1, **changes: Any) -> Iterator[Rig]:
    """A fleet of the rehearsal judge, kept by the test: no worker asks for others."""
    own = {"stop_timeout": 2, "restarts": 2, **(server or {})}
    make_workspace(root, judge={"rehearsal": rehearsal or {}, "server": own, **(judge or {})})
    places = FleetPlaces(root, "house")
    spec, scripts = spec_of(open_workspace(root), [JUDGE], least, 4, name="house", executor="local",
                            python=sys.executable)
    spec = replace(spec, **{"heartbeat": 0.3, "stale": 3.0, "address": "127.0.0.1", **changes})
    make_secrets(places)
    for number, text in scripts.items():
        places.script(number).write_text(text)
    write_json(places.spec, spec.as_json())
    write_wish(places, Wish({1: least}, changed=time.time()))
    claim = claims.take(places.control_claim, stale=60)
    rig = Rig(root, places, spec)
    try:
        yield rig
    finally:
        rig.close()
        claim.release()
