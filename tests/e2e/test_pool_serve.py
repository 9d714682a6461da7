"""`pool serve` as a process: commands beside it, its end, its death in the middle of a burst."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from automate.pool_places import PoolPlaces
from automate.pools.keys import Key, load_key
from automate.settings_pools import Pools
from tests.e2e.support import command, environment, eventually, flock, said
from tests.unit.pool_support import named_key

BOB = named_key("bob").address
READY = 60
SENDERS = 8


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace whose default key has a million."""
    (tmp_path / "flock-hpc.yaml").write_text(yaml.safe_dump({
        "cluster": "local", "pools": {"lock_wait": 5, "http": {"port": 0, "requests_per_second": 100000}}}))
    for words in (("keygen",), ("mint", "me", "1000000")):
        done = flock("pool", *words, cwd=tmp_path)
        assert done.returncode == 0, said(done)
    return tmp_path


@dataclass
class Served:
    """The process, where it listens, and a user's key."""

    process: subprocess.Popen[str]
    url: str
    key: Key
    root: Path

    @property
    def token(self) -> str:
        found = requests.get(self.url + "/processes", timeout=READY).json()
        return next(str(one["id"]) for one in found if one["kind"] == "token")

    def balance(self) -> int:
        """What bob has."""
        return balance(self.url, self.token)


def places(root: Path) -> PoolPlaces:
    return PoolPlaces(root, Pools())


def balance(url: str, token: str) -> int:
    raw = named_key("bob").sign(token, "Balance")
    answer = requests.post(url + "/message", json=raw, timeout=READY).json()
    return next(int(tag["value"]) for tag in answer["replies"][0]["Tags"] if tag["name"] == "Balance")


