"""The router's workers: who is there for which model, with how much work, and what was said of them.

Never starts a server: a worker is a server of a fleet, or whatever the workspace's owner registers."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from automate.errors import PoolError
from automate.pools.exchange import Context, Handler
from automate.pools.lookup import model_of
from automate.pools.messages import Message, Outgoing, json_data, reply
from automate.pools.requests import tokens_of
from automate.pools.round_records import check_worker
from automate.pools.store import Row

LONGEST_PROMPT = 64 * 1024
"""Of a system prompt, in characters."""
ALL = "/*"
"""Ends the address under which is kept what was said of all workers of a model, those to come too."""


def least(workloads: Mapping[str, int]) -> str | None:
    """The worker with the least workload, the first by name among equals; None where there is none."""
    return min(workloads, key=lambda name: (workloads[name], name), default=None)


# --- who has which work ---------------------------------------------------------------------------------
def assign(context: Context, model: str) -> int:
    """Give what waits without a worker to the model's workers, each to the one with the least workload; how many.

    Workers of a round's fleet are left out: the fleet hands out the round's own work. To be given to a worker is no
    attempt: rounds ask, and the time of an answer runs from when a round has a server.
    """
    rows = context.db.execute("SELECT address, workload FROM workers WHERE model = ? AND unregistered IS NULL "
                              "AND fleet = ''", (model,)).fetchall()
    heap = [(int(row["workload"]), str(row["address"])) for row in rows]
    if not heap:
        return 0
    heapq.heapify(heap)
    waiting = context.db.execute("SELECT reference FROM inferences WHERE state = 'queued' AND worker IS NULL "
                                 "AND model = ? ORDER BY received, rowid", (model,)).fetchall()
    given = []
    for row in waiting:
        load, address = heap[0]
        heapq.heapreplace(heap, (load + 1, address))
        given.append((address, row["reference"]))
    context.db.executemany("UPDATE inferences SET worker = ? WHERE reference = ?", given)
    context.db.executemany("UPDATE workers SET workload = ? WHERE address = ?", heap)
    return len(given)


def lighten(context: Context, worker: str | None) -> None:
    """One inference less for a worker."""
    if worker is not None:
        context.db.execute("UPDATE workers SET workload = MAX(workload - 1, 0) WHERE address = ?", (worker,))


def release(context: Context, worker: str) -> int:
    """What a worker has in flight goes back to the queue; what a round's job has stays with that job. How many."""
    count = context.db.execute("UPDATE inferences SET worker = NULL WHERE worker = ? AND state IN ('queued', 'sent')",
                               (worker,)).rowcount
    context.db.execute("UPDATE workers SET workload = 0 WHERE address = ?", (worker,))
    return int(count)


def hear(context: Context, name: str, model: str) -> None:
    """A round's servers of a model were heard of: one joined, or an answer came."""
    context.db.execute("INSERT INTO rounds (round, model, heard) VALUES (?, ?, ?) ON CONFLICT (round, model) DO "
                       "UPDATE SET heard = excluded.heard", (name, model, context.now))


def _silenced(context: Context, name: str, model: str) -> None:
    """Where the last server of a model has left a round, its job waits for a machine again: no time runs."""
    context.db.execute(
        "UPDATE inferences SET begun = NULL WHERE round = ?1 AND model = ?2 AND state = 'sent' AND NOT EXISTS "
        "(SELECT 1 FROM workers WHERE fleet = ?1 AND model = ?2 AND unregistered IS NULL)", (name, model))


def row_of(context: Context, address: str) -> Row | None:
    """A worker, registered or not."""
    row: Row | None = context.db.execute("SELECT * FROM workers WHERE address = ?", (address,)).fetchone()
    return row


# --- handlers -------------------------------------------------------------------------------------------
def _check_trusted(context: Context, message: Message) -> None:
    if not context.trusted(message):
        raise PoolError(f"only the workspace's owner may send {message.action}", where="From")


def _fields(message: Message, *names: str) -> dict[str, str]:
    """What a message says of a worker: as tags, or in a JSON object as Data. Raises PoolError."""
    data = json_data(message) if message.data.strip().startswith("{") else {}
    found = {}
    for name in names:
        value = message.tags.get(name.capitalize(), data.get(name))
        if value is not None:
            if not isinstance(value, str):
                raise PoolError(f"{name} is no text")
            found[name] = value
    return found


def _address(message: Message, given: Mapping[str, str]) -> str:
    """The worker that is meant: named, or the sender. A name is no person's and no process's address."""
    named = given.get("worker", message.sender)
    if named == message.sender:
        return named
    try:
        return check_worker(named)
    except ValueError as error:
        raise PoolError(str(error), where="worker") from error


