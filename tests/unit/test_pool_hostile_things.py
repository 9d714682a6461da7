"""Bad money, rows, scores, names and paths. A clear error to who sent them, and nothing changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.pool_hostile_rig import ASIDE, SQL, refused
from tests.unit.pool_support import DAY, ROWS, Bench, opened, reply_named


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A data set, and somebody with 100."""
    with opened(tmp_path) as made:
        made.dataset("siqa")
        made.mint("ann", 100)
        yield made


# --- money --------------------------------------------------------------------------------------------
QUANTITIES = ["-5", "1.5", "1e3", "ten", "0", "00", "0x10", "+5", "5 ", " 5", "1_000", "1,000", "٣", "５", "²",
              "9" * 20, "9" * 5000, str(2**63), str(2**64), "9000000000000000001", "NaN", "Infinity", "-0", "null",
              SQL]


@pytest.mark.parametrize("quantity", QUANTITIES)
@pytest.mark.parametrize("action", ["Transfer", "Mint"])
def test_a_quantity_that_is_none_moves_nothing(bench: Bench, action: str, quantity: str) -> None:
    who = "ann" if action == "Transfer" else "owner"
    refused(bench, who, "token", action, says="Quantity", Recipient=bench.address("ben"), Quantity=quantity)


@pytest.mark.parametrize("quantity", [-5, 1.5, 1e30, True, [5], {"n": 5}])
def test_a_quantity_that_is_no_text_moves_nothing(bench: Bench, quantity: object) -> None:
    """At the root of a message, as ao.send puts it: numbers become text, and are judged as text."""
    from automate.errors import PoolError
    from automate.pools.keys import verified
    from automate.pools.messages import normalised, signed_text

    raw = {"Target": bench.id("token"), "Action": "Transfer", "Recipient": bench.address("ben"), "Quantity": quantity}
    message = normalised(raw)
    signed = bench.key("ann").sign(message.target, "Transfer", tags={
        name: value for name, value in message.tags.items() if name != "Action"})
    assert signed_text(verified(signed, "http"))
    before = bench.dump(*ASIDE)
    try:
        receipt = bench.exchange.receive([verified(signed, "http")])[0]
    except PoolError as error:
        pytest.fail(f"it has to be answered: {error}")
    assert receipt.state == "refused" and "Quantity" in str(receipt.error)
    assert bench.dump(*ASIDE) == before


@pytest.mark.parametrize("quantity", [101, 9_000_000_000_000_000_000])
def test_nobody_spends_more_than_there_is(bench: Bench, quantity: int) -> None:
    refused(bench, "ann", "token", "Transfer", says="Insufficient Balance!", Recipient=bench.address("ben"),
            Quantity=quantity)
    refused(bench, "nobody", "token", "Transfer", says="Insufficient Balance!", Recipient=bench.address("ben"),
            Quantity=1)


def test_nobody_spends_twice_in_one_batch(bench: Bench) -> None:
    sent = [bench.message("ann", "token", "Transfer", Recipient=bench.address("ben"), Quantity=60) for _ in range(2)]
    assert [one.state for one in bench.exchange.receive(sent)] == ["handled", "refused"]
    assert (bench.balance("ann"), bench.balance("ben")) == (40, 60)


def test_money_to_oneself_changes_nothing(bench: Bench) -> None:
    assert bench.send("ann", "token", "Transfer", Recipient=bench.address("ann"), Quantity=100).state == "handled"
    assert bench.balance("ann") == 100
    refused(bench, "ann", "token", "Transfer", says="Insufficient", Recipient=bench.address("ann"), Quantity=101)


@pytest.mark.parametrize("recipient", [None, "", "nobody", "genesis", "a" * 42, "a" * 44, "token", SQL, "á" * 43])
def test_money_to_no_address_stays(bench: Bench, recipient: str | None) -> None:
    tags = {} if recipient is None else {"Recipient": recipient}
    refused(bench, "ann", "token", "Transfer", says="", Quantity=5, **tags)


def test_only_the_owner_mints_and_not_without_end(bench: Bench) -> None:
    refused(bench, "ann", "token", "Mint", says="genesis", Recipient=bench.address("ann"), Quantity=5)
    refused(bench, "owner", "token", "Mint", says="at most", Recipient=bench.address("ann"),
            Quantity=9_000_000_000_000_000_000)


