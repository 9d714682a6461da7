"""Pays a pool out once it is over: fresh scores first, then the rule, then one Transfer for each payout.

Never pays twice: a pool's state changes in the same transaction in which its Transfers are written."""

from __future__ import annotations

import json
from collections.abc import Sequence

from automate.errors import PoolError
from automate.pools.allocation import RULES, Allocation, Standing
from automate.pools.exchange import Context
from automate.pools.funding import check_token
from automate.pools.joining import ask_scores, joined
from automate.pools.lookup import check_may, pool_data, pool_of
from automate.pools.messages import Message, Outgoing, json_data, reply
from automate.pools.store import Row

SETTLE = "Settle-Pool"
"""What the pool process sends itself between asking for scores and paying; from others it is refused."""
_TURNS = 2
"""Messages are handled in the order of sending: in the first turn data sets get the Scores, before the second the pool
gets their answers."""


def allocate_rewards(context: Context, message: Message) -> Sequence[Outgoing]:
    """Data {"dataset"} or a pool's id: pay a pool that is over.

    Raises PoolError before the end. A settled pool answers with what was paid. Where models are still being evaluated
    it waits, up to the pool's grace after the end; then what they have right counts.
    """
    pool = pool_of(context, pool_data(message))
    check_may(context, message, pool)
    if pool["state"] != "open":
        return (reply(message, settled(context, pool) | {"already": True}, Pool=pool["id"]),)
    if context.now < pool["end_time"]:
        raise PoolError(f"not time to allocate rewards: pool {pool['id']} ends at {pool['end_time']} (ms), now it is"
                        f" {context.now}", todo="send it again after the end; the clock does so by itself")
    models = joined(context, pool)
    if not models:
        return settle(context, pool, [], message, message.sender, message.id)
    note = {"pool": pool["id"], "asker": message.sender, "message": message.id, "since": context.now, "turn": 1}
    return (*ask_scores(pool, models), Outgoing(context.me.id, SETTLE, json.dumps(note), {"Pool": pool["id"]}))


def settle_pool(context: Context, message: Message) -> Sequence[Outgoing]:
    """The second half of Allocate-Rewards. Raises PoolError unless the pool process itself sent it."""
    if message.sender != context.me.id:
        raise PoolError(f"{SETTLE} is the pool's own", todo="send Allocate-Rewards")
    note = json_data(message, "pool", "asker", "message", "since", "turn")
    turn, asker, asked = int(str(note["turn"])), str(note["asker"]), str(note["message"])
    if turn < _TURNS:
        return (Outgoing(context.me.id, SETTLE, json.dumps(note | {"turn": turn + 1}), {"Pool": str(note["pool"])}),)
    pool = pool_of(context, str(note["pool"]))
    if pool["state"] != "open":
        return (_answer(context, pool, asker, asked, already=True),)
    models = joined(context, pool)
    waiting = [row for row in models if not _final(row, int(str(note["since"])))]
    until = pool["end_time"] + pool["grace"]
    if waiting and context.now < until:
        data = {"pool": pool["id"], "state": "over", "settled": False, "waiting": [row["process"] for row in waiting],
                "reason": f"{len(waiting)} of {len(models)} models are not evaluated yet; rewards are paid when they "
                f"are, or from {until} (ms) on with what they have", "until": until}
        return (_reply(asker, asked, data, pool["id"]),)
    return settle(context, pool, models, message, asker, asked)


def settle(context: Context, pool: Row, models: Sequence[Row], message: Message, asker: str, asked: str,
           ) -> Sequence[Outgoing]:
    """Close the pool, write its payouts, and send them. A model that answered nothing is no standing."""
    standings = [Standing(row["model"], row["participant"], row["correct"], row["total"], row["joined"], row["seq"])
                 for row in models if row["answered"]]
    due = RULES[pool["allocation"]](pool["funds"], standings, pool["winners"])
    closed = context.db.execute(
        "UPDATE pools SET state = ?, settled = ?, settled_by = ? WHERE id = ? AND state = 'open'",
        ("refunded" if due.refund else "paid", context.now, message.id, pool["id"])).rowcount
    if closed != 1:
        raise PoolError(f"pool {pool['id']} is settled already")
    names = {row["model"]: row["process"] for row in models}
    sent = [_pay(context, pool, message, names, kind, model, account, amount, rank)
            for kind, model, account, amount, rank in _payouts(pool, due)]
    return (*sent, _answer(context, pool_of(context, pool["id"]), asker, asked))


