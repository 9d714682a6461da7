"""A process of another user on the fleet's machine: it can neither use a worker nor register one, nor be taken for one.

The worker is a real one, by the script of its job; the outsider is a real process of another user, so the test needs
root. What the outsider is refused the owner is not: else nothing would be shown."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from automate import __version__
from automate.errors import ConfigError, FlockError
from automate.fleet_places import FleetPlaces
from automate.serving.client import Address, JudgeClient, TransportFailed
from automate.serving.fleet import keys
from automate.serving.fleet.keys import client_context, make_secrets, read_secrets
from automate.serving.fleet.members import Pace
from automate.serving.fleet.records import WorkerRecord
from automate.serving.fleet.registry import Watch, register
from automate.serving.fleet.serving import FleetServing
from tests.e2e.fleet_worker_rig import Rig, fleet
from tests.e2e.support import JUDGE, eventually, processes_of

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="starts a process of another user: needs root")

NOBODY = 65534
SECRET_TEXT = "a question that nobody else may read"
SCRIPT = Path(__file__).with_name("fleet_outsider_process.py").read_text()


@pytest.fixture
def root() -> Iterator[Path]:
    """A workspace that every user of the machine may enter and read, as on many clusters."""
    folder = Path(tempfile.mkdtemp(prefix="fhpc-outsider-"))
    folder.chmod(0o755)
    yield folder / "campaign"
    shutil.rmtree(folder)


@pytest.fixture
def rig(root: Path) -> Iterator[Rig]:
    with fleet(root) as found:
        yield found


def outsider(uid: int = NOBODY, **told: Any) -> Any:
    """What a process of another user says of what it could do."""
    done = subprocess.run([sys.executable, "-I", "-c", SCRIPT, json.dumps({"uid": uid, **told})], capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def sockets_of(rig: Rig) -> list[Path]:
    """The Unix sockets at which processes of the fleet listen."""
    inodes = {line.split()[6]: line.split()[7] for line in Path("/proc/net/unix").read_text().splitlines()[1:]
              if len(line.split()) > 7}
    found = set()
    for pid in processes_of(rig.root):
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            try:
                name = str(fd.readlink())
            except OSError:
                continue
            path = inodes.get(name.removeprefix("socket:[").removesuffix("]"), "")
            found |= {Path(path)} if path.startswith("/") else set()
    return sorted(found)


def registered(rig: Rig) -> WorkerRecord:
    record = rig.ready()
    return WorkerRecord.of(record, "here")


# Files and processes


def test_another_user_gets_at_nothing_of_the_fleet(rig: Rig) -> None:
    process = rig.start()
    record = registered(rig)
    pids, sockets = [process.pid, *processes_of(rig.root)], sockets_of(rig)
    assert sockets, "the model server listens on a Unix socket"
    told: dict[str, Any] = {"do": "meddle", "home": str(rig.places.home), "pids": pids, "sockets": [*map(str, sockets)]}
    found = outsider(**told)
    done = {name: what for name, what in found.items() if what.startswith("done")}
    assert done == {}
    assert set(found.values()) == {"PermissionError"}
    assert rig.registered()[0]["id"] == record.id
    assert [path.name for path in rig.places.workers.glob("[!.]*")] == [f"{record.id}.json"]

    mine = outsider(uid=0, **{**told, "pids": []})  # the owner may: the questions are the right ones
    assert mine.keys() < found.keys()
    assert {name: what for name, what in mine.items() if not what.startswith("done")} == {}


def test_no_command_line_or_public_file_tells_a_secret(rig: Rig) -> None:
    rig.start()
    record = registered(rig)
    assert rig.chat(rig.ready(), SECRET_TEXT)[0] == 200
    key = read_secrets(rig.places).key
    for process in processes_of(rig.root).values():
        assert key not in " ".join(process.cmdline())
        assert key not in "\n".join(process.environ().values())
    secret = {rig.places.key, rig.places.authority_key}
    files = [path for path in rig.root.rglob("*") if path.is_file() and path not in secret]
    assert rig.places.worker(record.id) in files
    for path in files:
        text = path.read_text(errors="replace")
        assert key not in text, path
        assert "PRIVATE KEY" not in text, path


# The worker's address


def requests_of(key: str) -> list[str]:
    """Requests that get nothing: every path and method, with no key or a wrong one; the last is sent without TLS."""
    body = json.dumps({"model": JUDGE, "messages": [{"role": "user", "content": "x"}], "max_tokens": 1})
    paths = ["/v1/models", "/metrics", "/flock-hpc/worker", "/tokenize", "/", "/v1", "//v1/models", "/docs", "/HEALTH",
             "/health/../metrics", "/health%2f..%2fmetrics", "/health/", "/v1/load_lora_adapter", "/sleep"]
    found = [f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n" for path in paths]
    wrong = ["", "Authorization: Bearer\r\n", "Authorization: Bearer x\r\n", f"Authorization: Basic {key}\r\n",
             f"Authorization: Bearer {key[:-1]}\r\n", f"Authorization: Bearer {key}x\r\n", f"X-Api-Key: {key}\r\n",
             f"Cookie: key={key}\r\n", f"Authorization: Bearer x\r\nX-Authorization: Bearer {key}\r\n"]
    chat = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
    found += [f"{chat}{header}Content-Length: {len(body)}\r\n\r\n{body}" for header in wrong]
    found += [f"{method} /health HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n" for method in ("POST", "DELETE")]
    right = f"{chat}Authorization: Bearer {key}\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    return [*found, right]


def test_who_has_not_the_key_gets_nothing_of_a_worker(rig: Rig) -> None:
    rig.start()
    record = registered(rig)
    requests = requests_of(read_secrets(rig.places).key)
    found = outsider(do="knock", host=record.host, port=record.port, requests=requests)
    for request, answer in zip(requests[:-1], found, strict=False):
        assert answer.startswith(("done: 'HTTP/1.1 401", "done: 'HTTP/1.1 400")), (request, answer)
    assert not found[-1].startswith("done: 'HTTP/1.1 2"), "without TLS there is no answer, whatever the key"
    assert rig.ready()["served"] == 0
    # with it, and by TLS, the same request is answered
    again = outsider(do="knock", host=record.host, port=record.port, requests=[requests[-1], requests[-1]])
    assert again[0] == "done: 'HTTP/1.1 200 OK'"


def test_a_record_that_another_user_wrote_is_not_used(rig: Rig) -> None:
    """Should one ever come into the registry: it is another user's, and says so."""
    rig.start()
    record = registered(rig)
    fake = replace(record, id="evil", nonce="evil", host="127.0.0.1", port=9)
    register(rig.places, fake)
    watch = Watch(rig.places, rig.spec, lambda job: None, version=__version__)
    assert watch.look()["evil"].usable
    os.chown(rig.places.worker("evil"), NOBODY, NOBODY)
    assert sorted(watch.look()) == [record.id]
    assert f"belongs to another user (uid {NOBODY})" in watch.bad["evil.json"]


