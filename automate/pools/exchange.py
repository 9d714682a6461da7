"""Takes messages in, gives each to its handler inside one transaction, and delivers what handlers send.

Never lets half of a message's effect stay: an error leaves nothing behind but its record."""

from __future__ import annotations

import difflib
import importlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from automate.errors import ClaimedError, FlockError, PoolError
from automate.pools import records
from automate.pools.keys import is_address
from automate.pools.messages import Message, Outgoing, Receipt, is_answer
from automate.pools.store import DatabaseDamagedError, DatabaseStorageError, Row, Statements, Store
from automate.settings_pools import Pools

BATCH = 500
"""Most queued messages that are handled in one commit."""
CASCADE = 100_000
"""Most messages that one message may cause, all in all. Money is not held up: what goes to the token, what the token
and the pool send, and what is sent because of that is bound by a pool's models and a message's payers."""
CHAIN = 64
"""Most messages each of which was caused by the one before: more would be processes that go on answering each other."""
_LONGEST = 2000
_LOG = logging.getLogger(__name__)
MODULES = {"token": "ledger", "pool": "pool", "router": "router", "dataset": "dataset"}


@dataclass(frozen=True)
class Process:
    """One process: token, pool, router, or a data set. `module`: a data set's kind; `settings`: JSON object."""

    id: str
    kind: str
    name: str
    owner: str
    module: str = ""
    settings: Mapping[str, object] | None = None
    ready: bool = False


@dataclass(frozen=True)
class Context:
    """What a handler has: the database inside its transaction, the time (ms), who it is, and who the others are.

    `owner`: the workspace owner's address (genesis key). `token`, `pool`, `router`: ids of the system processes.
    """

    db: Statements
    now: int
    me: Process
    settings: Pools
    owner: str
    token: str
    pool: str
    router: str

    def process(self, name_or_id: str) -> Process | None:
        """A process by id, else by name."""
        rows = self.db.execute("SELECT * FROM processes WHERE id = ? OR name = ?", (name_or_id, name_or_id)).fetchall()
        rows.sort(key=lambda row: str(row["id"]) != name_or_id)
        return _process(rows[0]) if rows else None

    def trusted(self, message: Message) -> bool:
        """Whether a message is the workspace owner's own: signed by the genesis key, or of the clock, or of a job."""
        return message.sender == self.owner or message.via in ("clock", "job")


def _process(row: Row) -> Process:
    return Process(row["id"], row["kind"], row["name"], row["owner"], row["module"], json.loads(row["settings"]),
                   bool(row["ready"]))


Handler = Callable[[Context, Message], Sequence[Outgoing]]
"""Does one message's work, and returns the messages that it sends. Raises PoolError to refuse it."""


def handlers_of(kind: str) -> Mapping[str, Handler]:
    """The handlers of a kind of process, by Action: ledger.HANDLERS, pool.HANDLERS, router.HANDLERS, dataset.HANDLERS.
    """
    found: Mapping[str, Handler] = importlib.import_module(f"automate.pools.{MODULES[kind]}").HANDLERS
    return found


