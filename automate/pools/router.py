"""The router process: workers with their workload, inferences that wait, go out and come back.

Never starts a server and never talks to one; rounds.py hands what waits to the cluster."""

from __future__ import annotations

from collections.abc import Sequence

from automate.errors import PoolError
from automate.pools import inferences, withdrawing, workers
from automate.pools.exchange import Context, Handler
from automate.pools.inferences import end
from automate.pools.lookup import text
from automate.pools.messages import Message, Outgoing, json_data, reply
from automate.pools.refunds import pay
from automate.pools.workers import assign
from automate.pools.workers import least as least

PAGE = 10_000
"""Inferences that one Round-Over ends."""


def info(context: Context, message: Message) -> Sequence[Outgoing]:
    """Info: workers, what waits, prices."""
    counts = dict(context.db.execute("SELECT state, count(*) FROM inferences GROUP BY state").fetchall())
    at_work = context.db.execute("SELECT count(*) FROM workers WHERE unregistered IS NULL").fetchone()[0]
    price = context.settings.price
    return [reply(message, {"name": context.me.name, "workers": at_work, "inferences": counts,
                            "price": {"prompt": price.prompt, "token": price.token},
                            "max_tokens": context.settings.max_tokens})]


# --- rounds ---------------------------------------------------------------------------------------------
def _job(message: Message) -> None:
    if message.via != "job":
        raise PoolError(f"{message.action} is for evaluation rounds, which this program makes", where="From")


def round_made(context: Context, message: Message) -> Sequence[Outgoing]:
    """Round-Made {round, references}: these are in the round's files now."""
    _job(message)
    data = json_data(message, "round", "references")
    name, references = text(data, "round"), data["references"]
    if not isinstance(references, list):
        raise PoolError("references is no list")
    changed = context.db.executemany("UPDATE inferences SET state = 'sent', round = ?, tries = tries + 1 WHERE "
                                     "reference = ? AND state = 'queued'", [(name, one) for one in references]).rowcount
    if changed != len(references):
        raise PoolError(f"{len(references) - changed} of {len(references)} inferences don't wait any more")
    context.db.execute("UPDATE wishes SET outcome = ? WHERE outcome IS NULL", (f"round {name}",))
    return pay(context, message)  # what the token refused before


def round_over(context: Context, message: Message) -> Sequence[Outgoing]:
    """Round-Over {round, hopeless?}: its job answers no more. What has no answer waits again; what as many jobs as
    pools.attempts had a server for and never answered has failed, and what is for a model of `hopeless` (model -> why
    no server of it starts) has at once: whoever asked may ask again. Up to PAGE of them at a time: it is sent until
    none is left."""
    _job(message)
    data = json_data(message, "round")
    name, hopeless = text(data, "round"), _reasons(data.get("hopeless", {}))
    context.db.execute("UPDATE workers SET unregistered = ?, workload = 0 WHERE fleet = ? AND unregistered IS NULL",
                       (context.now, name))
    context.db.execute("UPDATE wishes SET done = ?, outcome = outcome || ' ended without a server of it' WHERE "
                       "done IS NULL AND outcome = ?", (context.now, f"round {name}"))
    rows = context.db.execute(
        "SELECT reference, tries, model, EXISTS (SELECT 1 FROM rounds r WHERE r.round = i.round AND r.model = i.model) "
        "AS served FROM inferences i WHERE round = ? AND state = 'sent' ORDER BY rowid LIMIT ?",
        (name, PAGE)).fetchall()
    out: list[Outgoing] = []
    for row in rows:
        if row["model"] in hopeless:
            out += end(context, row["reference"], "failed", None, hopeless[row["model"]])
            continue
        if row["served"] and row["tries"] >= context.settings.attempts:
            out += end(context, row["reference"], "failed", None, f"{row['tries']} jobs ended without an answer")
            continue
        lost = 0 if row["served"] else 1
        context.db.execute("UPDATE inferences SET state = 'queued', round = NULL, begun = NULL, tries = tries - ? "
                           "WHERE reference = ? AND state = 'sent'", (lost, row["reference"]))
    for model in sorted({str(row["model"]) for row in rows}):
        assign(context, model)
    return [*pay(context, message), *out]


def _reasons(given: object) -> dict[str, str]:
    """Why no server of a model starts, by model. Raises PoolError."""
    if not isinstance(given, dict) or not all(isinstance(why, str) for why in given.values()):
        raise PoolError("expected a JSON object of models and reasons")
    return {str(model): why[:2000] for model, why in given.items()}


def no_server(context: Context, message: Message) -> Sequence[Outgoing]:
    """No-Server {models: {model: reason}}: what waits for a model that can't be served has failed; whoever asked may
    ask again. Up to PAGE of each model at a time."""
    _job(message)
    out: list[Outgoing] = []
    for model, why in _reasons(json_data(message, "models")["models"]).items():
        for row in context.db.execute("SELECT reference FROM inferences WHERE model = ? AND state = 'queued' AND "
                                      "worker IS NULL ORDER BY rowid LIMIT ?", (model, PAGE)).fetchall():
            out += end(context, row["reference"], "failed", None, why)
    return [*pay(context, message), *out]


HANDLERS: dict[str, Handler] = {**workers.HANDLERS, **inferences.HANDLERS, "Info": info, "Round-Made": round_made,
                                "Round-Over": round_over, "No-Server": no_server, "Withdraw": withdrawing.from_router}
"""Register-Worker, Unregister-Worker, Inference, Inference-Response, loadModel (and setModel), setMaxTokens,
setSystemPrompt, Credit-Notice (a paid Inference), Debit-Notice, Transfer-Error, Cancel-Inference, Get-Workers, Info,
Withdraw; Round-Made, Round-Over and No-Server of rounds.py."""
