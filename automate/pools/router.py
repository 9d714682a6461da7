"""The router process: workers with their workload, inferences that wait, go out and come back.

Never starts a server and never talks to one; rounds.py hands what waits to the cluster."""

from __future__ import annotations

from collections.abc import Sequence

from automate.errors import PoolError
from automate.pools import inferences, workers
from automate.pools.exchange import Context, Handler
from automate.pools.inferences import end
from automate.pools.lookup import text
from automate.pools.messages import Message, Outgoing, json_data, reply
from automate.pools.workers import assign
from automate.pools.workers import least as least


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
    return []


def round_over(context: Context, message: Message) -> Sequence[Outgoing]:
    """Round-Over {round}: its job answers no more. What has no answer waits again; what as many jobs as pools.attempts
    began and never answered has failed."""
    _job(message)
    name = text(json_data(message, "round"), "round")
    context.db.execute("UPDATE workers SET unregistered = ?, workload = 0 WHERE fleet = ? AND unregistered IS NULL",
                       (context.now, name))
    context.db.execute("UPDATE wishes SET done = ?, outcome = outcome || ' ended without a server of it' WHERE "
                       "done IS NULL AND outcome = ?", (context.now, f"round {name}"))
    rows = context.db.execute("SELECT reference, begun, tries, model FROM inferences WHERE round = ? AND "
                              "state = 'sent'", (name,)).fetchall()
    out: list[Outgoing] = []
    for row in rows:
        if row["begun"] is not None and row["tries"] >= context.settings.attempts:
            out += end(context, row["reference"], "failed", None, f"{row['tries']} jobs ended without an answer")
            continue
        lost = 0 if row["begun"] is not None else 1
        context.db.execute("UPDATE inferences SET state = 'queued', round = NULL, begun = NULL, tries = tries - ? "
                           "WHERE reference = ?", (lost, row["reference"]))
    for model in sorted({str(row["model"]) for row in rows}):
        assign(context, model)
    return out


HANDLERS: dict[str, Handler] = {**workers.HANDLERS, **inferences.HANDLERS, "Info": info, "Round-Made": round_made,
                                "Round-Over": round_over}
"""Register-Worker, Unregister-Worker, Inference, Inference-Response, loadModel (and setModel), setMaxTokens,
setSystemPrompt, Credit-Notice (a paid Inference), Debit-Notice, Cancel-Inference, Get-Workers, Info; Round-Made and
Round-Over of rounds.py."""
