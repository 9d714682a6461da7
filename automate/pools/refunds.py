"""What the router owes: money for inferences that came to nothing, and what was too much; sent, refused, sent again.

Never owes for an inference twice, and never forgets what the token refused."""

from __future__ import annotations

import json
from collections.abc import Sequence

from automate.errors import PoolError
from automate.pools.exchange import Context
from automate.pools.keys import process_id
from automate.pools.messages import Message, Outgoing
from automate.pools.store import Row

_OWED = """SELECT recipient, SUM(amount) AS amount, COUNT(*) AS count, MIN(reason) AS reason, MAX(reason) AS other,
  MIN(reference) AS reference FROM refunds WHERE state = 'owed' AND (?1 IS NULL OR recipient = ?1)
  GROUP BY recipient ORDER BY MIN(id)"""


def owe(context: Context, recipient: str, amount: int, reason: str, reference: str = "",
        inference: str | None = None) -> None:
    """Note money that has to go back; `pay` sends it. `inference`: what it was paid for, which is owed for only once;
    None: more than was asked for. `reference`: the payer's own."""
    if amount > 0:
        context.db.execute(
            "INSERT INTO refunds (inference, recipient, amount, reason, reference, made) VALUES (?, ?, ?, ?, ?, ?)",
            (inference, recipient, amount, reason, reference, context.now))


def pay(context: Context, message: Message, recipient: str | None = None) -> list[Outgoing]:
    """One Transfer to each whom anything is owed, what was refused before included. `message`: why now; `recipient`:
    only to this one."""
    return [_transfer(context, message, row) for row in context.db.execute(_OWED, (recipient,)).fetchall()]


def _transfer(context: Context, message: Message, row: Row) -> Outgoing:
    batch = process_id("refund", message.id, row["recipient"])
    context.db.execute("UPDATE refunds SET state = 'sent', batch = ? WHERE recipient = ? AND state = 'owed'",
                       (batch, row["recipient"]))
    reason = row["reason"] if row["reason"] == row["other"] else f"{row['count']} refunds"
    tags = {"Recipient": row["recipient"], "Quantity": str(row["amount"]), "X-Reason": reason, "X-Refund": batch}
    if row["count"] == 1 and row["reference"]:
        tags["X-Reference"] = row["reference"]
    return Outgoing(context.token, "Transfer", tags=tags)


def _check_token(context: Context, message: Message) -> None:
    if message.sender != context.token:
        raise PoolError(f"a {message.action} is taken from the token only", where="From")


def debit_notice(context: Context, message: Message) -> Sequence[Outgoing]:
    """Debit-Notice: the refunds of tag X-Refund went out. Raises PoolError unless the token sent it."""
    _check_token(context, message)
    context.db.execute("UPDATE refunds SET state = 'paid', error = NULL WHERE batch = ? AND state = 'sent'",
                       (message.tags.get("X-Refund", ""),))
    return []


def transfer_error(context: Context, message: Message) -> Sequence[Outgoing]:
    """Transfer-Error: a refund that the token refused is still owed, and is sent again with the next one. The
    workspace's owner and the payer (for a data set: its owner) are told. Raises PoolError unless the token sent it."""
    _check_token(context, message)
    failed, error = message.tags.get("Message-Id", ""), message.tags.get("Error", "refused")
    row = context.db.execute("SELECT tags FROM messages WHERE id = ? AND sender = ?",
                             (failed, context.me.id)).fetchone()
    lost: dict[str, str] = {} if row is None else json.loads(row["tags"])
    context.db.execute("UPDATE refunds SET state = 'owed', batch = NULL, error = ? WHERE batch = ? AND state = 'sent'",
                       (error, lost.get("X-Refund", "")))
    recipient = lost.get("Recipient", "")
    process = context.process(recipient) if recipient else None
    told = {context.owner: None, (process.owner if process else recipient): None}
    data = {"transfer": failed, "error": error, "recipient": recipient, "quantity": lost.get("Quantity"),
            "reason": lost.get("X-Reason")}
    return [Outgoing(one, "Refund-Error", json.dumps(data, ensure_ascii=False), {"Message-Id": failed})
            for one in told if one]