@contextlib.contextmanager
def serving(root: Path, *args: str) -> Iterator[Served]:
    process = subprocess.Popen(command("pool", "serve", *args), cwd=root, env=environment(), text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found is not None, line + process.stdout.read()
        yield Served(process, found[0], load_key(places(root).key("default")), root)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(READY)
        process.stdout.close()


def ended(served: Served, number: int) -> tuple[int, str]:
    """Exit status and last words after a signal."""
    served.process.send_signal(number)
    out, _ = served.process.communicate(timeout=READY)
    return served.process.returncode, out


def test_commands_work_while_it_serves(root: Path) -> None:
    rows = root / "rows.jsonl"
    rows.write_text("".join(json.dumps({"context": f"c{n} isn't", "question": "q?", "answerA": "a", "answerB": "b",
                                        "answerC": "c", "result": "2"}) + "\n" for n in range(50)))
    with serving(root) as served:
        for words in (("dataset", "create", "siqa", "--from", str(rows)),
                      ("create", "--dataset", "siqa", "--fund", "1000", "--allocation", "Equal", "--days", "30"),
                      ("model", "add", "m-1", "--path", "owner/name"), ("join", "siqa", "--model", "m-1"), ("tick",),
                      ("list",), ("audit", "siqa")):
            done = flock("pool", *words, cwd=root)
            assert done.returncode == 0, (words, said(done))
        pools = requests.get(served.url + "/pools", timeout=READY).json()
        assert [(one["dataset_name"], one["funds"], one["models"]) for one in pools] == [("siqa", "1000", 1)]
        board = requests.get(f"{served.url}/leaderboard/{pools[0]['id']}", timeout=READY).json()
        assert [one["model"] for one in board["places"]] == ["m-1"]
        shown = flock("pool", "leaderboard", "siqa", "--json", cwd=root)
        assert json.loads(shown.stdout)["places"] == board["places"], said(shown)
        status, words_ = ended(served, signal.SIGTERM)
        assert (status, "the server has ended" in words_) == (0, True), words_
    assert not places(root).socket.exists()
    after = flock("pool", "leaderboard", "siqa", "--json", cwd=root)
    assert json.loads(after.stdout)["places"] == board["places"]


def test_a_second_one_names_the_first(root: Path) -> None:
    with serving(root) as served:
        second = flock("pool", "serve", cwd=root)
        assert second.returncode != 0
        assert f"process {served.process.pid} " in said(second)
        assert "Traceback" not in said(second)
        assert requests.get(served.url + "/health", timeout=READY).status_code == 200


def test_a_port_that_is_taken_is_named(root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        done = flock("pool", "serve", "--port", str(other.getsockname()[1]), cwd=root)
    assert done.returncode != 0
    assert "the port is taken by another program" in said(done)
    assert "Traceback" not in said(done)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_is_in_flight_is_answered_before_the_end(root: Path, number: int) -> None:
    with serving(root) as served:
        token, port = served.token, int(served.url.rpartition(":")[2])
        body = json.dumps(served.key.sign(token, "Transfer", tags={"Recipient": BOB, "Quantity": "7"})).encode()
        with socket.create_connection(("127.0.0.1", port), timeout=READY) as client:
            head = b"POST /message HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
            client.sendall(head + body[:100])
            with serving_socket_closed(served, number):
                client.sendall(body[100:])
                answer = b"".join(iter(lambda: client.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 200"), answer
        assert served.process.wait(READY) == 0
    with serving(root) as again:
        assert again.balance() == 7


@contextlib.contextmanager
def serving_socket_closed(served: Served, number: int) -> Iterator[None]:
    """After the signal, once nobody can connect any more."""
    requests.get(served.url + "/health", timeout=READY)  # the half request was read before this one
    served.process.send_signal(number)

    def refused() -> bool:
        try:
            socket.create_connection(("127.0.0.1", int(served.url.rpartition(":")[2])), timeout=READY).close()
        except OSError:
            return True
        return False

    eventually(refused, "the server stops to listen")
    yield


def _burst(served: Served, token: str, sent: list[dict[str, Any]], known: set[str]) -> None:
    """Send transfers of 1 until the server dies; `known`: those that were acknowledged."""
    with requests.Session() as session:
        while True:
            raw = served.key.sign(token, "Transfer", tags={"Recipient": BOB, "Quantity": "1"})
            sent.append(raw)
            try:
                answer = session.post(served.url + "/message", json=raw, timeout=READY)
            except requests.RequestException:
                return
            assert answer.status_code == 200, answer.text
            known.add(str(raw["Id"]))


def test_a_kill_in_a_burst_loses_and_doubles_nothing(root: Path) -> None:
    sent, known = list[dict[str, Any]](), set[str]()
    for turn in (1, 2, 3):
        with serving(root) as served:
            token, before = served.token, len(known)
            threads = [threading.Thread(target=_burst, args=(served, token, sent, known)) for _ in range(SENDERS)]
            for thread in threads:
                thread.start()
            deadline = time.monotonic() + READY
            while len(known) < before + 50 * turn and time.monotonic() < deadline:
                time.sleep(0.001)
            served.process.kill()
            for thread in threads:
                thread.join(READY)
            assert len(known) >= before + 50 * turn
    with serving(root) as served, requests.Session() as session:
        found = {str(raw["Id"]): session.get(f"{served.url}/message/{raw['Id']}", timeout=READY) for raw in sent}
        assert {answer.status_code for answer in found.values()} <= {200, 404}
        there = {id for id, answer in found.items() if answer.status_code == 200}
        assert all(found[id].json()["state"] == "handled" for id in there)
        assert known <= there
        assert served.balance() == len(there)
        for raw in sent:  # again, all of them: those that were there have no effect
            answer = session.post(served.url + "/message", json=raw, timeout=READY)
            assert answer.json()["replayed"] is (raw["Id"] in there)
        assert served.balance() == len(sent)
        assert ended(served, signal.SIGTERM)[0] == 0
    audit = flock("pool", "balance", BOB, cwd=root)
    assert str(len(sent)) in said(audit).replace(",", "")
