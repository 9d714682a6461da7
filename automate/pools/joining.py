"""Models join pools, and their scores come from the data set: Join-Pool, Update-Leaderboard, Score-Response.

Never lets one take a model over, and never takes a score from anybody but the pool's own data set."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence

from automate.errors import PoolError
from automate.pools.exchange import Context
from automate.pools.lookup import check_may, model_of, pool_data, pool_of, text, until_of
from automate.pools.messages import Message, Outgoing, json_data, reply
from automate.pools.store import Row

MOST_MODELS = 10_000
"""Models in one pool: so many are still paid by one message, however many others it causes."""
_MOST = 2**26 - 1
"""Questions a data set can have so that any two leaderboard numbers can be told apart."""
_MEANT = """SELECT pools.id FROM pools JOIN pool_models ON pool_models.pool = pools.id AND pool_models.model = ?1
  WHERE pools.dataset = ?2 AND state = 'open' AND (end_time = ?3 OR (?3 > ?4 AND end_time > ?4))"""
"""The pools that a Score-Response is about: those that end at its Until; what is counted up to a time that is yet to
come holds for all that are open."""


def join_pool(context: Context, message: Message) -> Sequence[Outgoing]:
    """Data {"dataset", "model"}: the model takes part; its evaluation starts (Benchmark to the data set).

    Joining again changes nothing but asks for the evaluation of rows added since. Raises PoolError: unknown pool or
    model, a pool that is over, a model of somebody else.
    """
    data = json_data(message, "dataset", "model")
    pool = pool_of(context, text(data, "dataset"), open_only=True)
    model = model_of(context.db, text(data, "model"))
    if model["owner"] != message.sender:
        raise PoolError(f"model {model['name']} belongs to {model['owner']}",
                        todo="join with a model of your own; Add-Model adds one")
    _check_room(context, pool, model)
    added = context.db.execute(
        "INSERT INTO pool_models (pool, model, participant, joined, joined_by) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT DO NOTHING", (pool["id"], model["id"], message.sender, context.now, message.id)).rowcount == 1
    answer = {"pool": pool["id"], "dataset": pool["dataset"], "model": model["process"], "name": model["name"],
              "endTime": pool["end_time"], "already": not added}
    return (reply(message, answer),
            Outgoing(pool["dataset"], "Benchmark", model["process"],
                     {"Model": model["process"], "X-Participant": message.sender}))


def _check_room(context: Context, pool: Row, model: Row) -> None:
    """Raises PoolError where a pool is full, and the model isn't in it."""
    count, inside = context.db.execute("SELECT COUNT(*), COALESCE(SUM(model = ?), 0) FROM pool_models WHERE pool = ?",
                                       (model["id"], pool["id"])).fetchone()
    if count >= MOST_MODELS and not inside:
        raise PoolError(f"pool {pool['id']} is full: {count} models joined", todo="join another pool")


def benchmark_error(context: Context, message: Message) -> Sequence[Outgoing]:
    """A data set can't evaluate a model: its participant is told. Raises PoolError unless it is a data set's."""
    _from_dataset(context, message)
    asked = context.db.execute("SELECT tags FROM messages WHERE id = ? AND sender = ? AND target = ?",
                               (message.tags.get("Message-Id", ""), context.me.id, message.sender)).fetchone()
    who = json.loads(asked["tags"]).get("X-Participant") if asked is not None else None
    tags = {name: message.tags[name] for name in ("Message-Id", "Error") if name in message.tags}
    return (Outgoing(who, "Benchmark-Error", message.data, tags),) if who else ()


def taken(context: Context, message: Message) -> Sequence[Outgoing]:
    """An answer of a data set that asks for nothing; it is on record as a message."""
    _from_dataset(context, message)
    return ()


