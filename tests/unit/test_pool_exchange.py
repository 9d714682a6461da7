"""The exchange: each message has all of its effect once, or none and a reason."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from automate.errors import PoolError
from automate.pools import exchange, records
from automate.pools.exchange import Context, Exchange, Handler, Process
from automate.pools.messages import Message, Outgoing, json_data, reply
from automate.pools.store import DatabaseStorageError
from tests.unit.pool_support import START, Bench, Crash, reply_named, use_handlers

Sent = Sequence[Outgoing]


def note(context: Context, key: str, value: str = "") -> None:
    context.db.execute("INSERT INTO meta VALUES (?, ?)", (key, value))


def _put(context: Context, message: Message) -> Sent:
    note(context, message.data)
    return [reply(message, {"put": message.data})]


def _half(context: Context, message: Message) -> Sent:
    note(context, "half")
    raise PoolError("not like this", where="row 3", todo="do it otherwise")


def _fault(context: Context, message: Message) -> Sent:
    note(context, "fault")
    raise KeyError("secret words")


def _spread(context: Context, message: Message) -> Sent:
    """Send Data's number of messages to the pool, each with a note of its own."""
    return [Outgoing(context.pool, "Put", f"{message.data}-{number}") for number in range(int(message.data))]


def _forward(context: Context, message: Message) -> Sent:
    note(context, "sent")
    asked = {name: value for name, value in message.tags.items() if name.startswith("X-")}
    return [Outgoing(message.tags.get("To", context.pool), message.tags["As"], message.data, asked)]


def _hello(context: Context, message: Message) -> Sent:
    return [Outgoing(message.sender, "Put-Response"), Outgoing(message.data, "Hello", "once")]


def _large(context: Context, message: Message) -> Sent:
    note(context, "size", str(len(message.data)))
    return [reply(message, message.data)]


def _who(context: Context, message: Message) -> Sent:
    found = context.process(str(json_data(message, "name")["name"]))
    return [reply(message, {"me": context.me.name, "now": context.now, "trusted": context.trusted(message),
                            "found": found and found.id, "owner": context.owner})]


HANDLERS: Mapping[str, Handler] = {"Put": _put, "Half": _half, "Fault": _fault, "Spread": _spread, "Who": _who,
                                   "Forward": _forward, "Hello": _hello, "Large": _large,
                                   "Put-Response": lambda context, message: []}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    for kind in ("token", "pool"):
        use_handlers(monkeypatch, kind, HANDLERS)
    use_handlers(monkeypatch, "router", {"Put": _put})
    with Bench(tmp_path) as made:
        yield made


def noted(bench: Bench) -> list[str]:
    rows = bench.rows("SELECT key FROM meta WHERE key NOT IN ('owner', 'database') ORDER BY rowid")
    return [row["key"] for row in rows]


class TestHandled:
    def test_effect_answer_and_record(self, bench: Bench) -> None:
        receipt = bench.send("ann", "token", "Put", "it's", X_Note="x")
        assert (receipt.state, receipt.error, receipt.replayed) == ("handled", None, False)
        answer = reply_named(receipt, "Put-Response")
        assert json.loads(answer["Data"]) == {"put": "it's"}
        assert (answer["From"], answer["Target"]) == (bench.id("token"), bench.address("ann"))
        assert answer["tags"]["Message-Id"] == receipt.id
        row = bench.rows("SELECT * FROM messages WHERE id = ?", receipt.id)[0]
        assert row["sender"] == bench.address("ann")
        assert json.loads(row["tags"]) == {"Action": "Put", "X-Note": "x"}
        assert (row["received"], row["handled"], row["via"], row["root"]) == (START, START, "local", receipt.id)
        assert row["digest"] == hashlib.sha256(b"it's").hexdigest()

    def test_the_same_id_twice_has_effect_once(self, bench: Bench) -> None:
        message = bench.message("ann", "token", "Put", "a")
        first, second = bench.exchange.receive([message, message])
        assert noted(bench) == ["a"]
        again = bench.exchange.receive([message])[0]
        assert (first.replayed, second.replayed, again.replayed) == (False, True, True)
        assert first.replies == second.replies == again.replies
        assert len(bench.rows("SELECT 1 FROM messages")) == 2

    def test_a_refused_message_stays_refused_when_it_comes_again(self, bench: Bench) -> None:
        message = bench.message("ann", "token", "Half")
        first, again = (bench.exchange.receive([message])[0] for _ in range(2))
        assert (again.state, again.error, again.replayed) == ("refused", first.error, True)

    def test_many_at_once_each_on_its_own(self, bench: Bench) -> None:
        messages = [bench.message("ann", "token", action, data)
                    for action, data in (("Put", "a"), ("Half", ""), ("Put", "a"), ("Fault", ""), ("Put", "b"))]
        bench.trap.set(10**6)
        receipts = bench.exchange.receive(messages)
        assert [receipt.state for receipt in receipts] == ["handled", "refused", "failed", "failed", "handled"]
        assert noted(bench) == ["a", "b"]
        assert sum(sql == "COMMIT" for sql in bench.trap.seen) == 1

    def test_context(self, bench: Bench) -> None:
        receipt = bench.send("ann", "token", "Who", {"name": "router"})
        assert json.loads(receipt.replies[0]["Data"]) == {  # type: ignore[arg-type]
            "me": "token", "now": START, "trusted": False, "found": bench.id("router"), "owner": bench.owner.address}
        assert json.loads(bench.send("owner", "token", "Who", {"name": "x"}).replies[0]["Data"])["trusted"]  # type: ignore[arg-type]
        for via, trusted in (("clock", True), ("job", True), ("process", False), ("http", False)):
            message = Message("i", "someone", "t", {}, via=via)  # type: ignore[arg-type]
            assert bench.exchange.context(bench.process("token")).trusted(message) is trusted

    def test_an_id_is_found_before_a_name(self, bench: Bench) -> None:
        token = bench.id("token")
        with bench.store.transaction():
            bench.store.db.execute("INSERT INTO processes (id, kind, name, owner, created) "
                                   "VALUES ('x', 'dataset', ?, 'ann', 0)", (token,))
        found = bench.exchange.context(Process("", "", "", "")).process(token)
        assert found is not None
        assert found.name == "token"


