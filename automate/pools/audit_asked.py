"""What the router is asked and was paid for, against a data set's attempts: nothing that the data set gave up.

Never changes anything, and says nothing while messages between the two wait."""

from __future__ import annotations

from collections.abc import Iterator

from automate.pools.store import Row, Statements

_WAIT = """SELECT EXISTS (SELECT 1 FROM messages WHERE state = 'queued' AND
  action IN ('Inference', 'Inference-Response', 'Cancel-Inference', 'Credit-Notice'))"""
_NOBODYS = """SELECT i.reference, i.state, i.price, a.outcome FROM inferences i JOIN attempts a ON
  a.reference = i.reference WHERE i.requester = ? AND i.state IN ('queued', 'sent', 'answered')
  AND a.outcome NOT IN ('started', 'answered') ORDER BY i.rowid"""


def problems(db: Statements, pool: Row) -> Iterator[str]:
    """Inferences that are open or answered, and paid for where that has a price, that nobody waits for."""
    if db.execute(_WAIT).fetchone()[0]:
        return
    for row in db.execute(_NOBODYS, (pool["dataset"],)):
        yield (f"inference {row['reference']} is {row['state']} for {row['price']}, and its attempt {row['outcome']}: "
               "its question is asked twice")
