"""What commands use: send a message, ask a question; in this process, or through the one that serves the database.

Never gives a caller the database itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from automate.pool_places import PoolPlaces
from automate.pools.messages import Receipt


class Desk(Protocol):
    """Errors are PoolError for what was refused."""

    def send(self, signed: Mapping[str, object]) -> Receipt:
        """A signed message (keys.Key.sign), as this user's own (via local)."""
        ...

    def ask(self, what: str, **given: str | int | None) -> object:
        """A question of reading.QUESTIONS; the answer as JSON values."""
        ...

    def do(self, what: str, **given: str | int | None) -> object:
        """A deed of the owner that is no single message: load (dataset, path), tick, make_round, hand_in, give_up."""
        ...


def open_desk(places: PoolPlaces, *, clock: Callable[[], int], make: bool = True) -> AbstractContextManager[Desk]:
    """The database where it is free; else the process that serves it, by its socket; else wait up to pools.lock_wait.

    Raises as store.open_store.
    """
    raise NotImplementedError
