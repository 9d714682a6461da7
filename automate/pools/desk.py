"""What commands use: send a message, ask a question; in this process, or through the one that serves the database.

Never gives a caller the database itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Protocol

from automate.errors import ClaimedError
from automate.pool_places import PoolPlaces
from automate.pools import deeds, keys, reading
from automate.pools.deeds import Office
from automate.pools.exchange import Exchange
from automate.pools.messages import Receipt
from automate.pools.store import open_store

PAUSE = 0.1
"""Seconds between two looks at a database that another process holds."""


class Desk(Protocol):
    """Errors are PoolError for what was refused."""

    def send(self, signed: Mapping[str, object]) -> Receipt:
        """A signed message (keys.Key.sign), as this user's own (via local)."""
        ...

    def ask(self, what: str, **given: str | int | None) -> object:
        """A question of reading.QUESTIONS; the answer as JSON values."""
        ...

    def do(self, what: str, **given: str | int | None) -> object:
        """A deed of the owner that is no single message: see deeds.DEEDS."""
        ...


class LocalDesk:
    """The database, open in this process. `clock`: milliseconds since 1970."""

    def __init__(self, office: Office, clock: Callable[[], int]) -> None:
        self.office, self.clock = office, clock

    def send(self, signed: Mapping[str, object]) -> Receipt:
        return deeds.receive(self.office, keys.verified(signed, "local"))

    def ask(self, what: str, **given: str | int | None) -> object:
        return reading.ask(self.office.exchange, what, self.clock(), given)

    def do(self, what: str, **given: str | int | None) -> object:
        return deeds.do(self.office, what, self.clock(), given)


@contextmanager
def open_office(places: PoolPlaces, *, clock: Callable[[], int], wait: float, make: bool = True) -> Iterator[Office]:
    """The database, open in this process until the end of the block, with what a crash left queued handled.

    `wait`: seconds for another process to give it back. Raises as store.open_store.
    """
    store = open_store(places, now=clock(), wait=wait, make=make)
    try:
        exchange = Exchange(store, places.settings, clock)
        exchange.deliver()
        yield Office(store, exchange, places)
    finally:
        store.close()


def open_desk(places: PoolPlaces, *, clock: Callable[[], int], make: bool = True) -> AbstractContextManager[Desk]:
    """The database where it is free; else the process that serves it, by its socket; else wait up to pools.lock_wait.

    Raises as store.open_store.
    """
    return _desk(places, clock, make)


@contextmanager
def _desk(places: PoolPlaces, clock: Callable[[], int], make: bool) -> Iterator[Desk]:
    from automate.pools.web.remote import RemoteDesk
    from automate.pools.web.sockets import answers

    deadline = time.monotonic() + places.settings.lock_wait
    with ExitStack() as stack:
        desk: Desk | None = None
        while desk is None:
            if answers(places.socket):
                desk = RemoteDesk(places.socket)
                continue
            try:
                desk = LocalDesk(stack.enter_context(open_office(places, clock=clock, wait=0, make=make)), clock)
            except ClaimedError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(PAUSE)
        yield desk
