"""What a pool is settled by can't be changed after its end, nor its rule after its opening."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from automate.pools.audit import audit
from automate.pools.evaluation import count_of
from automate.pools.kinds.base import Count
from automate.pools.rounds import hand_in, make_round
from tests.unit.pool_rounds_support import handled, job
from tests.unit.pool_support import DAY, Bench, opened, reply_named

LATE = [{"context": f"x{n}", "question": "late?", "answerA": "1", "answerB": "2", "answerC": "3", "result": "3"}
        for n in range(50)]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with opened(tmp_path) as made:
        made.dataset(who="eve")
        yield made


def fund(bench: Bench, quantity: int = 1000, rule: str = "WinnerTakesAll", days: int = 1) -> str:
    bench.mint("fay", quantity)
    sent = bench.send("fay", "token", "Transfer", Recipient=bench.id("pool"), Quantity=quantity,
                      X_Dataset=bench.id("siqa"), X_Allocation=rule, X_Days=days)
    return str(json.loads(reply_named(sent, "Create-Pool-Response")["Data"])["pool"])


def model(bench: Bench, who: str) -> str:
    return handled(bench.send(who, "pool", "Add-Model", {"name": f"{who}s", "data_tx": "hub/model"})).id


def enter(bench: Bench, who: str, *pools: str) -> str:
    made = model(bench, who)
    for pool in pools:
        handled(bench.send(who, "pool", "Join-Pool", {"dataset": pool, "model": made}))
    bench.clock.forward(1)
    return made


def answer_all(bench: Bench, only: int | None = None) -> None:
    """Bob's model says A, which is right for two rows; Eve's says C, which is right for one and for all late ones."""
    handled(bench.send("eve", "siqa", "Evaluate"))
    spec = make_round(bench.exchange, bench.places)
    assert spec is not None
    job(bench, spec, worker="bobs.1", says="A", only=only, file="1.jsonl")
    job(bench, spec, worker="eves.1", says="C", only=only, file="2.jsonl")
    hand_in(bench.exchange, bench.places)


def shown(bench: Bench, pool: str) -> list[tuple[Any, ...]]:
    rows = json.loads(reply_named(bench.send("anybody", "pool", "Leaderboard", pool), "Leaderboard-Response")["Data"])
    return [(row["name"], row["correct"], row["answered"], row["total"]) for row in rows]


def settled(bench: Bench, pool: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(reply_named(
        handled(bench.send("fay", "pool", "Allocate-Rewards", {"dataset": pool})), "Allocate-Rewards-Response")["Data"])
    return told


def test_rows_that_are_loaded_after_the_end_change_no_winner(bench: Bench) -> None:
    pool = fund(bench)
    for who in ("bob", "eve"):
        enter(bench, who, pool)
    answer_all(bench)
    bench.clock.now = bench.one("SELECT end_time FROM pools")
    handled(bench.send("eve", "siqa", "Load-Data", LATE))
    answer_all(bench)
    assert [row["name"] for row in settled(bench, pool)["payouts"]] == ["bobs"]
    assert shown(bench, pool) == [("bobs", 2, 3, 3), ("eves", 1, 3, 3)]
    assert audit(bench.exchange, pool, bench.clock.now)["problems"] == []


def test_rows_before_the_end_count_and_answers_within_the_grace_do(bench: Bench) -> None:
    pool = fund(bench)
    for who in ("bob", "eve"):
        enter(bench, who, pool)
    answer_all(bench)
    bench.clock.now = bench.one("SELECT end_time FROM pools") - 1
    handled(bench.send("eve", "siqa", "Load-Data", LATE))
    bench.clock.forward(1)
    assert settled(bench, pool)["settled"] is False, "it waits for the answers to them"
    answer_all(bench)
    assert [row["name"] for row in settled(bench, pool)["payouts"]] == ["eves"]
    assert shown(bench, pool) == [("eves", 51, 53, 53), ("bobs", 2, 53, 53)]
    assert audit(bench.exchange, pool, bench.clock.now)["problems"] == []


def test_rows_after_the_end_of_one_pool_are_another_pools(bench: Bench) -> None:
    short, long = fund(bench), fund(bench, days=9)
    enter(bench, "bob", short, long)
    enter(bench, "eve", short, long)
    answer_all(bench)
    bench.clock.forward(DAY)
    handled(bench.send("eve", "siqa", "Load-Data", LATE))
    for pool in (short, long, short):
        handled(bench.send("fay", "pool", "Update-Leaderboard", {"dataset": pool}))
    assert shown(bench, short) == [("bobs", 2, 3, 3), ("eves", 1, 3, 3)]
    assert [row[3] for row in shown(bench, long)] == [53, 53]
    assert settled(bench, short)["state"] == "paid", "it doesn't wait for answers to later rows"


def test_one_score_serves_all_open_pools(bench: Bench) -> None:
    first, second = fund(bench, days=3), fund(bench, days=9)
    enter(bench, "bob", first, second)
    answer_all(bench)
    handled(bench.send("fay", "pool", "Update-Leaderboard", {"dataset": first}))
    assert shown(bench, first) == shown(bench, second) == [("bobs", 2, 3, 3)]


def test_score_counts_up_to_a_time(bench: Bench) -> None:
    pool = fund(bench)
    made = enter(bench, "bob", pool)
    handled(bench.send("eve", "siqa", "Load-Data", LATE))
    loaded = bench.clock.now
    for until, total in ((loaded, 3), (loaded + 1, 53), (0, 0)):
        receipt = handled(bench.send("anybody", "siqa", "Score", made, Until=until))
        answer = reply_named(receipt, "Score-Response")
        assert (json.loads(answer["Data"])["total"], answer["tags"]["Until"]) == (total, str(until))
    assert json.loads(answer["Data"])["unevaluated"] == 0
    assert count_of(bench.store.db, bench.id("siqa"), 1) == Count(53, 0, 0, 0)
    for wrong in ("soon", "-1", "1e3", ""):
        refused = bench.send("anybody", "siqa", "Score", made, Until=wrong)
        assert refused.state == "refused" and "Until" in str(refused.error)


def test_the_audit_finds_a_total_that_counts_later_rows(bench: Bench) -> None:
    pool = fund(bench)
    enter(bench, "bob", pool)
    answer_all(bench)
    bench.clock.forward(DAY)
    settled(bench, pool)
    with bench.store.transaction():
        bench.store.db.execute("UPDATE questions SET added = ? WHERE id = 3", (bench.clock.now,))
    assert any("2 questions were there" in str(one)
               for one in audit(bench.exchange, pool, bench.clock.now)["problems"])  # type: ignore[attr-defined]


def test_settings_that_change_later_change_no_pool(tmp_path: Path) -> None:
    with opened(tmp_path / "w", winners=10, grace=2 * DAY / 1000) as bench:
        bench.dataset(who="eve")
        pool = fund(bench, rule="ArithmeticDecrease")
        for who in ("bob", "eve"):
            enter(bench, who, pool)
        answer_all(bench, 1)
        end = bench.one("SELECT end_time FROM pools")
    with opened(tmp_path / "w", winners=1, grace=0) as bench:
        bench.clock.now = end
        told = settled(bench, pool)
        assert (told["settled"], told["until"]) == (False, end + 2 * DAY)
        bench.clock.now = end + 2 * DAY
        assert [row["amount"] for row in settled(bench, pool)["payouts"]] == ["666", "333", "1"]
    with opened(tmp_path / "w", winners=7) as bench:
        assert audit(bench.exchange, pool, end)["problems"] == []
