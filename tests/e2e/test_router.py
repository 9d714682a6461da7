"""`flock-hpc router` with the real vllm-router over workers with TLS: clients of others, deaths, and an outsider."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import psutil
import pytest

from automate.fleet_places import FleetPlaces
from automate.serving.fleet.keys import make_secrets, server_context
from tests.e2e.router_rig import Child, make_fleet, router, until, worker

pytest.importorskip("vllm_router")
HI = [{"role": "user", "content": "hi"}]


@pytest.fixture
def places(tmp_path: Path) -> FleetPlaces:
    return make_fleet(tmp_path, {"judge": ("lora-a",), "other": ()})


def client_of(places: FleetPlaces, url: str, *, key: str | None = None, retries: int = 0) -> openai.OpenAI:
    return openai.OpenAI(base_url=url, api_key=key or places.key.read_text().strip(), max_retries=retries, timeout=60)


def say(client: openai.OpenAI, model: str = "judge", text: str = "hi") -> str:
    reply = client.chat.completions.create(model=model, messages=[{"role": "user", "content": text}])
    return reply.choices[0].message.content or ""


def post(url: str, body: bytes, key: str | None = None) -> tuple[int, dict[str, Any]]:
    """A request of a plain client: status and JSON."""
    asked = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    if key is not None:
        asked.add_header("Authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(asked, timeout=60) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def vllm_routers(front: Child) -> list[psutil.Process]:
    """The vllm-router processes below a front."""
    return [one for one in psutil.Process(front.process.pid).children(recursive=True)
            if one.name().startswith("vllm::router")]


def control(front: Child) -> str:
    """The address of the one vllm-router below a front, as any user of the machine finds it."""
    ports = [one.laddr.port for one in vllm_routers(front)[0].net_connections("tcp") if one.status == "LISTEN"]
    for port in ports:
        with contextlib.suppress(OSError, ValueError), urllib.request.urlopen(
                f"http://127.0.0.1:{port}/list_workers", timeout=5) as reply:
            json.loads(reply.read())
            return f"http://127.0.0.1:{port}"
    raise AssertionError("no vllm-router")


def listed(base: str) -> set[str]:
    with urllib.request.urlopen(f"{base}/list_workers", timeout=5) as reply:
        return set(json.loads(reply.read())["urls"])


def order(base: str, what: str, url: str, timeout: float = 3) -> None:
    """Somebody's POST to vllm-router's control paths; whatever it answers."""
    with contextlib.suppress(OSError):
        urllib.request.urlopen(f"{base}/{what}?url={urllib.parse.quote(url, safe='')}", b"", timeout=timeout).read()


def url_of(places: FleetPlaces, name: str) -> str:
    return f"https://127.0.0.1:{json.loads(places.worker(name).read_text())['port']}"


def test_clients_of_others(places: FleetPlaces) -> None:
    with worker(places, 1, "w1"), worker(places, 2, "w2"), router(places, "--wait", "30") as (front, url):
        client, key = client_of(places, url), places.key.read_text().strip()
        assert {model.id for model in client.models.list()} == {"judge", "lora-a", "other"}
        assert client.models.retrieve("lora-a").parent == "judge"
        for model in ("judge", "lora-a", "other"):
            reply = client.chat.completions.create(model=model, messages=HI)
            assert reply.model == ("other" if model == "other" else "judge")  # as the rehearsal judge says it
            assert reply.choices[0].message.content
        parts = list(client.chat.completions.create(model="judge", messages=HI, stream=True,
                                                    stream_options={"include_usage": True}))
        said = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
        assert said == say(client)
        assert len(parts) > 3
        assert parts[-1].usage.total_tokens > 0
        status, body = post(f"{url}/chat/completions", json.dumps({"model": "other", "messages": HI}).encode(), key)
        assert (status, body["model"]) == (200, "other")
        with pytest.raises(openai.NotFoundError, match="judge, lora-a"):
            say(client, "nope")
        assert "lora-a" not in (places.root / "w2.seen").read_text()
        assert key not in front.text
        word = json.loads(places.router.read_text())
        assert (word["pid"], word["address"]) == (front.process.pid, url.removesuffix("/v1"))
        assert len(list(places.users.iterdir())) == 1
        assert front.end() == 0
        assert not places.router.exists()
        assert not list(places.users.iterdir())


def test_what_does_not_get_through(places: FleetPlaces) -> None:
    with worker(places, 1, "w1"), router(places, "--wait", "30") as (_, url):
        key, body = places.key.read_text().strip(), json.dumps({"model": "judge", "messages": HI}).encode()
        with pytest.raises(openai.AuthenticationError):
            say(client_of(places, url, key="wrong"))
        assert post(f"{url}/chat/completions", body)[0] == 401
        assert say(client_of(places, url))
        base = url.removesuffix("/v1")
        for path in ("/add_worker?url=http://127.0.0.1:1", "/remove_worker?url=x", "/list_workers", "/flush_cache",
                     "/workers", "/v1/chat/completions/render", "/v1/../list_workers", "//list_workers"):
            status, said = post(base + path, b"{}", key)
            assert status in (400, 404), path
            assert said["error"]["message"]
        status, said = post(f"{url}/chat/completions", b"no json", key)
        assert (status, said["error"]["param"]) == (400, "model")


def test_a_request_waits_for_its_worker(places: FleetPlaces) -> None:
    with router(places, "--wait", "60") as (front, url), ThreadPoolExecutor() as pool:
        waiting = pool.submit(say, client_of(places, url))
        with worker(places, 1, "w1"):
            assert waiting.result(60)
            until(lambda: "started with w1" in front.text, "the start is told")
    with router(places, "--wait", "0.2") as (_, url):
        with pytest.raises(openai.InternalServerError) as caught:
            say(client_of(places, url), "other")
        assert caught.value.status_code == 503
        assert "flock-hpc serve --status" in str(caught.value)


def test_workers_come_and_die(places: FleetPlaces) -> None:
    with worker(places, 1, "w1", "latency=0.2") as first, router(places, "--wait", "30") as (front, url):
        client = client_of(places, url)
        assert say(client)
        with worker(places, 1, "w2", "latency=0.2"), ThreadPoolExecutor(16) as pool:
            until(lambda: "worker w2 on here joined" in front.text, "the second worker joins")
            answers = [pool.submit(say, client, text=f"question {number}") for number in range(48)]
            first.end(signal.SIGKILL)
            assert all(answer.result(60) for answer in answers)
            until(lambda: "a worker left" in front.text, "the dead worker is dropped")
            assert say(client)
        until(lambda: "stopped, no worker is left" in front.text, "vllm-router is stopped")
        until(lambda: not vllm_routers(front), "and ends")


def _another(front: Child, old: psutil.Process) -> bool:
    found = vllm_routers(front)
    return bool(found) and found[0].pid != old.pid


def test_vllm_router_is_killed(places: FleetPlaces) -> None:
    with worker(places, 1, "w1"), router(places, "--wait", "30") as (front, url):
        client = client_of(places, url, retries=3)
        assert say(client)
        for _ in range(2):
            old = vllm_routers(front)[0]
            old.kill()
            assert say(client)
            until(lambda: _another(front, old), "another one runs")  # noqa: B023 - called within this turn only
        until(lambda: "started again with w1" in front.text, "the restart is told")


def test_sigterm_lets_requests_end_and_leaves_nothing(places: FleetPlaces) -> None:
    with (worker(places, 1, "w1", "latency=1"), router(places, "--wait", "60") as (front, url),
          ThreadPoolExecutor() as pool):
        client = client_of(places, url)
        assert say(client)
        flying, waiting = pool.submit(say, client), pool.submit(say, client, "other")
        seen = places.root / "w1.seen"
        until(lambda: seen.read_text().count("POST /v1/chat/completions\n") == 2, "it is in flight")
        below = psutil.Process(front.process.pid).children(recursive=True)
        assert front.end() == 0
        assert flying.result(60)
        with pytest.raises(openai.InternalServerError, match=r"ending|no new"):
            waiting.result(60)
        assert not [one for one in below if one.is_running() and one.status() != "zombie"]


def test_front_killed_and_started_again_on_its_port(places: FleetPlaces) -> None:
    with worker(places, 1, "w1"):
        with router(places, "--wait", "30") as (front, url):
            assert say(client_of(places, url))
            below = psutil.Process(front.process.pid).children(recursive=True)
            assert below
            front.end(signal.SIGKILL)
            until(lambda: not any(one.is_running() and one.status() != "zombie" for one in below), "nothing is left")
        port = int(url.split(":")[2].split("/")[0])
        with router(places, "--wait", "30", port=port) as (_, again):
            assert again == url
            assert say(client_of(places, url))
            other = subprocess.run([sys.executable, "-m", "automate", "router", "--port", str(port)], cwd=places.root,
                                   env=os.environ, text=True, capture_output=True, timeout=60)
            assert other.returncode == 1
            assert f"port {port}" in other.stderr
            assert "--port 0" in other.stderr


@contextlib.contextmanager
def false_worker(tls: ssl.SSLContext | None) -> Iterator[tuple[str, list[str]]]:
    """A server of an outsider's own, and what it was asked."""
    seen: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(f"{self.command} {self.path} {self.headers}")
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            return

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            return

    server = Server(("127.0.0.1", 0), Handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}", seen
    finally:
        server.shutdown()
        server.server_close()


