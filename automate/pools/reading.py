"""Questions about the state: pools, models, data sets, balances, who got what; read only.

Never changes anything and never prints; answers are JSON values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from automate.errors import PoolError
from automate.pools.exchange import Exchange
from automate.pools.finding import dataset_id, listed, model_number, named, pool_id
from automate.pools.store import Row, Statements, Value

Question = Callable[..., object]
Answer = dict[str, object]

POOLS = """
SELECT p.id, p.dataset, d.name AS dataset_name, p.funder, p.funds, p.allocation, p.start_time, p.end_time,
  CASE WHEN p.state = 'open' AND p.end_time <= ? THEN 'over' ELSE p.state END AS state, p.settled, p.updated,
  (SELECT COUNT(*) FROM pool_models m WHERE m.pool = p.id) AS models,
  (SELECT COALESCE(SUM(amount), 0) FROM payouts o WHERE o.pool = p.id AND o.kind = 'reward') AS paid,
  (SELECT COALESCE(SUM(amount), 0) FROM payouts o WHERE o.pool = p.id AND o.kind <> 'reward') AS returned
FROM pools p JOIN processes d ON d.id = p.dataset"""

STATES = ("pending", "started", "answered", "failed", "expired")
COUNTS = ", ".join(f"SUM(e.state = '{state}') AS {state}" for state in STATES)


def _all(db: Statements, sql: str, values: Sequence[Value] = ()) -> list[Answer]:
    return [dict(row) for row in db.execute(sql, values).fetchall()]


def _one(db: Statements, sql: str, values: Sequence[Value] = ()) -> Answer:
    row = db.execute(sql, values).fetchone()
    return {} if row is None else dict(row)


def _pool(row: Mapping[str, object]) -> Answer:
    """A pool with the spec's names of its times."""
    names = {"start_time": "startTime", "end_time": "endTime"}
    return {names.get(name, name): value for name, value in row.items()}


def processes(exchange: Exchange, now: int) -> object:
    """Token, pool, router and data sets: id, kind, name, owner, module, ready, created."""
    rows = _all(_db(exchange), "SELECT id, kind, name, owner, module, ready, created FROM processes "
                               "ORDER BY created, rowid")
    return [{**row, "ready": bool(row["ready"])} for row in rows]


def pools(exchange: Exchange, now: int) -> object:
    """Every pool, the newest first: the spec's fields, how many models, what was paid and given back."""
    return [_pool(row) for row in _all(_db(exchange), f"{POOLS} ORDER BY p.start_time DESC, p.id", (now,))]


def pool(exchange: Exchange, now: int, id: str) -> object:
    """One pool: also its models (spec: participant, score, progress) with counts, and its payouts."""
    db = _db(exchange)
    found = pool_id(db, id, now)
    models = _all(db, """
        SELECT m.id AS number, m.name AS model, m.process, j.participant, j.score, j.progress, j.correct, j.answered,
          j.failed, j.total, j.joined, j.updated
        FROM pool_models j JOIN models m ON m.id = j.model WHERE j.pool = ? ORDER BY j.joined, j.rowid""", (found,))
    payouts = _all(db, """
        SELECT o.kind, o.rank, m.name AS model, o.account, o.amount, o.message
        FROM payouts o LEFT JOIN models m ON m.id = o.model WHERE o.pool = ? ORDER BY o.id""", (found,))
    return {**_pool(_one(db, f"{POOLS} WHERE p.id = ?", (now, found))), "models": models, "payouts": payouts}


def leaderboard(exchange: Exchange, now: int, id: str) -> object:
    """`leaderboard.Board` of a pool as a JSON object."""
    from automate.pools.leaderboard import board

    db = _db(exchange)
    found = board(db, pool_id(db, id, now), now)
    return {**vars(found), "places": [dict(vars(place)) for place in found.places]}


