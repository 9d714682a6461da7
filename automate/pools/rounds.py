"""Rounds of evaluation: what waits at the router goes to the shared file system, and answers come back.

Never runs a model. A job reads `work.jsonl` and appends record files; nobody but this module hands them in."""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import orjson

from automate.errors import PoolError, StorageError
from automate.journal import replace_file, write_json
from automate.names import name_problem
from automate.pool_places import PoolPlaces
from automate.pools.exchange import Exchange, Process
from automate.pools.handing import Round
from automate.pools.keys import process_id
from automate.pools.lookup import model_of
from automate.pools.messages import Message, Receipt
from automate.pools.round_records import Answer as Answer
from automate.pools.round_records import RoundSpec as RoundSpec
from automate.pools.round_records import Work as Work
from automate.pools.round_records import WorkerLine as WorkerLine
from automate.pools.round_records import answer_of as answer_of
from automate.pools.round_records import answer_record as answer_record
from automate.pools.round_records import read_spec as read_spec
from automate.pools.round_records import read_work as read_work
from automate.pools.round_records import spec_record, work_record
from automate.pools.round_records import worker_record as worker_record
from automate.pools.store import Row


@dataclass(frozen=True)
class HandedIn:
    """answers: taken; strays: not (late, twice, unknown); left: still without an answer; broken: lines that are no
    record, and records that were refused, the first of them named in `bad`."""

    round: str
    answers: int
    strays: int
    left: int
    broken: int = 0
    bad: tuple[str, ...] = ()


def _tell(exchange: Exchange, action: str, name: str, data: dict[str, object], *pages: str) -> Receipt:
    """A message about a round to the router; the same for the same round, action and page, so that twice is once."""
    made = Message(process_id(action, name, *pages), exchange.owner, exchange.router, {"Action": action, "Round": name},
                   json.dumps({"round": name} | data), via="job")
    receipt = exchange.receive([made])[0]
    if receipt.state != "handled" and not (pages and receipt.replayed):
        raise PoolError(receipt.error or f"{action} was not taken", where=f"round {name}")
    return receipt


def _made(exchange: Exchange, name: str) -> bool:
    """Whether the router knows of a round."""
    receipt = exchange.receipt(process_id("Round-Made", name))
    return receipt is not None and receipt.state == "handled"


def _left(exchange: Exchange, name: str) -> int:
    return int(exchange.store.db.execute("SELECT count(*) FROM inferences WHERE round = ? AND state = 'sent'",
                                         (name,)).fetchone()[0])


def _begun(exchange: Exchange, name: str) -> bool:
    """Whether a round had work, or servers of its own: one that has neither yet only starts servers."""
    return bool(exchange.store.db.execute("SELECT EXISTS (SELECT 1 FROM inferences WHERE round = ?1) OR EXISTS (SELECT "
                                          "1 FROM workers WHERE fleet = ?1)", (name,)).fetchone()[0])


