"""A pool's money, entry by entry with the message that caused it and who signed that; what doesn't hold.

Never changes anything, and trusts no total: every sum is made anew from the entries."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from automate.pools.allocation import RULES, Standing
from automate.pools.exchange import Exchange
from automate.pools.store import Row, Statements

_ENTRIES = """
SELECT entries.seq, entries.account, entries.other, entries.amount, entries.message, messages.action,
  messages.received, root.id AS root, root.action AS root_action, root.sender AS signed_by, root.via AS via
FROM entries JOIN messages ON messages.id = entries.message LEFT JOIN messages AS root ON root.id = messages.root
WHERE entries.message IN (
  SELECT id FROM messages WHERE id = ? OR (cause = ? AND action = 'Transfer')) ORDER BY entries.seq"""


def traced(db: Statements, pool: Row) -> dict[str, object]:
    """Funds, what was paid, dust and refund, the pool's entries and payouts, and the whole ledger's sums."""
    paid = _paid(db, pool)
    return {
        "funds": pool["funds"], "paid": paid["reward"], "dust": paid["dust"], "refund": paid["refund"],
        "minted": -_one(db, "SELECT COALESCE(SUM(amount), 0) FROM entries WHERE account = 'genesis'"),
        "ledger": _one(db, "SELECT COALESCE(SUM(amount), 0) FROM entries"),
        "entries": [dict(row) for row in entries(db, pool)], "payouts": [dict(row) for row in _payouts(db, pool)],
    }


def problems(exchange: Exchange, pool: Row) -> list[str]:
    """What doesn't hold of the ledger as a whole, of the pool process's balance, and of this pool's money."""
    db = exchange.store.db
    return [*_ledger(db), *_held(exchange), *_funded(db, pool), *_settled(db, pool), *_ruled(db, pool)]


def entries(db: Statements, pool: Row) -> list[Row]:
    """Entries that brought the pool's funds, and those of the transfers that its settling sent."""
    return db.execute(_ENTRIES, (funding(db, pool), pool["settled_by"])).fetchall()


def funding(db: Statements, pool: Row) -> str | None:
    """The Transfer that brought a pool's funds: what caused the Credit-Notice that opened it."""
    row = db.execute("SELECT cause FROM messages WHERE id = ? AND action = 'Credit-Notice'", (pool["id"],)).fetchone()
    return None if row is None else row["cause"]


def _ledger(db: Statements) -> Iterator[str]:
    total = _one(db, "SELECT COALESCE(SUM(amount), 0) FROM entries")
    if total != 0:
        yield f"the ledger's entries sum to {total}, not to 0"
    for row in db.execute(
            "SELECT account, SUM(amount) AS summed FROM entries GROUP BY account EXCEPT SELECT account, amount"
            " FROM balances"):
        held = _one(db, "SELECT COALESCE(SUM(amount), 0) FROM balances WHERE account = ?", row["account"])
        yield f"account {row['account']} has a balance of {held}, and entries that sum to {row['summed']}"
    for row in db.execute("SELECT account, amount FROM balances WHERE amount <> 0 AND account NOT IN"
                          " (SELECT account FROM entries)"):
        yield f"account {row['account']} has a balance of {row['amount']}, and no entry"
    for row in db.execute("SELECT account, amount FROM balances WHERE amount < 0 AND account <> 'genesis'"):
        yield f"account {row['account']} has a balance below zero: {row['amount']}"
    yield from _entries_of_messages(db)


def _entries_of_messages(db: Statements) -> Iterator[str]:
    for row in db.execute("SELECT message, SUM(amount) AS summed FROM entries GROUP BY message HAVING summed <> 0"):
        yield f"the entries of message {row['message']} sum to {row['summed']}, not to 0"
    for row in db.execute(
            "SELECT entries.seq, entries.message, messages.action, messages.state FROM entries LEFT JOIN messages"
            " ON messages.id = entries.message WHERE messages.id IS NULL OR messages.state <> 'handled'"
            " OR messages.action NOT IN ('Transfer', 'Mint')"):
        yield (f"entry {row['seq']} names message {row['message']}, which is a {row['state'] or 'missing'}"
               f" {row['action'] or 'message'}: only a handled Transfer or Mint moves money")


def _held(exchange: Exchange) -> Iterator[str]:
    """The pool process has what open pools hold, and what is on its way in or out."""
    db, pool = exchange.store.db, _process(exchange.store.db, "pool")
    held = _one(db, "SELECT COALESCE(SUM(amount), 0) FROM entries WHERE account = ?", pool)
    funds = _one(db, "SELECT COALESCE(SUM(funds), 0) FROM pools WHERE state = 'open'")
    moving = sum(_quantity(row) for row in db.execute(
        "SELECT tags FROM messages WHERE state = 'queued' AND ((target = ? AND action = 'Credit-Notice')"
        " OR (sender = ? AND action = 'Transfer'))", (pool, pool)))
    if held != funds + moving:
        yield (f"the pool process has {held}, and should have {funds + moving}: {funds} of open pools and {moving}"
               " on its way")


