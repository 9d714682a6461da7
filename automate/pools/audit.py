"""Every unit of money and every answer of a pool, traced; and whether all invariants hold.

Never changes anything."""

from __future__ import annotations

from automate.errors import PoolError
from automate.pools import audit_answers, audit_asked, audit_money, audit_router
from automate.pools.exchange import Exchange
from automate.pools.store import Row, Statements


def audit(exchange: Exchange, pool: str, now: int) -> dict[str, object]:
    """Money: each entry with its message and signature's owner, funds = paid + dust + refund, sums. Answers: each row
    with prompt, answer, prediction, worker, times, attempts, strays. `problems`: what doesn't hold (empty if sound).

    `pool`: its id. Raises PoolError where there is none. Keys: pool, time, money (funds, paid, dust, refund, minted,
    ledger, entries, payouts), answers (models, evaluations, strays), problems.
    """
    db = exchange.store.db
    row = _pool(db, pool)
    problems = [*audit_money.problems(exchange, row), *audit_router.problems(exchange, row),
                *audit_asked.problems(db, row), *audit_answers.problems(exchange, row)]
    return {
        "pool": dict(row), "time": now, "money": audit_money.traced(db, row), "answers": audit_answers.traced(db, row),
        "problems": problems,
    }


def _pool(db: Statements, pool: str) -> Row:
    row: Row | None = db.execute(
        "SELECT pools.*, processes.name AS dataset_name FROM pools JOIN processes ON processes.id = pools.dataset"
        " WHERE pools.id = ?", (pool,)).fetchone()
    if row is None:
        raise PoolError(f"no pool {pool!r}", todo="`flock-hpc pool list` shows the pools")
    return row