def models(exchange: Exchange, now: int, dataset: str | None = None) -> object:
    """Every model with the spec's name, inference_process and data_tx; of a data set: those on it, with counts."""
    db = _db(exchange)
    columns = "m.id AS number, m.name, m.inference_process, m.data_tx, m.process, m.owner, m.added"
    if dataset is None:
        return _all(db, f"""
            SELECT {columns}, (SELECT COUNT(*) FROM pool_models j WHERE j.model = m.id) AS pools
            FROM models m ORDER BY m.id""")  # noqa: S608 - constants only, here and below
    found = dataset_id(db, dataset)
    return _all(db, f"""
        SELECT {columns}, COUNT(*) AS rows, SUM(e.prediction = e.correct_answer) AS correct, {COUNTS}
        FROM evaluations e JOIN models m ON m.id = e.model_id WHERE e.dataset = ? GROUP BY m.id ORDER BY m.id""",  # noqa: S608
                (found,))


DATASETS = """
SELECT p.id, p.name, p.module AS kind, p.owner, p.ready, p.created, p.settings,
  (SELECT COUNT(*) FROM questions q WHERE q.dataset = p.id) AS questions,
  (SELECT COUNT(DISTINCT j.model) FROM pool_models j JOIN pools o ON o.id = j.pool WHERE o.dataset = p.id) AS models,
  (SELECT COUNT(*) FROM pools o WHERE o.dataset = p.id AND o.state = 'open' AND o.end_time > ?) AS open_pools,
  COALESCE((SELECT amount FROM balances b WHERE b.account = p.id), 0) AS balance
FROM processes p WHERE p.kind = 'dataset'"""


def _dataset(row: Answer) -> Answer:
    return {**row, "ready": bool(row["ready"]), "settings": json.loads(str(row["settings"]))}


def datasets(exchange: Exchange, now: int) -> object:
    """Every data set: kind, owner, settings, questions, models, open pools, balance."""
    return [_dataset(row) for row in _all(_db(exchange), f"{DATASETS} ORDER BY p.created, p.id", (now,))]


def dataset(exchange: Exchange, now: int, id: str) -> object:
    """One data set: also how many evaluations are in which state, how many options questions have, and its pools."""
    db = _db(exchange)
    found = dataset_id(db, id)
    states = _one(db, f"SELECT {COUNTS} FROM evaluations e WHERE e.dataset = ?", (found,))  # noqa: S608
    options = db.execute("""
        SELECT json_array_length(options) AS options, COUNT(*) AS questions FROM questions WHERE dataset = ?
        GROUP BY 1 ORDER BY 1""", (found,)).fetchall()
    return {**_dataset(_one(db, f"{DATASETS} AND p.id = ?", (now, found))),
            "evaluations": {name: count or 0 for name, count in states.items()},
            "options": {str(row["options"]): row["questions"] for row in options},
            "pools": [_pool(row) for row in _all(db, f"{POOLS} WHERE p.dataset = ? ORDER BY p.start_time DESC",
                                                 (now, found))]}


def balance(exchange: Exchange, now: int, account: str, last: int = 20) -> object:
    """What an address, or a process by its name, has; and its last entries, the newest first."""
    from automate.pools import ledger

    db = _db(exchange)
    found = named(db, account)
    entries = _all(db, """
        SELECT e.seq, e.amount, e.other, e.message, m.action, m.received AS time
        FROM entries e LEFT JOIN messages m ON m.id = e.message WHERE e.account = ? ORDER BY e.seq DESC LIMIT ?""",
                   (found, max(0, int(last))))
    return {"account": found, "balance": ledger.balance(db, found), "entries": entries}


def message(exchange: Exchange, now: int, id: str) -> object:
    """One message as it was taken in, what became of it, and what was sent because of it."""
    db = _db(exchange)
    row = listed(db, "message", "SELECT id FROM messages WHERE id = ? OR id GLOB ?", id)
    found = _one(db, "SELECT * FROM messages WHERE id = ?", (row,))
    found["tags"] = json.loads(str(found["tags"]))
    caused = _all(db, "SELECT id, sender, target, action, state, error FROM messages WHERE cause = ? ORDER BY seq",
                  (row,))
    return {**found, "caused": caused}


