"""The router's money: what it holds against what is paid for, earned, owed, withdrawn; each refund against its cause.

Never changes anything, and trusts no total: every sum is made anew from the entries and the inferences."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from automate.pools.exchange import Exchange
from automate.pools.store import Row, Statements

# Of inferences that were paid for: what still waits or was answered keeps its price, all else has it back, once.
_REFUNDED = """SELECT i.reference, i.requester, i.state, i.price, r.recipient, r.amount FROM inferences i
  LEFT JOIN refunds r ON r.inference = i.reference WHERE i.price > 0 AND (
    (i.state IN ('failed', 'cancelled')) IS NOT (r.id IS NOT NULL)
    OR (r.id IS NOT NULL AND (r.amount <> i.price OR r.recipient <> i.requester)))"""
_FREE = """SELECT r.inference FROM refunds r LEFT JOIN inferences i ON i.reference = r.inference
  WHERE r.inference IS NOT NULL AND COALESCE(i.price, 0) = 0"""
_OUT = """SELECT e.message, e.other, -e.amount AS amount, m.tags FROM entries e JOIN messages m ON m.id = e.message
  WHERE e.account = ? AND e.amount < 0 ORDER BY e.seq"""
_BATCHES = """SELECT batch, recipient, SUM(amount) AS amount FROM refunds WHERE batch IS NOT NULL
  GROUP BY batch, recipient"""
_DEBTS = """SELECT recipient, SUM(amount) AS amount, COUNT(*) AS count, MAX(error) AS error FROM refunds
  WHERE state = 'owed' GROUP BY recipient ORDER BY recipient"""


def problems(exchange: Exchange, pool: Row) -> list[str]:
    """What doesn't hold of the money that came for inferences, and of what the pool's data set paid; open debts are
    named too."""
    db = exchange.store.db
    out = db.execute(_OUT, (exchange.router,)).fetchall()
    return [*_once(db), *_sent(db, out), *_out(exchange, pool, out), *_held(exchange, out), *_debts(db)]


def debts(db: Statements) -> list[Row]:
    """What the token refused to send back, by recipient: amount, count, error."""
    return db.execute(_DEBTS).fetchall()


def _once(db: Statements) -> Iterator[str]:
    for row in db.execute(_REFUNDED).fetchall():
        yield (f"inference {row['reference']} of {row['requester']} is {row['state']} and cost {row['price']}; refunded"
               f" was {row['amount'] or 0}" + (f" to {row['recipient']}" if row["recipient"] else ""))
    for row in db.execute(_FREE).fetchall():
        yield f"inference {row['inference']} was refunded, and cost nothing"
    for row in db.execute("SELECT inference, COUNT(*) AS n FROM refunds WHERE inference IS NOT NULL "
                          "GROUP BY inference HAVING n > 1").fetchall():
        yield f"inference {row['inference']} was refunded {row['n']} times"


def _tag(row: Row, name: str) -> str:
    value = json.loads(row["tags"]).get(name, "")
    return value if isinstance(value, str) else ""


def _sent(db: Statements, out: list[Row]) -> Iterator[str]:
    """Each Transfer of refunds against the refunds that it names, and the other way round."""
    meant: Counter[tuple[str, str]] = Counter()
    for row in db.execute(_BATCHES):
        meant[row["batch"], row["recipient"]] += row["amount"]
    sent: Counter[tuple[str, str]] = Counter()
    for row in out:
        if _tag(row, "X-Refund"):
            sent[_tag(row, "X-Refund"), row["other"]] += row["amount"]
    paid = {row[0] for row in db.execute("SELECT DISTINCT batch FROM refunds WHERE state = 'paid'")}
    for key in sorted(sent.keys() | {key for key in meant if key[0] in paid}):
        if sent[key] != meant[key]:
            yield f"the router should have sent back {meant[key]} to {key[1]}; the ledger has {sent[key]}"


def _out(exchange: Exchange, pool: Row, out: list[Row]) -> Iterator[str]:
    """Money leaves the router as a refund, the data set as a payment to the router, both to who withdraws his own."""
    db = exchange.store.db
    owner = db.execute("SELECT owner FROM processes WHERE id = ?", (pool["dataset"],)).fetchone()
    paid = [row for row in db.execute(_OUT, (pool["dataset"],)) if row["other"] != exchange.router]
    for process, who, rows in ((exchange.router, exchange.owner, out),
                               (pool["dataset"], owner["owner"] if owner else "", paid)):
        for row in rows:
            if not _tag(row, "X-Refund") and not _asked(db, process, who, row):
                yield (f"process {process} sent {row['amount']} to {row['other']} by message {row['message']}: nobody"
                       " asked for it, and it is no refund")


def _asked(db: Statements, process: str, who: str, row: Row) -> bool:
    """Whether a Transfer is a Withdraw's of the owner, of just this much."""
    found = db.execute("SELECT data FROM messages WHERE id = ? AND action = 'Withdraw' AND state = 'handled' AND "
                       "target = ? AND sender = ?", (_tag(row, "X-Withdrawal"), process, who)).fetchone()
    if found is None:
        return False
    try:
        said = json.loads(found["data"])
    except (TypeError, ValueError):
        return False
    return isinstance(said, dict) and str(said.get("quantity")) == str(row["amount"])


def _held(exchange: Exchange, out: list[Row]) -> Iterator[str]:
    """The balance is what waits and what was earned, without what was withdrawn, with what is owed and on its way."""
    db, router = exchange.store.db, exchange.router
    held = _one(db, "SELECT COALESCE(SUM(amount), 0) FROM entries WHERE account = ?", router)
    live = _one(db, "SELECT COALESCE(SUM(price), 0) FROM inferences WHERE state IN ('queued', 'sent')")
    earned = _one(db, "SELECT COALESCE(SUM(price), 0) FROM inferences WHERE state = 'answered'")
    withdrawn = sum(row["amount"] for row in out if not _tag(row, "X-Refund"))
    gone = {_tag(row, "X-Refund") for row in out}
    owed = sum(row["amount"] for row in db.execute("SELECT batch, amount FROM refunds WHERE state <> 'paid'")
               if row["batch"] not in gone)
    for row in db.execute("SELECT tags FROM messages WHERE target = ? AND state = 'queued' AND "
                          "action = 'Credit-Notice'", (router,)):
        quantity = _tag(row, "Quantity")
        owed += int(quantity) if quantity.isascii() and quantity.isdigit() else 0
    if held != live + earned - withdrawn + owed:
        yield (f"the router has {held}, and should have {live + earned - withdrawn + owed}: {live} of inferences that"
               f" wait, {earned} of answers less {withdrawn} withdrawn, {owed} owed or on its way")


def _debts(db: Statements) -> Iterator[str]:
    for row in debts(db):
        yield (f"the router owes {row['amount']} to {row['recipient']} ({row['count']} refunds)"
               + (f"; the token refused: {row['error']}" if row["error"] else ""))


def _one(db: Statements, sql: str, *values: str) -> int:
    return int(db.execute(sql, values).fetchone()[0])
