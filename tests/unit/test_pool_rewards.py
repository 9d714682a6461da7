"""The end of a pool: not before its time, on fresh scores, once, and to the last unit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automate.pools.allocation import RULES
from automate.pools.audit import audit
from automate.pools.leaderboard import board
from automate.pools.schedule import tick
from tests.unit.pool_scores import Arena
from tests.unit.pool_support import DAY, HOUR, ROWS, opened, reply_named


@pytest.fixture
def arena(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Arena]:
    with opened(tmp_path) as bench:
        made = Arena(bench, monkeypatch)
        yield made
        made.check()


def over(arena: Arena) -> None:
    arena.bench.clock.forward(30 * DAY)


def test_the_best_are_paid_by_rule_and_the_dust_goes_back(arena: Arena) -> None:
    pool = arena.fund()
    for who, correct in (("ann", 3), ("bob", 9), ("cy", 6)):
        arena.enter(who, pool, f"{who}s", correct)
    over(arena)
    told = arena.settle(pool)
    assert {name: told[name] for name in ("state", "funds", "paid", "dust", "refund", "already")} == {
        "state": "paid", "funds": "1000", "paid": "999", "dust": "1", "refund": "0", "already": False}
    assert [arena.bench.balance(who) for who in ("bob", "cy", "ann", "fay")] == [500, 333, 166, 1]
    assert [(row["name"], row["rank"], row["amount"]) for row in told["payouts"]] == [
        ("bobs", 1, "500"), ("cys", 2, "333"), ("anns", 3, "166"), (None, None, "1")]


def test_each_payout_is_one_transfer_that_says_what_for(arena: Arena) -> None:
    pool = arena.fund()
    first, second = arena.enter("ann", pool, "m1", 9), arena.enter("ann", pool, "m2", 8)
    over(arena)
    arena.settle(pool)
    by = arena.bench.one("SELECT settled_by FROM pools WHERE id = ?", pool)
    sent = [json.loads(row["tags"]) for row in arena.bench.rows(
        "SELECT tags FROM messages WHERE cause = ? AND action = 'Transfer' ORDER BY seq", by)]
    assert [(tags["X-Payout"], tags.get("X-Model"), tags.get("X-Rank"), tags["Quantity"], tags["X-Pool"])
            for tags in sent] == [("reward", first, "1", "666", pool), ("reward", second, "2", "333", pool),
                                  ("dust", None, None, "1", pool)]
    assert arena.bench.balance("ann") == 999, "models of one participant add up"
    assert {row["message"] for row in arena.bench.rows("SELECT message FROM payouts")} == {by}


def test_not_before_the_end(arena: Arena) -> None:
    pool = arena.fund()
    arena.enter("ann", pool, "m", 9)
    arena.bench.clock.forward(30 * DAY - 1)
    sent = arena.bench.send("fay", "pool", "Allocate-Rewards", {"dataset": pool})
    assert sent.state == "refused" and "not time" in str(sent.error)
    arena.bench.clock.forward(1)
    assert arena.settle(pool)["state"] == "paid"


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_pool_without_models_is_refunded(arena: Arena, rule: str) -> None:
    pool = arena.fund(rule=rule)
    over(arena)
    told = arena.settle(pool, "fay")
    assert (told["state"], told["refund"]) == ("refunded", "1000")
    assert arena.bench.balance("fay") == 1000


def test_all_wrong_pays_nobody_where_the_rule_says_so(arena: Arena) -> None:
    pool = arena.fund(rule="WinnerTakesAll")
    arena.enter("ann", pool, "m", 0)
    over(arena)
    assert arena.settle(pool)["state"] == "refunded"
    assert arena.bench.balance("fay") == 1000


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_model_that_answered_nothing_is_not_paid(arena: Arena, rule: str) -> None:
    pool = arena.fund(rule=rule)
    assert arena.join("mute", pool, arena.model("mute", "mute", (0, 0, 10, 10))).state == "handled"
    arena.enter("ann", pool, "anns", 5)
    over(arena)
    told = arena.settle(pool)
    assert [row["name"] for row in told["payouts"] if row["kind"] == "reward"] == ["anns"]
    assert arena.bench.balance("mute") == 0
    problems = cast("list[str]", audit(arena.bench.exchange, pool, arena.bench.clock.now)["problems"])
    assert [one for one in problems if f"{rule} gives" in one] == []


def test_where_nobody_answered_the_funder_gets_all_back(arena: Arena) -> None:
    pool = arena.fund(rule="Equal")
    assert arena.join("mute", pool, arena.model("mute", "mute", (0, 0, 10, 10))).state == "handled"
    over(arena)
    assert arena.settle(pool)["state"] == "refunded"
    assert (arena.bench.balance("fay"), arena.bench.balance("mute")) == (1000, 0)


def test_paid_once_however_often_it_is_asked(arena: Arena) -> None:
    pool = arena.fund()
    arena.enter("ann", pool, "m", 9)
    over(arena)
    first = arena.settle(pool)
    rows = arena.bench.rows("SELECT * FROM payouts"), arena.bench.rows("SELECT * FROM entries")
    for who in ("owner", "fay", "ann"):
        again = arena.settle(pool, who)
        assert again == {**first, "already": True}
    arena.bench.clock.forward(DAY)
    arena.settle(pool)
    assert (arena.bench.rows("SELECT * FROM payouts"), arena.bench.rows("SELECT * FROM entries")) == rows


def test_two_askers_at_once_pay_once_and_are_both_answered(arena: Arena) -> None:
    pool = arena.fund()
    arena.enter("ann", pool, "m", 9)
    over(arena)
    receipts = arena.bench.exchange.receive([
        arena.bench.message(who, "pool", "Allocate-Rewards", {"dataset": pool}) for who in ("fay", "owner", "ann")])
    told = [json.loads(reply_named(receipt, "Allocate-Rewards-Response")["Data"]) for receipt in receipts]
    assert [one["already"] for one in told] == [False, True, True]
    assert arena.bench.balance("ann") == 1000


def test_the_scores_that_count_are_those_at_the_end_and_not_the_last_boards(arena: Arena) -> None:
    pool = arena.fund(rule="WinnerTakesAll")
    early, late = arena.enter("ann", pool, "m1", 5), arena.enter("bob", pool, "m2", 4)
    over(arena)
    arena.ask("fay", "Update-Leaderboard", {"dataset": pool})
    arena.scores.right[late] = (8, 10, 0, 10)
    assert arena.settle(pool)["payouts"][0]["model"] == late != early


def test_rewards_wait_for_what_is_being_evaluated_but_not_for_ever(arena: Arena) -> None:
    pool = arena.fund(rule="WinnerTakesAll")
    done, slow = arena.enter("ann", pool, "m1", 5), arena.model("bob", "m2", (4, 4, 0, 10))
    arena.join("bob", pool, slow)
    over(arena)
    told = arena.settle(pool, "ann")
    assert (told["settled"], told["state"], told["waiting"]) == (False, "over", [slow])
    assert arena.held() == 1000
    arena.bench.clock.forward(DAY - 1)
    assert arena.settle(pool)["settled"] is False
    arena.bench.clock.forward(1)
    assert arena.settle(pool)["payouts"][0]["model"] == done


def test_rewards_are_paid_as_soon_as_all_is_evaluated(arena: Arena) -> None:
    pool = arena.fund(rule="WinnerTakesAll")
    arena.enter("ann", pool, "m1", 5)
    slow = arena.model("bob", "m2", (4, 4, 0, 10))
    arena.join("bob", pool, slow)
    over(arena)
    assert arena.settle(pool)["settled"] is False
    arena.bench.clock.forward(HOUR)
    arena.scores.right[slow] = (9, 9, 1, 10)
    assert arena.settle(pool)["payouts"][0]["model"] == slow


def test_a_data_set_that_says_nothing_any_more_doesnt_hold_the_money(arena: Arena) -> None:
    pool = arena.fund()
    arena.enter("ann", pool, "m", 5)
    arena.ask("fay", "Update-Leaderboard", {"dataset": pool})
    arena.scores.broken = True
    over(arena)
    assert arena.settle(pool)["settled"] is False
    arena.bench.clock.forward(DAY)
    assert arena.settle(pool)["paid"] == "1000"


def test_a_settled_pool_is_frozen(arena: Arena) -> None:
    pool = arena.fund()
    model = arena.enter("ann", pool, "m", 5)
    over(arena)
    arena.settle(pool)
    before = arena.bench.rows("SELECT * FROM pool_models"), arena.bench.rows("SELECT * FROM pools")
    arena.scores.right[model] = (10, 10, 0, 10)
    assert "paid" in str(arena.bench.send("ann", "pool", "Update-Leaderboard", {"dataset": pool}).error)
    data = {"correct": 10, "unevaluated": 0, "total": 10, "score": 1, "progress": 1}
    assert arena.bench.unsigned(arena.dataset, "pool", "Score-Response", data, via="process", anchor="1",
                                Model=model).state == "refused"
    assert arena.join("ann", pool, model).state == "refused"
    assert (arena.bench.rows("SELECT * FROM pool_models"), arena.bench.rows("SELECT * FROM pools")) == before
    shown = board(arena.bench.store.db, pool, arena.bench.clock.now)
    assert (shown.state, shown.places[0].reward) == ("paid", 1000)


def test_other_pools_keep_their_money(arena: Arena) -> None:
    first, second = arena.fund("fay", 100, X_Days="1"), arena.fund("gus", 70, X_Days="9")
    model = arena.enter("ann", first, "m", 5)
    arena.join("ann", second, model)
    arena.bench.clock.forward(DAY)
    arena.settle(first)
    assert (arena.held(), arena.bench.balance("ann")) == (70, 100)


def test_the_clock_pays(arena: Arena) -> None:
    pool = arena.fund()
    arena.enter("ann", pool, "m", 5)
    over(arena)
    assert arena.bench.unsigned("c" * 43, "pool", "Allocate-Rewards", {"dataset": pool}, via="clock",
                                anchor="1").state == "handled"
    assert arena.bench.balance("ann") == 1000


def test_nobody_else_settles(arena: Arena) -> None:
    pool = arena.fund()
    arena.enter("ann", pool, "m", 5)
    note = {"pool": pool, "asker": arena.bench.address("ann"), "message": "x", "since": 0, "turn": 2}
    for who in ("ann", "owner"):
        assert arena.bench.send(who, "pool", "Settle-Pool", note).state == "refused"
    assert arena.bench.one("SELECT state FROM pools") == "open"


def test_a_payout_that_the_token_refuses_is_not_lost_and_is_told(arena: Arena) -> None:
    pool = arena.fund()
    arena.enter("ann", pool, "m", 5)
    with arena.bench.store.transaction():
        arena.bench.store.db.execute("UPDATE balances SET amount = amount - 1 WHERE account = ?",
                                     (arena.bench.id("pool"),))
    over(arena)
    arena.settle(pool)
    told = arena.bench.rows("SELECT data FROM messages WHERE target = ? AND action = 'Payout-Error'",
                            arena.bench.address("owner"))
    assert len(told) == 1
    data = json.loads(told[0]["data"])
    assert (data["pool"], data["quantity"], data["error"]) == (pool, "1000", "Insufficient Balance!")
    assert (arena.held(), arena.bench.balance("ann")) == (999, 0)
    with arena.bench.store.transaction():
        arena.bench.store.db.execute("UPDATE balances SET amount = 0 WHERE account = ?", (arena.bench.id("pool"),))


@pytest.mark.parametrize("data", ["", "{}", {"dataset": 5.5}, {"dataset": "nope"}, "nope", {"pool": "x"}, "[1]"])
def test_rewards_of_nothing(arena: Arena, data: object) -> None:
    arena.fund()
    over(arena)
    assert arena.bench.send("owner", "pool", "Allocate-Rewards", data).state == "refused"
    assert arena.held() == 1000


def test_a_crash_between_any_two_statements_pays_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at, crashed = 0, True
    while crashed:
        at += 1
        with opened(tmp_path / str(at)) as bench:
            arena = Arena(bench, monkeypatch)
            pool = arena.fund(quantity=100)
            for who, correct in (("ann", 3), ("bob", 9)):
                arena.enter(who, pool, f"{who}s", correct)
            over(arena)
            message = bench.message("fay", "pool", "Allocate-Rewards", {"dataset": pool})
            crashed = bench.crash(at, partial(bench.exchange.receive, [message]))
            bench.exchange.receive([message])
            assert [bench.balance(who) for who in ("bob", "ann", "fay")] == [66, 33, 1]
            arena.check()
    assert at > 30, "there were statements to crash at"


def test_a_real_data_set_from_joining_to_the_clocks_payout(tmp_path: Path) -> None:
    with opened(tmp_path) as bench:
        dataset, pool = bench.dataset(), bench.id("pool")
        bench.mint("fay", 100)
        paid = bench.send("fay", "token", "Transfer", Recipient=pool, Quantity="100", X_Dataset=dataset,
                          X_Allocation="ArithmeticDecrease")
        named = json.loads(reply_named(paid, "Create-Pool-Response")["Data"])["pool"]
        assert bench.send("ann", "pool", "Add-Model", {"name": "m", "data_tx": "hub/m"}).state == "handled"
        joined = bench.send("ann", "pool", "Join-Pool", {"dataset": dataset, "model": "m"})
        assert joined.state == "handled"
        assert bench.one("SELECT COUNT(*) FROM evaluations WHERE state = 'pending'") == len(ROWS)
        with bench.store.transaction():
            bench.store.db.execute("UPDATE evaluations SET state = 'answered', prediction = CASE WHEN dataset_id = 2 "
                                   "THEN correct_answer ELSE '0' END")
        bench.clock.forward(30 * DAY - 1)
        assert tick(bench.exchange, bench.clock.now)["Update-Leaderboard"] == 1
        place = board(bench.store.db, named, bench.clock.now).places[0]
        assert (place.correct, place.answered, place.total, place.score) == (1, 3, 3, 1 / 3)
        bench.clock.forward(1 + DAY)
        tick(bench.exchange, bench.clock.now)
        assert (bench.balance("ann"), bench.balance("fay"), bench.balance(pool)) == (100, 0, 0)
        problems = cast("list[str]", audit(bench.exchange, named, bench.clock.now)["problems"])
        assert [one for one in problems if not one.startswith("evaluation")] == [], "its answers were put in by hand"


_FIELD = st.lists(st.tuples(st.sampled_from(["ann", "bob", "cy"]), st.integers(0, 10)), max_size=6)


@settings(max_examples=20, deadline=None)
@given(field=_FIELD, rule=st.sampled_from(sorted(RULES)), quantity=st.integers(1, 10_000))
def test_every_unit_is_paid_or_goes_back(tmp_path_factory: pytest.TempPathFactory, field: list[tuple[str, int]],
                                         rule: str, quantity: int) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch, opened(tmp_path_factory.mktemp("bench")) as bench:
        arena = Arena(bench, monkeypatch)
        pool = arena.fund("fay", quantity, rule)
        for number, (who, correct) in enumerate(field):
            arena.enter(who, pool, f"m{number}", correct)
        over(arena)
        told = arena.settle(pool)
        sums = {name: int(told[name]) for name in ("paid", "dust", "refund")}
        assert sum(sums.values()) == quantity
        assert sum(bench.balance(who) for who in ("ann", "bob", "cy")) == sums["paid"]
        assert bench.balance("fay") == sums["dust"] + sums["refund"]
        shown = board(bench.store.db, pool, bench.clock.now)
        paid = [place.reward or 0 for place in shown.places]
        assert paid == sorted(paid, reverse=True) and sum(paid) == sums["paid"]
        arena.check()
