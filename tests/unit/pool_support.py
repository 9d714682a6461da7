"""What the tests of pools share: a workspace's pools in a folder of their own, with a clock that stands still."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from automate.pool_places import PoolPlaces
from automate.pools.exchange import Exchange, Handler, Process
from automate.pools.keys import GENESIS, Key, load_key, process_id, verified
from automate.pools.messages import Message, Outgoing, Receipt, Via
from automate.pools.store import Store, open_store
from automate.settings_pools import Pools

START = 1_720_656_000_000
"""2024-07-11 00:00 UTC in milliseconds."""
HOUR = 3_600_000
DAY = 24 * HOUR
ROWS: list[dict[str, str]] = [
    {"context": "Tracy didn't go home that evening and resisted Riley's attacks.",
     "question": "What does Tracy need to do before this?", "answerA": "make a new plan",
     "answerB": "Go home and see Riley", "answerC": "Find somewhere to go", "result": "3"},
    {"context": "Sydney walked past a homeless woman asking for change.", "question": "How would you describe Sydney?",
     "answerA": "sympathetic", "answerB": "like a \"person\" who was unable to help", "answerC": "incredulous",
     "result": "1"},
    {"context": "小明 went to the café.", "question": "Why?", "answerA": "thirst", "answerB": "sleep",
     "answerC": "rain", "result": "1"},
]


class Crash(BaseException):
    """A machine that stops: raised by a trap, and by nothing else."""


class Clock:
    """Stands still until it is moved."""

    def __init__(self, now: int = START) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def forward(self, milliseconds: int) -> int:
        self.now += milliseconds
        return self.now


class Trap:
    """Counts statements; raises Crash before the `at`-th from now on (1 is the next), and ever after."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.seen: list[str] = []

    def __call__(self, sql: str) -> None:
        self.seen.append(sql)
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                raise Crash

    def set(self, at: int) -> None:
        self.left, self.seen = at, []


def named_key(name: str) -> Key:
    """The same key for the same name, in no file."""
    return Key(Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest()))


def pool_places(root: Path, **settings: Any) -> PoolPlaces:
    return PoolPlaces(root, Pools.model_validate({"lock_wait": 0, **settings}))