def _funded(db: Statements, pool: Row) -> Iterator[str]:
    message = funding(db, pool)
    if message is None:
        yield f"no Credit-Notice opened pool {pool['id']}"
        return
    for row in db.execute(
            "SELECT messages.sender, entries.amount FROM entries JOIN messages ON messages.id = entries.message"
            " WHERE message = ? AND amount > 0", (message,)):
        if (row["sender"], row["amount"]) != (pool["funder"], pool["funds"]):
            yield (f"pool {pool['id']} says that {pool['funder']} funded it with {pool['funds']};"
                   f" the ledger has {row['amount']} from {row['sender']}")


def _settled(db: Statements, pool: Row) -> Iterator[str]:
    """An open pool has paid nothing, a settled one exactly its funds, to whom it says, by one message."""
    paid, name = _paid(db, pool), f"pool {pool['id']}"
    if pool["state"] == "open":
        if sum(paid.values()) or pool["settled_by"] is not None:
            yield f"{name} is open, and has payouts of {sum(paid.values())}"
        return
    if sum(paid.values()) != pool["funds"]:
        yield (f"{name}: paid {paid['reward']} + dust {paid['dust']} + refund {paid['refund']} is not its funds of"
               f" {pool['funds']}")
    if (pool["state"] == "refunded") != (paid["refund"] == pool["funds"]):
        yield f"{name} is {pool['state']}, and its refund is {paid['refund']} of {pool['funds']}"
    yield from _sent(db, pool)


def _sent(db: Statements, pool: Row) -> Iterator[str]:
    """What the payouts say against what the ledger has, account by account; transfers not handled yet count."""
    meant: Counter[str] = Counter()
    for row in _payouts(db, pool):
        meant[row["account"]] += row["amount"]
    sent: Counter[str] = Counter()
    for row in db.execute("SELECT tags FROM messages WHERE cause = ? AND action = 'Transfer' AND state = 'queued'",
                          (pool["settled_by"],)):
        sent[_tags(row).get("Recipient", "")] += _quantity(row)
    for row in db.execute(
            "SELECT account, amount FROM entries WHERE amount > 0 AND message IN"
            " (SELECT id FROM messages WHERE cause = ? AND action = 'Transfer')", (pool["settled_by"],)):
        sent[row["account"]] += row["amount"]
    for account in sorted(meant.keys() | sent.keys()):
        if meant[account] != sent[account]:
            yield (f"pool {pool['id']} should have paid {meant[account]} to {account}; the ledger has {sent[account]}")


def _ruled(db: Statements, pool: Row) -> Iterator[str]:
    """The rewards are those that the pool's rule gives for the standings that it was settled with."""
    rule = RULES.get(pool["allocation"])
    if rule is None:
        yield f"pool {pool['id']} has a rule of allocation that is not there: {pool['allocation']}"
    if rule is None or pool["state"] == "open":
        return
    standings = [Standing(row["model"], row["participant"], row["correct"], row["total"], row["joined"], row["rowid"])
                 for row in db.execute("SELECT rowid, * FROM pool_models WHERE pool = ? AND answered > 0"
                                       " ORDER BY rowid", (pool["id"],))]
    due = rule(pool["funds"], standings, pool["winners"])
    wanted = {share.model: (share.participant, share.amount) for share in due.shares}
    given = {row["model"]: (row["account"], row["amount"]) for row in _payouts(db, pool) if row["kind"] == "reward"}
    for model in sorted(wanted.keys() | given.keys()):
        if wanted.get(model) != given.get(model):
            yield (f"pool {pool['id']}, model {model}: {pool['allocation']} gives {wanted.get(model, ('', 0))[1]}, paid"
                   f" was {given.get(model, ('', 0))[1]}")


def _payouts(db: Statements, pool: Row) -> list[Row]:
    return db.execute(
        "SELECT payouts.kind, payouts.rank, payouts.model, models.name AS name, payouts.account, payouts.amount,"
        " payouts.message FROM payouts LEFT JOIN models ON models.id = payouts.model WHERE payouts.pool = ?"
        " ORDER BY payouts.id", (pool["id"],)).fetchall()


def _paid(db: Statements, pool: Row) -> dict[str, int]:
    sums = {"reward": 0, "dust": 0, "refund": 0}
    for row in _payouts(db, pool):
        sums[row["kind"]] += row["amount"]
    return sums


def _tags(row: Row) -> dict[str, str]:
    tags: dict[str, str] = json.loads(row["tags"])
    return tags


def _quantity(row: Row) -> int:
    text = _tags(row).get("Quantity", "")
    return int(text) if text.isascii() and text.isdigit() else 0


def _process(db: Statements, kind: str) -> str:
    return str(db.execute("SELECT id FROM processes WHERE kind = ?", (kind,)).fetchone()["id"])


def _one(db: Statements, sql: str, *values: str) -> int:
    return int(db.execute(sql, values).fetchone()[0])