class Exchange:
    """The processes of one store. `clock`: milliseconds since 1970."""

    def __init__(self, store: Store, settings: Pools, clock: Callable[[], int]) -> None:
        self.store, self.settings, self._clock = store, settings, clock
        self._caused: dict[str, int] = {}
        self._large: dict[str, str] = {}
        found = dict(store.db.execute("SELECT key, value FROM meta WHERE key = 'owner'").fetchall())
        self.owner = str(found["owner"])
        ids = dict(store.db.execute("SELECT name, id FROM processes WHERE kind <> 'dataset'").fetchall())
        self.token, self.pool, self.router = str(ids["token"]), str(ids["pool"]), str(ids["router"])

    def receive(self, messages: Sequence[Message]) -> list[Receipt]:
        """Take proven messages in, in order, in one commit; each in a savepoint of its own. Then deliver all that was
        sent because of them, until nothing is queued. A known id has no effect: its first receipt is given.

        Each message that is refused or fails is answered with `<Action>-Error` (tags Message-Id, Error), unless it is
        itself an answer. Data over 64 KiB is kept as its size and digest once it is handled; an answer to a person
        over 64 KiB is in this receipt only, a later one has its Size and Digest.

        What is sent is delivered in the same commit, as far as it is not much. Raises StorageError, ConfigError for a
        disk or a database that fails: then nothing was taken in, or all was, and the same call gives the receipts.
        """
        self._large.clear()
        self.deliver()
        now = self._clock()
        known = []
        with self.store.transaction():
            for message in messages:
                known.append(records.known(self.store.db, message.id))
                if not known[-1]:
                    records.insert(self.store.db, message, now, root=message.id)
                    self._handle(message, message.id, now)
            self._batch(now)
        self.deliver()
        receipts = [self._receipt(message.id, replayed=again) for message, again in zip(messages, known, strict=True)]
        self._large.clear()
        return receipts

    def _receipt(self, message_id: str, *, replayed: bool) -> Receipt:
        found = records.receipt(self.store.db, message_id)
        assert found is not None, "taken in above"
        replies = tuple({**reply, "Data": self._large[str(reply["Id"])]} if str(reply["Id"]) in self._large else reply
                        for reply in found.replies)
        return replace(found, replies=replies, replayed=replayed)

    def deliver(self) -> int:
        """Handle what is still queued, as after a crash; how many."""
        count = 0
        self._caused.clear()
        while records.waiting(self.store.db):
            with self.store.transaction():
                count += self._batch(self._clock())
        return count

    def receipt(self, message_id: str) -> Receipt | None:
        """What became of a message."""
        return records.receipt(self.store.db, message_id)

    def context(self, process: Process) -> Context:
        """For queries outside of messages."""
        return self._context(process, self._clock())

    def _context(self, me: Process, now: int) -> Context:
        return Context(self.store.db, now, me, self.settings, self.owner, self.token, self.pool, self.router)

    # --- one message --------------------------------------------------------------------------------
    def _batch(self, now: int) -> int:
        """Handle queued messages in their order, up to BATCH; how many. Inside a transaction."""
        count = 0
        while count < BATCH:
            queued = records.queued(self.store.db, BATCH - count)
            if not queued:
                break
            for message, root in queued:
                self._handle(message, root, now)
            count += len(queued)
        return count

    def _handle(self, message: Message, root: str, now: int) -> None:
        """Give a message to its handler; keep what it sends, or why it has no effect."""
        me: Process | None = None
        try:
            with self.store.savepoint():
                me = self._target(message, now)
                handler = _handler(me, message)
                sent = handler(self._context(me, now), message)
                self._send(me.id, sent, message, root, now)
            records.settle(self.store.db, message.id, "handled", None, now)
        except (DatabaseStorageError, DatabaseDamagedError, ClaimedError):
            raise
        except FlockError as error:
            self._answer(me, message, root, now, "refused", in_a_line(error))
        except Exception as error:
            if not self.store.in_transaction:  # SQLite gave all of it up, as for want of memory
                raise
            _LOG.debug("message %s failed", message.id, exc_info=True)
            self._answer(me, message, root, now, "failed", f"{records.FAULT} ({_place(error)})")

    def _target(self, message: Message, now: int) -> Process:
        """The process that a message is for; by its id, and by its name for messages that come from this machine.

        (A signed message that names a process of any workspace could be sent to another workspace again.)
        """
        found = self._context(_NOBODY, now).process(message.target)
        if found is None:
            raise self._unknown(message.target)
        if found.id != message.target and message.via in ("http", "process"):
            raise PoolError(f"Target is the id of a process: {found.name} is {found.id}", where="message")
        return found

    def _unknown(self, target: str) -> PoolError:
        if is_address(target):
            return PoolError(f"no process has the address {target}: messages to people are sent by processes only",
                             where="message", todo="'flock-hpc pool list' shows the processes here")
        rows = self.store.db.execute("SELECT name FROM processes ORDER BY created, name LIMIT 200").fetchall()
        names = [str(row[0]) for row in rows]
        near = difflib.get_close_matches(target, names, 3) or names[:10]
        return PoolError(f"no process {target!r} here", where="message", todo=f"there is {', '.join(near)}")

    def _answer(self, me: Process | None, message: Message, root: str, now: int, state: str, error: str) -> None:
        """Record that a message has no effect, and tell its sender."""
        records.settle(self.store.db, message.id, state, error, now)
        if not is_answer(message):
            told = error if state == "refused" else records.FAULT
            outgoing = Outgoing(message.sender, f"{message.action}-Error", "",
                                {"Message-Id": message.id, "Error": told})
            self._keep(self.pool if me is None else me.id, [outgoing], message, root, now)

    def _send(self, me: str, sent: Sequence[Outgoing], cause: Message, root: str, now: int) -> None:
        if root not in self._caused:
            self._caused[root] = records.caused(self.store.db, root)
        bound = sum(one.target != self.token for one in sent)  # money goes its way, and so does what is said of it
        if bound and self._caused[root] + bound > CASCADE and not {me, cause.sender} & {self.token, self.pool}:
            raise PoolError(f"one message would cause more than {CASCADE} others", where="message")
        if sent and records.steps(cause) >= CHAIN:
            raise PoolError(f"more than {CHAIN} messages, each because of the one before", where="message")
        self._keep(me, sent, cause, root, now)

    def _keep(self, me: str, sent: Sequence[Outgoing], cause: Message, root: str, now: int) -> None:
        self._caused[root] = self._caused.get(root, 0) + len(sent)
        for index, outgoing in enumerate(sent):
            kept = records.send(self.store.db, me, outgoing, cause, root, index, now)
            if kept.data and len(kept.data) > records.KEEP:
                self._large[kept.id] = kept.data


_NOBODY = Process("", "", "", "")


def _handler(me: Process, message: Message) -> Handler:
    """Raises PoolError naming the Actions that there are."""
    handlers = handlers_of(me.kind)
    if message.action in handlers:
        return handlers[message.action]
    if not message.action:
        raise PoolError("no Action", where="message", todo=f"{me.name} knows {', '.join(handlers)}")
    near = difflib.get_close_matches(message.action, handlers, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise PoolError(f"unknown Action {message.action!r}", where="message",
                    todo=f"{hint}{me.name} knows {', '.join(handlers)}")


def in_a_line(error: FlockError) -> str:
    """An error as one line, for a tag."""
    text = str(error).replace("\n  -> ", "; ").replace("\n", " ").replace("\0", "?")
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def _place(error: BaseException) -> str:
    """Type and place of a fault; never its words, which may quote anything."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" at {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace is not None else ""
    return type(error).__name__ + where
