"""Questions about pools: what they answer, and what they say to names that fit nothing or several things."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from automate.errors import PoolError
from automate.pools import finding, reading
from tests.unit.pool_support import DAY, START, Bench, opened, reply_named

HOSTILE = "x'; DROP TABLE pools; --"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with opened(tmp_path) as made:
        yield made


def ask(bench: Bench, what: str, **given: object) -> Any:
    """An answer; it must be plain JSON."""
    found = reading.ask(bench.exchange, what, bench.clock.now, given)
    assert json.loads(json.dumps(found)) == found
    return found


def funded(bench: Bench, dataset: str, amount: int = 1000, who: str = "ann", days: str = "30") -> str:
    """A pool's id."""
    bench.mint(who, amount)
    receipt = bench.send(who, "token", "Transfer", Recipient=bench.id("pool"), Quantity=amount, X_Dataset=dataset,
                         X_Allocation="Equal", X_Days=days)
    return str(json.loads(reply_named(receipt, "Create-Pool-Response")["Data"])["pool"])


def model(bench: Bench, name: str, who: str = "bob") -> str:
    """A model's process id."""
    receipt = bench.send(who, "pool", "Add-Model", {"name": name, "data_tx": f"org/{name}"})
    assert receipt.state == "handled", receipt
    return receipt.id


def evaluated(bench: Bench, dataset: str, process: str, states: str) -> None:
    """Rows of evaluations in these states (p, s, a: answered rightly, w: wrongly, f)."""
    words = {"p": "pending", "s": "started", "a": "answered", "w": "answered", "f": "failed"}
    number = bench.one("SELECT id FROM models WHERE process = ?", process)
    with bench.store.transaction():
        for place, letter in enumerate(states):
            question = bench.store.db.execute(
                "INSERT INTO questions (dataset, digest, context, question, options, result, added) "
                "VALUES (?, ?, '', '', '[\"a\",\"b\",\"c\"]', '1', 0) RETURNING id",
                (dataset, f"{process}{place}")).fetchone()["id"]
            bench.store.db.execute(
                "INSERT INTO evaluations (dataset_id, model_id, prompt, correct_answer, prediction, dataset, state) "
                "VALUES (?, ?, '', '1', ?, ?, ?)",
                (question, number, {"a": "1", "w": "2"}.get(letter), dataset, words[letter]))


# What is answered


def test_every_question_of_the_contract_is_there() -> None:
    assert set(reading.QUESTIONS) >= {"processes", "pools", "pool", "leaderboard", "models", "datasets", "dataset",
                                      "balance", "message", "audit", "workers", "due"}


def test_an_empty_database_has_processes_and_nothing_else(bench: Bench) -> None:
    assert [one["name"] for one in ask(bench, "processes")] == ["token", "pool", "router"]
    assert {what: ask(bench, what) for what in ("pools", "models", "datasets", "workers", "due")} == {
        what: [] for what in ("pools", "models", "datasets", "workers", "due")}


def test_a_pool_has_the_specs_fields_and_is_over_by_the_clock(bench: Bench) -> None:
    dataset = bench.bare_dataset()
    pool = funded(bench, dataset, days="2")
    (found,) = ask(bench, "pools")
    names = ("id", "dataset_name", "funder", "funds", "allocation", "startTime", "endTime", "state", "models")
    assert {name: found[name] for name in names} == {
        "id": pool, "dataset_name": "siqa", "funder": bench.address("ann"), "funds": 1000, "allocation": "Equal",
        "startTime": START, "endTime": START + 2 * DAY, "state": "open", "models": 0}
    bench.clock.forward(2 * DAY)
    assert ask(bench, "pools")[0]["state"] == "over"
    assert ask(bench, "pool", id=pool)["state"] == "over"


def test_the_newest_pool_comes_first(bench: Bench) -> None:
    dataset = bench.bare_dataset()
    first = funded(bench, dataset)
    bench.clock.forward(1)
    second = funded(bench, dataset)
    assert [one["id"] for one in ask(bench, "pools")] == [second, first]


def test_a_pool_shows_its_models_in_the_order_of_joining(bench: Bench) -> None:
    pool = funded(bench, bench.bare_dataset())
    for name in ("zebra", "ant"):
        bench.send("bob", "pool", "Join-Pool", {"dataset": pool, "model": model(bench, name)})
    found = ask(bench, "pool", id=pool)
    assert [(one["model"], one["participant"], one["score"], one["progress"]) for one in found["models"]] == [
        ("zebra", bench.address("bob"), 0.0, 0.0), ("ant", bench.address("bob"), 0.0, 0.0)]
    assert found["payouts"] == []
    assert [one["model"] for one in ask(bench, "leaderboard", id=pool)["places"]] == ["zebra", "ant"]


