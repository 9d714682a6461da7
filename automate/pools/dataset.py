"""A data set's process: its handlers. Questions are read by its kind, kept in `questions`.

Never opens a path that came over HTTP, and never loads a row twice."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from automate.errors import PoolError
from automate.pools import evaluation
from automate.pools.exchange import Context, Handler
from automate.pools.initial import check_owner, init, values
from automate.pools.kinds.base import BadRow
from automate.pools.kinds.chosen import kind_of as kind_of  # evaluation.py imports it from there: no import circle
from automate.pools.kinds.files import as_row, decoded
from automate.pools.loading import Loaded, shown, take
from automate.pools.messages import Message, Outgoing, reply
from automate.pools.starting import settled
from automate.pools.withdrawing import from_dataset

_SHAPE = "send an array of rows, {\"rows\": [...]}, or, on this machine, a path"


def load(context: Context, source: Path, message_id: str) -> tuple[int, int, list[BadRow]]:
    """Load a file: rows added, rows that were there, rows that can't be used. The same content again adds nothing;
    equal rows within one source are told apart by their occurrence. 100,000 rows within 3 s is the goal."""
    loaded = _load_file(context, source)
    return loaded.added, loaded.known, loaded.bad


def _load_file(context: Context, source: Path) -> Loaded:
    kind = kind_of(context)
    return take(context.db, context.me.id, kind, kind.read(source), context.settings.field_bytes, now=context.now)


def _load_data(context: Context, message: Message) -> Sequence[Outgoing]:
    """Data: rows, or a path that this user names. Answered with how many were new, known and bad, and the first bad
    ones; refused where not one row can be used."""
    check_owner(context, message)
    if not context.me.ready:
        raise PoolError("it has no tables yet", where=f"data set {context.me.name}", todo="send Init first")
    given = _given(message)
    if isinstance(given, str):
        loaded = _load_file(context, _path(context, message, given))
    else:
        rows = (as_row(row, number) for number, row in enumerate(given, 1))
        loaded = take(context.db, context.me.id, kind_of(context), rows, context.settings.field_bytes, now=context.now,
                      counted=True)
    if not loaded.added + loaded.known:
        raise _nothing(loaded)
    return (reply(message, {"added": loaded.added, "known": loaded.known, "bad": len(loaded.bad),
                            "bad_rows": shown(loaded.bad), "num_samples": _count(context)}),
            *(_benchmarks(context) if loaded.added else ()))


def _benchmarks(context: Context) -> list[Outgoing]:
    """New questions are put to all models that are under evaluation already: one total for all of a leaderboard. Not
    to those whose pools are all settled."""
    rows = context.db.execute("SELECT id, process FROM models WHERE id IN (SELECT DISTINCT model_id FROM evaluations "
                              "WHERE dataset = ?) ORDER BY id", (context.me.id,)).fetchall()
    over = settled(context.db, context.me.id)
    return [Outgoing(context.me.id, "Benchmark", str(row["process"])) for row in rows if not over.get(row["id"])]


def _heard(context: Context, message: Message) -> Sequence[Outgoing]:
    """The answer to this data set's own Benchmark."""
    if message.sender != context.me.id:
        raise PoolError(f"{message.action} answers nothing that was sent", where=f"data set {context.me.name}")
    return ()


def _given(message: Message) -> str | list[object]:
    """A path, or rows. Raises PoolError for Data that is neither."""
    text = message.data.strip()
    if not text.startswith(("[", "{")):
        return text
    try:
        found = decoded(text)
    except ValueError as error:
        raise PoolError(f"Data is {error}", where="Load-Data", todo=_SHAPE) from error
    if isinstance(found, dict) and isinstance(found.get("path"), str) and len(found) == 1:
        return str(found["path"])
    rows = found.get("rows") if isinstance(found, dict) and len(found) == 1 else found
    if not isinstance(rows, list):
        raise PoolError("Data holds no rows", where="Load-Data", todo=_SHAPE)
    return rows


def _path(context: Context, message: Message, text: str) -> Path:
    if message.via != "local":
        raise PoolError("Data is not JSON, and a path is taken from this machine's own user only", where="Load-Data",
                        todo='send the rows: [{"context": ...}, ...]')
    if not text:
        raise PoolError("no Data", where="Load-Data", todo=_SHAPE)
    if "\0" in text or not Path(text).is_absolute():
        raise PoolError("the path is not absolute", where="Load-Data", todo="name the whole path, from / on")
    return Path(text)


def _nothing(loaded: Loaded) -> PoolError:
    if not loaded.bad:
        return PoolError("there are no rows", where="Load-Data", todo=_SHAPE)
    count, first = len(loaded.bad), shown(loaded.bad)
    said = ", ".join(f"row {row['number']}: {row['reason']}" for row in first[:5 if len(_reasons(first)) > 1 else 1])
    return PoolError(f"none of the {count} rows can be used ({said}{', ...' if count > 1 else ''})", where="Load-Data",
                     todo="mend them, or set Columns to what they have where the kind knows it; then send them again")


def _reasons(rows: Sequence[dict[str, object]]) -> set[object]:
    return {row["reason"] for row in rows}


def _count(context: Context) -> int:
    return int(context.db.execute("SELECT count(*) FROM questions WHERE dataset = ?", (context.me.id,)).fetchone()[0])


def _info(context: Context, message: Message) -> Sequence[Outgoing]:
    """What the data set is."""
    kind, settings = kind_of(context), dict(context.me.settings or {})
    spec = values(context, settings)
    return (reply(message, {
        **kind.info(), "name": context.me.name, "kind": kind.name, "id": context.me.id, "owner": context.me.owner,
        "title": settings.get("Title", ""), "ready": context.me.ready, "num_samples": _count(context),
        "data_txid": spec["DataTxID"],
        "method": kind.method, "router": spec["LlamaRouter"], "token": spec["WrappedAR"],
        "system_prompt": kind.prompt}),)


def _get_models(context: Context, message: Message) -> Sequence[Outgoing]:
    """All models, with the spec's columns, and the process id that messages name them by."""
    rows = context.db.execute("SELECT id, name, inference_process, data_tx, process FROM models ORDER BY id").fetchall()
    return (reply(message, [dict(row) for row in rows]),)


def _notice(context: Context, message: Message) -> Sequence[Outgoing]:
    """Money came in or went out: the ledger has it. Believed of the token only."""
    if message.sender != context.token:
        raise PoolError(f"{message.action} is taken from the token only", where=f"data set {context.me.name}")
    return ()


HANDLERS: dict[str, Handler] = {
    "Init": init, "Load-Data": _load_data, "Info": _info, "Get-Models": _get_models,
    "Credit-Notice": _notice, "Debit-Notice": _notice, "Benchmark-Response": _heard,
    "Withdraw": from_dataset, **evaluation.HANDLERS}
"""Init, Load-Data, Info, Get-Models, Withdraw, Benchmark, Evaluate, Score, Inference-Response, Transfer-Error (the
spec's LlamaHerder.Transfer-Error), Debit-Notice, Credit-Notice. Those on evaluations live in evaluation.py."""
