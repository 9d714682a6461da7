"""Leaderboards: who is before whom, intervals, and the shape that the spec gives them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automate.errors import PoolError
from automate.pools.allocation import Standing, ranked
from automate.pools.leaderboard import Place, board, wilson
from tests.unit.pool_scores import Arena
from tests.unit.pool_support import DAY, HOUR, START, Bench, opened, reply_named


@pytest.fixture
def arena(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Arena]:
    with opened(tmp_path) as bench:
        yield Arena(bench, monkeypatch)


def test_the_answer_is_the_specs_array_and_more(arena: Arena) -> None:
    pool = arena.fund()
    low = arena.model("ann", "m1", (3, 6, 1, 10))
    arena.join("ann", pool, low)
    best = arena.enter("bob", pool, "m2", 9)
    arena.ask("fay", "Update-Leaderboard", {"dataset": pool})
    rows = arena.ask("eve", "Leaderboard", pool)
    assert [(row["model"], row["score"], row["rank"]) for row in rows] == [(best, 0.9, 1), (low, 0.3, 2)]
    assert {name: rows[1][name] for name in ("name", "participant", "progress", "accuracy", "correct", "answered",
                                             "failed", "total", "reward")} == {
        "name": "m1", "participant": arena.bench.address("ann"), "progress": 0.6, "accuracy": 0.5, "correct": 3,
        "answered": 6, "failed": 1, "total": 10, "reward": None}
    assert (rows[1]["low"], rows[1]["high"]) == wilson(3, 6)
    assert arena.ask("eve", "Leaderboard", {"dataset": "siqa"}) == rows
    assert arena.ask("eve", "Leaderboard", f' "{pool}"\n') == rows, "as JSON text"


@pytest.mark.parametrize("data", ["", "nope", "{", {"dataset": "nope"}, {}, "'; DROP TABLE pools; --"])
def test_a_leaderboard_of_nothing(arena: Arena, data: object) -> None:
    arena.fund()
    sent = arena.bench.send("eve", "pool", "Leaderboard", data)
    assert sent.state == "refused" and reply_named(sent, "Leaderboard-Error")
    with pytest.raises(PoolError):
        board(arena.bench.store.db, "nope", START)


def test_a_model_that_was_never_asked_has_nothing(arena: Arena) -> None:
    pool = arena.fund()
    arena.enter("ann", pool, "m", 9)
    place = board(arena.bench.store.db, pool, START).places[0]
    assert (place.score, place.progress, place.value, place.low, place.high, place.updated) == (0, 0, 0, 0, 1, None)


def test_the_board_says_what_the_pool_is(arena: Arena) -> None:
    pool = arena.fund()
    arena.enter("ann", pool, "m", 9)
    shown = board(arena.bench.store.db, pool, START)
    assert (shown.pool, shown.dataset, shown.dataset_name, shown.funder, shown.funds, shown.allocation) == (
        pool, arena.dataset, "siqa", arena.bench.address("fay"), 1000, "ArithmeticDecrease")
    assert (shown.start_time, shown.end_time, shown.state, shown.updated) == (START, START + 30 * DAY, "open", None)
    assert board(arena.bench.store.db, pool, START + 30 * DAY).state == "over"
    arena.bench.clock.forward(30 * DAY)
    arena.settle(pool)
    shown = board(arena.bench.store.db, pool, arena.bench.clock.now)
    assert (shown.state, shown.places[0].reward) == ("paid", 1000)


def test_a_place_has_every_field_and_stays_as_it_is(arena: Arena) -> None:
    pool = arena.fund()
    arena.enter("ann", pool, "m", 9)
    place = board(arena.bench.store.db, pool, START).places[0]
    assert Place(**vars(place)) == place
    assert list(vars(place)) == [field.name for field in fields(Place)]
    with pytest.raises(FrozenInstanceError):
        place.rank = 2  # type: ignore[misc]


def test_ties_go_by_time_of_joining_then_by_its_order(arena: Arena) -> None:
    pool = arena.fund()
    twins = [arena.model("ann", f"m{number}", (5, 10, 0, 10)) for number in range(4)]
    for number, model in enumerate((twins[2], twins[3], twins[0], twins[1])):
        if number == 2:
            arena.bench.clock.forward(HOUR)
        arena.join("ann", pool, model)
    arena.ask("fay", "Update-Leaderboard", {"dataset": pool})
    assert [place.process for place in board(arena.bench.store.db, pool, START).places] == [
        twins[2], twins[3], twins[0], twins[1]]


def fill(bench: Bench, pool: str, standings: list[Standing]) -> None:
    """Models straight into the tables, in the order of joining."""
    message = bench.one("SELECT id FROM messages LIMIT 1")
    with bench.store.transaction():
        for one in standings:
            bench.store.db.execute("INSERT INTO models VALUES (?, ?, 'r', 'hub/m', ?, 'o', 0)",
                                   (one.model, f"m{one.model}", f"p{one.model}"))
            bench.store.db.execute(
                "INSERT INTO pool_models (pool, model, participant, joined, joined_by, correct, answered, total) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (pool, one.model, one.participant, one.joined, message, one.correct,
                                                    one.total, one.total))


_ROW = st.tuples(st.integers(0, 5), st.sampled_from([0, 3, 7, 10, 1954]), st.integers(0, 2))


@given(rows=st.lists(_ROW, max_size=12))
def test_the_board_ranks_as_the_rules_do(tmp_path_factory: pytest.TempPathFactory,
                                         rows: list[tuple[int, int, int]]) -> None:
    standings = [Standing(number + 1, "a", min(correct, total), total, joined, number)
                 for number, (correct, total, joined) in enumerate(rows)]
    with pytest.MonkeyPatch.context() as monkeypatch, opened(tmp_path_factory.mktemp("bench")) as bench:
        pool = Arena(bench, monkeypatch).fund()
        fill(bench, pool, standings)
        places = board(bench.store.db, pool, START).places
    assert [place.process for place in places] == [f"p{one.model}" for one in ranked(standings)]
    assert [place.rank for place in places] == list(range(1, len(rows) + 1))


@pytest.mark.parametrize(("correct", "answered", "low", "high"), [
    (0, 0, 0.0, 1.0), (0, 10, 0.0, 0.27753), (10, 10, 0.72247, 1.0), (5, 10, 0.23659, 0.76341),
    (977, 1954, 0.47785, 0.52215), (1, 1, 0.20655, 1.0)])
def test_wilson(correct: int, answered: int, low: float, high: float) -> None:
    """As scipy.stats.binomtest(...).proportion_ci(method="wilson") has it."""
    assert wilson(correct, answered) == pytest.approx((low, high), abs=1e-5)


@given(answered=st.integers(1, 10**6), data=st.data())
def test_wilson_holds_what_it_is_of(answered: int, data: st.DataObject) -> None:
    correct = data.draw(st.integers(0, answered))
    low, high = wilson(correct, answered)
    assert 0 <= low <= correct / answered + 1e-12 and correct / answered - 1e-12 <= high <= 1
