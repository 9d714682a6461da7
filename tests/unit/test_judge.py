"""The engine's loop against a real rehearsal judge in this process: all games, stops, failures, limits, gates."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from aiohttp import web

from automate.arena.games import Game
from automate.arena.judge import Engine, Task
from automate.arena.prompts import Message
from automate.arena.referee import Ask, Referee
from automate.errors import StorageError
from automate.journal import Record
from automate.serving.client import Address, JudgeClient
from automate.serving.limiter import Limiter
from automate.serving.rehearsal import make_app
from automate.serving.rehearsal_behaviour import Behaviour

ASK = Ask(max_tokens=64, min_output=8, temperature=0.0, retries=2, structured=True, tokenize=True, retry_wait=0.01)


class Served:
    """A server that is there; fits the engine's `Serving`."""

    context: int | None = 1 << 20

    def __init__(self, client: JudgeClient) -> None:
        self._client = client

    async def client(self) -> JudgeClient:
        return self._client

    def suspect(self) -> None:
        pass




async def serve(folder: Path, behaviour: Behaviour) -> AsyncIterator[Served]:
    runner = web.AppRunner(make_app("judge", behaviour), handler_cancellation=True)
    await runner.setup()
    socket = str(folder / "s")
    await web.UnixSite(runner, socket).start()
    try:
        async with JudgeClient(Address("http://localhost", socket), "judge", timeout=30) as client:
            yield Served(client)
    finally:
        await runner.cleanup()


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async for found in serve(tmp_path, Behaviour()):
        yield found


def game(number: int) -> Game:
    return Game("m", f"q{number}", 1, "base", "hard_prompt", f"p{number}", f"t{number}", f"k{number}")


def tasks(count: int, rendered: list[str] | None = None) -> Iterator[Task]:
    for number in range(count):
        def render(number: int = number) -> list[Message]:
            if rendered is not None:
                rendered.append(f"q{number}")
            return [{"role": "system", "content": "judge"}, {"role": "user", "content": f"question {number}"}]

        yield game(number), render


class Kept:
    """A sink that keeps records and can do something at the n-th."""

    def __init__(self, at: int | None = None, do: Callable[[], None] = lambda: None) -> None:
        self.records: list[Record] = []
        self.at, self.do = at, do

    def __call__(self, game: Game, record: Record) -> None:
        self.records.append(record)
        if self.at == len(self.records):
            self.do()


def engine(served: Served, limiter: Limiter, sink: Kept, **options: object) -> Engine[Game]:
    return Engine(Referee(served, ASK, limiter), limiter, sink, **options)  # type: ignore[arg-type]


async def test_every_game_is_played_once_and_no_more_are_in_flight_than_allowed(served: Served) -> None:
    limiter, sink = Limiter(5), Kept()
    tally = await engine(served, limiter, sink).play(tasks(60))
    assert sorted(record["key"] for record in sink.records) == sorted(f"k{n}" for n in range(60))
    assert (tally.played, limiter.in_flight) == (60, 0)
    assert limiter.peak == 5


async def test_stop_finishes_what_is_in_flight_and_starts_no_more(served: Served) -> None:
    limiter, rendered = Limiter(4), list[str]()
    sink = Kept()
    playing = engine(served, limiter, sink)
    sink.at, sink.do = 10, playing.stop
    tally = await playing.play(tasks(60, rendered))
    assert 10 <= tally.played <= 14
    assert len(rendered) == tally.played


async def test_an_error_of_the_sink_ends_the_play_and_is_raised(served: Served) -> None:
    def fail() -> None:
        raise StorageError("no space left")

    sink = Kept(7, fail)
    with pytest.raises(StorageError, match="no space left"):
        await engine(served, Limiter(3), sink).play(tasks(60))
    assert len(sink.records) < 60


async def test_an_error_of_the_tasks_is_raised(served: Served) -> None:
    def broken() -> Iterator[Task]:
        yield from tasks(3)
        raise StorageError("answers are gone")

    with pytest.raises(StorageError, match="answers are gone"):
        await engine(served, Limiter(2), Kept()).play(broken())


async def test_a_gate_that_says_no_ends_the_play(served: Served) -> None:
    admitted = []

    async def admit(game: Game) -> bool:
        admitted.append(game.key)
        return len(admitted) <= 12

    tally = await engine(served, Limiter(3), Kept(), admit=admit).play(tasks(60))
    assert tally.played == 12


async def test_a_game_without_an_answer_is_counted_and_blames_nobody(tmp_path: Path) -> None:
    async for served in serve(tmp_path, Behaviour(status_500=1.0, sticky=True)):
        sink = Kept()
        tally = await engine(served, Limiter(4), sink).play(tasks(6))
        assert (tally.played, tally.unanswered, sink.records) == (0, 6, [])
        assert "HTTP 500" in str(tally.last_unanswered)


async def test_a_refused_game_is_a_record_with_its_reason(tmp_path: Path) -> None:
    async for served in serve(tmp_path, Behaviour(status_400=1.0)):
        sink = Kept()
        await engine(served, Limiter(4), sink).play(tasks(4))
        assert {record["outcome"] for record in sink.records} == {"refused"}
        assert all("HTTP 400" in record["reason"] for record in sink.records)