class TestRefused:
    def test_leaves_nothing_but_its_record(self, bench: Bench) -> None:
        before = bench.dump("messages")
        receipt = bench.send("ann", "token", "Half")
        assert bench.dump("messages") == before
        assert (receipt.state, receipt.error) == ("refused", "row 3: not like this; do it otherwise")
        assert reply_named(receipt, "Half-Error")["tags"] == {
            "Action": "Half-Error", "Error": receipt.error, "Message-Id": receipt.id}

    def test_a_fault_is_recorded_by_kind_and_place_without_its_words(self, bench: Bench) -> None:
        receipt = bench.send("ann", "token", "Fault")
        assert receipt.state == "failed"
        assert receipt.error == records.FAULT
        assert reply_named(receipt, "Fault-Error")["tags"]["Error"] == records.FAULT
        recorded = bench.one("SELECT error FROM messages WHERE id = ?", receipt.id)
        assert "KeyError at test_pool_exchange.py:" in recorded
        assert "secret" not in recorded
        assert noted(bench) == []

    @pytest.mark.parametrize(("target", "action", "words"), [
        ("token", "Putt", "unknown Action 'Putt'; did you mean Put? token knows Put, Half"),
        ("token", "put; DROP TABLE messages", "unknown Action"), ("tokn", "Put", "there is token"),
        ("' OR 1=1 --", "Put", "no process"), ("A" * 43, "Put", "no process has the address A")])
    def test_what_nobody_here_knows(self, bench: Bench, target: str, action: str, words: str) -> None:
        before = bench.dump("messages")
        receipt = bench.send("ann", target, action)
        assert receipt.state == "refused"
        assert words in str(receipt.error)
        assert reply_named(receipt, f"{action}-Error")["tags"]["Error"] == receipt.error
        assert bench.dump("messages") == before

    def test_a_message_to_a_person(self, bench: Bench) -> None:
        receipt = bench.send("ann", bench.address("bob"), "Put")
        assert "sent by processes only" in str(receipt.error)
        to_oneself = bench.send("ann", bench.address("ann"), "Put")
        assert [reply["Action"] for reply in to_oneself.replies] == ["Put-Error"]

    def test_a_message_without_action(self, bench: Bench) -> None:
        message = Message("x" * 43, "ann", bench.id("token"), {}, via="job")
        receipt = bench.exchange.receive([message])[0]
        assert (receipt.state, str(receipt.error)[:18]) == ("refused", "message: no Action")

    def test_over_http_a_process_is_named_by_its_id_only(self, bench: Bench) -> None:
        key = bench.key("ann")
        from automate.pools.keys import verified
        receipt = bench.exchange.receive([verified(key.sign("token", "Put", "a"), "http")])[0]
        assert f"token is {bench.id('token')}" in str(receipt.error)
        assert bench.send("ann", "token", "Put", "a", via="http").state == "handled"
        assert bench.exchange.receive([verified(key.sign("token", "Put", "b"), "local")])[0].state == "handled"

    @pytest.mark.parametrize("sent", [[None], [Outgoing("x", "A", "\ud800")], ["text"], 7,
                                      [Outgoing("x", "A", "", {"n": {1}})]])  # type: ignore[dict-item]
    def test_a_handler_that_sends_what_is_no_message(self, bench: Bench, monkeypatch: pytest.MonkeyPatch,
                                                     sent: object) -> None:
        def bad(context: Context, message: Message) -> Sent:
            note(context, "bad")
            return sent  # type: ignore[return-value]

        use_handlers(monkeypatch, "router", {"Bad": bad})
        assert bench.send("ann", "router", "Bad").state == "failed"
        assert noted(bench) == []


