"""The desk: the same words whether the database is open here or served by another process."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from automate.errors import ClaimedError, ConfigError, PoolError, StorageError, WorkspaceError
from automate.pools.desk import Desk, LocalDesk, open_desk
from automate.pools.keys import GENESIS, load_key
from automate.pools.web import sockets
from automate.pools.web.remote import RemoteDesk
from automate.pools.web.serving import Wanted, serve
from tests.unit.pool_support import START, Bench, named_key, pool_places
from tests.unit.pool_web_rig import served


def clock() -> int:
    return START


def use(desk: Desk, root: Path, token: str) -> list[Any]:
    """What a command may do, all of it; the answers."""
    sent = named_key("ann").sign(token, "Transfer", tags={"Recipient": named_key("bob").address, "Quantity": "5"},
                                 anchor="1", timestamp=1)
    rows = root / "rows.jsonl"
    rows.write_text('{"context":"c","question":"q","answerA":"a","answerB":"b","answerC":"c","result":"1"}\n')
    found: list[Any] = [desk.send(sent), desk.send(sent), desk.ask("balance", account=named_key("bob").address),
                        desk.ask("pools"), desk.do("load", dataset="siqa", path=str(rows)), desk.do("tick"),
                        desk.do("hand_in"), desk.do("make_round", limit=5)]
    wrongs: list[Callable[[], object]] = [
        lambda: desk.send({**sent, "Data": "x"}), lambda: desk.ask("nothing"), lambda: desk.do("nothing"),
        lambda: desk.ask("pool", id="none-such"), lambda: desk.do("give_up"),
        lambda: desk.do("load", dataset="none-such", path="/x")]
    for wrong in wrongs:
        with pytest.raises(PoolError) as caught:
            wrong()
        found.append((caught.value.what, caught.value.where, caught.value.todo))
    return found


def prepare(bench: Bench) -> None:
    bench.dataset("siqa")


async def test_here_and_through_the_socket_it_is_the_same(tmp_path: Path) -> None:
    async with served(tmp_path / "one", prepare) as web:
        with pytest.raises(ClaimedError):
            await asyncio.to_thread(sockets_held, web.places)
        remote = await asyncio.to_thread(_all, tmp_path / "one", web.token, RemoteDesk)
    with Bench(tmp_path / "two") as bench:
        bench.mint("ann", 100)
        prepare(bench)
        token = bench.exchange.token
    here = _all(tmp_path / "two", token, LocalDesk)
    assert [one for one in remote if isinstance(one, tuple)] == [one for one in here if isinstance(one, tuple)]
    assert (remote[0].state, remote[1].replayed, remote[2]["balance"]) == ("handled", True, 5)
    assert remote[3:4] + remote[5:8] == here[3:4] + here[5:8]
    assert remote[4]["state"] == here[4]["state"] == "handled", remote[4]


def sockets_held(places: Any) -> None:
    from automate.pools.store import open_store

    open_store(places, now=START, wait=0).close()


def _all(root: Path, token: str, kind: type) -> list[Any]:
    with open_desk(pool_places(root), clock=clock) as desk:
        assert isinstance(desk, kind)
        return use(desk, root, token)


def test_a_database_that_is_held_and_not_served_is_waited_for(tmp_path: Path) -> None:
    with Bench(tmp_path), pytest.raises(ClaimedError, match="in use by"), \
            open_desk(pool_places(tmp_path, lock_wait=0.3), clock=clock):
        pass
    with open_desk(pool_places(tmp_path), clock=clock) as desk:
        assert isinstance(desk, LocalDesk)


def test_none_is_made_where_none_is_wanted(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError), open_desk(pool_places(tmp_path), clock=clock, make=False):
        pass
    assert not pool_places(tmp_path).database.exists()


# --- sockets ----------------------------------------------------------------------------------------
def test_a_socket_that_a_crash_left_is_replaced(tmp_path: Path) -> None:
    place = tmp_path / "a.sock"
    sockets.private(place).close()
    assert place.is_socket()
    assert not sockets.answers(place)
    with sockets.private(place):
        assert sockets.answers(place)
        assert stat.S_IMODE(place.stat().st_mode) == 0o600


def test_what_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "a.sock"
    place.write_text("mine")
    with pytest.raises(StorageError):
        sockets.private(place)
    assert place.read_text() == "mine"


def test_a_deep_folder_has_a_socket_too(tmp_path: Path) -> None:
    place = tmp_path / ("d" * 90) / ("e" * 90) / "state.sqlite.sock"
    place.parent.mkdir(parents=True)
    with sockets.private(place):
        assert sockets.answers(place)


def test_the_kernel_says_who_is_there() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert sockets.peer_uid(one) == os.getuid()


async def test_another_users_connection_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(tmp_path) as web:
        monkeypatch.setattr(sockets, "peer_uid", lambda _: os.getuid() + 1)
        desk = RemoteDesk(web.places.socket)
        with pytest.raises(StorageError):
            await asyncio.to_thread(desk.ask, "pools")
        monkeypatch.undo()
        assert await asyncio.to_thread(desk.ask, "pools") == []


# --- starting ---------------------------------------------------------------------------------------
async def refused(wanted: Wanted, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        async with asyncio.timeout(20):
            await serve(wanted)


async def test_two_do_not_serve_one_workspace(tmp_path: Path) -> None:
    async with served(tmp_path) as web:
        lines = list[str]()
        places = pool_places(tmp_path, lock_wait=30, http={"port": 0})
        await refused(Wanted(places, clock, lines.append), ClaimedError, f"in use by process {os.getpid()}")
        assert lines == []
        assert (await web.get("/health"))[0] == 200
        assert await asyncio.to_thread(sockets.answers, web.places.socket)


def _says(lines: list[str]) -> Callable[[str], None]:
    return lines.append


async def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        places = pool_places(tmp_path, http={"host": "127.0.0.1", "port": port})
        await refused(Wanted(places, clock, _says([])), ConfigError, "taken by another program")
    places = pool_places(tmp_path, http={"host": "no.such.host.invalid", "port": 0})
    await refused(Wanted(places, clock, _says([])), ConfigError, "can't listen there")
    sockets_held(places)  # the database was given back
    assert not places.socket.exists()


async def test_the_end_leaves_nothing_behind(tmp_path: Path) -> None:
    async with served(tmp_path) as web:
        assert web.places.socket.is_socket()
        assert (await web.post(web.transfer(5)))[0] == 200
    assert not web.places.socket.exists()
    assert web.said[-1] == "the server has ended"
    with Bench(tmp_path) as bench:
        assert bench.balance("bob") == 5


async def test_the_clock_ticks_while_it_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from automate.pools import deeds
    done = list[str]()
    monkeypatch.setattr(deeds, "do", lambda office, what, now, given: done.append(what))
    with Bench(tmp_path):
        pass
    lines = list[str]()
    task = asyncio.create_task(serve(Wanted(pool_places(tmp_path, http={"port": 0}), clock, lines.append, tick=True)))
    async with asyncio.timeout(20):
        while len(done) < 2:  # noqa: ASYNC110 - done in another thread
            await asyncio.sleep(0.01)
        signal.raise_signal(signal.SIGTERM)
        await task
    assert done[:2] == ["hand_in", "tick"]


def test_genesis_signs_what_is_loaded(tmp_path: Path) -> None:
    with Bench(tmp_path) as bench:
        bench.dataset("siqa")
    with open_desk(pool_places(tmp_path), clock=clock) as desk:
        found: Any = desk.do("load", dataset="siqa", path=str(tmp_path / "none"))
    assert found["state"] == "refused"
    assert load_key(pool_places(tmp_path).key(GENESIS)).address
