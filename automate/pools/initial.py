"""Init: a data set's settings (the spec's Initialization values, and its kind's own), and when they may change.

Never wipes anything: Init twice is Init once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from automate.errors import PoolError
from automate.pools.exchange import Context
from automate.pools.kinds.base import Kind
from automate.pools.kinds.files import decoded
from automate.pools.kinds.finding import kind_class
from automate.pools.loading import text_problem
from automate.pools.messages import Message, Outgoing, reply

VALUES = {
    "Title": "what it is, in a few words",
    "DataTxID": "where the data came from: any text",
    "LlamaRouter": "the router process that answers; there is one",
    "WrappedAR": "the token that pays; there is one",
}
"""The spec's Initialization values but SystemPrompt, which is the kind's; and a title."""
_LONGEST_TX = 1024


def init(context: Context, message: Message) -> Sequence[Outgoing]:
    """Data {name: value}, or tags of these names. Only what is named changes; refused once it would mix what is
    there."""
    check_owner(context, message)
    kind, old = kind_class(context.me.module, context.settings.kinds), dict(context.me.settings or {})
    new = {**old, **_given(context, message, kind)}
    made = _usable(context, kind, new)
    changed = sorted(name for name in new if name not in old or new[name] != old[name])
    _check_frozen(context, kind, changed)
    context.db.execute("UPDATE processes SET settings = ?, ready = 1 WHERE id = ?",
                       (orjson.dumps(new).decode(), context.me.id))
    return (reply(message, {"dataset": context.me.id, "name": context.me.name, "kind": made.name, "changed": changed,
                            "settings": {**values(context, new), "SystemPrompt": made.prompt, **new}}),)


def check_owner(context: Context, message: Message) -> None:
    """Raises PoolError unless the sender is the data set's owner, or the workspace's."""
    if message.sender != context.me.owner and not context.trusted(message):
        raise PoolError(f"only its owner may send {message.action}", where=f"data set {context.me.name}",
                        todo=f"its owner is {context.me.owner}")


def values(context: Context, settings: Mapping[str, object]) -> dict[str, object]:
    """The spec's values, as set or by default."""
    return {"DataTxID": settings.get("DataTxID", ""), "LlamaRouter": settings.get("LlamaRouter", context.router),
            "WrappedAR": settings.get("WrappedAR", context.token)}


def _given(context: Context, message: Message, kind: type[Kind]) -> dict[str, object]:
    """Settings out of Data and tags. Raises PoolError for one that is unknown, or said twice with two values."""
    names = {*VALUES, *kind.meanings}
    found = _object(message.data) if message.data.strip() else {}
    unknown = sorted(set(found) - names)
    if unknown:
        raise PoolError(f"{unknown[0]!r:.80} is no setting of kind {kind.name}", where="Init",
                        todo=f"settings are {', '.join(sorted(names))}")
    for name in names & set(message.tags):
        if name in found and found[name] != message.tags[name]:
            raise PoolError(f"{name} is in Data and a tag, with two values", where="Init", todo="say it once")
        found[name] = message.tags[name]
    for name in found:
        found[name] = _value(context, name, found[name])
    return found


def _object(data: str) -> dict[str, object]:
    try:
        found = decoded(data)
    except ValueError as error:
        raise PoolError(f"Data is {error}", where="Init", todo='send {"SystemPrompt": "..."}, or nothing') from error
    if not isinstance(found, dict):
        raise PoolError("Data is no JSON object", where="Init", todo='send {"SystemPrompt": "..."}, or nothing')
    return found


def _value(context: Context, name: str, value: object) -> object:
    if name not in VALUES:
        return value
    value = str(value) if type(value) is int else value
    problem = text_problem(value, _LONGEST_TX)
    if problem:
        raise PoolError(f"{name} {problem}", where="Init")
    if name in ("DataTxID", "Title"):
        return value
    wanted = context.router if name == "LlamaRouter" else context.token
    found = context.process(str(value))
    if found is None or found.id != wanted:
        raise PoolError(f"{name} is not the one here", where="Init", todo=f"leave it out, or name {wanted}")
    return wanted


def _usable(context: Context, kind: type[Kind], settings: Mapping[str, object]) -> Kind:
    """The kind with these settings. Raises PoolError saying what can't be used."""
    try:
        size = len(orjson.dumps(settings))
        made = kind(settings)
        problem = text_problem(made.prompt, context.settings.field_bytes)
    except (ValueError, TypeError) as error:
        raise PoolError(f"the settings can't be used: {error}", where="Init") from error
    if problem or size > 2 * context.settings.field_bytes:
        raise PoolError(f"SystemPrompt {problem}" if problem else "the settings are too long", where="Init")
    return made


def _check_frozen(context: Context, kind: type[Kind], changed: Sequence[str]) -> None:
    """What decides how rows are read stays once there are rows; what decides how they are asked and understood once
    there are evaluations: scores of one leaderboard would come from two different tests."""
    reads = [name for name in changed if name in kind.reading]
    asks = [name for name in changed if name not in VALUES and name not in kind.reading]
    if reads and _any(context, "SELECT 1 FROM questions WHERE dataset = ? LIMIT 1"):
        raise PoolError(f"{reads[0]} can't change any more: there are rows that were read with the old one",
                        where=f"data set {context.me.name}", todo="make another data set")
    if asks and _any(context, "SELECT 1 FROM evaluations WHERE dataset = ? LIMIT 1"):
        raise PoolError(f"{asks[0]} can't change any more: models were asked with the old one, and their scores would "
                        "not compare", where=f"data set {context.me.name}", todo="make another data set")


def _any(context: Context, sql: str) -> bool:
    return context.db.execute(sql, (context.me.id,)).fetchone() is not None


