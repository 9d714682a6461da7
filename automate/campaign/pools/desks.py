"""A desk that has the database only while it is asked something, for commands that take long.

Never keeps it from others between two calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from automate.pool_places import PoolPlaces
from automate.pools.desk import open_desk
from automate.pools.messages import Receipt


@dataclass(frozen=True)
class Opening:
    """Fits `desk.Desk`. `clock`: milliseconds since 1970. Each call raises as open_desk."""

    places: PoolPlaces
    clock: Callable[[], int]

    def send(self, signed: Mapping[str, object]) -> Receipt:
        with open_desk(self.places, clock=self.clock) as desk:
            return desk.send(signed)

    def ask(self, what: str, **given: str | int | None) -> object:
        with open_desk(self.places, clock=self.clock) as desk:
            return desk.ask(what, **given)

    def do(self, what: str, **given: str | int | None) -> object:
        with open_desk(self.places, clock=self.clock) as desk:
            return desk.do(what, **given)
