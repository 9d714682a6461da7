"""Deeds of the workspace's owner that are no single message: load a file, tick, rounds of evaluation.

Never run for anybody but this user: by a command here, or over the private socket, never over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from automate.errors import PoolError
from automate.pool_places import PoolPlaces
from automate.pools import keys, rounds, schedule
from automate.pools.exchange import Exchange, Process
from automate.pools.messages import Message, Receipt, parse_json
from automate.pools.store import Store

Given = Mapping[str, str | int | None]


@dataclass(frozen=True)
class Office:
    """The open database with all that works on it. One for each process."""

    store: Store
    exchange: Exchange
    places: PoolPlaces


Deed = Callable[[Office, int, Given], object]


def do(office: Office, what: str, now: int, given: Given) -> object:
    """Do a deed; what came of it as JSON values. Raises PoolError for an unknown one, or a word that lacks."""
    if what not in DEEDS:
        raise PoolError(f"there is no deed {what!r}", todo=f"choose one of: {', '.join(DEEDS)}")
    return DEEDS[what](office, now, given)


def needs_answers(message: Message) -> bool:
    """Whether a message may give up inferences that a round has answered already."""
    return message.action == "Evaluate"


def receive(office: Office, message: Message) -> Receipt:
    """Take a proven message in; before one that `needs_answers`, what rounds have answered is handed in.

    Raises as Exchange.receive and rounds.hand_in: then the message was not taken in."""
    if needs_answers(message):
        rounds.hand_in(office.exchange, office.places)
    return office.exchange.receive([message])[0]


def receipt_json(receipt: Receipt) -> dict[str, object]:
    """A receipt as JSON values: id, state, error, replies, replayed."""
    return {**asdict(receipt), "replies": [dict(reply) for reply in receipt.replies]}


def receipt_of(value: Mapping[str, object]) -> Receipt:
    """The receipt that `receipt_json` wrote."""
    replies, error = value.get("replies"), value.get("error")
    return Receipt(str(value["id"]), str(value["state"]), None if error is None else str(error),
                   tuple(replies) if isinstance(replies, list) else (), value.get("replayed") is True)


def _text(given: Given, name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value:
        raise PoolError("this deed lacks a word", where=name, todo=f"give {name}, as text")
    return value


def _load(office: Office, now: int, given: Given) -> object:
    """Load-Data with a path, in the name of the workspace's owner: `dataset` (id or name), `path` (absolute)."""
    named, path = _text(given, "dataset"), _text(given, "path")
    target = next((one.id for one in _datasets(office) if named in (one.id, one.name)), None)
    if target is None:
        raise PoolError(f"there is no data set {named!r}", where="dataset", todo="list them: flock-hpc pool list")
    key = keys.find_key(office.places, keys.GENESIS)
    raw = key.sign(target, "Load-Data", json.dumps({"path": path}), timestamp=now)
    return receipt_json(office.exchange.receive([keys.verified(raw, "local")])[0])


def _datasets(office: Office) -> list[Process]:
    rows = office.store.db.execute("SELECT id, name, owner, module, settings, ready FROM processes "
                                   "WHERE kind = 'dataset' ORDER BY created, id").fetchall()
    return [Process(row["id"], "dataset", row["name"], row["owner"], row["module"], json.loads(row["settings"]),
                    bool(row["ready"])) for row in rows]


def _tick(office: Office, now: int, given: Given) -> object:
    rounds.hand_in(office.exchange, office.places)
    return schedule.tick(office.exchange, now)


def _make_round(office: Office, now: int, given: Given) -> object:
    """`limit`: at most so many lines; `models`: names with commas between. The round as JSON, or None."""
    limit, names = given.get("limit"), given.get("models")
    models = [one for one in str(names).split(",") if one] if names is not None else None
    made = rounds.make_round(office.exchange, office.places, limit=None if limit is None else int(limit),
                             models=models)
    return None if made is None else asdict(made)


def _hand_in(office: Office, now: int, given: Given) -> object:
    return [asdict(one) for one in rounds.hand_in(office.exchange, office.places)]


def _give_up(office: Office, now: int, given: Given) -> object:
    """`why`, and `hopeless`: a JSON object of models and why no server of them starts, where there are such."""
    return rounds.give_up(office.exchange, office.places, _text(given, "round"), why=str(given.get("why") or ""),
                          hopeless=_reasons(given.get("hopeless")))


def _unserved(office: Office, now: int, given: Given) -> object:
    """`models`: a JSON object of models and why they can't be served; how many inferences have failed by it."""
    return rounds.fail_unserved(office.exchange, _reasons(given.get("models")))


def _reasons(given: str | int | None) -> dict[str, str]:
    found = parse_json(str(given)) if given else {}
    if not isinstance(found, dict):
        raise PoolError("expected a JSON object of models and reasons")
    return {str(name): str(why) for name, why in found.items()}


DEEDS: Mapping[str, Deed] = {"load": _load, "tick": _tick, "make_round": _make_round, "hand_in": _hand_in,
                             "give_up": _give_up, "unserved": _unserved}
