"""The router's inferences: asked for, given out, answered once, cancelled, returned; paid for where they have a price.

Never runs one: a round's job does. Never lets an answer through that is late, repeated or from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from automate.errors import PoolError
from automate.pools import outsiders
from automate.pools.exchange import Context, Handler, in_a_line
from automate.pools.keys import process_id
from automate.pools.ledger import quantity_of
from automate.pools.lookup import model_of, text
from automate.pools.messages import DATA_LENGTH, Message, Outgoing, json_data, reply
from automate.pools.refunds import debit_notice, owe, pay, transfer_error
from automate.pools.requests import MOST_WAITING, Prompt, chat_text, price_of, prompts_of, tokens_of
from automate.pools.store import Row
from automate.pools.workers import assign, hear, lighten

_INSERT = """INSERT INTO inferences (reference, requester, dataset, request, model, prompt, method, choices, max_tokens,
  state, price, payment, received) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"""

_EXTRA = ("scores", "started", "ended", "prompt")
"""What a job's answer says besides, for the requester."""


# --- asked for ------------------------------------------------------------------------------------------
def _is_dataset(context: Context, address: str) -> bool:
    found = context.process(address)
    return found is not None and found.kind == "dataset" and found.id == address


def _room(context: Context, requester: str, prompts: Sequence[Prompt], priced: bool) -> None:
    """Raises PoolError where a requester that is no data set here has too much waiting, or asks for too much where it
    costs nothing."""
    more = len(prompts)
    if not priced and requester != context.owner:
        outsiders.check_room(context, more)
        for number, one in enumerate(prompts, 1):
            outsiders.check_tokens(one.max_tokens or 0, f"prompt {number}")
    waiting = context.db.execute("SELECT count(*) FROM inferences WHERE requester = ? AND "
                                 "state IN ('unpaid', 'queued', 'sent')", (requester,)).fetchone()[0]
    if waiting + more > MOST_WAITING:
        raise PoolError(f"{waiting} inferences of yours wait already: {MOST_WAITING} at most",
                        todo="send more when these are answered")


def _keep(context: Context, requester: str, model: str, prompts: Sequence[Prompt], payment: str | None,
          state: str) -> list[str]:
    """A row for each prompt; their references. Raises PoolError for an id that was used before."""
    here = _is_dataset(context, requester)
    references = []
    for prompt in prompts:
        reference = prompt.id if here else process_id("inference", requester, prompt.dataset, model, prompt.id)
        price = price_of(context.settings.price, prompt.messages, prompt.max_tokens or context.settings.max_tokens)
        done = context.db.execute(_INSERT, (
            reference, requester, prompt.dataset, prompt.id, model, chat_text(prompt.messages), prompt.method,
            json.dumps(prompt.choices, ensure_ascii=False), prompt.max_tokens, state, price, payment,
            context.now)).rowcount
        if done != 1:
            raise PoolError(f"the id {prompt.id!r} was used before", todo="give each prompt an id of its own")
        references.append(reference)
    return references


def ask(context: Context, message: Message) -> Sequence[Outgoing]:
    """Inference {model, prompts: [{id, prompt, dataset}]}: each waits for a worker of the model, or for its payment.

    A data set here pays by a Transfer with the same X-Reference; others send the request in the Transfer itself.
    """
    data = json_data(message, "model", "prompts")
    model = str(model_of(context.db, text(data, "model"))["name"])
    here, price = _is_dataset(context, message.sender), context.settings.price
    priced = bool(price.prompt or price.token)
    prompts = prompts_of(data, message.sender, DATA_LENGTH if here else context.settings.field_bytes)
    if priced and not here:
        cost = sum(price_of(price, one.messages, one.max_tokens or context.settings.max_tokens) for one in prompts)
        raise PoolError(f"this costs {cost}, and came without payment",
                        todo="send a Transfer to the router with X-Model, X-Prompt, X-Tokens and X-Reference")
    if not here:
        _room(context, message.sender, prompts, priced)
    payment = message.tags.get("X-Reference")
    if priced and not payment:
        raise PoolError("no X-Reference: an inference with a price needs a payment of that reference")
    references = _keep(context, message.sender, model, prompts, payment, "unpaid" if priced else "queued")
    if not priced:
        assign(context, model)
    if here:
        return []  # its answers are the Inference-Responses
    return [reply(message, {"model": model, "queued": len(references), "references": references},
                  action="Inference-Queued")]


