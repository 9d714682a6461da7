"""Evaluate: which rows are asked next, in which messages to the router, and what that costs.

Never starts more than the data set can pay, and never lets one participant starve another."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from automate.errors import PoolError
from automate.pools import outsiders
from automate.pools.exchange import Context
from automate.pools.keys import process_id
from automate.pools.kinds.base import Kind, Question
from automate.pools.kinds.chosen import kind_of
from automate.pools.ledger import balance
from automate.pools.lookup import model_of
from automate.pools.messages import Message, Outgoing, parse_json
from automate.pools.requests import Chat, Prompt, price_of
from automate.pools.store import Row, Statements
from automate.pools.turns import Waiting, order, remember, waiting

GROUP = 200
"""Most prompts in one message to the router."""
GROUP_LENGTH = 1_000_000
"""Most characters of prompts in one message to the router, but for a single one."""
MOST = 10_000
"""Inferences that one Evaluate starts; who asks for more is told that it was so many."""
_ROWS = """SELECT e.id, e.prompt, e.attempts, m.name AS model, q.context, q.question, q.options, q.result
  FROM evaluations e JOIN models m ON m.id = e.model_id JOIN questions q ON q.id = e.dataset_id
  WHERE e.dataset = ? AND e.model_id = ? AND e.state = 'pending' ORDER BY e.id LIMIT ?"""


@dataclass(frozen=True)
class Due:
    """One row to be asked now. number: of the model."""

    evaluation: int
    model: str
    attempt: int
    prompt: Prompt
    price: int
    number: int = 0


def limit_of(message: Message, default: int) -> int:
    """Data as a limit, MOST at most. Raises PoolError."""
    given = message.data.strip()
    if not given:
        return min(default, MOST)
    value = parse_json(given)
    if isinstance(value, dict):
        value = value.get("limit", default)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        value = int(value)
    if type(value) is not int or not 1 <= value < 10**9:
        raise PoolError(f"the limit is no whole number from 1 to {MOST}", todo="send it as Data, or no Data")
    return min(value, MOST)


def settled(db: Statements, dataset: str) -> dict[int, bool]:
    """Of each model in a pool of a data set, whether all of these pools are settled: nobody waits for its answers."""
    rows = db.execute("SELECT pm.model, MIN(p.state <> 'open') FROM pool_models pm JOIN pools p ON p.id = pm.pool "
                      "WHERE p.dataset = ? GROUP BY pm.model", (dataset,)).fetchall()
    return {int(row[0]): bool(row[1]) for row in rows}


def due_models(context: Context, models: Sequence[Waiting], model: str | None, clock: bool) -> list[Waiting]:
    """Of the models that wait: `model`, else those in an open pool, and, unless the clock asks, those in no pool."""
    if model is not None:
        wanted = int(model_of(context.db, model)["id"])
        return [one for one in models if one.model == wanted]
    over = settled(context.db, context.me.id)
    return [one for one in models if not over.get(one.model, clock)]


def take(context: Context, models: Sequence[Waiting], limit: int) -> Iterator[Due]:
    """The pending rows that are next, in turns of the participants."""
    kind, numbers = kind_of(context), list(order(models, limit))
    found = {number: iter(context.db.execute(_ROWS, (context.me.id, number, count)).fetchall())
             for number, count in Counter(numbers).items()}
    for number in numbers:
        yield _due(context, kind, number, next(found[number]))


def _due(context: Context, kind: Kind, number: int, row: Row) -> Due:
    asked = kind.ask(Question(row["context"], row["question"], tuple(json.loads(row["options"])), row["result"]))
    chat: Chat = tuple(json.loads(row["prompt"]))
    prompt = Prompt(str(row["id"]), context.me.id, chat, asked.method, asked.choices, asked.max_tokens)
    return Due(row["id"], row["model"], row["attempts"] + 1, prompt,
               price_of(context.settings.price, chat, asked.max_tokens), number)


def affordable(due: Iterator[Due], money: int) -> tuple[list[Due], int]:
    """As many, in order, as money pays; the price of the first that it doesn't (0: it pays all)."""
    out: list[Due] = []
    for one in due:
        if one.price > money:
            return out, one.price
        money -= one.price
        out.append(one)
    return out, 0


def start(context: Context, message: Message, limit: int) -> tuple[list[Outgoing], int, int]:
    """Start rows; the messages to send, how many were started, what the next one lacks in money (0: nothing)."""
    line, last = waiting(context.db, context.me.id)
    models = due_models(context, line, message.tags.get("Model"), message.via == "clock")
    if models and outsiders.is_one(context, context.me):
        limit = min(limit, outsiders.room(context))
    rows, lacking = affordable(take(context, models, limit), balance(context.db, context.me.id))
    remember(context.db, context.me.id, models, last, [one.number for one in rows])
    out: list[Outgoing] = []
    for number, group in enumerate(groups(rows)):
        out += _send(context, message, process_id("group", message.id, str(number)), group)
    return out, len(rows), lacking


def groups(rows: Sequence[Due]) -> list[list[Due]]:
    """Rows by model, in messages of bounded size, in the order of the first row of each."""
    out: list[list[Due]] = []
    last: dict[str, tuple[list[Due], int]] = {}
    for one in rows:
        length = sum(len(turn.get("content", "")) for turn in one.prompt.messages)
        group, size = last.get(one.model, ([], 0))
        if not group or len(group) >= GROUP or size + length > GROUP_LENGTH:
            group, size = [], 0
            out.append(group)
        group.append(one)
        last[one.model] = group, size + length
    return out


def _send(context: Context, message: Message, payment: str, group: Sequence[Due]) -> list[Outgoing]:
    """Mark a group as started; its Inference, after its Transfer where it has a price."""
    prompts, price = [], sum(one.price for one in group)
    for one in group:
        reference = process_id("evaluation", message.id, str(one.evaluation), str(one.attempt))
        context.db.execute(
            "UPDATE evaluations SET state = 'started', attempts = ?, inference_start_time = ?, "
            "inference_end_time = NULL, inference_reference = ?, error = NULL WHERE id = ?",
            (one.attempt, context.now, reference, one.evaluation))
        context.db.execute("INSERT INTO attempts (reference, evaluation, started, payment) VALUES (?, ?, ?, ?)",
                           (reference, one.evaluation, context.now, payment))
        prompts.append(one.prompt.as_json() | {"id": reference})
    out = [Outgoing(context.router, "Inference", json.dumps({"model": group[0].model, "prompts": prompts},
                                                            ensure_ascii=False), {"X-Reference": payment})]
    if not price:
        return out
    return [Outgoing(context.token, "Transfer", tags={
        "Recipient": context.router, "Quantity": str(price), "X-Action": "Inference", "X-Reference": payment}), *out]