class TestDelivery:
    def test_what_processes_send_is_delivered_in_order(self, bench: Bench) -> None:
        receipt = bench.send("ann", "token", "Spread", "3")
        assert noted(bench) == ["3-0", "3-1", "3-2"]
        rows = bench.rows("SELECT action, state, cause, root, via, sender FROM messages ORDER BY seq")
        assert [row["action"] for row in rows] == ["Spread", *["Put"] * 3, *["Put-Response"] * 3]
        assert {row["root"] for row in rows} == {receipt.id}
        assert {row["state"] for row in rows} == {"handled"}
        assert {row["via"] for row in rows[1:]} == {"process"}
        assert {row["cause"] for row in rows[1:4]} == {receipt.id}
        assert receipt.replies == ()

    def test_replies_are_all_that_goes_to_the_sender_by_whatever_process(self, bench: Bench) -> None:
        receipt = bench.send("ann", "token", "Forward", bench.address("ann"), To=bench.id("pool"), As="Hello")
        assert [reply["From"] for reply in receipt.replies] == [bench.id("pool")]
        assert bench.exchange.receipt(receipt.id) == receipt
        other = bench.rows("SELECT id FROM messages WHERE action = 'Forward' OR cause = ?", receipt.id)[1]["id"]
        assert bench.exchange.receipt(other) is not None
        assert bench.exchange.receipt("none") is None

    def test_two_processes_cant_go_on_answering_each_other(self, bench: Bench) -> None:
        for action, data in (("Nonsense", ""), ("Half", ""), ("Fault", ""), ("Nonsense-Response", "")):
            before = bench.one("SELECT count(*) FROM messages")
            receipt = bench.send("ann", "token", "Forward", data, To=bench.id("router"), As=action)
            assert receipt.state == "handled" or action == "Fault"
            assert bench.one("SELECT count(*) FROM messages") - before <= 4
            with bench.store.transaction():
                bench.store.db.execute("DELETE FROM meta WHERE key = 'sent'")

    def test_messages_to_strings_that_are_names_go_to_no_process(self, bench: Bench) -> None:
        bench.send("ann", "token", "Forward", "x", To="pool", As="Put")
        assert noted(bench) == ["sent"]
        assert bench.one("SELECT state FROM messages WHERE target = 'pool'") == "delivered"

    @pytest.mark.parametrize(("limit", "most", "width", "words"), [
        ("CASCADE", 200, 2, "more than 200 others"), ("CHAIN", 20, 1, "more than 20 messages, each because")])
    def test_an_endless_exchange_is_bounded(self, bench: Bench, monkeypatch: pytest.MonkeyPatch, limit: str,
                                            most: int, width: int, words: str) -> None:
        monkeypatch.setattr(exchange, limit, most)
        monkeypatch.setattr(exchange, "BATCH", 30)

        def again(context: Context, message: Message) -> Sent:
            return [Outgoing(context.me.id, "Again")] * width

        use_handlers(monkeypatch, "router", {"Again": again})
        bench.send("ann", "router", "Again")
        assert most - width <= bench.one("SELECT count(*) FROM messages WHERE action = 'Again'") <= most + width
        assert bench.one("SELECT count(*) FROM messages WHERE state = 'queued'") == 0
        rows = bench.rows("SELECT error FROM messages WHERE state = 'refused' AND action = 'Again'")
        assert rows
        assert all(words in row["error"] for row in rows)

    def test_more_than_one_commit_takes(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(exchange, "BATCH", 4)
        bench.trap.set(10**6)
        bench.send("ann", "token", "Spread", "10")
        assert len(noted(bench)) == 10
        assert sum(sql == "COMMIT" for sql in bench.trap.seen) > 3


class TestSizes:
    def test_large_data_is_kept_as_size_and_digest_once_handled(self, bench: Bench) -> None:
        text = "é" * records.KEEP + "x"
        receipt = bench.send("ann", "token", "Forward", text, As="Large", To=bench.id("pool"))
        assert bench.one("SELECT value FROM meta WHERE key = 'size'") == str(len(text))
        rows = bench.rows("SELECT data, size, digest FROM messages")
        assert {(row["data"], row["size"], row["digest"]) for row in rows} == {
            (None, len(text.encode()), hashlib.sha256(text.encode()).hexdigest())}
        assert receipt.state == "handled"

    def test_a_large_answer_is_in_the_first_receipt(self, bench: Bench) -> None:
        text = "x" * (records.KEEP + 1)
        message = bench.message("ann", "token", "Large", text)
        first, again = (bench.exchange.receive([message])[0].replies[0] for _ in range(2))
        assert first["Data"] == text
        assert (again["Data"], again["Size"]) == ("", len(text))
        assert bench.one("SELECT data FROM messages WHERE action = 'Large-Response'") is None


class TestCrashes:
    def sequence(self, bench: Bench) -> list[Message]:
        return [bench.message("ann", "token", "Spread", "2", anchor="1"),
                bench.message("ann", "token", "Half", anchor="2"),
                bench.message("ann", "token", "Forward", "x", anchor="3", As="Nonsense")]

    @pytest.mark.parametrize("batch", [1, 500])
    def test_between_any_two_statements(self, bench: Bench, monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
        monkeypatch.setattr(exchange, "BATCH", batch)
        messages = self.sequence(bench)
        expected: list[tuple[object, ...]] = []
        for at in range(1, 400):
            crashed = bench.crash(at, lambda: bench.exchange.receive(messages))
            receipts = bench.exchange.receive(messages)
            assert [receipt.state for receipt in receipts] == ["handled", "refused", "handled"]
            assert noted(bench) == ["sent", "2-0", "2-1"]
            rows = [tuple(row.values()) for row in bench.rows(
                "SELECT id, action, data, state, error, cause FROM messages ORDER BY seq")]
            expected = expected or rows
            assert rows == expected
            if not crashed:
                break
            with bench.store.transaction():
                bench.store.db.execute("DELETE FROM messages")
                bench.store.db.execute("DELETE FROM meta WHERE key NOT IN ('owner', 'database')")
        assert at > 40

    def test_what_was_queued_is_delivered_when_it_opens_again(self, bench: Bench,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(exchange, "BATCH", 1)
        message = bench.message("ann", "token", "Spread", "5")
        commits = 0

        def trap(sql: str) -> None:
            nonlocal commits
            commits += sql == "COMMIT"
            if commits == 3:
                raise Crash

        bench.store.db._trap = trap  # type: ignore[attr-defined]
        with pytest.raises(Crash):
            bench.exchange.receive([message])
        bench.reopen()
        assert noted(bench) == ["5-0", "5-1"]
        assert bench.exchange.deliver() == 3 + 5
        assert bench.exchange.deliver() == 0
        assert len(noted(bench)) == 5
        assert bench.exchange.receive([message])[0].replayed

    def test_a_full_disk_is_nobodys_fault_and_takes_nothing_in(self, bench: Bench) -> None:
        pages = bench.store.db.execute("PRAGMA page_count").fetchone()[0]
        bench.store.db.execute(f"PRAGMA max_page_count = {pages + 3}")
        messages = [bench.message("ann", "token", "Put", "x" * 5000 + str(number)) for number in range(50)]
        with pytest.raises(DatabaseStorageError, match="disk is full"):
            bench.exchange.receive(messages)
        assert bench.rows("SELECT 1 FROM messages") == []
        bench.store.db.execute("PRAGMA max_page_count = 1000000")
        assert {receipt.state for receipt in bench.exchange.receive(messages)} == {"handled"}

    def test_nothing_is_kept_where_sqlite_gave_all_up(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        def gone(context: Context, message: Message) -> Sent:
            bench.store._connection.rollback()
            raise MemoryError

        use_handlers(monkeypatch, "router", {"Gone": gone})
        with pytest.raises(MemoryError):
            bench.exchange.receive([bench.message("ann", "token", "Put", "a"), bench.message("ann", "router", "Gone")])
        assert bench.rows("SELECT 1 FROM messages") == []
        assert noted(bench) == []


def test_real_handlers_of_all_kinds() -> None:
    for kind in exchange.MODULES:
        assert all(callable(handler) for handler in exchange.handlers_of(kind).values())


def test_opens_on_what_is_there(bench: Bench) -> None:
    made = Exchange(bench.store, bench.settings, bench.clock)
    assert (made.owner, made.token, made.pool, made.router) == (
        bench.owner.address, bench.id("token"), bench.id("pool"), bench.id("router"))
