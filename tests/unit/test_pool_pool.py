"""The pool process: pools are opened by money and by nothing else; joining, scores, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from automate.pools.pool import model_of, pool_of
from tests.unit.pool_scores import Arena
from tests.unit.pool_support import DAY, START, opened, reply_named


@pytest.fixture
def arena(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Arena]:
    with opened(tmp_path, min_fund=10) as bench:
        made = Arena(bench, monkeypatch)
        yield made
        made.check()


# --- funding ------------------------------------------------------------------------------------------
def test_money_with_a_data_set_and_a_rule_opens_a_pool(arena: Arena) -> None:
    arena.bench.mint("fay", 1000)
    sent = arena.pay("fay", 1000, X_Dataset=arena.dataset, X_Allocation="ArithmeticDecrease")
    told = reply_named(sent, "Create-Pool-Response")
    pool = json.loads(told["Data"])["pool"]
    assert told["tags"]["Message-Id"] == sent.id and told["tags"]["Pool"] == pool
    row = arena.bench.rows("SELECT * FROM pools")
    assert len(row) == 1
    assert {name: row[0][name] for name in ("id", "dataset", "funder", "funds", "allocation", "start_time", "end_time",
                                            "state")} == {
        "id": pool, "dataset": arena.dataset, "funder": arena.bench.address("fay"), "funds": 1000,
        "allocation": "ArithmeticDecrease", "start_time": START, "end_time": START + 30 * DAY, "state": "open"}
    assert arena.bench.one("SELECT cause FROM messages WHERE id = ?", pool) == sent.id
    assert arena.held() == 1000


def test_a_data_set_may_be_named(arena: Arena) -> None:
    pool = arena.fund(X_Dataset="siqa")
    assert arena.bench.one("SELECT dataset FROM pools WHERE id = ?", pool) == arena.dataset


@pytest.mark.parametrize(("tags", "end"), [({"X_Days": "1"}, START + DAY), ({"X_Days": "0.5"}, START + DAY // 2),
                                           ({"X_End_Time": START + 5}, START + 5)])
def test_the_funder_says_when_it_ends(arena: Arena, tags: dict[str, Any], end: int) -> None:
    pool = arena.fund(**tags)
    assert arena.bench.one("SELECT end_time FROM pools WHERE id = ?", pool) == end


@pytest.mark.parametrize(("quantity", "tags", "reason"), [
    (50, {}, "X-Dataset is missing"),
    (50, {"X_Dataset": "siqa"}, "X-Allocation is missing"),
    (50, {"X_Dataset": "nowhere", "X_Allocation": "Equal"}, "no data set"),
    (50, {"X_Dataset": "pool", "X_Allocation": "Equal"}, "no data set"),
    (50, {"X_Dataset": "'; DROP TABLE pools; --", "X_Allocation": "Equal"}, "no data set"),
    (50, {"X_Dataset": "unready", "X_Allocation": "Equal"}, "not ready"),
    (50, {"X_Dataset": "siqa", "X_Allocation": "equal"}, "no rule"),
    (9, {"X_Dataset": "siqa", "X_Allocation": "Equal"}, "too little"),
    *[(50, {"X_Dataset": "siqa", "X_Allocation": "Equal", "X_Days": days}, "X-Days")
      for days in ("0", "-1", "nan", "inf", "1e3", "36501", "", "9" * 400, "٣")],
    *[(50, {"X_Dataset": "siqa", "X_Allocation": "Equal", "X_End_Time": end}, "X-End-Time")
      for end in ("0", str(START), "soon", "9" * 16, "9" * 400, "")],
    (50, {"X_Dataset": "siqa", "X_Allocation": "Equal", "X_Days": "1", "X_End_Time": START + 9}, "both"),
])
def test_money_that_opens_no_pool_comes_back_with_the_reason(
        arena: Arena, quantity: int, tags: dict[str, object], reason: str) -> None:
    arena.bench.bare_dataset("unready", ready=False)
    arena.bench.mint("fay", quantity)
    sent = arena.pay("fay", quantity, **tags)
    assert sent.state == "handled"
    error = reply_named(sent, "Create-Pool-Error")
    assert reason in error["tags"]["Error"] and error["tags"]["Message-Id"] == sent.id
    back = reply_named(sent, "Credit-Notice")["tags"]
    assert back["Quantity"] == str(quantity) and reason in back["X-Reason"]
    assert (arena.bench.balance("fay"), arena.held()) == (quantity, 0)
    assert arena.bench.rows("SELECT * FROM pools") == []


def test_a_second_credit_opens_a_second_pool_and_leaves_the_first(arena: Arena) -> None:
    first = arena.fund("fay", 100)
    model = arena.enter("ann", first, "m", 5)
    before = arena.bench.rows("SELECT * FROM pools"), arena.bench.rows("SELECT * FROM pool_models")
    second = arena.fund("gus", 70, "Equal")
    assert second != first
    assert (arena.bench.rows("SELECT * FROM pools WHERE id = ?", first),
            arena.bench.rows("SELECT * FROM pool_models")) == before
    assert arena.held() == 170
    assert arena.join("ann", second, model).state == "handled"


def test_minted_money_that_nobody_sent_goes_to_who_minted_it(arena: Arena) -> None:
    arena.bench.send("owner", "token", "Mint", Recipient=arena.bench.id("pool"), Quantity="50")
    assert (arena.bench.balance("owner"), arena.held()) == (50, 0)


@pytest.mark.parametrize("action", ["Credit-Notice", "Debit-Notice", "Transfer-Error"])
def test_notices_count_only_from_the_token(arena: Arena, action: str) -> None:
    before = arena.bench.dump("messages")
    sent = arena.bench.send("eve", "pool", action, Sender=arena.bench.address("eve"), Quantity="1000",
                            X_Dataset="siqa", X_Allocation="Equal")
    assert sent.state == "refused" and "token" in str(sent.error)
    assert arena.bench.dump("messages") == before


def test_create_pool_says_how(arena: Arena) -> None:
    error = reply_named(arena.bench.send("fay", "pool", "Create-Pool"), "Create-Pool-Error")["tags"]["Error"]
    for word in ("Transfer", arena.bench.id("token"), arena.bench.id("pool"), "X-Dataset", "WinnerTakesAll"):
        assert word in error


# --- joining ------------------------------------------------------------------------------------------
def test_joining_starts_the_evaluation(arena: Arena) -> None:
    pool = arena.fund()
    model = arena.model("ann", "m")
    answer = json.loads(reply_named(arena.join("ann", pool, "m"), "Join-Pool-Response")["Data"])
    assert (answer["pool"], answer["model"], answer["already"]) == (pool, model, False)
    assert arena.scores.benchmarked == [(arena.dataset, model)]
    row = arena.bench.rows("SELECT * FROM pool_models")[0]
    assert (row["participant"], row["score"], row["progress"], row["joined"]) == (
        arena.bench.address("ann"), 0, 0, START)


def test_joining_again_keeps_the_score_and_the_place(arena: Arena) -> None:
    pool = arena.fund()
    model = arena.enter("ann", pool, "m", 7)
    arena.ask("ann", "Update-Leaderboard", {"dataset": pool})
    before = arena.bench.rows("SELECT * FROM pool_models")
    arena.bench.clock.forward(DAY)
    again = json.loads(reply_named(arena.join("ann", pool, model), "Join-Pool-Response")["Data"])
    assert again["already"] is True
    assert arena.bench.rows("SELECT * FROM pool_models") == before
    assert before[0]["correct"] == 7


def test_a_model_is_not_taken_over(arena: Arena) -> None:
    pool = arena.fund()
    model = arena.enter("ann", pool, "m", 7)
    before = arena.bench.dump("messages")
    for given in (model, "m", 1):
        sent = arena.bench.send("eve", "pool", "Join-Pool", {"dataset": pool, "model": given})
        assert sent.state == "refused" and "belongs to" in str(sent.error)
    assert arena.bench.dump("messages") == before


def test_joins_from_the_end_on_are_refused(arena: Arena) -> None:
    pool = arena.fund(X_Days="1")
    arena.model("ann", "m")
    arena.bench.clock.forward(DAY - 1)
    assert arena.join("ann", pool, "m").state == "handled"
    arena.model("bob", "n")
    arena.bench.clock.forward(1)
    for given in (pool, "siqa"):
        sent = arena.join("bob", given, "n")
        assert sent.state == "refused"
        assert "over" in str(sent.error)


@pytest.mark.parametrize("data", ["", "{", "[]", "null", '"x"', {}, {"dataset": "siqa"}, {"model": "m"},
                                  {"dataset": None, "model": "m"}, {"dataset": ["siqa"], "model": "m"},
                                  {"dataset": "siqa", "model": {"a": 1}}, {"dataset": "siqa", "model": True},
                                  {"dataset": "siqa", "model": ""}, {"dataset": "nope", "model": "m"},
                                  {"dataset": "siqa", "model": "nope"}, {"dataset": "siqa", "model": 99},
                                  {"dataset": "siqa", "model": 10**30}, {"dataset": "' OR 1=1 --", "model": "m"},
                                  {"dataset": "siqa", "model": "' OR 1=1 --"}, {"dataset": "pool", "model": "m"}])
def test_a_join_that_names_nothing_is_refused(arena: Arena, data: object) -> None:
    arena.fund()
    arena.model("ann", "m")
    before = arena.bench.dump("messages")
    sent = arena.bench.send("ann", "pool", "Join-Pool", data)
    assert sent.state == "refused" and reply_named(sent, "Join-Pool-Error")["tags"]["Error"]
    assert arena.bench.dump("messages") == before


def test_a_data_set_id_stands_for_its_one_open_pool(arena: Arena) -> None:
    context = arena.bench.exchange.context(arena.bench.process("pool"))
    first = arena.fund(X_Days="1")
    assert pool_of(context, "siqa")["id"] == pool_of(context, arena.dataset)["id"] == first
    second = arena.fund(X_Days="2")
    arena.model("ann", "m")
    sent = arena.join("ann", arena.dataset, "m")
    assert sent.state == "refused" and first in str(sent.error) and second in str(sent.error)
    arena.bench.clock.forward(DAY)
    assert arena.join("ann", arena.dataset, "m").state == "handled"
    assert arena.bench.rows("SELECT pool FROM pool_models") == [{"pool": second}]
    arena.settle(first)
    assert pool_of(arena.bench.exchange.context(arena.bench.process("pool")), "siqa")["id"] == second


def test_a_data_set_that_has_no_pool_says_so(arena: Arena) -> None:
    arena.model("ann", "m")
    assert "no pool" in str(arena.join("ann", "siqa", "m").error)


def test_a_full_pool_takes_no_more(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("automate.pools.joining.MOST_MODELS", 1)
    pool = arena.fund()
    arena.enter("ann", pool, "m", 1)
    arena.model("bob", "n")
    assert "full" in str(arena.join("bob", pool, "n").error)
    assert arena.join("ann", pool, "m").state == "handled", "who is in stays in"


def test_a_data_set_that_cant_evaluate_is_told_to_the_participant(arena: Arena) -> None:
    pool = arena.fund()
    arena.model("ann", "m")
    arena.scores.broken = True
    told = reply_named(arena.join("ann", pool, "m"), "Benchmark-Error")
    assert "broken" in told["tags"]["Error"]


# --- scores -------------------------------------------------------------------------------------------
def test_scores_come_from_the_data_set(arena: Arena) -> None:
    pool, other = arena.fund(), arena.fund("gus", 50)
    model = arena.model("ann", "m", (6, 8, 1, 10))
    arena.join("ann", pool, model)
    arena.join("ann", other, model)
    assert arena.ask("ann", "Update-Leaderboard", {"dataset": pool, "model": "m"})["asked"] == 1
    rows = arena.bench.rows("SELECT * FROM pool_models")
    assert [(row["correct"], row["answered"], row["failed"], row["total"], row["score"], row["progress"],
             row["updated"]) for row in rows] == [(6, 8, 1, 10, 0.75, 0.8, START)] * 2
    assert arena.bench.one("SELECT action FROM messages WHERE id = ?", rows[0]["updated_by"]) == "Score-Response"
    assert arena.bench.one("SELECT updated FROM pools WHERE id = ?", pool) == START


def test_all_models_are_asked_where_none_is_named(arena: Arena) -> None:
    pool = arena.fund()
    for number in range(3):
        arena.enter("ann", pool, f"m{number}", number)
    assert arena.ask("fay", "Update-Leaderboard", {"dataset": pool})["asked"] == 3
    assert [row["correct"] for row in arena.bench.rows("SELECT correct FROM pool_models ORDER BY model")] == [0, 1, 2]


def test_who_has_nothing_to_do_with_a_pool_may_not_update_it(arena: Arena) -> None:
    pool = arena.fund()
    arena.enter("ann", pool, "m", 3)
    for action in ("Update-Leaderboard", "Allocate-Rewards"):
        sent = arena.bench.send("eve", "pool", action, {"dataset": pool})
        assert sent.state == "refused" and "participants" in str(sent.error)
    assert arena.bench.one("SELECT correct FROM pool_models") == 0
    assert arena.bench.unsigned("c" * 43, "pool", "Update-Leaderboard", {"dataset": pool}, via="clock",
                                anchor="1").state == "handled"


def test_a_score_from_elsewhere_changes_nothing(arena: Arena) -> None:
    pool = arena.fund()
    model = arena.enter("ann", pool, "m", 3)
    other = arena.bench.bare_dataset("other")
    data = {"correct": 10, "unevaluated": 0, "total": 10, "score": 1, "progress": 1}
    before = arena.bench.dump("messages")
    sent = arena.bench.send("ann", "pool", "Score-Response", data, Model=model)
    assert sent.state == "refused" and reply_named(sent, "Score-Response-Error")
    for sender in (other, arena.bench.id("router"), arena.bench.id("token")):
        got = arena.bench.unsigned(sender, "pool", "Score-Response", data, via="process", anchor=sender, Model=model)
        assert got.state == "refused" and "own data set" in str(got.error)
    assert arena.bench.dump("messages") == before


@pytest.mark.parametrize("change", [
    {"correct": 11}, {"correct": -1}, {"correct": 1.5}, {"correct": "3"}, {"correct": True}, {"correct": None},
    {"total": -1}, {"total": 2**63}, {"unevaluated": 11}, {"unevaluated": "x"}, {"score": 2}, {"score": "1"},
    {"progress": -1}, {"answered": 11}, {"failed": 9}, {"correct": 6, "unevaluated": 5}])
def test_a_score_that_cant_be_changes_nothing(arena: Arena, change: dict[str, object]) -> None:
    pool = arena.fund()
    model = arena.enter("ann", pool, "m", 3)
    data = {"correct": 3, "unevaluated": 0, "total": 10, "score": 0.3, "progress": 1}
    before = arena.bench.dump("messages")
    got = arena.bench.unsigned(arena.dataset, "pool", "Score-Response", data | change, via="process", anchor="1",
                               Model=model)
    assert got.state == "refused" and arena.bench.dump("messages") == before
    good = arena.bench.unsigned(arena.dataset, "pool", "Score-Response", data, via="process", anchor="2", Model=model)
    assert good.state == "handled" and arena.bench.one("SELECT correct FROM pool_models") == 3


def test_a_score_of_a_model_that_never_joined_is_refused(arena: Arena) -> None:
    arena.fund()
    model = arena.model("ann", "m")
    data = {"correct": 3, "unevaluated": 0, "total": 10, "score": 0.3, "progress": 1}
    for given in (model, "nope", ""):
        assert arena.bench.unsigned(arena.dataset, "pool", "Score-Response", data, via="process", anchor=f"a{given}",
                                    Model=given).state == "refused"


# --- models and data sets -----------------------------------------------------------------------------
def test_a_model_is_its_senders(arena: Arena) -> None:
    model = arena.model("ann", "my-model")
    row = arena.bench.rows("SELECT * FROM models")[0]
    assert (row["name"], row["data_tx"], row["inference_process"], row["process"], row["owner"]) == (
        "my-model", "hub/my-model", arena.bench.id("router"), model, arena.bench.address("ann"))
    for given in ("my-model", model, str(row["id"])):
        assert model_of(arena.bench.store.db, given)["process"] == model
    listed = json.loads(reply_named(arena.bench.send("bob", "pool", "Get-Models"), "Get-Models-Response")["Data"])
    assert [one["name"] for one in listed] == ["my-model"]


@pytest.mark.parametrize("name", ["", "a/b", "..", "../x", ".hidden", "-rf", " m", "a\x1b[2J", "7", "n" * 43,
                                  "x" * 200, "a\u202eb", "a\u200bb", "a\u3164b", "\u0301a", "it's", 'a"b', "$x",
                                  "a`id`", "a\\b", "a;b", "<b>", "=x", "a:b", "a\u00a0b", "a\n", "+a", "a..b",
                                  "\U0001f600"])
def test_a_name_that_cant_be_a_models(arena: Arena, name: str) -> None:
    sent = arena.bench.send("ann", "pool", "Add-Model", {"name": name, "data_tx": "hub/m"})
    assert sent.state == "refused" and "\x1b" not in str(sent.error) and "\u202e" not in str(sent.error)
    assert arena.bench.rows("SELECT * FROM models") == []


@pytest.mark.parametrize("name", ["a", "Qwen2.5-7B-Instruct", "my model_2+lora", "小明", "Модель", "हिन्दी", "é1"])
def test_a_name_that_can_be_a_models(arena: Arena, name: str) -> None:
    assert arena.bench.send("ann", "pool", "Add-Model", {"name": name, "data_tx": "hub/m"}).state == "handled"


def test_an_outsider_adds_so_many_models_and_the_owner_any_number(tmp_path: Path) -> None:
    with opened(tmp_path, max_models=2) as bench:
        for who, names in (("ann", "abc"), ("bob", "de"), ("owner", "fgh")):
            for name in names:
                sent = bench.send(who, "pool", "Add-Model", {"name": name, "data_tx": "hub/m"})
                assert sent.state == ("refused" if name == "c" else "handled"), sent
                assert name != "c" or "one owner may have 2" in str(sent.error)


@pytest.mark.parametrize("place", ["", "/etc", "m", "../../x", "a/../b", "hub/..", "a/b/c", "http://x/y", "-a/b",
                                   "a/b;rm", "~/model", "./model", {"a": 1}, "a/b\n"])
@pytest.mark.parametrize("via", ["http", "local"])
def test_a_place_that_a_stranger_may_not_name(arena: Arena, place: object, via: str) -> None:
    sent = arena.bench.send("ann", "pool", "Add-Model", {"name": "m", "data_tx": place}, via=via)  # type: ignore[arg-type]
    assert sent.state == "refused"
    assert arena.bench.rows("SELECT * FROM models") == []


def test_a_folder_comes_from_the_owner_on_this_machine_only(arena: Arena) -> None:
    data = {"name": "m", "data_tx": "/models/m"}
    assert arena.bench.send("owner", "pool", "Add-Model", data, via="http").state == "refused"
    assert arena.bench.send("owner", "pool", "Add-Model", data | {"data_tx": "/models/\x1bm"}).state == "refused"
    assert arena.bench.send("owner", "pool", "Add-Model", data).state == "handled"


def test_a_name_is_taken_once(arena: Arena) -> None:
    arena.model("ann", "m")
    assert "already" in str(arena.bench.send("eve", "pool", "Add-Model", {"name": "m", "data_tx": "a/b"}).error)


def test_a_model_is_inferred_by_the_router(arena: Arena) -> None:
    data = {"name": "m", "data_tx": "a/b", "inference_process": "router"}
    assert arena.bench.send("ann", "pool", "Add-Model", data | {"inference_process": "token"}).state == "refused"
    assert arena.bench.send("ann", "pool", "Add-Model", data).state == "handled"


def test_anybody_spawns_a_data_set_and_owns_it(arena: Arena) -> None:
    made = arena.ask("ann", "Spawn", {"name": "mine", "kind": "siqa"})
    row = arena.bench.rows("SELECT * FROM processes WHERE id = ?", made["process"])[0]
    assert (row["kind"], row["name"], row["module"], row["owner"], row["ready"]) == (
        "dataset", "mine", "siqa", arena.bench.address("ann"), 0)


@pytest.mark.parametrize(("name", "kind", "word"), [
    ("siqa", "siqa", "already"), ("token", "siqa", "already"), ("a/b", "siqa", "digits"), ("d" * 43, "siqa", "id"),
    ("new", "nope", "choose one of"), ("new", "os:system", "choose one of")])
def test_a_data_set_that_cant_be_spawned(arena: Arena, name: str, kind: str, word: str) -> None:
    before = arena.bench.dump("messages")
    assert word in str(arena.bench.send("ann", "pool", "Spawn", {"name": name, "kind": kind}).error)
    assert arena.bench.dump("messages") == before


def test_pools_are_listed_with_the_specs_fields(arena: Arena) -> None:
    pool = arena.fund()
    arena.enter("ann", pool, "m", 3)
    assert arena.ask("bob", "Get-Pools") == [{
        "id": pool, "dataset": arena.dataset, "dataset_name": "siqa", "funder": arena.bench.address("fay"),
        "funds": "1000", "allocation": "ArithmeticDecrease", "startTime": START, "endTime": START + 30 * DAY,
        "state": "open", "models": 1}]
    arena.bench.clock.forward(31 * DAY)
    assert arena.ask("bob", "Get-Pools")[0]["state"] == "over"


def test_info_names_the_processes_and_rules(arena: Arena) -> None:
    told = arena.ask("bob", "Info")
    assert (told["token"], told["router"], told["min_fund"]) == (
        arena.bench.id("token"), arena.bench.id("router"), "10")
    assert told["rules"] == ["ArithmeticDecrease", "Equal", "WinnerTakesAll", "Proportional"]
    assert [one["name"] for one in told["datasets"]] == ["siqa"]


def test_a_kind_whose_class_cannot_be_imported_makes_no_data_set(tmp_path: Path) -> None:
    with opened(tmp_path, kinds={"own": "no.such.module:Kind"}) as bench:
        receipt = bench.send("ann", "pool", "Spawn", {"name": "mine", "kind": "own"})
        assert receipt.state == "refused" and "the kind own can't be used" in str(receipt.error)
        assert bench.one("SELECT COUNT(*) FROM processes WHERE name = 'mine'") == 0
