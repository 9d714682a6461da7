"""Evaluate: which rows are asked next, in which messages to the router, and what that costs.

Never starts more than the data set can pay, and never lets one model starve another."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from automate.errors import PoolError
from automate.pools.exchange import Context
from automate.pools.keys import process_id
from automate.pools.kinds.base import Kind, Question
from automate.pools.kinds.chosen import kind_of
from automate.pools.ledger import balance
from automate.pools.lookup import model_of
from automate.pools.messages import Message, Outgoing, parse_json
from automate.pools.requests import Chat, Prompt, price_of
from automate.pools.store import Row

GROUP = 200
"""Most prompts in one message to the router."""
GROUP_LENGTH = 1_000_000
"""Most characters of prompts in one message to the router, but for a single one."""
MOST = 1_000_000
_ROWS = """SELECT e.id, e.prompt, e.attempts, m.name AS model, q.context, q.question, q.options, q.result
  FROM evaluations e JOIN models m ON m.id = e.model_id JOIN questions q ON q.id = e.dataset_id
  WHERE e.dataset = ? AND e.model_id = ? AND e.state = 'pending' ORDER BY e.id LIMIT ?"""


@dataclass(frozen=True)
class Due:
    """One row to be asked now."""

    evaluation: int
    model: str
    attempt: int
    prompt: Prompt
    price: int


def limit_of(message: Message, default: int) -> int:
    """Data as a limit. Raises PoolError."""
    given = message.data.strip()
    if not given:
        return default
    value = parse_json(given)
    if isinstance(value, dict):
        value = value.get("limit", default)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        value = int(value)
    if type(value) is not int or not 1 <= value <= MOST:
        raise PoolError(f"the limit is no whole number from 1 to {MOST}", todo="send it as Data, or no Data")
    return value


def shares(pending: dict[int, int], limit: int) -> dict[int, int]:
    """How many rows of each model: as equal as may be; what can't be shared goes to those that have most to do."""
    out: dict[int, int] = {}
    left = limit
    for place, model in enumerate(sorted(pending, key=lambda model: (pending[model], -model))):
        out[model] = min(pending[model], left // (len(pending) - place))
        left -= out[model]
    return {model: count for model, count in out.items() if count}


def take(context: Context, limit: int, model: str | None) -> Iterator[Due]:
    """The pending rows that are next, in turns of the models."""
    rows = context.db.execute("SELECT model_id, count(*) FROM evaluations WHERE dataset = ? AND state = 'pending' "
                              "GROUP BY model_id", (context.me.id,)).fetchall()
    pending = {int(row[0]): int(row[1]) for row in rows}
    if model is not None:
        wanted = int(model_of(context.db, model)["id"])
        pending = {wanted: pending[wanted]} if wanted in pending else {}
    kind = kind_of(context)
    found = {number: context.db.execute(_ROWS, (context.me.id, number, count)).fetchall()
             for number, count in shares(pending, limit).items()}
    for turn in range(max(map(len, found.values()), default=0)):
        for number in sorted(found):
            if turn < len(found[number]):
                yield _due(context, kind, found[number][turn])


def _due(context: Context, kind: Kind, row: Row) -> Due:
    asked = kind.ask(Question(row["context"], row["question"], tuple(json.loads(row["options"])), row["result"]))
    chat: Chat = tuple(json.loads(row["prompt"]))
    prompt = Prompt(str(row["id"]), context.me.id, chat, asked.method, asked.choices, asked.max_tokens)
    return Due(row["id"], row["model"], row["attempts"] + 1, prompt,
               price_of(context.settings.price, chat, asked.max_tokens))


def affordable(due: Iterator[Due], money: int) -> tuple[list[Due], int]:
    """As many, in order, as money pays; the price of the first that it doesn't (0: it pays all)."""
    out: list[Due] = []
    for one in due:
        if one.price > money:
            return out, one.price
        money -= one.price
        out.append(one)
    return out, 0


def start(context: Context, message: Message, limit: int, model: str | None) -> tuple[list[Outgoing], int, int]:
    """Start rows; the messages to send, how many were started, what the next one lacks in money (0: nothing)."""
    rows, lacking = affordable(take(context, limit, model), balance(context.db, context.me.id))
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