def test_models_of_a_data_set_come_with_counts(bench: Bench) -> None:
    dataset = bench.bare_dataset()
    one = model(bench, "one")
    model(bench, "other")
    evaluated(bench, dataset, one, "ppsaawf")
    (found,) = ask(bench, "models", dataset="siqa")
    assert {name: found[name] for name in ("name", "rows", "pending", "started", "answered", "correct", "failed")} == {
        "name": "one", "rows": 7, "pending": 2, "started": 1, "answered": 3, "correct": 2, "failed": 1}
    assert [each["name"] for each in ask(bench, "models")] == ["one", "other"]


def test_due_has_what_lacks_an_answer_and_what_waits_at_the_router(bench: Bench) -> None:
    dataset, other = bench.bare_dataset(), bench.bare_dataset("other")
    one, done = model(bench, "one"), model(bench, "done")
    evaluated(bench, dataset, one, "ppsa")
    evaluated(bench, other, done, "af")
    with bench.store.transaction():
        bench.store.db.execute("INSERT INTO inferences (reference, requester, dataset, request, model, prompt, received"
                               ") VALUES ('r', ?, ?, 'q', ?, '', 0)", (dataset, dataset, one))
    (found,) = ask(bench, "due")
    names = ("dataset_name", "model", "rows", "pending", "started", "queued", "sent")
    assert {name: found[name] for name in names} == {
        "dataset_name": "siqa", "model": "one", "rows": 4, "pending": 2, "started": 1, "queued": 1, "sent": 0}
    assert ask(bench, "due", dataset="other") == []
    assert ask(bench, "waiting") == {"queued": 1, "sent": 0}


def test_a_data_set_shows_settings_states_and_pools(bench: Bench) -> None:
    dataset = bench.bare_dataset(SystemPrompt=HOSTILE)
    pool = funded(bench, dataset)
    evaluated(bench, dataset, model(bench, "one"), "pa")
    found = ask(bench, "dataset", id="siqa")
    assert found["settings"] == {"SystemPrompt": HOSTILE}
    assert (found["kind"], found["ready"], found["questions"], found["options"]) == ("siqa", True, 2, {"3": 2})
    assert found["evaluations"] == {"pending": 1, "started": 0, "answered": 1, "failed": 0, "expired": 0}
    assert [one["id"] for one in found["pools"]] == [pool]
    assert ask(bench, "datasets")[0]["open_pools"] == 1


def test_a_balance_has_its_last_entries_with_their_messages(bench: Bench) -> None:
    bench.mint("ann", 10)
    sent = bench.send("ann", "token", "Transfer", Recipient=bench.address("bob"), Quantity=3)
    found = ask(bench, "balance", account=bench.address("ann"))
    assert found["balance"] == 7
    assert [(one["amount"], one["other"]) for one in found["entries"]] == [(-3, bench.address("bob")), (10, "genesis")]
    assert (found["entries"][0]["message"], found["entries"][0]["action"]) == (sent.id, "Transfer")
    assert len(ask(bench, "balance", account=bench.address("ann"), last=1)["entries"]) == 1
    assert ask(bench, "balance", account="nobody") == {"account": "nobody", "balance": 0, "entries": []}


def test_a_message_shows_what_became_of_it(bench: Bench) -> None:
    sent = bench.send("ann", "token", "Transfer", Recipient=bench.address("bob"), Quantity=3)
    found = ask(bench, "message", id=sent.id[:8])
    assert (found["state"], found["action"], found["tags"]["Quantity"]) == ("refused", "Transfer", "3")
    assert [one["action"] for one in found["caused"]] == ["Transfer-Error"]


# Names


def test_the_beginning_of_an_id_stands_for_it_from_six_characters_on(bench: Bench) -> None:
    pool = funded(bench, bench.bare_dataset())
    funded(bench, bench.bare_dataset("other"))
    assert ask(bench, "find", kind="pool", given=pool[:6]) == pool
    with pytest.raises(PoolError, match="no pool"):
        ask(bench, "pool", id=pool[:5])


def test_a_beginning_of_several_names_them(bench: Bench) -> None:
    for name in ("abcdef1", "abcdef2"):
        process = model(bench, name + "m")
        with bench.store.transaction():
            bench.store.db.execute("UPDATE models SET process = ? WHERE process = ?", (name, process))
    with pytest.raises(PoolError, match="abcdef1, abcdef2"):
        ask(bench, "find", kind="model", given="abcdef")
    assert ask(bench, "find", kind="model", given="abcdef1") == "abcdef1"