# Impostors


class Impostor:
    """A process of another user that listens where a worker did. `stop()` tells what it received."""

    def __init__(self, record: WorkerRecord, certificate: Path | None, uid: int = NOBODY) -> None:
        told = {"uid": uid, "do": "impersonate", "host": record.host, "port": record.port,
                "certificate": str(certificate) if certificate else None}
        self._process = subprocess.Popen([sys.executable, "-I", "-c", SCRIPT, json.dumps(told)], text=True,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def stop(self) -> tuple[int, bytes]:
        """(how many connections came, all bytes that could be read of them)."""
        out, _ = self._process.communicate(timeout=60)
        found = json.loads(out)
        return found["came"], base64.b64decode(found["received"])


def killed(rig: Rig, process: subprocess.Popen[bytes]) -> None:
    """End a worker and all it started, without a last word: its record stays, and its port is free."""
    everything = [psutil.Process(process.pid), *processes_of(rig.root).values()]
    for one in everything:
        one.send_signal(signal.SIGKILL)
    process.wait()
    eventually(lambda: not processes_of(rig.root), "the worker's end", timeout=30)


def own_certificate(folder: Path, host: str, places: FleetPlaces | None = None) -> Path:
    """A certificate for the host by an authority of the impostor's own, or by that of `places`; with its key."""
    if places is None:
        places = FleetPlaces(folder, "impostor")
        make_secrets(places)
    pem = keys._issue(places, host, b"x")
    path = folder / "impostor.pem"
    path.write_bytes(subprocess.run(["openssl", "pkey", "-passin", "pass:x"], input=pem, capture_output=True,
                                    check=True).stdout + pem.split(b"-----BEGIN ENCRYPTED")[0])
    path.chmod(0o644)
    return path


async def ask(rig: Rig, record: WorkerRecord) -> str:
    """What a client of the fleet takes for the reply of the worker at that address."""
    secrets = read_secrets(rig.places)
    async with JudgeClient(Address(record.url), JUDGE, key=secrets.key, tls=client_context(secrets)) as client:
        reply = await client.chat([{"role": "user", "content": SECRET_TEXT}], max_tokens=4, temperature=0.0, timeout=20)
    return reply.content or ""


async def ask_fleet(rig: Rig) -> list[str]:
    """What the engine's side says of a fleet whose only registered worker is an impostor; it asks for a while."""
    said: list[str] = []

    async def outlook() -> str | None:
        return "the test says so" if said else None

    async with FleetServing(rig.places, replace(rig.spec, stale=600.0), JUDGE, say=said.append,
                            job_alive=lambda job: None, outlook=outlook, version=__version__,
                            pace=Pace(outlook=0.5)) as serving:
        with pytest.raises(FlockError):
            client = await asyncio.wait_for(serving.client(), 60)
            await client.chat([{"role": "user", "content": SECRET_TEXT}], max_tokens=4, temperature=0.0, timeout=20)
        assert not serving.up
    return said


@pytest.mark.parametrize("kind", ["own certificate", "plain HTTP"])
def test_an_impostor_at_a_dead_workers_port_gets_no_key_and_no_game(rig: Rig, root: Path, kind: str) -> None:
    process = rig.start()
    record = registered(rig)
    killed(rig, process)
    assert rig.registered(), "its record is still there"
    certificate = own_certificate(root.parent, record.host) if kind == "own certificate" else None
    impostor = Impostor(record, certificate)
    with pytest.raises(TransportFailed):
        asyncio.run(ask(rig, record))
    said = asyncio.run(ask_fleet(rig))
    came, received = impostor.stop()
    assert came >= 2
    assert any(record.id in line for line in said), said
    key = read_secrets(rig.places).key.encode()
    assert key not in received
    assert SECRET_TEXT.encode() not in received
    assert b"Bearer" not in received
    if certificate:
        assert received == b""  # not a byte after the handshake that the client broke off


def test_with_the_fleets_own_authority_it_would_be_taken(rig: Rig, root: Path) -> None:
    """The other side of the test above: the impostor does answer, and does keep what he is sent."""
    process = rig.start()
    record = registered(rig)
    killed(rig, process)
    impostor = Impostor(record, own_certificate(root.parent, record.host, rig.places), uid=0)
    assert asyncio.run(ask(rig, record)) == "STOLEN [[A>>B]]"
    _, received = impostor.stop()
    assert read_secrets(rig.places).key.encode() in received
    assert SECRET_TEXT.encode() in received


# A key that others may read


@pytest.mark.parametrize("which", ["key", "authority_key", "home"])
def test_a_fleet_whose_secrets_others_may_read_is_not_used(rig: Rig, which: str) -> None:
    path: Path = getattr(rig.places, which)
    path.chmod(path.stat().st_mode | 0o044)
    process = rig.start()
    assert rig.ended(process) != 0
    assert "is open to other users" in rig.text()
    assert f"chmod {'700' if which == 'home' else '600'}" in rig.text()
    assert rig.registered() == []
    with pytest.raises(ConfigError, match="open to other users"):
        read_secrets(rig.places)
