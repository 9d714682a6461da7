"""Each (question, model) once: pending, started, answered, failed, expired.

Never counts an answer twice, and never takes one that is late, repeated or from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from automate.errors import PoolError
from automate.pools import starting
from automate.pools.exchange import Context, Handler
from automate.pools.inferences import stray
from automate.pools.kinds.base import Count, Question
from automate.pools.kinds.chosen import kind_of
from automate.pools.lookup import EVER, model_of, text, until_of
from automate.pools.messages import Message, Outgoing, json_data, reply
from automate.pools.requests import chat_text
from automate.pools.store import Row, Statements

PAGE = 1000
"""Questions that are read at a time."""
# +dataset: in the order of rows; by the index on dataset each page would sort all of them.
_NEW = """SELECT id, context, question, options, result FROM questions q WHERE +dataset = ? AND id > ? AND NOT EXISTS
  (SELECT 1 FROM evaluations e WHERE e.dataset_id = q.id AND e.model_id = ?) ORDER BY id LIMIT ?"""
_INSERT = """INSERT INTO evaluations (dataset_id, model_id, prompt, correct_answer, dataset) VALUES (?, ?, ?, ?, ?)
  ON CONFLICT DO NOTHING"""
_COUNTED = """SELECT (SELECT count(*) FROM questions WHERE dataset = ?1 AND added < ?3) AS total,
  COALESCE(sum(state = 'started'), 0) AS started, COALESCE(sum(state = 'answered'), 0) AS answered,
  COALESCE(sum(state IN ('failed', 'expired')), 0) AS failed,
  COALESCE(sum(state = 'answered' AND prediction = correct_answer), 0) AS correct, max(inference_end_time) AS last
  FROM evaluations WHERE dataset = ?1 AND model_id = ?2
  AND (?3 > (SELECT COALESCE(max(added), 0) FROM questions WHERE dataset = ?1)
    OR dataset_id IN (SELECT id FROM questions WHERE dataset = ?1 AND added < ?3))"""
# What counts is the silence of who has an inference: since it was begun, and since that round's servers of its model
# were heard of last. Where nobody has it (a data set that waits for a job, a job that waits for a machine) no time
# runs. Where the router knows nothing of it, it runs from the start.
_LATE = """SELECT e.id, e.inference_reference AS reference FROM evaluations e
  LEFT JOIN inferences i ON i.reference = e.inference_reference
  LEFT JOIN rounds r ON r.round = i.round AND r.model = i.model
  WHERE e.dataset = ? AND e.state = 'started' AND e.inference_start_time <= ?2
  AND COALESCE(i.ended, MAX(i.begun, COALESCE(r.heard, i.begun)),
    CASE WHEN i.reference IS NULL OR i.state = 'unpaid' THEN e.inference_start_time END)
    <= ?2 ORDER BY e.id"""


# --- counting -------------------------------------------------------------------------------------------
def count_of(db: Statements, dataset: str, model: int, until: int = EVER) -> Count:
    """How far a model is with a data set. total: all its questions, asked or not.

    until: only questions that were added before this time (ms) count; answers to them do whenever they came."""
    row = counted(db, dataset, model, until)
    return Count(row["total"], row["answered"], row["correct"], row["failed"])


def counted(db: Statements, dataset: str, model: int, until: int = EVER) -> Row:
    """As count_of, with `started`, and `last`: when the last answer or failure came."""
    row: Row = db.execute(_COUNTED, (dataset, model, until)).fetchone()
    return row


def score(context: Context, message: Message) -> Sequence[Outgoing]:
    """Score: Data names the model; Score-Response with tag Model and {correct, unevaluated, total, score, progress,
    answered, failed}. unevaluated: never started; score: of those answered; progress: answered of all. Tag Until (ms):
    only questions that were added before it count; the answer has it too."""
    model = _model(context, message)
    row = counted(context.db, context.me.id, model["id"], until_of(message))
    count = Count(row["total"], row["answered"], row["correct"], row["failed"])
    value, progress = kind_of(context).score(count)
    told = {"correct": count.correct, "unevaluated": count.total - count.answered - count.failed - row["started"],
            "total": count.total, "score": value, "progress": progress, "answered": count.answered,
            "failed": count.failed}
    tags = {name: message.tags[name] for name in ("Until",) if name in message.tags}
    return [reply(message, told, action="Score-Response", Model=model["process"], **tags)]


def _model(context: Context, message: Message) -> Row:
    """The model that Data names: alone, or as {"model": ...}. Raises PoolError."""
    given = message.data.strip()
    if given.startswith("{"):
        given = text(json_data(message, "model"), "model")
    if not given:
        raise PoolError("no model", todo="name it as Data: its process id or its name")
    return model_of(context.db, given.strip('"'))


# --- asked for ------------------------------------------------------------------------------------------
def _check_owner(context: Context, message: Message, *others: str) -> None:
    if not context.trusted(message) and message.sender not in (context.me.owner, *others):
        raise PoolError(f"only the data set's owner may send {message.action}", where="From",
                        todo="join a pool: that begins an evaluation")


def _check_ready(context: Context) -> None:
    if not context.me.ready:
        raise PoolError(f"data set {context.me.name} is not ready: nothing was loaded yet", todo="send Init, then "
                        "Load-Data")


def benchmark(context: Context, message: Message) -> Sequence[Outgoing]:
    """Benchmark: Data names the model; a pending row for each question that has none for it yet."""
    _check_owner(context, message, context.pool, context.me.id)
    model, kind = _model(context, message), kind_of(context)
    added, last = 0, 0
    while True:
        rows = context.db.execute(_NEW, (context.me.id, last, model["id"], PAGE)).fetchall()
        if not rows:
            break
        context.db.executemany(_INSERT, [
            (row["id"], model["id"], chat_text(kind.ask(_question(row)).messages), row["result"], context.me.id)
            for row in rows])
        added, last = added + len(rows), int(rows[-1]["id"])
    total = count_of(context.db, context.me.id, model["id"]).total
    return [reply(message, {"model": model["process"], "added": added, "known": total - added, "total": total})]


def _question(row: Row) -> Question:
    return Question(row["context"], row["question"], tuple(json.loads(row["options"])), row["result"])


def evaluate(context: Context, message: Message) -> Sequence[Outgoing]:
    """Evaluate: tag Model, or all models; Data is the most to start. Sends them to the router, paid for.

    Without the tag, models whose pools of this data set are all settled are left out; the clock asks those in an open
    pool only."""
    _check_owner(context, message)
    _check_ready(context)
    limit = starting.limit_of(message, context.settings.evaluate_limit)
    late = _time_out(context)
    out, started, lacking = starting.start(context, message, limit)
    told = {"started": started, "expired": len(late), "pending": _pending(context)}
    if limit == starting.MOST:
        told["limit"] = limit  # no more in one message, whatever was asked for
    if lacking:
        told["lacking"] = lacking  # the data set's balance doesn't pay the next one, which costs this
    return [*_cancelled(context, late), *out, reply(message, told)]


def _pending(context: Context) -> int:
    return int(context.db.execute("SELECT count(*) FROM evaluations WHERE dataset = ? AND state = 'pending'",
                                  (context.me.id,)).fetchone()[0])


# --- not answered ---------------------------------------------------------------------------------------
def _time_out(context: Context) -> list[str]:
    """Who has it was silent for pools.inference_timeout (see _LATE): pending again, or expired after pools.attempts.

    The references that are given up; the router is to be told of them."""
    before = context.now - int(context.settings.inference_timeout * 1000)
    rows = context.db.execute(_LATE, (context.me.id, before)).fetchall()
    for row in rows:
        _again(context, row["reference"], "expired", f"no answer within {context.settings.inference_timeout:g} s")
    return [str(row["reference"]) for row in rows]


def _cancelled(context: Context, references: Sequence[str]) -> list[Outgoing]:
    """The router is told that nobody waits for these any more."""
    if not references:
        return []
    return [Outgoing(context.router, "Cancel-Inference", json.dumps({"references": references}))]


def _again(context: Context, reference: str, outcome: str, error: str, message: str | None = None) -> None:
    """An attempt came to nothing: the row is pending again, or after pools.attempts expired or failed, as the last
    attempt did. An attempt that is over stays as it is."""
    row = context.db.execute("SELECT evaluation FROM attempts WHERE reference = ?", (reference,)).fetchone()
    over = context.db.execute("UPDATE attempts SET ended = ?, outcome = ?, message = ? WHERE reference = ? AND "
                              "outcome = 'started'", (context.now, outcome, message, reference)).rowcount
    if over != 1:
        return
    counted = 0 if outcome == "unpaid" else 1
    context.db.execute(
        "UPDATE evaluations SET state = CASE WHEN attempts >= ?1 AND ?2 THEN ?6 ELSE 'pending' END, "
        "attempts = attempts - 1 + ?2, inference_end_time = ?3, error = ?4 WHERE id = ?5 AND "
        "state = 'started'",
        (context.settings.attempts, counted, context.now, error, row["evaluation"],
         "expired" if outcome == "expired" else "failed"))


def _give_back(context: Context, references: Iterable[str], outcome: str, error: str) -> list[Outgoing]:
    given = list(references)
    for reference in given:
        _again(context, reference, outcome, error)
    return _cancelled(context, given)


def _of_message(context: Context, message: Message) -> list[str]:
    """The references that are still under way of the Transfer or Inference that an error names."""
    failed = message.tags.get("Message-Id", "")
    row = context.db.execute("SELECT tags FROM messages WHERE id = ? AND sender = ?",
                             (failed, context.me.id)).fetchone()
    payment = json.loads(row["tags"]).get("X-Reference") if row is not None else None
    return [str(one[0]) for one in context.db.execute(
        "SELECT a.reference FROM attempts a JOIN evaluations e ON e.id = a.evaluation WHERE a.payment = ? AND "
        "a.outcome = 'started' AND e.dataset = ? ORDER BY a.rowid", (payment, context.me.id)).fetchall()]


def transfer_error(context: Context, message: Message) -> Sequence[Outgoing]:
    """Transfer-Error of the token: what it would have paid for is pending again, without having been tried."""
    if message.sender != context.token:
        raise PoolError("a Transfer-Error comes from the token", where="From")
    return _give_back(context, _of_message(context, message), "unpaid", message.tags.get("Error", "not paid"))


def inference_error(context: Context, message: Message) -> Sequence[Outgoing]:
    """Inference-Error of the router, which refused a whole request."""
    if message.sender != context.router:
        raise PoolError("an Inference-Error comes from the router", where="From")
    return _give_back(context, _of_message(context, message), "failed", message.tags.get("Error", "refused"))


# --- answered -------------------------------------------------------------------------------------------
def answered(context: Context, message: Message) -> Sequence[Outgoing]:
    """Inference-Response {id, result | error, worker} of the router: taken where the row was started with just this
    reference; else recorded as a stray."""
    data = json_data(message, "id")
    reference = text(data, "id")
    row = context.db.execute(
        "SELECT a.outcome, e.id, e.state, e.inference_reference, e.correct_answer, q.context, q.question, q.options, "
        "q.result FROM attempts a JOIN evaluations e ON e.id = a.evaluation JOIN questions q ON q.id = e.dataset_id "
        "WHERE a.reference = ? AND e.dataset = ?", (reference, context.me.id)).fetchone()
    reason = _why_not(context, message, row, reference)
    if reason is not None:
        return stray(context, message, reference, reason)
    result, worker = data.get("result"), data.get("worker")
    worker = worker if isinstance(worker, str) else None
    asked = data.get("prompt")
    context.db.execute("UPDATE attempts SET worker = ?, prompt = ? WHERE reference = ?",
                       (worker, asked if isinstance(asked, str) else None, reference))
    if not isinstance(result, str):
        _again(context, reference, "failed", str(data.get("error") or "no answer")[:2000], message.id)
        return []
    _take(context, row, reference, result, worker, message.id)
    return []


def _why_not(context: Context, message: Message, row: Row | None, reference: str) -> str | None:
    if message.sender != context.router:
        return "elsewhere"
    if row is None:
        return "unknown"
    if row["outcome"] in ("answered", "failed"):
        return "twice"
    now = (row["outcome"], row["state"], row["inference_reference"]) == ("started", "started", reference)
    return None if now else "late"


def _take(context: Context, row: Row, reference: str, result: str, worker: str | None, message: str) -> None:
    kind, question = kind_of(context), _question(row)
    prediction = kind.retrieve(result, question)
    if kind.correct(prediction, row["correct_answer"]):
        prediction = row["correct_answer"]  # a kind may take several texts as right; counts compare texts
    context.db.execute("UPDATE evaluations SET state = 'answered', prediction = ?, answer = ?, worker = ?, "
                       "inference_end_time = ?, error = NULL WHERE id = ?",
                       (prediction, result, worker, context.now, row["id"]))
    context.db.execute("UPDATE attempts SET outcome = 'answered', ended = ?, answer = ?, message = ? "
                       "WHERE reference = ?", (context.now, result, message, reference))


HANDLERS: dict[str, Handler] = {
    "Benchmark": benchmark, "Evaluate": evaluate, "Score": score, "Inference-Response": answered,
    "Transfer-Error": transfer_error, "LlamaHerder.Transfer-Error": transfer_error, "Inference-Error": inference_error}
"""Benchmark, Evaluate, Score, Inference-Response, Transfer-Error: part of a data set's handlers."""