def test_an_outsider_at_vllm_routers_own_port(places: FleetPlaces, tmp_path: Path) -> None:
    (tmp_path / "foreign").mkdir()
    foreign = FleetPlaces(tmp_path / "foreign", "evil")
    make_secrets(foreign)
    with worker(places, 1, "w1"), worker(places, 1, "w2"), router(places, "--wait", "30") as (front, url):
        client = client_of(places, url, retries=3)
        assert say(client)
        base, true = control(front), {url_of(places, "w1"), url_of(places, "w2")}
        with false_worker(None) as (plain, one), false_worker(server_context(foreign, "127.0.0.1")) as (tls, two):
            for evil in (plain, tls, "grpc://127.0.0.1:1"):
                order(base, "add_worker", evil)
            for number in range(20):
                assert say(client, text=f"question {number}")
            order(base, "remove_worker", url_of(places, "w1"))
            order(base, "remove_worker", url_of(places, "w2"))
            until(lambda: listed(base) == true, "the list is put right")
            until(lambda: "was removed by somebody else, and added again" in front.text, "and told")
            assert say(client)
            assert not one
            assert not two
        status, _ = post(f"{base}/v1/chat/completions", json.dumps({"model": "judge", "messages": HI}).encode())
        assert status == 401


def test_an_outsider_who_takes_all_workers_out_again_and_again(places: FleetPlaces) -> None:
    with worker(places, 1, "w1"), router(places, "--wait", "30") as (front, url), ThreadPoolExecutor(4) as pool:
        client = client_of(places, url)
        assert say(client)
        base, stop = control(front), threading.Event()

        def outsider() -> None:
            while not stop.is_set():
                order(base, "remove_worker", url_of(places, "w1"))

        loops = [pool.submit(outsider) for _ in range(2)]
        try:
            assert all(say(client, text=f"question {number}") for number in range(30))
        finally:
            stop.set()
        assert all(loop.result(30) is None for loop in loops)
        assert front.text.count("was removed by somebody else") <= 2


