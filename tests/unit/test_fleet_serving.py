"""A fleet under the engine's client: who is met, used, set aside and let go, and what requests in flight see of it."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from automate.arena.games import Game
from automate.arena.judge import Engine, Task
from automate.arena.prompts import Message
from automate.arena.referee import Ask, Referee
from automate.errors import ServerError
from automate.journal import Record
from automate.serving.client import TransportFailed
from automate.serving.fleet.registry import register, unregister
from automate.serving.fleet.serving import FleetServing
from automate.serving.metrics import parse_metrics
from automate.serving.rehearsal_behaviour import Behaviour
from tests.rigs.fleet import QUICK, rig_of, until, usable

REFEREE = Ask(max_tokens=64, min_output=8, temperature=0.0, retries=6, structured=True, tokenize=True, retry_wait=0.2)
SLOW = Behaviour(latency=0.05)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: Unix sockets lie in it."""
    found = Path(tempfile.mkdtemp(prefix="fhpc-"))
    yield found
    shutil.rmtree(found, ignore_errors=True)


async def chat(serving: FleetServing, text: str = "question", affinity: str | None = None) -> str:
    client = await serving.client()
    async with asyncio.timeout(60):
        reply = await client.chat([{"role": "user", "content": text}], max_tokens=8, temperature=0.0, affinity=affinity)
    return reply.content or ""


def tasks(count: int, each: int = 6) -> Iterator[Task]:
    for number in range(count):
        def render(number: int = number) -> list[Message]:
            return [{"role": "user", "content": f"question {number}"}]

        yield Game("m", f"q{number // each}", 1, "base", "hard_prompt", "p", "t", f"k{number}"), render


def idle(serving: FleetServing) -> bool:
    return all(load.in_flight == 0 for load in serving.loads())


async def play(serving: FleetServing, count: int, records: list[Record]) -> int:
    referee = Referee(serving, REFEREE, serving.limiter)
    engine = Engine(referee, serving.limiter, lambda game, record: records.append(record))
    async with asyncio.timeout(60):
        tally = await engine.play(tasks(count))
    assert engine.exhausted
    return tally.played


async def test_games_go_to_all_workers_and_workload_ends_at_zero(folder: Path) -> None:
    async with rig_of(folder, "a", "b", behaviour=SLOW) as rig, rig.serving() as serving:
        await usable(serving, 2)
        records: list[Record] = []
        assert await play(serving, 120, records) == 120
        assert sorted(record["key"] for record in records) == sorted(f"k{n}" for n in range(120))
        assert idle(serving)
        assert sum(load.done for load in serving.loads()) == 120
        assert min(load.done for load in serving.loads()) >= 30
        assert serving.context == 1 << 20
        assert (rig.told("joined"), rig.told("left")) == (2, 0)