def settled(context: Context, pool: Row) -> dict[str, object]:
    """What became of a settled pool's funds: sums, and each payout; amounts as digits."""
    rows = context.db.execute(
        "SELECT kind, account, amount, rank, process AS model, name FROM payouts LEFT JOIN models"
        " ON models.id = payouts.model WHERE pool = ? ORDER BY payouts.id", (pool["id"],)).fetchall()
    sums = {kind: sum(row["amount"] for row in rows if row["kind"] == kind) for kind in ("reward", "dust", "refund")}
    return {"pool": pool["id"], "state": pool["state"], "settled": True, "allocation": pool["allocation"],
            "funds": str(pool["funds"]), "paid": str(sums["reward"]), "dust": str(sums["dust"]),
            "refund": str(sums["refund"]), "payouts": [dict(row) | {"amount": str(row["amount"])} for row in rows]}


def debit_notice(context: Context, message: Message) -> Sequence[Outgoing]:
    """The token's word that a payout went out; the entry is the record."""
    check_token(context, message)
    return ()


def transfer_error(context: Context, message: Message) -> Sequence[Outgoing]:
    """A payout that the token refused: its money is still the pool process's, and the workspace's owner is told.

    It can't happen while the sums hold. Raises PoolError unless the token sent it.
    """
    check_token(context, message)
    reference = message.tags.get("Message-Id", "")
    row = context.db.execute("SELECT tags FROM messages WHERE id = ? AND sender = ?",
                             (reference, context.me.id)).fetchone()
    lost = {} if row is None else json.loads(row["tags"])
    data = {"transfer": reference, "error": message.tags.get("Error", ""), "recipient": lost.get("Recipient"),
            "quantity": lost.get("Quantity"), "pool": lost.get("X-Pool")}
    return (Outgoing(context.owner, "Payout-Error", json.dumps(data, ensure_ascii=False), {"Message-Id": reference}),)


def _final(row: Row, since: int) -> bool:
    """Asked after the end, and every question answered or given up."""
    return (row["updated"] is not None and row["updated"] >= since and row["total"] > 0
            and row["answered"] + row["failed"] >= row["total"])


def _payouts(pool: Row, due: Allocation) -> list[tuple[str, int | None, str, int, int | None]]:
    """Kind, model, account, amount, rank."""
    paid: list[tuple[str, int | None, str, int, int | None]] = [
        ("reward", share.model, share.participant, share.amount, share.rank) for share in due.shares]
    back = [("dust", due.dust), ("refund", due.refund)]
    return paid + [(kind, None, pool["funder"], amount, None) for kind, amount in back if amount]


def _pay(context: Context, pool: Row, message: Message, names: dict[int, str], kind: str, model: int | None,
         account: str, amount: int, rank: int | None) -> Outgoing:
    context.db.execute(
        "INSERT INTO payouts (pool, kind, model, account, amount, rank, message) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (pool["id"], kind, model, account, amount, rank, message.id))
    tags = {"Recipient": account, "Quantity": str(amount), "X-Pool": pool["id"], "X-Payout": kind}
    if model is not None:
        tags |= {"X-Model": names[model], "X-Rank": str(rank)}
    return Outgoing(context.token, "Transfer", "", tags)


def _answer(context: Context, pool: Row, asker: str, asked: str, *, already: bool = False) -> Outgoing:
    return _reply(asker, asked, settled(context, pool) | {"already": already}, pool["id"])


def _reply(asker: str, asked: str, data: object, pool: str) -> Outgoing:
    """The answer to who sent Allocate-Rewards, some messages ago."""
    return Outgoing(asker, "Allocate-Rewards-Response", json.dumps(data, ensure_ascii=False),
                    {"Message-Id": asked, "Pool": pool})
