"""The router's front and roster in one process: paths, waiting, who is met and who is left out, the bridge."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import orjson
import pytest

from automate import __version__
from automate.claims import myself, no_jobs
from automate.fleet_places import FleetPlaces
from automate.journal import write_json
from automate.serving.fleet.keys import client_context, make_secrets, read_secrets, server_context
from automate.serving.fleet.records import FleetSpec, WorkerRecord
from automate.serving.fleet.registry import Watch, read_spec, register
from automate.serving.relay.relay import Answer, Asked, Relay, Target
from automate.serving.router.bridge import NOBODY, Bridge
from automate.serving.router.front import Front, FrontConfig
from automate.serving.router.roster import Roster
from automate.settings_fleet import Router as RouterSettings
from tests.e2e.router_rig import make_fleet

HOST = "127.0.0.1"


@pytest.fixture
def places(tmp_path: Path) -> FleetPlaces:
    return make_fleet(tmp_path, {"judge": ("lora-a",), "other": ()})


def spec_of(places: FleetPlaces) -> FleetSpec:
    spec = read_spec(places)
    assert spec is not None
    return spec


def front_of(places: FleetPlaces, lines: list[str], **settings: object) -> Front:
    config = FrontConfig(RouterSettings(port=0).model_copy(update=settings), __version__, no_jobs,
                         lambda model: f"Jobs of {model}: none.")
    return Front(places, spec_of(places), config, lines.append)


def asked(method: str, path: str, model: str | None = "judge") -> Asked:
    return Asked(method, path, model, b"{}" if model is None else json.dumps({"model": model}).encode())


# --- the front ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(("method", "path", "status"), [
    ("GET", "/health", 200), ("GET", "/v1/models", 200), ("GET", "/v1/models/lora-a", 200),
    ("GET", "/v1/models/none", 404), ("GET", "/v1/models/", 404), ("GET", "/list_workers", 404),
    ("POST", "/add_worker?url=http://x", 404), ("POST", "/remove_worker?url=x", 404), ("POST", "/workers", 404),
    ("DELETE", "/workers/x", 404), ("POST", "/flush_cache", 404), ("POST", "/v1/chat/completions/", 404),
    ("POST", "/v1/chat/complet%69ons", 404), ("POST", "//v1/chat/completions", 404),
    ("GET", "/v1/chat/completions", 404), ("PUT", "/v1/chat/completions", 404),
    ("POST", "/v1/chat/completions/render", 404), ("POST", "/generate", 404)])
async def test_paths_that_the_front_answers_itself(places: FleetPlaces, method: str, path: str, status: int) -> None:
    answer = front_of(places, []).quick(asked(method, path))
    assert isinstance(answer, Answer)
    assert answer.status == status


async def test_models_that_are_not_there(places: FleetPlaces) -> None:
    front = front_of(places, [], wait=0.05)
    unknown = front.quick(asked("POST", "/v1/chat/completions", "nope"))
    assert isinstance(unknown, Answer)
    assert unknown.status == 404
    none = front.quick(asked("POST", "/v1/chat/completions", None))
    assert isinstance(none, Answer)
    assert none.status == 400
    assert front.quick(asked("POST", "/v1/chat/completions", "lora-a")) is None
    late = await front.pick(asked("POST", "/v1/chat/completions", "lora-a"))
    assert isinstance(late, Answer)
    assert late.status == 503
    assert b"Jobs of judge: none." in late.body


async def test_a_target_carries_the_key_and_is_never_shown(places: FleetPlaces) -> None:
    front = front_of(places, [])
    target = front._target("judge", "/v1/chat/completions", 5, asked("POST", "/v1/chat/completions"))
    assert isinstance(target, Target)
    assert target.own
    assert places.key.read_text().strip() not in repr(target)


async def test_vllm_routers_own_errors_are_mended(places: FleetPlaces) -> None:
    front = front_of(places, [], wait=5)
    request = asked("POST", "/v1/chat/completions")
    wrong = await front.mend(request, 422, b"Failed to deserialize", 0.0)
    assert isinstance(wrong, Answer)
    assert (wrong.status, json.loads(wrong.body)["error"]["message"]) == (422, "Failed to deserialize")
    late = await front.mend(request, 503, b"No available workers", 5.1)
    assert isinstance(late, Answer)
    assert b"no_worker" in late.body
    keeper, looks = front._keepers["judge"], 0

    async def put_right(_: float) -> None:
        nonlocal looks
        looks += 1

    async def ready(_: float) -> int:
        return 7

    keeper.put_right, keeper.ready = put_right, ready  # type: ignore[method-assign, assignment]
    keeper.want({"https://a:1": "w1"})
    front._bridges["judge"] = "/bridge"
    first = await front.mend(request, 503, b"No available workers (all circuits open)", 0.0)
    assert isinstance(first, Target)
    assert (first.port, first.mend, looks) == (7, True, 1)
    second = await front.mend(request, 503, b"No available workers", 0.5)
    assert isinstance(second, Target)
    assert (second.uds, second.mend) == ("/bridge", True)
    third = await front.mend(request, 503, NOBODY, 0.7)
    assert isinstance(third, Target)
    assert (third.port, looks) == (7, 2)
    assert all(("Content-Type", "application/json") in one.headers for one in (first, second, third))


# --- the roster --------------------------------------------------------------------------------------
@asynccontextmanager
async def standing(places: FleetPlaces, name: str, *, tls: FleetPlaces | None = None,
                   said: dict[str, object] | None = None, **record: object) -> AsyncIterator[WorkerRecord]:
    """A registered worker whose relay says who it is; `said` and `record` change its word and its record."""
    spec = spec_of(places)
    identity = {"id": name, "nonce": "n-" + name, "fleet": spec.id, "model": "judge", "also": ["lora-a"],
                "version": __version__} | (said or {})

    async def pick(_: Asked) -> Target | Answer:
        return Answer(200, orjson.dumps(identity))

    relay = Relay(places.key.read_text().strip(), pick, tls=server_context(tls or places, HOST))
    port = await relay.start(HOST)
    made = WorkerRecord(name, spec.id, 1, "judge", HOST, port, "n-" + name, __version__, myself(), None, "here",
                        also=("lora-a",), context=4096, since=time.time())
    made = replace(made, **record)  # type: ignore[arg-type]
    register(places, made)
    try:
        yield made
    finally:
        await relay.close()


async def look(places: FleetPlaces) -> tuple[dict[str, set[str]], str]:
    """Who is used, by model, and what was said."""
    lines: list[str] = []
    watch = Watch(places, spec_of(places), no_jobs, version=__version__)
    async with Roster(watch, read_secrets(places), lines.append) as roster:
        present = await roster.look()
        await roster.look()
    assert len(lines) == len(set(lines)), "said once"
    return {model: set(urls) for model, urls in present.by_model.items()}, "\n".join(lines)


async def test_a_worker_that_is_itself_is_used(places: FleetPlaces) -> None:
    async with standing(places, "w1") as one:
        assert await look(places) == ({"judge": {one.url}}, "")


@pytest.mark.parametrize(("said", "word"), [
    ({"nonce": "another"}, "another process"), ({"model": "other"}, "model"), ({"version": "9"}, "version"),
    ({"fleet": "f"}, "fleet"), ({"id": "w9"}, "id")])
async def test_another_behind_a_registered_address_is_left_out(
        places: FleetPlaces, said: dict[str, object], word: str) -> None:
    async with standing(places, "w1", said=said):
        used, text = await look(places)
    assert not used
    assert "worker w1 on here is left out" in text
    assert word in text


async def test_other_versions_are_left_out(places: FleetPlaces) -> None:
    async with standing(places, "w1", version="0.0.1"), standing(places, "w2") as two:
        used, text = await look(places)
    assert used == {"judge": {two.url}}
    assert "0.0.1" in text


async def test_a_foreign_certificate_gets_no_key(places: FleetPlaces, tmp_path: Path) -> None:
    (tmp_path / "foreign").mkdir()
    foreign = FleetPlaces(tmp_path / "foreign", "evil")
    make_secrets(foreign)
    async with standing(places, "w1", tls=foreign):
        used, text = await look(places)
    assert not used
    assert "certificate" in text


async def test_nobody_at_its_address(places: FleetPlaces) -> None:
    async with standing(places, "w1"):
        pass
    used, text = await look(places)
    assert not used
    assert "can't be reached" in text


async def test_a_draining_worker_is_not_used(places: FleetPlaces) -> None:
    async with standing(places, "w1", state="draining"):
        used, text = await look(places)
    assert not used
    assert "finishes what it has" in text


# --- made anew; the bridge ---------------------------------------------------------------------------
async def test_a_fleet_made_anew_is_noticed(places: FleetPlaces) -> None:
    front, stop = front_of(places, []), asyncio.Event()
    url = await front.start()
    run = asyncio.create_task(front.run(url, stop))
    while not places.router.exists():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    write_json(places.spec, replace(spec_of(places), id="another").as_json())
    assert await asyncio.wait_for(run, 30)
    assert not places.router.exists()


async def test_the_bridge_passes_bytes_to_the_fleets_workers_only(places: FleetPlaces, tmp_path: Path) -> None:
    context = client_context(read_secrets(places))
    (tmp_path / "foreign").mkdir()
    foreign = FleetPlaces(tmp_path / "foreign", "evil")
    make_secrets(foreign)
    key = {"Authorization": f"Bearer {places.key.read_text().strip()}"}
    async with standing(places, "w1") as one, standing(places, "w2", tls=foreign) as two:
        chosen: list[str | None] = [one.url]
        bridge = Bridge(context, lambda: chosen[-1])
        path = await bridge.start()
        try:
            async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(path, force_close=True)) as session:
                async with session.get("http://x/anything", headers=key) as reply:
                    assert (await reply.json())["id"] == "w1"
                for other in (two.url, None):
                    chosen.append(other)
                    async with session.get("http://x/anything", headers=key) as reply:
                        assert (reply.status, await reply.read()) == (503, NOBODY)
                turns = iter(["https://127.0.0.1:1", one.url])
                bridge._choose = lambda: next(turns)
                async with session.get("http://x/anything", headers=key) as reply:
                    assert (await reply.json())["id"] == "w1"  # the next worker, as nothing was sent to the first
        finally:
            await bridge.close()
    assert not Path(path).exists()
