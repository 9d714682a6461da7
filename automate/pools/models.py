"""Model upload: anybody adds a model by name; its process id is the id of the message that added it.

Never loads a model, and never takes a folder of this machine from anybody but its owner."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from automate.errors import PoolError
from automate.names import MAX_BYTES, name_problem
from automate.pools.exchange import Context
from automate.pools.ledger import is_address
from automate.pools.lookup import text
from automate.pools.messages import Message, Outgoing, json_data, reply

_HUB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_LONGEST = 4096
_SCRIPT = ("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Nd")
# Letters and marks by category that show nothing: fillers, joiners, variation selectors.
_UNSEEN = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
_RULE = ("a name is letters and digits of any script, dots, dashes, underscores, plus signs and inner spaces; it begins"
         f" with a letter or digit, has no two dots together, and {MAX_BYTES} bytes at most")
_COLUMNS = "id, name, inference_process, data_tx, process, owner, added"


def add_model(context: Context, message: Message) -> Sequence[Outgoing]:
    """Data {"name", "data_tx"} and maybe "inference_process" (the router): the model is the sender's own from now on,
    or, where the workspace's owner says so, `owner`'s.

    Raises PoolError: a name that is taken or can't be a file's, a data_tx that is neither a hub name nor, from the
    workspace's owner on this machine, an absolute folder.
    """
    data = json_data(message, "name", "data_tx")
    name, place = named(text(data, "name")), text(data, "data_tx")
    check_place(place, local=message.via == "local" and context.trusted(message))
    if context.db.execute("SELECT 1 FROM models WHERE name = ?", (name,)).fetchone():
        raise PoolError(f"there is a model {name} already", todo="choose another name")
    _check_room(context, message)
    owner = _owner(context, message, text(data, "owner") if data.get("owner") else message.sender)
    given = text(data, "inference_process") if data.get("inference_process") else context.router
    router = context.process(given)
    if router is None or router.kind != "router":
        raise PoolError(f"{given[:60]!r} answers no inferences here",
                        todo=f"leave inference_process away, or name the router {context.router}")
    context.db.execute(
        "INSERT INTO models (name, inference_process, data_tx, process, owner, added) VALUES (?, ?, ?, ?, ?, ?)",
        (name, router.id, place, message.id, owner, context.now))
    return (reply(message, {"model": message.id, "name": name, "inference_process": router.id, "data_tx": place},
                  Model=message.id),)


def _owner(context: Context, message: Message, owner: str) -> str:
    if owner != message.sender and not (context.trusted(message) and is_address(owner)):
        raise PoolError(f"a model can't be added for {owner[:60]!r}", todo="leave owner away: who adds a model owns it")
    return owner


def _check_room(context: Context, message: Message) -> None:
    """Raises PoolError where somebody has as many models as one may."""
    most = context.settings.max_models
    count = context.db.execute("SELECT COUNT(*) FROM models WHERE owner = ?", (message.sender,)).fetchone()[0]
    if count >= most and not context.trusted(message):
        raise PoolError(f"{message.sender} has {count} models; one owner may have {most} (pools.max_models)",
                        todo="join with one of them, or ask the workspace's owner")


def get_models(context: Context, message: Message) -> Sequence[Outgoing]:
    """All models, in the order of adding: the spec's columns, and process, owner, added (ms)."""
    rows = context.db.execute(f"SELECT {_COLUMNS} FROM models ORDER BY id").fetchall()  # noqa: S608
    return (reply(message, [dict(row) for row in rows]),)


def _plain(character: str) -> bool:
    """A letter, mark or digit of any script that can be seen, or one of ._-+ and space."""
    seen = unicodedata.category(character) in _SCRIPT and not _UNSEEN.fullmatch(character)
    return seen or character in "._-+ "


def named(name: str, what: str = "model") -> str:
    """A name that can stand for one thing only, be a file's, and be shown and pasted anywhere. Raises PoolError."""
    if not all(map(_plain, name)) or not name[:1].isalnum() or name_problem(name) is not None:
        raise PoolError(f"{what} name {name[:60]!r} can't be used", todo=_RULE)
    if is_address(name) or (name.isascii() and name.isdigit()):
        raise PoolError(f"{what} name {name!r} could be taken for an id or a number", todo="choose another name")
    return name


def check_place(place: str, *, local: bool) -> None:
    """Where a model's files are: owner/name on the hub, or, `local`, an absolute folder. Raises PoolError."""
    if _HUB.fullmatch(place) and ".." not in place:
        return
    folder = Path(place)
    if folder.is_absolute() and not local:
        raise PoolError("a folder is taken only from the workspace's owner, on this machine",
                        todo="give the model's name on the hub: owner/name")
    if not folder.is_absolute() or not place.isprintable() or len(place) > _LONGEST:
        raise PoolError(f"data_tx {place[:80]!r} is no model's place",
                        todo="give its name on the hub (owner/name), or an absolute folder")
