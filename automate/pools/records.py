"""The table of messages: what came, what was sent because of it, what became of it.

Never decides anything about a message and never runs a handler."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import orjson

from automate.pools.keys import process_id
from automate.pools.messages import Message, Outgoing, Receipt, as_dict
from automate.pools.store import Row, Statements

KEEP = 64 * 1024
"""Data of more characters is kept as its size and digest once it is handled."""
KEEP_TAGS = 4 * 1024
"""Tags of a refused message of more characters, as JSON, are kept as size and digest of each long one."""
_SHORT = 64
FAULT = "a fault of flock-hpc: the message had no effect"
"""What a sender is told of a message that failed; the record has the kind and the place of the fault."""
_INSERT = """INSERT INTO messages (id, sender, target, action, tags, data, size, digest, anchor, timestamp, received,
  via, cause, root, state) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_OF_ROOT = "SELECT * FROM messages WHERE root = ? AND target = ? AND id <> ? ORDER BY seq"
_OF_CAUSE = "SELECT * FROM messages WHERE cause = ? AND target = ? AND id <> ? ORDER BY seq"


def known(db: Statements, message_id: str) -> bool:
    """Whether a message was taken in before."""
    return db.execute("SELECT 1 FROM messages WHERE id = ?", (message_id,)).fetchone() is not None


def insert(db: Statements, message: Message, now: int, *, root: str, state: str = "queued") -> None:
    """Keep a message. Large Data is kept only as long as the message is queued by a process: one that came from
    outside is handled at once, in the same commit."""
    data = message.data.encode()
    waits = message.via == "process" and state == "queued"
    kept = message.data if waits or len(message.data) <= KEEP else None
    db.execute(_INSERT, (message.id, message.sender, message.target, message.action,
                         orjson.dumps(dict(message.tags)).decode(), kept, len(data), hashlib.sha256(data).hexdigest(),
                         message.anchor, message.timestamp, now, message.via, message.cause, root, state))


def send(db: Statements, me: str, outgoing: Outgoing, cause: Message, root: str, index: int, now: int,
         ) -> Message:
    """Keep what a process sends: queued for a process here, else delivered. The same cause sends the same ids."""
    here = db.execute("SELECT 1 FROM processes WHERE id = ?", (outgoing.target,)).fetchone() is not None
    message = Message(process_id("sent", cause.id, str(index)), me, outgoing.target,
                      dict(outgoing.tags) | {"Action": outgoing.action}, outgoing.data, f"{steps(cause) + 1}.{index}",
                      now, "process", cause.id)
    insert(db, message, now, root=root, state="queued" if here else "delivered")
    return message


def steps(message: Message) -> int:
    """How many messages lie between this one and the one from outside that it began with: its anchor says it."""
    first = message.anchor.partition(".")[0]
    return int(first) if message.via == "process" and first.isascii() and first.isdigit() else 0


def settle(db: Statements, message_id: str, state: str, error: str | None, now: int) -> None:
    """Say what became of a message."""
    db.execute("UPDATE messages SET state = ?, error = ?, handled = ?, data = CASE WHEN length(data) > ? THEN NULL "
               "ELSE data END WHERE id = ?", (state, error, now, KEEP, message_id))
    if state in ("refused", "failed"):
        long = db.execute("SELECT tags FROM messages WHERE id = ? AND length(tags) > ?",
                          (message_id, KEEP_TAGS)).fetchone()
        if long is not None:
            db.execute("UPDATE messages SET tags = ? WHERE id = ?", (_cut(long["tags"]), message_id))


def _cut(tags: str) -> str:
    """Tags without their long values: what had no effect is no use to anybody, and would stay for ever."""
    return orjson.dumps({name: value if len(value) <= _SHORT else
                         f"[{len(value)} characters, SHA-256 {hashlib.sha256(value.encode()).hexdigest()}]"
                         for name, value in orjson.loads(tags).items()}).decode()


def waiting(db: Statements) -> bool:
    """Whether anything is queued."""
    return db.execute("SELECT 1 FROM messages WHERE state = 'queued' LIMIT 1").fetchone() is not None


def queued(db: Statements, limit: int) -> list[tuple[Message, str]]:
    """Queued messages in their order, with the message that all began with."""
    rows = db.execute("SELECT * FROM messages WHERE state = 'queued' ORDER BY seq LIMIT ?", (limit,)).fetchall()
    return [(message_of(row), str(row["root"])) for row in rows]


def caused(db: Statements, root: str) -> int:
    """How many messages one began, itself included."""
    return int(db.execute("SELECT count(*) FROM messages WHERE root = ?", (root,)).fetchone()[0])


def message_of(row: Row) -> Message:
    """A message as it was kept; large Data that was handled is gone."""
    tags: Mapping[str, str] = orjson.loads(row["tags"])
    return Message(row["id"], row["sender"], row["target"], tags, row["data"] or "", row["anchor"], row["timestamp"],
                   row["via"], row["cause"])


def receipt(db: Statements, message_id: str) -> Receipt | None:
    """What became of a message, with all that was sent to its sender because of it; None for one that never came."""
    row = db.execute("SELECT * FROM messages WHERE id = ?", (message_id,)).fetchone()
    if row is None:
        return None
    answers = db.execute(_OF_ROOT if row["root"] == message_id else _OF_CAUSE,
                         (message_id, row["sender"], message_id)).fetchall()
    error = FAULT if row["state"] == "failed" else row["error"]
    return Receipt(message_id, row["state"], error, tuple(map(_shown, answers)))


def _shown(row: Row) -> dict[str, object]:
    """A message as JSON; with Size (bytes) and Digest (SHA-256) in the place of Data that wasn't kept."""
    shown = as_dict(message_of(row))
    return shown if row["data"] is not None else shown | {"Size": row["size"], "Digest": row["digest"]}