def update_leaderboard(context: Context, message: Message) -> Sequence[Outgoing]:
    """Data {"dataset"} or {"dataset", "model"}: ask the data set for the scores of all models, or of one.

    Raises PoolError: who may not, a pool that is settled, a model that isn't in it.
    """
    pool = pool_of(context, pool_data(message))
    check_may(context, message, pool)
    if pool["state"] != "open":
        raise PoolError(f"pool {pool['id']} is {pool['state']}: its leaderboard doesn't change any more")
    models = joined(context, pool)
    data = json_data(message) if message.data.lstrip().startswith("{") else {}
    if data.get("model") is not None:
        model = model_of(context.db, text(data, "model"))
        models = [row for row in models if row["model"] == model["id"]]
        if not models:
            raise PoolError(f"model {model['name']} is not in pool {pool['id']}", todo="its owner sends Join-Pool")
    return (reply(message, {"pool": pool["id"], "dataset": pool["dataset"], "asked": len(models)}),
            *ask_scores(pool, models))


def joined(context: Context, pool: Row) -> list[Row]:
    """The pool's models in the order of joining: `pool_models` with `seq`, `process` and `name`."""
    return context.db.execute(
        "SELECT pool_models.rowid AS seq, pool_models.*, models.process, models.name FROM pool_models "
        "JOIN models ON models.id = pool_models.model WHERE pool = ? ORDER BY seq", (pool["id"],)).fetchall()


def ask_scores(pool: Row, models: Iterable[Row]) -> list[Outgoing]:
    """A Score to the pool's data set for each model, of the questions that were there before the pool's end."""
    until = str(pool["end_time"])
    return [Outgoing(pool["dataset"], "Score", row["process"], {"Model": row["process"], "Until": until})
            for row in models]


def score_response(context: Context, message: Message) -> Sequence[Outgoing]:
    """Tags Model and Until, Data {"correct", "total", "unevaluated", "score", "progress"} and maybe "answered",
    "failed": the new standing of the model in the data set's pools that end then, and, where that is to come, in all
    that are open: questions that are added after a pool's end are none of its.

    Raises PoolError: from anywhere else, a model that joined none of them, numbers that can't be.
    """
    _from_dataset(context, message)
    model = model_of(context.db, message.tags.get("Model", ""))
    data = json_data(message, "correct", "total")
    total, correct = _count(data, "total", _MOST), _count(data, "correct", _MOST)
    failed = _count(data, "failed", total) if "failed" in data else 0
    answered = _count(data, "answered", total) if "answered" in data else total - failed - _left(data, total)
    if not correct <= answered <= total - failed:
        raise PoolError(f"a score of {correct} right, {answered} answered and {failed} failed of {total} can't be")
    pools = [row["id"] for row in context.db.execute(
        _MEANT, (model["id"], message.sender, until_of(message), context.now))]
    if not pools:
        raise PoolError(f"model {model['name']} is in no pool of this data set that is still to be paid")
    values = (_part(data, "score", correct, answered), _part(data, "progress", answered, total), correct, answered,
              failed, total, context.now, message.id, model["id"])
    context.db.executemany(
        "UPDATE pool_models SET score = ?, progress = ?, correct = ?, answered = ?, failed = ?, total = ?, updated = ?,"
        " updated_by = ? WHERE model = ? AND pool = ?", [(*values, pool) for pool in pools])
    context.db.executemany("UPDATE pools SET updated = ? WHERE id = ?", [(context.now, pool) for pool in pools])
    return ()


def _from_dataset(context: Context, message: Message) -> None:
    """Raises PoolError unless a data set process that has a pool sent it."""
    known = context.db.execute("SELECT 1 FROM pools JOIN processes ON processes.id = pools.dataset "
                               "WHERE pools.dataset = ? LIMIT 1", (message.sender,)).fetchone()
    if known is None:
        raise PoolError(f"a {message.action} counts only where it comes from a pool's own data set",
                        todo="ask for the scores instead: send Update-Leaderboard")


def _count(data: Mapping[str, object], field: str, most: int) -> int:
    value = data[field]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise PoolError(f"field {field!r} of Data must be a whole number from 0 to {most}")
    return value


def _left(data: Mapping[str, object], total: int) -> int:
    if "unevaluated" not in data:
        raise PoolError("Data lacks the field 'unevaluated'")
    return _count(data, "unevaluated", total)


def _part(data: Mapping[str, object], field: str, part: int, whole: int) -> float:
    """A number from 0 to 1 as the data set says it; from the counts where it says nothing."""
    value = data.get(field, part / whole if whole else 0.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or not 0 <= value <= 1:
        raise PoolError(f"field {field!r} of Data must be a number from 0 to 1")
    return float(value)