# --- pools --------------------------------------------------------------------------------------------
BAD_TERMS: list[tuple[dict[str, object], str]] = [
    ({}, "X-Dataset"), ({"X_Dataset": "siqa"}, "X-Allocation"), ({"X_Allocation": "Equal"}, "X-Dataset"),
    ({"X_Dataset": "nothing", "X_Allocation": "Equal"}, "data set"),
    ({"X_Dataset": "token", "X_Allocation": "Equal"}, "data set"),
    ({"X_Dataset": "siqa", "X_Allocation": "equal"}, "rule"), ({"X_Dataset": "siqa", "X_Allocation": SQL}, "rule"),
    ({"X_Dataset": SQL, "X_Allocation": "Equal"}, "data set"),
    ({"X_Dataset": "siqa", "X_Allocation": "Equal", "X_Days": "-1"}, "X-Days"),
    ({"X_Dataset": "siqa", "X_Allocation": "Equal", "X_Days": "0"}, "X-Days"),
    ({"X_Dataset": "siqa", "X_Allocation": "Equal", "X_Days": "99999999"}, "X-Days"),
    ({"X_Dataset": "siqa", "X_Allocation": "Equal", "X_End_Time": "5"}, "X-End-Time"),
    ({"X_Dataset": "siqa", "X_Allocation": "Equal", "X_End_Time": "tomorrow"}, "X-End-Time"),
    ({"X_Dataset": "siqa", "X_Allocation": "Equal", "X_End_Time": "9", "X_Days": "1"}, "both")]


@pytest.mark.parametrize(("terms", "says"), BAD_TERMS)
def test_money_that_opens_no_pool_comes_back_with_the_reason(bench: Bench, terms: dict[str, Any], says: str) -> None:
    receipt = bench.send("ann", "token", "Transfer", via="http", Recipient=bench.id("pool"), Quantity=60, **terms)
    assert bench.rows("SELECT * FROM pools") == []
    assert (bench.balance("ann"), bench.balance(bench.id("pool"))) == (100, 0)
    told = reply_named(receipt, "Create-Pool-Error")
    assert says in told["tags"]["Error"]
    back = [reply for reply in receipt.replies if reply["Action"] == "Credit-Notice"]
    assert len(back) == 1 and {"name": "Quantity", "value": "60"} in back[0]["Tags"]  # type: ignore[operator]


def test_a_pool_is_not_opened_below_the_least(tmp_path: Path) -> None:
    with opened(tmp_path, min_fund=50) as bench:
        bench.dataset("siqa")
        bench.mint("ann", 100)
        for quantity, pools in ((49, 0), (50, 1)):
            bench.send("ann", "token", "Transfer", Recipient=bench.id("pool"), Quantity=quantity, X_Dataset="siqa",
                       X_Allocation="Equal")
            assert len(bench.rows("SELECT * FROM pools")) == pools


@pytest.fixture
def funded(bench: Bench) -> Bench:
    """A pool with Ben's model in it."""
    bench.send("ann", "token", "Transfer", Recipient=bench.id("pool"), Quantity=100, X_Dataset="siqa",
               X_Allocation="Equal", X_Days=10)
    assert bench.send("ben", "pool", "Add-Model", {"name": "ben-1", "data_tx": "ben/model"}).state == "handled"
    assert bench.send("ben", "pool", "Join-Pool", {"dataset": "siqa", "model": "ben-1"}).state == "handled"
    return bench


def test_who_may_not_join(funded: Bench) -> None:
    pool = funded.one("SELECT id FROM pools")
    refused(funded, "mallory", "pool", "Join-Pool", {"dataset": pool, "model": "ben-1"}, says="belongs to")
    refused(funded, "ben", "pool", "Join-Pool", {"dataset": pool, "model": "none"}, says="no model")
    refused(funded, "ben", "pool", "Join-Pool", {"dataset": "none", "model": "ben-1"}, says="no pool")
    refused(funded, "ben", "pool", "Join-Pool", {"dataset": "token", "model": "ben-1"}, says="no pool")
    other = funded.dataset("other")
    refused(funded, "ben", "pool", "Join-Pool", {"dataset": other, "model": "ben-1"}, says="has no pool")
    funded.clock.forward(10 * DAY)
    refused(funded, "ben", "pool", "Join-Pool", {"dataset": pool, "model": "ben-1"}, says="over")


def test_several_pools_of_a_data_set_have_to_be_named(funded: Bench) -> None:
    funded.mint("ann", 100)
    funded.send("ann", "token", "Transfer", Recipient=funded.id("pool"), Quantity=100, X_Dataset="siqa",
                X_Allocation="Equal")
    for pool in funded.rows("SELECT id FROM pools"):
        refused(funded, "ben", "pool", "Join-Pool", {"dataset": "siqa", "model": "ben-1"}, says=pool["id"])