def audit(exchange: Exchange, now: int, id: str) -> object:
    """`audit.audit` of a pool."""
    from automate.pools.audit import audit as trace

    return trace(exchange, pool_id(_db(exchange), id, now), now)


def workers(exchange: Exchange, now: int) -> object:
    """Every worker that registered, those that are gone as well."""
    return _all(_db(exchange), "SELECT * FROM workers ORDER BY unregistered IS NOT NULL, address")


def due(exchange: Exchange, now: int, dataset: str | None = None) -> object:
    """What is still to be answered, by data set and model: rows in each state, and what waits at the router."""
    db = _db(exchange)
    found = None if dataset is None else dataset_id(db, dataset)
    rows = _all(db, f"""
        SELECT e.dataset, d.name AS dataset_name, m.name AS model, m.process, m.data_tx, COUNT(*) AS rows, {COUNTS}
        FROM evaluations e JOIN models m ON m.id = e.model_id JOIN processes d ON d.id = e.dataset
        WHERE ? IS NULL OR e.dataset = ? GROUP BY e.dataset, e.model_id
        HAVING SUM(e.state IN ('pending', 'started')) > 0 ORDER BY d.name, m.id""", (found, found))  # noqa: S608
    waits: dict[tuple[object, object], Row] = {(row["dataset"], row["model"]): row for row in db.execute("""
        SELECT dataset, model, SUM(state = 'queued') AS queued, SUM(state = 'sent') AS sent
        FROM inferences WHERE state IN ('queued', 'sent') GROUP BY dataset, model""").fetchall()}
    out = []
    for row in rows:
        wait = waits.get((row["dataset"], row["process"])) or waits.get((row["dataset"], row["model"]))
        out.append({**row, "queued": wait["queued"] if wait else 0, "sent": wait["sent"] if wait else 0})
    return out


def waiting(exchange: Exchange, now: int) -> object:
    """Inferences at the router, whoever asked for them: queued (for a round), sent (with one)."""
    return _one(_db(exchange), "SELECT COUNT(*) FILTER (WHERE state = 'queued') AS queued, "
                               "COUNT(*) FILTER (WHERE state = 'sent') AS sent FROM inferences "
                               "WHERE state IN ('queued', 'sent')")


def find(exchange: Exchange, now: int, kind: str, given: str) -> object:
    """The full id of a pool, data set, model or process, from its name, number or the beginning of its id."""
    db = _db(exchange)
    if kind == "model":
        return _one(db, "SELECT process FROM models WHERE id = ?", (model_number(db, given),))["process"]
    finders: Mapping[str, Callable[[Statements, str], str]] = {
        "pool": lambda db, given: pool_id(db, given, now), "dataset": dataset_id, "account": named}
    if kind not in finders:
        raise PoolError(f"nothing is called {kind!r} here", todo=f"ask for one of {', '.join([*finders, 'model'])}")
    return finders[kind](db, given)


QUESTIONS: Mapping[str, Question] = {
    one.__name__: one for one in (processes, pools, pool, leaderboard, models, datasets, dataset, balance, message,
                                  audit, workers, due, waiting, find)}
"""By name, each `(exchange, now, **given)`: processes (), pools (), pool (id), leaderboard (id), models (dataset=None),
datasets (), dataset (id), balance (account), message (id), audit (id), workers (), due (dataset=None),
waiting (), find (kind, given)."""


def ask(exchange: Exchange, what: str, now: int, given: Mapping[str, object]) -> object:
    """Raises PoolError for an unknown question or thing."""
    question = QUESTIONS.get(what)
    if question is None:
        raise PoolError(f"unknown question {what!r}", todo=f"ask one of {', '.join(QUESTIONS)}")
    try:
        return question(exchange, now, **given)
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            raise  # a fault inside of the question
        raise PoolError(f"the question {what} was put with fields it doesn't take: {', '.join(given) or 'none'}",
                        todo="see reading.QUESTIONS for each question's fields") from None


def _db(exchange: Exchange) -> Statements:
    return exchange.store.db
