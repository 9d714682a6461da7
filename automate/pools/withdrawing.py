"""Withdraw: money that lies with a data set or the router goes to who owns it.

Never pays out what may still have to go back to somebody else."""

from __future__ import annotations

from collections.abc import Sequence

from automate.errors import PoolError
from automate.pools.exchange import Context
from automate.pools.ledger import balance, quantity_of, recipient_of
from automate.pools.lookup import text
from automate.pools.messages import Message, Outgoing, json_data, reply
from automate.pools.store import Statements

TAG = "X-Withdrawal"
"""Of the Transfer: the Withdraw that it answers."""
_MOVING = """SELECT COALESCE(SUM(CAST(tags ->> 'Quantity' AS INTEGER)), 0) FROM messages WHERE state = 'queued' AND
  ((target = ?1 AND action = 'Credit-Notice') OR (sender = ?1 AND action = 'Transfer'))"""
_OPEN = """SELECT (SELECT COALESCE(SUM(price), 0) FROM inferences WHERE state IN ('unpaid', 'queued', 'sent'))
  + (SELECT COALESCE(SUM(amount), 0) FROM refunds WHERE state = 'owed')"""


def from_dataset(context: Context, message: Message) -> Sequence[Outgoing]:
    """Withdraw {"quantity", "recipient"?} to a data set: its owner takes out what no inference was paid with."""
    if message.sender != context.me.owner:
        raise PoolError("only the data set's owner may withdraw its money", where="From")
    return _paid_out(context, message, balance(context.db, context.me.id) - moving(context.db, context.me.id))


def from_router(context: Context, message: Message) -> Sequence[Outgoing]:
    """Withdraw {"quantity", "recipient"?} to the router: the workspace's owner takes out what answers have earned.

    What was paid for inferences without an answer stays: it may have to go back. So does what is owed."""
    if message.sender != context.owner:
        raise PoolError("only the workspace's owner may withdraw the router's money", where="From")
    return _paid_out(context, message, balance(context.db, context.me.id) - moving(context.db, context.me.id)
                     - int(context.db.execute(_OPEN).fetchone()[0]))


def moving(db: Statements, process: str) -> int:
    """What a process has sent that is not paid yet, and what came that it has not heard of yet."""
    return int(db.execute(_MOVING, (process,)).fetchone()[0])


def _paid_out(context: Context, message: Message, free: int) -> list[Outgoing]:
    data = json_data(message, "quantity")
    given = data["quantity"]
    quantity = quantity_of(str(given) if type(given) is int else text(data, "quantity"))
    recipient = recipient_of(context, text(data, "recipient") if "recipient" in data else message.sender)
    if recipient == context.me.id:
        raise PoolError("the money lies here already", where="recipient")
    if quantity > free:
        raise PoolError(f"there is {max(free, 0)} to withdraw", where="quantity", todo="withdraw no more than that; "
                        "what was paid for inferences without an answer stays until they are over")
    tags = {"Recipient": recipient, "Quantity": str(quantity), "X-Reason": "withdrawn", TAG: message.id}
    return [Outgoing(context.token, "Transfer", tags=tags),
            reply(message, {"quantity": str(quantity), "recipient": recipient})]