def register(context: Context, message: Message) -> Sequence[Outgoing]:
    """Register-Worker {model, worker?, fleet?}: a worker is there. Again: it keeps what it has in flight."""
    _check_trusted(context, message)
    given = _fields(message, "model", "worker", "fleet")
    if "model" not in given:
        raise PoolError("no model: a worker answers for one model", todo='send {"model": NAME, "worker": ADDRESS}')
    model, address, fleet = str(model_of(context.db, given["model"])["name"]), _address(message, given), given.get(
        "fleet", "")
    if address.endswith(ALL):
        raise PoolError(f"a worker's address doesn't end in {ALL}")
    before = row_of(context, address)
    if before is not None and (before["model"] != model or fleet != before["fleet"]):
        release(context, address)
    context.db.execute(
        "INSERT INTO workers (address, model, fleet, registered, max_tokens, system_prompt) "
        "SELECT ?1, ?2, ?3, ?4, (SELECT max_tokens FROM workers WHERE address = ?5), "
        "(SELECT system_prompt FROM workers WHERE address = ?5) WHERE true ON CONFLICT (address) DO UPDATE SET "
        "model = excluded.model, fleet = excluded.fleet, registered = excluded.registered, unregistered = NULL",
        (address, model, fleet, context.now, model + ALL))
    context.db.execute("UPDATE wishes SET done = ?, outcome = ? WHERE model = ? AND done IS NULL",
                       (context.now, f"worker {address}", model))
    if fleet:
        hear(context, fleet, model)
        context.db.execute("UPDATE inferences SET begun = ? WHERE round = ? AND model = ? AND state = 'sent' "
                           "AND begun IS NULL", (context.now, fleet, model))
    assign(context, model)
    row = row_of(context, address)
    return [reply(message, {"worker": address, "model": model, "workload": row["workload"] if row else 0})]


def unregister(context: Context, message: Message) -> Sequence[Outgoing]:
    """Unregister-Worker {worker?}: it is gone; what it had in flight waits again, or goes to another worker."""
    _check_trusted(context, message)
    plain = message.data.strip()
    given = _fields(message, "worker")
    if plain and not plain.startswith("{"):
        given = {"worker": plain} | given
    address = _address(message, given)
    row = row_of(context, address)
    if row is None or row["unregistered"] is not None:
        raise PoolError(f"no worker {address!r} is registered", todo="Get-Workers lists them")
    context.db.execute("UPDATE workers SET unregistered = ? WHERE address = ?", (context.now, address))
    released = release(context, address)
    if row["fleet"]:
        _silenced(context, row["fleet"], row["model"])
    assign(context, row["model"])
    return [reply(message, {"worker": address, "released": released})]


def get_workers(context: Context, message: Message) -> Sequence[Outgoing]:
    """Get-Workers: all that are registered."""
    rows = context.db.execute("SELECT address, model, fleet, workload, max_tokens, registered FROM workers "
                              "WHERE unregistered IS NULL ORDER BY model, address").fetchall()
    return [reply(message, [dict(row) for row in rows])]


def load_model(context: Context, message: Message) -> Sequence[Outgoing]:
    """loadModel, setModel: Data names the model; the next round starts a server of it."""
    _check_trusted(context, message)
    named = _fields(message, "model").get("model", message.data.strip())
    if not named:
        raise PoolError("no model", todo="name it as Data")
    model = str(model_of(context.db, named)["name"])
    wish = context.db.execute("INSERT INTO wishes (model, message, asked) VALUES (?, ?, ?)",
                              (model, message.id, context.now)).lastrowid
    return [reply(message, {"model": model, "wish": wish, "state": "asked for: the next round starts a server of it"})]


def _say(context: Context, message: Message, column: str, value: str | int | None) -> list[str]:
    """Keep what is said of a worker (tag Worker), or of all of a model (tag Model); the addresses it holds for."""
    _check_trusted(context, message)
    given = _fields(message, "worker", "model")
    sql = f"UPDATE workers SET {column} = ? WHERE "  # noqa: S608  (one of two columns)
    if "worker" in given or "model" not in given:
        address = given.get("worker", message.sender)
        if context.db.execute(sql + "address = ?", (value, address)).rowcount == 0:
            raise PoolError(f"no worker {address!r} was ever registered",
                            todo="name one with the tag Worker, or all workers of a model with the tag Model")
        return [address]
    model = str(model_of(context.db, given["model"])["name"])
    context.db.execute("INSERT INTO workers (address, model, registered, unregistered) VALUES (?, ?, ?, ?) "
                       "ON CONFLICT (address) DO NOTHING", (model + ALL, model, context.now, context.now))
    context.db.execute(sql + "model = ?", (value, model))
    return [str(row[0]) for row in context.db.execute("SELECT address FROM workers WHERE model = ? ORDER BY address",
                                                      (model,)).fetchall()]


def set_max_tokens(context: Context, message: Message) -> Sequence[Outgoing]:
    """setMaxTokens: Data is the number, or {"max_tokens": n}; goes before what a request says."""
    value: object = message.data.strip()
    if message.data.strip().startswith("{"):
        value = json_data(message, "max_tokens")["max_tokens"]
    tokens = tokens_of(value, "Data (the number of tokens)")
    return [reply(message, {"max_tokens": tokens, "workers": _say(context, message, "max_tokens", tokens)})]


def set_system_prompt(context: Context, message: Message) -> Sequence[Outgoing]:
    """setSystemPrompt: Data is the text, or {"system_prompt": text}; none: requests' own system messages again."""
    text: object = message.data
    if message.data.strip().startswith("{"):
        text = json_data(message, "system_prompt")["system_prompt"]
    if not isinstance(text, str) or len(text) > LONGEST_PROMPT:
        raise PoolError(f"a system prompt is a text of up to {LONGEST_PROMPT} characters")
    workers = _say(context, message, "system_prompt", text or None)
    return [reply(message, {"system_prompt": text, "workers": workers})]


HANDLERS: dict[str, Handler] = {
    "Register-Worker": register, "Unregister-Worker": unregister, "Get-Workers": get_workers, "loadModel": load_model,
    "setModel": load_model, "setMaxTokens": set_max_tokens, "setSystemPrompt": set_system_prompt}
