"""Takes messages in, gives each to its handler inside one transaction, and delivers what handlers send.

Never lets half of a message's effect stay: an error leaves nothing behind but its record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from automate.pools.messages import Message, Outgoing, Receipt
from automate.pools.store import Statements, Store
from automate.settings_pools import Pools


@dataclass(frozen=True)
class Process:
    """One process: token, pool, router, or a data set. `module`: a data set's kind; `settings`: JSON object."""

    id: str
    kind: str
    name: str
    owner: str
    module: str = ""
    settings: Mapping[str, object] | None = None
    ready: bool = False


@dataclass(frozen=True)
class Context:
    """What a handler has: the database inside its transaction, the time (ms), who it is, and who the others are.

    `owner`: the workspace owner's address (genesis key). `token`, `pool`, `router`: ids of the system processes.
    """

    db: Statements
    now: int
    me: Process
    settings: Pools
    owner: str
    token: str
    pool: str
    router: str

    def process(self, name_or_id: str) -> Process | None:
        """A process by id, else by name."""
        raise NotImplementedError

    def trusted(self, message: Message) -> bool:
        """Whether a message is the workspace owner's own: signed by the genesis key, or of the clock, or of a job."""
        raise NotImplementedError


Handler = Callable[[Context, Message], Sequence[Outgoing]]
"""Does one message's work, and returns the messages that it sends. Raises PoolError to refuse it."""


def handlers_of(kind: str) -> Mapping[str, Handler]:
    """The handlers of a kind of process, by Action: ledger.HANDLERS, pool.HANDLERS, router.HANDLERS, dataset.HANDLERS.
    """
    raise NotImplementedError


class Exchange:
    """The processes of one store. `clock`: milliseconds since 1970."""

    def __init__(self, store: Store, settings: Pools, clock: Callable[[], int]) -> None:
        raise NotImplementedError

    def receive(self, messages: Sequence[Message]) -> list[Receipt]:
        """Take proven messages in, in order, in one commit; each in a savepoint of its own. Then deliver all that was
        sent because of them, until nothing is queued. A known id has no effect: its first receipt is given.

        Each message that is refused or fails is answered with `<Action>-Error` (tags Message-Id, Error), unless it is
        itself an answer. Data over 64 KiB is kept as its size and digest once it is handled.
        """
        raise NotImplementedError

    def deliver(self) -> int:
        """Handle what is still queued, as after a crash; how many."""
        raise NotImplementedError

    def receipt(self, message_id: str) -> Receipt | None:
        """What became of a message."""
        raise NotImplementedError

    def context(self, process: Process) -> Context:
        """For queries outside of messages."""
        raise NotImplementedError