def test_what_vllm_router_says_itself_comes_in_openais_shape(places: FleetPlaces) -> None:
    with worker(places, 1, "w1"), router(places, "--wait", "30") as (_, url):
        key = places.key.read_text().strip()
        assert say(client_of(places, url))
        status, said = post(f"{url}/chat/completions", b'{"model":"judge","messages":5}', key)
        assert (status, "messages" in said["error"]["message"]) == (422, True)
        body = json.dumps({"model": "judge", "messages": HI}).encode()
        asked = urllib.request.Request(f"{url}/chat/completions", body,
                                       {"Authorization": f"Bearer {key}"})  # urllib says that it is a form
        with urllib.request.urlopen(asked, timeout=60) as reply:
            assert reply.status == 200
        for log in places.logs.glob("vllm-router-*.log"):
            assert log.stat().st_mode & 0o777 == 0o600
            assert "CONSISTENT_HASH_DEBUG" not in log.read_text()


def test_a_worker_of_another_model_put_in_is_taken_out(places: FleetPlaces) -> None:
    with worker(places, 1, "w1"), router(places, "--wait", "30") as (front, url):
        assert say(client_of(places, url, retries=3))
        base = control(front)
        with worker(places, 2, "w2"):
            order(base, "add_worker", url_of(places, "w2"))
            until(lambda: listed(base) == {url_of(places, "w1")}, "the list is put right")
            until(lambda: "which somebody else had added" in front.text, "and told")


def test_the_registry_is_lost_and_comes_back(places: FleetPlaces) -> None:
    with worker(places, 1, "w1"), router(places, "--wait", "30") as (front, url):
        client = client_of(places, url)
        assert say(client)
        places.workers.rename(places.home / "away")
        until(lambda: "registry can't be read" in front.text, "it is told")
        assert say(client)
        with contextlib.suppress(OSError):
            (places.home / "away").rename(places.workers)
        until(lambda: "can be read again" in front.text, "it is told")
        assert say(client)


def test_without_a_fleet_or_with_a_key_that_others_may_read(places: FleetPlaces, tmp_path: Path) -> None:
    def run(cwd: Path, *options: str) -> str:
        done = subprocess.run([sys.executable, "-m", "automate", "router", "--port", "0", *options], cwd=cwd, text=True,
                              capture_output=True, timeout=60, env=os.environ)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        return done.stderr

    assert "main" in run(places.root, "--name", "nope")
    places.key.chmod(0o644)
    assert "key" in run(places.root)
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "flock-hpc.yaml").write_text("cluster: local\n")
    assert "no fleet" in run(empty)


def test_tls_for_clients(places: FleetPlaces, monkeypatch: pytest.MonkeyPatch) -> None:
    with worker(places, 1, "w1"), router(places, "--wait", "30", "--tls") as (_, url):
        assert url.startswith("https://127.0.0.1:")
        monkeypatch.setenv("SSL_CERT_FILE", str(places.authority))
        assert say(client_of(places, url))


def test_other_interfaces_are_warned_of(places: FleetPlaces) -> None:
    with router(places, "--host", "0.0.0.0") as (front, url):
        assert "the key travels in clear" in front.text
        assert "0.0.0.0" not in url
        assert "ssh -L" in front.text