# --- paid -----------------------------------------------------------------------------------------------
def paid(context: Context, message: Message) -> Sequence[Outgoing]:
    """Credit-Notice: what a data set's waiting prompts cost (X-Reference), or anybody's request in X-Model, X-Prompt,
    X-Tokens and X-Reference. What is too much, or for nothing, goes back."""
    if message.sender != context.token:
        raise PoolError("a Credit-Notice comes from the token", where="From")
    payer, amount = message.tags.get("Sender", ""), quantity_of(message.tags.get("Quantity"))
    reference = message.tags.get("X-Reference", "")
    waiting = context.db.execute("SELECT reference, model, price FROM inferences WHERE requester = ? AND payment = ? "
                                 "AND state = 'unpaid'", (payer, reference)).fetchall()
    out: list[Outgoing] = []
    if waiting:
        out += _settle(context, payer, amount, reference, waiting)
    elif "X-Prompt" not in message.tags:
        owe(context, payer, amount, "nothing waits for this payment", reference)
    else:
        try:
            owe(context, payer, amount - _buy(context, message, payer, amount), "more than it costs", reference)
        except PoolError as error:
            owe(context, payer, amount, str(error.what), reference)
            out.append(_told(message, payer, reference, error))
    return [*pay(context, message), *out]


def _told(message: Message, payer: str, reference: str, error: PoolError) -> Outgoing:
    return Outgoing(payer, "Inference-Error", "", {"Message-Id": message.id, "Error": in_a_line(error),
                                                   "X-Reference": reference})


def _settle(context: Context, payer: str, amount: int, reference: str, waiting: Sequence[Row]) -> list[Outgoing]:
    """Give a data set's prompts free that a payment covers; all of a payment or none."""
    needed = sum(int(row["price"]) for row in waiting)
    if amount < needed:
        why = f"insufficient payment: {needed} is needed"
        owe(context, payer, amount, why, reference)
        return [told for row in waiting for told in end(context, row["reference"], "failed", None, why)]
    context.db.execute("UPDATE inferences SET state = 'queued' WHERE requester = ? AND payment = ? AND "
                       "state = 'unpaid'", (payer, reference))
    for model in sorted({str(row["model"]) for row in waiting}):
        assign(context, model)
    owe(context, payer, amount - needed, "more than it costs", reference)
    return []


def _buy(context: Context, message: Message, payer: str, amount: int) -> int:
    """A request that came with its payment; what it costs. Raises PoolError."""
    tags = message.tags
    for name in ("X-Model", "X-Reference"):
        if not tags.get(name):
            raise PoolError(f"no {name}")
    model = str(model_of(context.db, tags["X-Model"])["name"])
    tokens = tokens_of(tags["X-Tokens"], "X-Tokens") if "X-Tokens" in tags else context.settings.max_tokens
    prompts = prompts_of({"prompts": [{"id": tags["X-Reference"], "prompt": tags["X-Prompt"], "max_tokens": tokens}]},
                         payer, context.settings.field_bytes)
    needed = price_of(context.settings.price, prompts[0].messages, tokens)
    if amount < needed:
        raise PoolError(f"insufficient payment: {needed} is needed")
    _room(context, payer, prompts, needed > 0)
    _keep(context, payer, model, prompts, tags["X-Reference"], "queued")
    assign(context, model)
    return needed


# --- answered -------------------------------------------------------------------------------------------
def end(context: Context, reference: str, state: str, result: str | None, error: str | None,
        extra: dict[str, object] | None = None) -> list[Outgoing]:
    """An inference that waits is over: its requester is told, once; where there is no answer, its price is owed him
    (`pay` sends it). One that is over already, or that there never was, stays as it is."""
    row = context.db.execute("SELECT * FROM inferences WHERE reference = ?", (reference,)).fetchone()
    done = context.db.execute(
        "UPDATE inferences SET price = CASE WHEN state = 'unpaid' THEN 0 ELSE price END, state = ?, ended = ?, "
        "result = ? WHERE reference = ? AND state IN ('unpaid', 'queued', 'sent')",
        (state, context.now, result, reference)).rowcount
    if done != 1:
        return []
    lighten(context, row["worker"])
    told: dict[str, object] = {"id": row["request"], "model": row["model"], "dataset": row["dataset"],
                               "result": result, "worker": row["worker"]}
    if error is not None:
        told["error"] = error
    out = [Outgoing(row["requester"], "Inference-Response", json.dumps(told | (extra or {}), ensure_ascii=False),
                    {"X-Reference": row["request"]})] if state != "cancelled" else []
    if state != "answered" and row["state"] != "unpaid":
        owe(context, row["requester"], row["price"], error or state, row["request"], reference)
    return out