# --- out ----------------------------------------------------------------------------------------------
def make_round(exchange: Exchange, places: PoolPlaces, *, limit: int | None = None,
               models: Sequence[str] | None = None) -> RoundSpec | None:
    """Write what waits into a round: files first (fsynced), then `sent` in one transaction; None if nothing waits, and
    no model was asked for by loadModel since the last round (a round without work only starts its servers).

    `models`: names, process ids or numbers; all unless given. Files of a round that a crash kept from being sent are
    marked as done. Raises PoolError for an unknown model, StorageError.
    """
    exchange.deliver()
    _abandon(exchange, places)
    rows, wishes = _waiting(exchange, limit, models), _wishes(exchange)
    if not rows and not wishes:
        return None
    now = exchange.context(_nobody()).now
    spec = RoundSpec(_name(exchange, now, rows), now, len(rows), *_models(exchange, rows, wishes))
    try:
        places.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        places.answers(spec.name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError.of(error, places.answers(spec.name), "make a round's folder") from error
    replace_file(places.work(spec.name), (orjson.dumps(work_record(_work(exchange, row)),
                                                       option=orjson.OPT_APPEND_NEWLINE) for row in rows))
    write_json(places.round_spec(spec.name), spec_record(spec))
    _tell(exchange, "Round-Made", spec.name, {"references": [row["reference"] for row in rows]})
    return spec


# Data sets that a pool waits for come first; and among them, as among the others, nobody is behind another's queue.
_QUEUE = """SELECT i.* FROM (SELECT rowid AS place, received, requester IN (SELECT dataset FROM pools WHERE
    state = 'open') AS pooled, row_number() OVER (PARTITION BY requester ORDER BY received, rowid) AS turn
    FROM inferences WHERE state = 'queued'{where}) n JOIN inferences i ON i.rowid = n.place
  ORDER BY n.pooled DESC, n.turn, n.received, n.place LIMIT ?"""


def _waiting(exchange: Exchange, limit: int | None, models: Sequence[str] | None) -> list[Row]:
    db, where, values = exchange.store.db, "", []
    if models is not None:
        values = [str(model_of(db, one)["name"]) for one in models]
        where = f" AND model IN ({', '.join('?' * len(values))})"
    return db.execute(_QUEUE.format(where=where), (*values, -1 if limit is None else limit)).fetchall()


def _name(exchange: Exchange, now: int, rows: Sequence[Row]) -> str:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now / 1000))
    for turn in range(1_000_000):
        digest = hashlib.sha256(f"{now} {turn} {rows[0]['reference'] if rows else ''}".encode()).hexdigest()
        name = f"{stamp}-{digest[:8]}"
        if exchange.receipt(process_id("Round-Made", name)) is None:
            return name
    raise PoolError("no name for another round")


def _work(exchange: Exchange, row: Row) -> Work:
    paid = row["price"] and exchange.settings.price.token
    return Work(row["reference"], row["model"], tuple(json.loads(row["prompt"])), row["method"],
                tuple(json.loads(row["choices"])), row["max_tokens"],
                (row["max_tokens"] or exchange.settings.max_tokens) if paid else None)


def _wishes(exchange: Exchange) -> list[str]:
    """Models that loadModel asked for, and that no round has had since."""
    return [str(row[0]) for row in exchange.store.db.execute(
        "SELECT DISTINCT model FROM wishes WHERE outcome IS NULL").fetchall()]


def _models(exchange: Exchange, rows: Sequence[Row],
            wishes: Sequence[str]) -> tuple[dict[str, str], dict[str, dict[str, object]]]:
    """Where the round's models lie, and what was said of their workers."""
    db = exchange.store.db
    names = sorted({str(row["model"]) for row in rows} | set(wishes))
    models = {name: str(model_of(db, name)["data_tx"]) for name in names}
    said = db.execute("SELECT address, model, max_tokens, system_prompt FROM workers WHERE max_tokens IS NOT NULL OR "
                      "system_prompt IS NOT NULL ORDER BY address").fetchall()
    return models, {str(row["address"]): {name: row[name] for name in ("model", "max_tokens", "system_prompt")
                                          if row[name] is not None} for row in said if row["model"] in models}


def _folders(places: PoolPlaces) -> Iterator[str]:
    """Rounds on disk that are not done."""
    if places.rounds.is_dir():
        for folder in sorted(places.rounds.iterdir()):
            if folder.is_dir() and name_problem(folder.name) is None and not places.done(folder.name).exists():
                yield folder.name


def _abandon(exchange: Exchange, places: PoolPlaces) -> None:
    for name in list(_folders(places)):
        if not _made(exchange, name):
            write_json(places.done(name), {"round": name, "state": "abandoned"})


def open_rounds(exchange: Exchange, places: PoolPlaces) -> list[str]:
    """Rounds that were made and are not done, oldest first: those that a job is to answer."""
    known = {str(row[0]) for row in exchange.store.db.execute(
        "SELECT DISTINCT round FROM inferences WHERE state = 'sent'").fetchall()}
    return sorted(known | {name for name in _folders(places) if _made(exchange, name)})


