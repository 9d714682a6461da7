"""Makes data set processes: anybody spawns one, and is its owner.

Never initialises it: that is the owner's Init."""

from __future__ import annotations

from collections.abc import Sequence

from automate.errors import ConfigError, PoolError
from automate.pools.exchange import Context, Process
from automate.pools.keys import process_id
from automate.pools.kinds.base import kinds
from automate.pools.lookup import text
from automate.pools.messages import Message, Outgoing, json_data, reply
from automate.pools.models import named


def spawn(context: Context, message: Message) -> Sequence[Outgoing]:
    """Data {"name", "kind"}: a new data set process of the sender's. Raises as `spawn_dataset`."""
    data = json_data(message, "name", "kind")
    made = spawn_dataset(context, text(data, "name"), text(data, "kind"), message.sender, message.id)
    return (reply(message, {"process": made.id, "name": made.name, "kind": made.module, "owner": made.owner},
                  Process=made.id),)


def spawn_dataset(context: Context, name: str, kind: str, owner: str, message_id: str) -> Process:
    """A new data set process, owned by who asked. Raises PoolError: name taken or unusable, unknown kind."""
    named(name, "data set")
    known = kinds(context.settings.kinds)
    if kind not in known:
        raise PoolError(f"there is no kind of data set {kind[:60]!r}", todo=f"choose one of {', '.join(sorted(known))}")
    try:
        known[kind]  # its class is imported here
    except ConfigError as error:
        raise PoolError(f"the kind {kind} can't be used: {error.what}", todo=error.todo) from error
    if context.db.execute("SELECT 1 FROM processes WHERE name = ?", (name,)).fetchone():
        raise PoolError(f"there is a process {name} already", todo="choose another name")
    made = Process(process_id("dataset", message_id, name), "dataset", name, owner, kind, {}, False)
    context.db.execute(
        "INSERT INTO processes (id, kind, name, owner, module, created) VALUES (?, 'dataset', ?, ?, ?, ?)",
        (made.id, name, owner, kind, context.now))
    return made