def stray(context: Context, message: Message, reference: str, reason: str) -> Sequence[Outgoing]:
    """Record an answer that changes nothing; tell its sender, unless that is a process here."""
    context.db.execute("INSERT INTO strays (reference, sender, reason, message, received) VALUES (?, ?, ?, ?, ?)",
                       (reference[:200], message.sender, reason, message.id, context.now))
    if message.via == "process":
        return []
    words = {"late": "it came too late", "twice": "it was answered already", "unknown": "nothing of that reference "
             "was asked for", "elsewhere": "somebody else was asked"}[reason]
    return [reply(message, "", action="Inference-Response-Error", Error=f"not taken: {words}")]


def _why_not(context: Context, message: Message, row: Row | None) -> str | None:
    """Why an answer is not taken; None where it is."""
    if row is None or row["state"] == "unpaid":
        return "unknown"
    if row["state"] != "queued" and row["state"] != "sent":
        return "late" if row["state"] == "cancelled" else "twice"
    worker = context.db.execute("SELECT * FROM workers WHERE address = ? AND unregistered IS NULL",
                                (message.sender,)).fetchone()
    if worker is None or worker["model"] != row["model"]:
        return "elsewhere"
    of_round = row["round"] is not None and worker["fleet"] == row["round"]
    return None if of_round or row["worker"] == message.sender else "elsewhere"


def _serves(context: Context, worker: str, row: Row) -> bool:
    """Whether a worker is one of the round that has an inference, for its model."""
    return context.db.execute("SELECT 1 FROM workers WHERE address = ? AND model = ? AND fleet = ? "
                              "AND unregistered IS NULL", (worker, row["model"], row["round"])).fetchone() is not None


def answered(context: Context, message: Message) -> Sequence[Outgoing]:
    """Inference-Response {id, result | error, scores?} from the worker that was asked, once; on to the requester."""
    data = json_data(message, "id")
    reference = text(data, "id")
    row = context.db.execute("SELECT * FROM inferences WHERE reference = ?", (reference,)).fetchone()
    if message.via == "job" and row is not None and _serves(context, message.sender, row):
        hear(context, row["round"], row["model"])
    reason = _why_not(context, message, row)
    if reason is not None:
        return stray(context, message, reference, reason)
    result, error = data.get("result"), data.get("error")
    if not isinstance(result, str) and not isinstance(error, str):
        raise PoolError("neither result nor error is a text")
    if row["worker"] != message.sender:
        lighten(context, row["worker"])
        context.db.execute("UPDATE inferences SET worker = ? WHERE reference = ?", (message.sender, reference))
        context.db.execute("UPDATE workers SET workload = workload + 1 WHERE address = ?", (message.sender,))
    extra: dict[str, object] = {name: data[name] for name in _EXTRA if name in data}
    if isinstance(result, str):
        return end(context, reference, "answered", result, None, extra)
    told = end(context, reference, "failed", None, str(error)[:2000], extra)
    return [*pay(context, message, row["requester"]), *told]


# --- cancelled ------------------------------------------------------------------------------------------
def cancel(context: Context, message: Message) -> Sequence[Outgoing]:
    """Cancel-Inference {references: [...]}: the requester's own; what was paid for them goes back."""
    given = json_data(message, "references")["references"]
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise PoolError("references is no list of texts")
    own = _own(context, message.sender, given)
    for row in own:
        end(context, row["reference"], "cancelled", None, "cancelled")
    out = pay(context, message)
    return [*out, reply(message, {"cancelled": len(own)})] if message.via != "process" else out


def _own(context: Context, requester: str, references: Iterable[str]) -> list[Row]:
    """Those of them that wait for this requester, each once however often it is named."""
    found = []
    for one in dict.fromkeys(references):
        row = context.db.execute("SELECT * FROM inferences WHERE reference = ? AND requester = ? AND "
                                 "state IN ('unpaid', 'queued', 'sent')", (one, requester)).fetchone()
        if row is not None:
            found.append(row)
    return found


HANDLERS: dict[str, Handler] = {
    "Inference": ask, "Credit-Notice": paid, "Debit-Notice": debit_notice, "Transfer-Error": transfer_error,
    "Inference-Response": answered, "Cancel-Inference": cancel}