class Bench:
    """The pools of one workspace, open. `bench.key(name)` makes up people; `bench.owner` is the workspace's owner.

    ::

        bench.mint("ann", 100)
        receipt = bench.send("ann", "token", "Transfer", Recipient=bench.address("bob"), Quantity="5", X_Note="hello")
    """

    def __init__(self, root: Path, **settings: Any) -> None:
        self.places = pool_places(root, **settings)
        self.settings = self.places.settings
        self.clock = Clock()
        self.trap = Trap()
        self._anchors = 0
        self.open()

    def open(self) -> None:
        self.trap.left = None
        self.store: Store = open_store(self.places, now=self.clock.now, mounts=(), trap=self.trap)
        self.exchange = Exchange(self.store, self.settings, self.clock)
        self.owner = load_key(self.places.key(GENESIS))

    def reopen(self) -> Self:
        """As after a crash or an end."""
        self.trap.left = None
        self.store.close()
        self.open()
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.store.close()

    # --- who ----------------------------------------------------------------------------------------
    def key(self, who: str | Key) -> Key:
        if isinstance(who, Key):
            return who
        return self.owner if who in ("owner", GENESIS) else named_key(who)

    def address(self, who: str | Key) -> str:
        return self.key(who).address

    def process(self, name: str) -> Process:
        rows = self.rows("SELECT id FROM processes WHERE name = ? OR id = ?", name, name)
        found = self.exchange.context(Process("", "", "", "")).process(rows[0]["id"])
        assert found is not None
        return found

    def id(self, name: str) -> str:
        """The id of a process by its name; what is no name is given back as it is (an id, any text)."""
        rows = self.rows("SELECT id FROM processes WHERE name = ?", name)
        return str(rows[0]["id"]) if rows else name

    # --- messages -----------------------------------------------------------------------------------
    def sign(self, who: str | Key, target: str, action: str, data: object = "", *, anchor: str | None = None,
             **tags: object) -> dict[str, object]:
        """A signed message; Data that is no text becomes JSON; `X_Note=1` is the tag X-Note."""
        self._anchors += 1
        named = {name.replace("_", "-"): str(value) for name, value in tags.items()}
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
        return self.key(who).sign(self.id(target), action, text, named, timestamp=self.clock.now,
                                  anchor=f"anchor-{self._anchors}" if anchor is None else anchor)

    def message(self, who: str | Key, target: str, action: str, data: object = "", *, via: Via = "local",
                anchor: str | None = None, **tags: object) -> Message:
        """A proven message, not sent yet."""
        return verified(self.sign(who, target, action, data, anchor=anchor, **tags), via)

    def send(self, who: str | Key, target: str, action: str, data: object = "", *, via: Via = "local",
             anchor: str | None = None, **tags: object) -> Receipt:
        """Sign, send, deliver. `target`: a process's name or id."""
        return self.exchange.receive([self.message(who, target, action, data, via=via, anchor=anchor, **tags)])[0]

    def unsigned(self, sender: str, target: str, action: str, data: object = "", *, via: Via, anchor: str,
                 **tags: object) -> Receipt:
        """A message of the clock, a job or a process, which nobody signs."""
        named = {name.replace("_", "-"): str(value) for name, value in tags.items()} | {"Action": action}
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
        made = Message(process_id("test", sender, anchor), sender, self.id(target), named, text, anchor,
                       self.clock.now, via)
        return self.exchange.receive([made])[0]

    def mint(self, who: str | Key, quantity: int) -> Receipt:
        receipt = self.send("owner", "token", "Mint", Recipient=self.address(who), Quantity=quantity)
        assert receipt.state == "handled", receipt
        return receipt

    def balance(self, who: str | Key) -> int:
        """What a person or a process (by id) has."""
        account = who if isinstance(who, str) and len(who) == 43 else self.address(who)
        rows = self.rows("SELECT amount FROM balances WHERE account = ?", account)
        return int(rows[0]["amount"]) if rows else 0

    # --- things -------------------------------------------------------------------------------------
    def dataset(self, name: str = "siqa", kind: str = "siqa", who: str | Key = "owner", *,
                rows: Sequence[Mapping[str, object]] | None = None, **settings: object) -> str:
        """The id of a new data set: spawned, initialised, loaded with `rows` (ROWS unless given)."""
        spawned = self.send(who, "pool", "Spawn", {"name": name, "kind": kind})
        assert spawned.state == "handled", spawned
        for action, data in (("Init", settings), ("Load-Data", list(ROWS if rows is None else rows))):
            receipt = self.send(who, name, action, data)
            assert receipt.state == "handled", receipt
        return self.id(name)

    def bare_dataset(self, name: str = "siqa", kind: str = "siqa", who: str | Key = "owner", *,
                     ready: bool = True, **settings: object) -> str:
        """The id of a data set put straight into the table, without any handler."""
        made = process_id("test", "dataset", name)
        with self.store.transaction():
            self.store.db.execute(
                "INSERT INTO processes (id, kind, name, owner, module, settings, ready, created) "
                "VALUES (?, 'dataset', ?, ?, ?, ?, ?, ?)",
                (made, name, self.address(who), kind, json.dumps(settings), int(ready), self.clock.now))
        return made

    def rows(self, sql: str, *values: str | int | float | None) -> list[dict[str, Any]]:
        """What a query finds."""
        return [dict(row) for row in self.store.db.execute(sql, values).fetchall()]

    def one(self, sql: str, *values: str | int | float | None) -> Any:
        """The single value that a query finds."""
        found = self.rows(sql, *values)
        assert len(found) == 1
        assert len(found[0]) == 1
        return next(iter(found[0].values()))

    def dump(self, *without: str) -> dict[str, list[tuple[object, ...]]]:
        """All tables as they are, but those named (say messages): to show that nothing changed."""
        names = [row["name"] for row in self.rows("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: [tuple(row.values()) for row in self.rows(f'SELECT * FROM "{name}" ORDER BY rowid')]
                for name in names if name not in (*without, "sqlite_sequence") and not name.startswith("sqlite_")}

    # --- crashes ------------------------------------------------------------------------------------
    def crash(self, at: int, doing: Callable[[], object]) -> bool:
        """Do it, crash before its `at`-th statement (from 1 on), open again; whether it came that far."""
        self.trap.set(at)
        try:
            doing()
        except Crash:
            self.reopen()
            return True
        self.trap.left = None
        return False


@contextmanager
def opened(root: Path, **settings: Any) -> Iterator[Bench]:
    with Bench(root, **settings) as bench:
        yield bench


def use_handlers(monkeypatch: pytest.MonkeyPatch, kind: str, handlers: Mapping[str, Handler]) -> None:
    """Let a kind of process have these handlers, for this test."""
    from automate.pools import exchange
    module = importlib.import_module(f"automate.pools.{exchange.MODULES[kind]}")
    monkeypatch.setattr(module, "HANDLERS", dict(handlers))


def reply_named(receipt: Receipt, action: str) -> Mapping[str, Any]:
    """The one reply with this Action; its tags as a map under "tags"."""
    found = [reply for reply in receipt.replies if reply["Action"] == action]
    assert len(found) == 1, receipt
    tags: Any = found[0]["Tags"]
    return {**found[0], "tags": {tag["name"]: tag["value"] for tag in tags}}


__all__ = ["DAY", "HOUR", "ROWS", "START", "Bench", "Clock", "Crash", "Outgoing", "Trap", "named_key", "opened",
           "pool_places", "reply_named", "use_handlers"]