# --- back ---------------------------------------------------------------------------------------------
def hand_in(exchange: Exchange, places: PoolPlaces) -> list[HandedIn]:
    """Give every new record of every open round to the router as Inference-Response (via job; ids from the record, so
    twice is once), workers' joining and leaving as Register-Worker and Unregister-Worker. Torn tails are left.

    A round of which all is answered, or whose folder is gone, is over.
    """
    exchange.deliver()
    return [_hand_in(exchange, places, name) for name in open_rounds(exchange, places)]


def _hand_in(exchange: Exchange, places: PoolPlaces, name: str) -> HandedIn:
    there = places.round(name).is_dir()
    taken = Round(exchange, places, name).hand_in() if there else None
    left = _left(exchange, name)
    if not there or (left == 0 and _begun(exchange, name)):
        _close(exchange, places, name, "answered" if there else "lost")
    if taken is None:
        return HandedIn(name, 0, 0, left, 1, (f"{places.round(name)}: the round's folder is gone",))
    return HandedIn(name, taken.answers, taken.strays, left, taken.broken, tuple(taken.named))


def give_up(exchange: Exchange, places: PoolPlaces, name: str, *, why: str = "",
            hopeless: Mapping[str, str] | None = None) -> int:
    """A round whose job is over: what has no answer goes back to the queue (it is asked again); how many.

    What it has answered is handed in first. `why` is written beside the round. `hopeless`: models of which no server
    starts, with the reason: what is for them has failed. A round that is done: 0. Raises PoolError for one that was
    never made.
    """
    if not _made(exchange, name):
        raise PoolError(f"there is no round {name!r}", todo="'flock-hpc pool evaluate' makes one")
    if places.round(name).is_dir() and not places.done(name).exists():
        Round(exchange, places, name).hand_in()
    left = _left(exchange, name)
    _close(exchange, places, name, "given up" if left else "answered", why if left else "", hopeless)
    return left


def fail_unserved(exchange: Exchange, models: Mapping[str, str]) -> int:
    """What waits for these models (name -> why they can't be served) has failed; how many inferences."""
    db, ended = exchange.store.db, 0
    sql = "SELECT count(*) FROM inferences WHERE model = ? AND state = 'queued' AND worker IS NULL"
    while waits := {name: count for name in models if (count := int(db.execute(sql, (name,)).fetchone()[0]))}:
        last = db.execute("SELECT max(seq) FROM messages").fetchone()[0]
        _tell(exchange, "No-Server", str(last), {"models": {name: models[name] for name in waits}})
        left = sum(int(db.execute(sql, (name,)).fetchone()[0]) for name in waits)
        ended += sum(waits.values()) - left
        if left >= sum(waits.values()):
            break
    return ended


def _close(exchange: Exchange, places: PoolPlaces, name: str, state: str, why: str = "",
           hopeless: Mapping[str, str] | None = None) -> None:
    _over(exchange, name, {"hopeless": dict(hopeless)} if hopeless else {})
    if places.round(name).is_dir() and not places.done(name).exists():
        write_json(places.done(name), {"round": name, "state": state} | ({"why": why} if why else {}))


def _over(exchange: Exchange, name: str, more: dict[str, object]) -> None:
    """Round-Over, page by page, until nothing is left of the round. A page that was refused long ago is passed over."""
    for page in itertools.count():
        before = _left(exchange, name)
        receipt = _tell(exchange, "Round-Over", name, {"page": page} | more, str(page))
        left = _left(exchange, name)
        if left == 0 and receipt.state == "handled":
            return
        if left == before and not receipt.replayed:
            raise PoolError(f"{left} inferences of it don't end", where=f"round {name}")


def _nobody() -> Process:
    return Process("", "", "", "")
