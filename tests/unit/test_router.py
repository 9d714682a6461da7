"""The router's parts that need no vllm-router: routes, answers, its environment, who is met, and the keeper's turns."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from automate.cli.routing import is_loopback, only
from automate.errors import ConfigError, ServerError
from automate.serving.fleet.registry import read_spec
from automate.serving.relay.relay import Answer, Target
from automate.serving.router import answers, keeper
from automate.serving.router.keeper import Disturbances, Keeper
from automate.serving.router.output import BoundedLog
from automate.serving.router.process import NOWHERE, RouterLaunch, changes, check_installed, environment
from automate.serving.router.routes import Sessions, bare, session_of
from automate.serving.router.word import Word
from tests.e2e.router_rig import make_fleet

LAUNCH = RouterLaunch("judge", "consistent_hash", Path("/a/authority.pem"), Path("/a/log"))
A, B, EVIL = "https://a:1", "https://b:2", "http://evil:3"


def body(text: str) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "system", "content": "s"},
                                                  {"role": "user", "content": text}]}).encode()


def said(answer: Answer | Target | None) -> dict[str, object]:
    assert isinstance(answer, Answer)
    found = json.loads(answer.body)
    assert isinstance(found, dict)
    return found


# --- pure parts --------------------------------------------------------------------------------------
def test_errors_have_openais_shape() -> None:
    missing = answers.no_model("nope\x1b[31m", ["judge", "lora"])
    assert missing.status == 404
    error = said(missing)["error"]
    assert isinstance(error, dict)
    assert set(error) == {"message", "type", "param", "code"}
    assert "judge, lora" in error["message"]
    assert "\x1b" not in error["message"]
    late = answers.no_worker("judge", 600, "Its servers have no job.")
    assert (late.status, late.retry_after) == (503, 10.0)
    assert "600 s. Its servers have no job." in str(said(late))


def test_many_models_are_not_all_named() -> None:
    assert "and 60 more" in str(said(answers.no_model("x", [f"m{number}" for number in range(100)])))


def test_the_list_of_models_names_bases_and_adapters() -> None:
    rows = [answers.model_row("judge", "judge", 7.9, 4096), answers.model_row("lora", "judge", 7.9)]
    assert said(answers.listing(rows))["object"] == "list"
    one = said(answers.single(rows, "lora"))
    assert (one["parent"], one["created"], one["object"]) == ("judge", 7, "model")
    assert answers.single(rows, "none").status == 404


def test_the_child_gets_nothing_secret_and_no_way_out_but_tls() -> None:
    given = {"PATH": "/bin", "HOME": "/h", "OPENAI_API_KEY": "sk-1", "HF_TOKEN": "t", "NO_PROXY": "*", "no_proxy": "*",
             "https_proxy": "http://p", "ALL_PROXY": "http://p", "SSL_CERT_DIR": "/etc", "FLOCK": "x"}
    assert environment(LAUNCH.authority, given) == {
        "PATH": "/bin", "HOME": "/h", "SSL_CERT_FILE": "/a/authority.pem", "http_proxy": NOWHERE, "HTTP_PROXY": NOWHERE,
        "RUST_LOG": "warn"}


def test_the_command_listens_on_loopback_only() -> None:
    words = LAUNCH.command(1234, [A, B])
    assert words[words.index("--host") + 1] == "127.0.0.1"
    assert words[words.index("--prometheus-host") + 1] == "127.0.0.1"
    assert words[-3:] == ["--worker-urls", A, B]
    assert "--api-key" not in words


def test_vllm_router_that_is_missing_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigError) as caught:
        check_installed()
    assert "pip install" in str(caught.value)


def test_changes() -> None:
    assert changes({A, B}, {B, EVIL}) == ([A], [EVIL])
    assert changes({A}, {A}) == ([], [])


@pytest.mark.parametrize(("host", "loopback"), [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True),
                                                ("localhost", True), ("0.0.0.0", False), ("login1", False)])
def test_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_which_fleet_is_meant(tmp_path: Path) -> None:
    def make(name: str) -> None:
        (tmp_path / ".flock-hpc" / "fleets" / name).mkdir(parents=True)
        (tmp_path / ".flock-hpc" / "fleets" / name / "fleet.json").write_text("{}")

    with pytest.raises(ConfigError, match="no fleet in this workspace"):
        only(tmp_path, None)
    make("one")
    assert only(tmp_path, None) == "one"
    make("two")
    assert only(tmp_path, "two") == "two"
    for name in (None, "three", "../one"):
        with pytest.raises(ConfigError, match="one, two"):
            only(tmp_path, name)


def test_bare() -> None:
    assert bare("/v1/models?x=/y") == "/v1/models"


# --- sessions ----------------------------------------------------------------------------------------
def test_games_of_one_question_have_one_session() -> None:
    question = "What is it? " * 60
    assert session_of(body(question + "answer one")) == session_of(body(question + "answer two"))
    assert session_of(body("another")) != session_of(body(question))
    assert session_of(b'{"model":"m","prompt":"one two"}') != session_of(b'{"model":"m","prompt":"three"}')


@pytest.mark.parametrize("junk", [b"", b"no json", b"[]", b'{"messages":5}', b'{"messages":[{"role":1}]}', b"\xff\xfe"])
def test_any_body_has_a_session(junk: bytes) -> None:
    assert len(session_of(junk)) == 24


def test_a_beginning_that_is_everywhere_is_spread_and_others_are_not() -> None:
    sessions, same, others = Sessions(), body("the same for all"), [body(f"question {n}") for n in range(64)]
    hot = {sessions.name(same, 4) for _ in range(400)}
    assert len(hot) > 8
    cold = Sessions()
    for _ in range(5):
        assert {cold.name(one, 4) for one in others} == {session_of(one) for one in others}


def test_one_worker_gets_one_session() -> None:
    sessions = Sessions()
    assert {sessions.name(body("same"), 1) for _ in range(400)} == {session_of(body("same"))}


# --- the keeper --------------------------------------------------------------------------------------
class FakeProcess:
    """A vllm-router without one: its list of workers, and whether it lives."""

    made: list[FakeProcess]
    port = 1

    def __init__(self, workers: list[str]) -> None:
        self.has = set(workers)
        self.status: int | None = None
        self.ended = self.mute = False
        self._over = asyncio.Event()

    async def wait(self) -> int:
        await self._over.wait()
        return self.status or 0

    def die(self) -> None:
        self.status = -9
        self._over.set()

    async def workers(self) -> frozenset[str]:
        if self.mute:
            raise ServerError("mute")
        return frozenset(self.has)

    async def add(self, url: str) -> None:
        self.has.add(url)

    async def remove(self, url: str) -> None:
        self.has.discard(url)

    async def end(self) -> None:
        self.ended = True


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[FakeProcess]:
    found: list[FakeProcess] = []

    class Fake:
        @staticmethod
        async def start(_: RouterLaunch, workers: list[str]) -> FakeProcess:
            found.append(FakeProcess(workers))
            return found[-1]

    monkeypatch.setattr(keeper, "RouterProcess", Fake)
    monkeypatch.setattr(keeper, "LOOK_EVERY", 0.01)
    monkeypatch.setattr(keeper, "FIRST_PAUSE", 0.01)
    return found


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_the_keepers_life(made: list[FakeProcess]) -> None:
    lines: list[str] = []
    one = Keeper(LAUNCH, lines.append)
    task = asyncio.create_task(one.run())
    try:
        assert await one.ready(0.05) is None
        assert not made
        one.want({A: "w1"})
        assert await one.ready(10) == 1
        assert made[0].has == {A}
        one.want({A: "w1", B: "w2"})
        await until(lambda: made[0].has == {A, B})
        made[0].has = {A, EVIL}
        await until(lambda: made[0].has == {A, B})
        await until(lambda: any(f"removed {EVIL}, which somebody else had added" in line for line in lines))
        await until(lambda: any("worker w2 was removed by somebody else, and added again" in line for line in lines))
        made[0].die()
        await until(lambda: len(made) == 2)
        assert await one.ready(10) == 1
        assert any("ended with status -9" in line for line in lines)
        made[1].mute = True
        await until(lambda: len(made) == 3)
        assert made[1].ended
        one.want({})
        await until(lambda: made[2].ended)
        assert one.port is None
        one.want({B: "w2"})
        assert await one.ready(10) == 1
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert made[-1].ended


async def test_asked_what_to_do_with_a_dead_process_there_is_no_port(made: list[FakeProcess]) -> None:
    one = Keeper(LAUNCH, lambda _: None)
    task = asyncio.create_task(one.run())
    try:
        one.want({A: "w1"})
        await one.ready(10)
        made[0].status = -9  # not yet noticed
        assert one.port is None
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)




async def test_workers_are_put_right_at_once(made: list[FakeProcess], monkeypatch: pytest.MonkeyPatch) -> None:
    one = Keeper(LAUNCH, lambda _: None)
    task = asyncio.create_task(one.run())
    try:
        one.want({A: "w1"})
        await one.ready(10)
        monkeypatch.setattr(keeper, "LOOK_EVERY", 1000.0)
        await one.put_right(10)  # from here on it looks when it is told to only
        for _ in range(3):
            made[0].has = set()
            await asyncio.wait_for(one.put_right(1000), 10)
            assert made[0].has == {A}
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_disturbances_are_said_once_a_minute_with_their_number() -> None:
    lines: list[str] = []
    now = [0.0]
    one = Disturbances(lines.append, lambda: now[0])
    for _ in range(100):
        one.note("w1 was removed")
    assert lines == ["w1 was removed"]
    now[0] = 61
    one.note("w1 was removed")
    assert lines[1:] == ["w1 was removed (99 more such disturbances before)"]
    for number in range(100):
        one.note(f"removed {number}")
    assert len(lines) < 6


def test_the_log_is_bounded_and_its_owners_only(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("old\n")
    path.chmod(0o644)
    log = BoundedLog(path, 1000)
    for number in range(1000):
        log.write(b"line %d\n" % number)
    files = sorted(tmp_path.iterdir())
    assert len(files) <= 2
    assert sum(one.stat().st_size for one in files) < 2100
    assert {one.stat().st_mode & 0o777 for one in files} == {0o600}
    assert "line 999" in "".join(one.read_text() for one in files)


def test_a_routers_word_is_left_alone_by_another_that_ends(tmp_path: Path) -> None:
    places = make_fleet(tmp_path, {"judge": ()})
    spec = read_spec(places)
    assert spec is not None
    with Word(places, spec, "http://first") as first:
        with Word(places, spec, "http://second"):
            pass
        assert "first" in places.router.read_text()
        places.router.write_text(places.router.read_text().replace("first", "other"))
    assert "other" in places.router.read_text()
    places.router.unlink()
    with Word(places, spec, "http://first"):
        first.write()
    assert not places.router.exists()