@pytest.mark.parametrize("given", ["*", "??????", "[a-z]*****", HOSTILE, "", "\0", "%" * 8])
@pytest.mark.parametrize("kind", ["pool", "dataset", "model"])
def test_a_pattern_or_sql_is_no_name(bench: Bench, kind: str, given: str) -> None:
    funded(bench, bench.bare_dataset())
    model(bench, "one")
    before = bench.dump()
    with pytest.raises(PoolError):
        ask(bench, "find", kind=kind, given=given)
    assert bench.dump() == before


def test_a_data_sets_name_stands_for_its_open_pool(bench: Bench) -> None:
    dataset = bench.bare_dataset()
    old = funded(bench, dataset, days="1")
    with bench.store.transaction():
        bench.store.db.execute("UPDATE pools SET state = 'paid' WHERE id = ?", (old,))
    new = funded(bench, dataset)
    assert ask(bench, "find", kind="pool", given="siqa") == new
    funded(bench, dataset)
    with pytest.raises(PoolError, match="2 pools that are open"):
        ask(bench, "pool", id="siqa")


def test_a_pool_that_is_over_is_not_open_for_anybody(bench: Bench) -> None:
    """The command line and messages mean the same pool."""
    dataset = bench.bare_dataset()
    old, new = funded(bench, dataset, days="1"), funded(bench, dataset, days="3")
    made = model(bench, "one")
    bench.clock.forward(DAY)
    assert ask(bench, "find", kind="pool", given="siqa") == new
    for action, data in (("Join-Pool", {"dataset": "siqa", "model": made}), ("Leaderboard", "siqa")):
        receipt = bench.send("bob", "pool", action, data)
        answer = reply_named(receipt, f"{action}-Response")
        assert answer["tags"].get("Pool", json.loads(answer["Data"])["pool"] if "Join" in action else "") == new
    with bench.store.transaction():
        bench.store.db.execute("UPDATE pools SET state = 'paid' WHERE id = ?", (new,))
    assert ask(bench, "find", kind="pool", given="siqa") == old, "over, and to be paid"
    with bench.store.transaction():
        bench.store.db.execute("UPDATE pools SET state = 'paid'")
    assert ask(bench, "find", kind="pool", given="siqa") == new, "the newest"
    refused = bench.send("bob", "pool", "Join-Pool", {"dataset": "siqa", "model": made})
    assert refused.state == "refused" and "no pool that is open" in str(refused.error)


def test_many_small_pools_hide_no_large_one(bench: Bench) -> None:
    dataset = bench.bare_dataset()
    large = funded(bench, dataset)
    with bench.store.transaction():
        bench.store.db.execute(
            "INSERT INTO pools SELECT 'small' || value, dataset, funder, 1, allocation, winners, grace, start_time + 1,"
            " end_time, state, settled, settled_by, updated FROM pools, json_each('[1,2,3,4,5,6,7,8,9,10,11,12]')")
    with pytest.raises(PoolError, match=f"13 pools that are open: {large} .open.*small9.* and 3 with less funds"):
        ask(bench, "pool", id="siqa")
    assert ask(bench, "find", kind="pool", given=large) == large


def test_a_model_is_found_by_name_number_and_process(bench: Bench) -> None:
    model(bench, "first")
    process = model(bench, "second")
    for given in ("second", "2", process, process[:7]):
        assert ask(bench, "find", kind="model", given=given) == process


def test_an_account_is_a_process_by_name_or_an_address_as_it_stands(bench: Bench) -> None:
    dataset = bench.bare_dataset()
    assert ask(bench, "find", kind="account", given="siqa") == dataset
    assert ask(bench, "find", kind="account", given=dataset[:9]) == dataset
    assert ask(bench, "find", kind="account", given=bench.address("ann")) == bench.address("ann")


@pytest.mark.parametrize(("what", "given", "words"), [
    ("secrets", {}, "unknown question"), ("pool", {}, "fields"), ("pools", {"id": "x"}, "fields"),
    ("find", {"kind": "key", "given": "x"}, "key")])
def test_what_is_no_question_is_refused(bench: Bench, what: str, given: dict[str, object], words: str) -> None:
    with pytest.raises(PoolError, match=words):
        ask(bench, what, **given)


def test_long_lists_of_choices_are_cut() -> None:
    assert finding.choices([str(number) for number in range(7)]) == "0, 1, 2, 3, 4 and 2 more"