def test_a_pool_is_not_paid_before_its_end_nor_twice(funded: Bench) -> None:
    pool = funded.one("SELECT id FROM pools")
    funded.clock.forward(10 * DAY - 1)
    refused(funded, "ann", "pool", "Allocate-Rewards", {"dataset": pool}, says="not time")
    funded.clock.forward(2 * DAY)
    assert funded.send("ann", "pool", "Allocate-Rewards", {"dataset": pool}).state == "handled"
    before = funded.dump(*ASIDE)
    assert funded.balance(funded.id("pool")) == 0
    for who in ("ann", "ben", "owner"):
        funded.send(who, "pool", "Allocate-Rewards", {"dataset": pool})
    assert funded.dump(*ASIDE) == before
    assert funded.one("SELECT SUM(amount) FROM payouts WHERE pool = ?", pool) == 100, "to the funder"


# --- scores -------------------------------------------------------------------------------------------
BAD_SCORES: list[object] = [
    "{", "", [], {"correct": 3}, {"correct": 4, "total": 3, "unevaluated": 0},
    {"correct": -1, "total": 3, "unevaluated": 0},
    {"correct": 1.5, "total": 3, "unevaluated": 0}, {"correct": "3", "total": "3", "unevaluated": "0"},
    {"correct": 3, "total": 3, "unevaluated": 3}, {"correct": 3, "total": 10**30, "unevaluated": 0},
    {"correct": 3, "total": 3, "unevaluated": 0, "score": 2},
    {"correct": 3, "total": 3, "unevaluated": 0, "progress": "1"}]


def test_a_score_counts_only_where_it_comes_from_the_pools_data_set(funded: Bench) -> None:
    """Signed by anybody, even the data set's owner; sent by another data set; of a job: none of them counts."""
    score = {"correct": 3, "total": 3, "unevaluated": 0, "score": 1, "progress": 1}
    model = funded.one("SELECT process FROM models")
    for who in ("mallory", "ben", "ann", "owner"):
        refused(funded, who, "pool", "Score-Response", score, says="data set", via="local", Model=model)
    other = funded.dataset("other")
    before = funded.dump(*ASIDE)
    for number, via in enumerate(("process", "job", "clock", "http")):
        receipt = funded.unsigned(other, "pool", "Score-Response", score, via=via, anchor=str(number),  # type: ignore[arg-type]
                                  Model=model)
        assert receipt.state == "refused"
        assert funded.dump(*ASIDE) == before


@pytest.mark.parametrize("data", BAD_SCORES, ids=str)
def test_a_score_that_cannot_be_is_not_taken_from_the_data_set_itself(funded: Bench, data: object) -> None:
    before = funded.dump(*ASIDE)
    receipt = funded.unsigned(funded.id("siqa"), "pool", "Score-Response", data, via="process", anchor="1",
                              Model=funded.one("SELECT process FROM models"))
    assert receipt.state == "refused", receipt
    assert funded.dump(*ASIDE) == before


# --- rows ---------------------------------------------------------------------------------------------
GOOD = dict(ROWS[0])


def bad_rows() -> Iterator[tuple[str, object]]:
    for name in GOOD:
        yield f"no {name}", {field: value for field, value in GOOD.items() if field != name}
        yield f"{name} is null", GOOD | {name: None}
        yield f"{name} is a list", GOOD | {name: ["a"]}
        yield f"{name} is 10 MB", GOOD | {name: "x" * 10_000_000}
    for result in ("0", "4", "A", "", "1.0", "-1", SQL):
        yield f"result {result}", GOOD | {"result": result}
    yield "a number", 7
    yield "a list", ["a"]
    yield "text", "context"
    yield "nothing", None


@pytest.mark.parametrize(("row"), [pytest.param(row, id=name) for name, row in bad_rows()])
def test_a_row_that_is_no_question_is_reported_by_its_number_and_the_others_load(bench: Bench, row: object) -> None:
    before = bench.one("SELECT COUNT(*) FROM questions")
    good = [GOOD | {"question": f"Which one, {number}?"} for number in range(2)]
    receipt = bench.send("owner", "siqa", "Load-Data", [good[0], row, good[1]])
    if receipt.state == "handled":
        told = json.dumps(reply_named(receipt, "Load-Data-Response")["Data"])
        assert "2" in told and len(told) < 4000
        assert bench.one("SELECT COUNT(*) FROM questions") == before + 2
    else:
        assert bench.one("SELECT COUNT(*) FROM questions") == before
        assert "2" in str(receipt.error)
    assert bench.one("SELECT COUNT(*) FROM questions WHERE context = 'nil' OR length(context) > 1000000") == 0