async def test_a_question_stays_with_its_worker(folder: Path) -> None:
    async with rig_of(folder, "a", "b", behaviour=SLOW) as rig, rig.serving(concurrency=16) as serving:
        await usable(serving, 2)
        await play(serving, 240, [])
        homes = [{int(text.split()[1]) // 6 for text in worker.asked} for worker in rig.workers.values()]
        assert len(homes[0] & homes[1]) < 20  # of 40 questions; by least workload all but a few


async def test_requests_of_a_worker_that_dies_are_answered_by_another(folder: Path) -> None:
    async with rig_of(folder, "a", "b", "c", "d", behaviour=SLOW) as rig, rig.serving() as serving:
        await usable(serving, 4)
        records: list[Record] = []
        playing = asyncio.create_task(play(serving, 400, records))
        await until(lambda: len(records) > 60, "games")
        await rig.workers["a"].die()
        await rig.workers["b"].die()
        assert await playing == 400
        assert sorted(record["key"] for record in records) == sorted(f"k{n}" for n in range(400))
        assert idle(serving)
        assert [load.worker for load in serving.loads() if load.usable] == ["c", "d"]
        assert rig.told("worker a on node-a is set aside") == 1


async def test_a_worker_that_answers_again_is_used_again(folder: Path) -> None:
    async with rig_of(folder, "a", "b") as rig, rig.serving() as serving:
        await usable(serving, 2)
        worker = rig.workers["a"]
        worker.down = True
        for number in range(8):
            try:
                await chat(serving, affinity=f"q{number}")
            except TransportFailed as error:
                assert error.status == 502
        await usable(serving, 1)
        worker.down = False
        await usable(serving, 2)
        assert rig.told("worker a on node-a answers again") == 1


async def test_a_worker_joins_and_leaves_while_games_run(folder: Path) -> None:
    async with rig_of(folder, "a", behaviour=SLOW) as rig, rig.serving() as serving:
        await usable(serving, 1)
        assert serving.limiter.limit == 4
        records: list[Record] = []
        playing = asyncio.create_task(play(serving, 300, records))
        await until(lambda: len(records) > 10, "games")
        added = await rig.worker("b", SLOW)
        await usable(serving, 2)
        assert serving.limiter.limit >= 8
        await until(lambda: len(added.asked) > 10, "requests of the new worker")
        added.register(state="draining")
        await usable(serving, 1)
        assert serving.limiter.limit == 4
        await until(lambda: added.in_flight == 0, "the end of what it had")
        await added.end()
        await until(lambda: len(serving.loads()) == 1, "its end")
        assert await playing == 300
        assert (rig.told("worker b on node-b joined"), rig.told("worker b on node-b left")) == (1, 1)


@pytest.mark.parametrize("said", [{"nonce": "other"}, {"model": "other"}, {"version": "0.1"}, {"id": "x"}])
async def test_who_is_not_the_registered_worker_is_not_used(folder: Path, said: dict[str, str]) -> None:
    async with rig_of(folder, "a") as rig:
        other = await rig.worker("b")
        other.said = said
        async with rig.serving() as serving:
            await usable(serving, 1)
            await until(lambda: rig.told("worker b on node-b (https://127.0.0.1") == 1, "the refusal")
            for number in range(6):
                await chat(serving, affinity=f"q{number}")
            assert other.asked == []


async def test_a_worker_with_another_key_is_not_used(folder: Path) -> None:
    async with rig_of(folder, "a") as rig:
        other = await rig.worker("b", key="k" * 43)
        async with rig.serving() as serving:
            await usable(serving, 1)
            await until(lambda: rig.told("it refuses the fleet's key") == 1, "the refusal")
            assert other.asked == []


async def test_an_impostor_without_the_fleets_certificate_gets_nothing(folder: Path) -> None:
    (folder / "other").mkdir()
    async with rig_of(folder, "a") as rig, rig_of(folder / "other", "b") as theirs:
        port = theirs.workers["b"].port
        register(rig.places, replace(rig.workers["a"].record, id="c", nonce="n", port=port))
        async with rig.serving() as serving:
            await usable(serving, 1)
            await until(lambda: rig.told("worker c on node-a does not answer yet") == 1, "the refusal")
            await chat(serving)
            assert theirs.workers["b"].asked == []


async def test_a_client_waits_for_the_first_worker(folder: Path) -> None:
    async with rig_of(folder) as rig, rig.serving() as serving:
        asking = asyncio.create_task(chat(serving))
        await until(lambda: rig.asked > 2, "the outlook")
        assert not asking.done()
        await rig.worker("a")
        assert await asking
        assert serving.up


async def test_no_worker_will_come_is_an_error_with_the_reason(folder: Path) -> None:
    async with rig_of(folder) as rig, rig.serving() as serving:
        asking = asyncio.create_task(play(serving, 10, []))
        rig.why = "its jobs have ended"
        with pytest.raises(ServerError, match="its jobs have ended"):
            await asking


async def test_a_lost_registry_keeps_the_workers_that_are_known(folder: Path) -> None:
    async with rig_of(folder, "a", behaviour=SLOW) as rig, rig.serving() as serving:
        await usable(serving, 1)
        shutil.rmtree(rig.places.workers)
        await until(lambda: rig.told("its registry can't be read") == 1, "the word of it")
        assert await play(serving, 30, []) == 30
        assert rig.told("its registry can't be read") == 1
        playing = asyncio.create_task(play(serving, 400, []))
        await rig.workers["a"].die()
        with pytest.raises(ServerError, match="registry") as caught:
            await playing
        assert caught.value.todo


async def test_a_silent_worker_is_used_as_long_as_it_answers(folder: Path) -> None:
    async with rig_of(folder, "a", stale=0.3) as rig, rig.serving() as serving:
        await usable(serving, 1)
        await until(lambda: serving.members.known["a"].silent, "silence")
        await usable(serving, 1)
        assert await play(serving, 30, []) == 30
        assert rig.told("left") == 0


async def test_requests_of_a_worker_that_neither_beats_nor_answers_go_to_others(folder: Path) -> None:
    async with rig_of(folder, "a", stale=0.3) as rig:
        hung = await rig.worker("b", Behaviour(hang=1.0, sticky=True))
        async with rig.serving(pace=replace(QUICK, timeout=0.2)) as serving:
            await usable(serving, 2)
            asking = [asyncio.create_task(play(serving, 12, []))]
            await until(lambda: bool(hung.asked), "a request that hangs")
            hung.mute = True
            assert await asyncio.gather(*asking) == [12]
            assert rig.told("neither beats nor answers") == 1
            assert idle(serving)


async def test_a_worker_that_is_gone_loses_its_requests_at_once(folder: Path) -> None:
    async with rig_of(folder, "a") as rig:
        hung = await rig.worker("b", Behaviour(hang=1.0, sticky=True))
        async with rig.serving(pace=replace(QUICK, timeout=1)) as serving:
            await usable(serving, 2)
            playing = asyncio.create_task(play(serving, 12, []))
            await until(lambda: bool(hung.asked), "a request that hangs")
            hung.mute = True
            unregister(rig.places, hung.record, "its node has gone")
            assert await playing == 12


async def test_a_cancelled_request_counts_no_more(folder: Path) -> None:
    async with rig_of(folder, "a", behaviour=Behaviour(hang=1.0, sticky=True)) as rig, rig.serving() as serving:
        asking = [asyncio.create_task(chat(serving, affinity=f"q{n}")) for n in range(6)]
        await until(lambda: len(rig.workers["a"].asked) == 4, "as many requests as the worker may have")
        assert [load.in_flight for load in serving.loads()] == [4]
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        assert idle(serving)


async def test_a_registry_of_refused_workers_is_an_error_in_the_end(folder: Path) -> None:
    async with rig_of(folder) as rig:
        await rig.worker("a", version="0.1")
        async with rig.serving() as serving:
            with pytest.raises(ServerError, match=r"none that is there can be used .*0\.1"):
                await chat(serving)
            assert rig.told("is not used") == 1


async def test_limits_follow_each_workers_own_kv_cache(folder: Path) -> None:
    async with rig_of(folder) as rig:
        await rig.worker("a", Behaviour(kv_tokens=31_600))
        await rig.worker("b", Behaviour(kv_tokens=63_200))
        async with rig.serving(concurrency=None, routing="least") as serving:
            await usable(serving, 2)
            assert {load.worker: load.limit for load in serving.loads()} == {"a": 10, "b": 20}
            assert serving.limiter.limit == 30
            serving.limiter.told_to_wait()
            assert serving.limiter.limit == 30


async def test_metrics_are_those_of_all_workers_also_of_one_that_left(folder: Path) -> None:
    async with rig_of(folder, "a", "b") as rig, rig.serving() as serving:
        await usable(serving, 2)
        await play(serving, 40, [])
        client = await serving.client()


        def counted() -> list[float]:
            return [parse_metrics(member.metrics).prompt_tokens or 0 for member in serving.members.known.values()]

        await until(lambda: min(counted()) > 0, "metrics after the games")
        before = counted()
        await rig.workers["b"].end()
        await until(lambda: len(serving.loads()) == 1, "the end of b")
        assert len(counted()) == 1
        assert (parse_metrics(await client.metrics()).prompt_tokens or 0) >= sum(before)