def test_apostrophes_quotes_and_sql_are_text(bench: Bench) -> None:
    texts = ["it's", 'a "quoted" one', SQL, "Robert'); DROP TABLE questions;--", "naïve café", "小明", "\\' \\n", "%"]
    rows = [{"context": text, "question": text, "answerA": text, "answerB": text + "b", "answerC": text + "c",
             "result": "1"} for text in texts]
    assert bench.send("owner", "siqa", "Load-Data", rows).state == "handled"
    for text in texts:
        assert bench.one("SELECT COUNT(*) FROM datasets WHERE context = ? AND question = ? AND answerA = ?",
                         text, text, text) == 1
    again = bench.dump(*ASIDE, "processes")
    assert bench.send("owner", "siqa", "Load-Data", rows).state == "handled"
    assert bench.dump(*ASIDE, "processes") == again


# --- names and paths ----------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a/b", "..", ".", "", ".hidden", "-rf", "a\nb",
                                  "7", "x" * 43, "x" * 500, "\x1b[31m", "a\0b", "a..b", " "])
def test_a_model_or_data_set_with_a_path_or_worse_as_its_name_is_refused(bench: Bench, name: str) -> None:
    refused(bench, "ben", "pool", "Add-Model", {"name": name, "data_tx": "ben/model"}, says="")
    refused(bench, "ben", "pool", "Spawn", {"name": name, "kind": "siqa"}, says="")


@pytest.mark.parametrize("name", ["$(id)", "`id`", "a;b", "it's", SQL, '"quoted"', "<b>", "%s"])
def test_an_odd_name_is_a_name_and_nothing_else(bench: Bench, name: str) -> None:
    tables = set(bench.dump())
    added = bench.send("ben", "pool", "Add-Model", {"name": name, "data_tx": "ben/model"}, via="http")
    assert added.state in ("handled", "refused")
    assert bench.one("SELECT COUNT(*) FROM models WHERE name = ?", name) == (added.state == "handled")
    assert set(bench.dump()) == tables and bench.balance("ann") == 100


@pytest.mark.parametrize("place", ["/etc", "../model", "~/model", "file:///etc", "a/b/c", "a/../b", "https://x.y/z", "",
                                   "-o/x", "a b/c", SQL, "/"])
def test_a_model_whose_place_is_no_hub_name_is_refused_over_http(bench: Bench, place: str) -> None:
    for who in ("ben", "owner"):
        refused(bench, who, "pool", "Add-Model", {"name": "new", "data_tx": place}, says="")
    refused(bench, "ben", "pool", "Add-Model", {"name": "new", "data_tx": place}, says="", via="local")


@pytest.mark.parametrize("who", ["owner", "mallory"])
@pytest.mark.parametrize("shape", ["text", "object", "tag", "uri", "relative", "json text"])
def test_a_path_in_load_data_over_http_is_refused_whoever_signs_it(bench: Bench, tmp_path: Path, who: str,
                                                                    shape: str) -> None:
    file = tmp_path / "secret.jsonl"
    file.write_text(json.dumps(GOOD | {"question": "Is this read?"}) + "\n")
    data: dict[str, object] = {"text": str(file), "object": {"path": str(file)}, "tag": "", "uri": file.as_uri(),
                               "relative": "secret.jsonl", "json text": json.dumps(str(file))}
    tags = {"path": str(file), "Path": str(file)} if shape == "tag" else {}
    refused(bench, who, "siqa", "Load-Data", data[shape], says="", **tags)


def test_a_path_in_load_data_from_somebody_else_on_this_machine_is_refused(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(GOOD | {"question": "Is this read?"}) + "\n")
    refused(bench, "mallory", "siqa", "Load-Data", str(file), says="", via="local")


@pytest.mark.parametrize("path", ["/etc/passwd", "/nothing/there", "/dev/zero", "/proc/self/environ", "/"])
def test_a_path_that_is_no_data_set_is_refused_to_the_owner_too(bench: Bench, path: str) -> None:
    before = bench.one("SELECT COUNT(*) FROM questions")
    receipt = bench.send("owner", "siqa", "Load-Data", json.dumps({"path": path}))
    assert receipt.state in ("refused", "handled"), receipt
    assert bench.one("SELECT COUNT(*) FROM questions") == before
    assert "daemon:" not in json.dumps([dict(reply) for reply in receipt.replies])
