"""Addresses of a model's servers, as messages know them: who joined, who left.

Never gives two servers that are there at once one address; one that has left gives its address free."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection
from itertools import count

from automate.pools.round_records import WorkerLine

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z", re.ASCII)


def stem_of(model: str) -> str:
    """How addresses of a model's servers begin: its name, or a hash where that can't stand in an address."""
    digest = hashlib.sha256(model.encode("utf-8", "replace")).hexdigest()
    return model if _PLAIN.match(model) else f"model-{digest[:16]}"


class Roster:
    """The servers of one model. `write`: told of each that joins or leaves."""

    def __init__(self, model: str, write: Callable[[WorkerLine], None]) -> None:
        self._model, self._stem, self._write = model, stem_of(model), write
        self._known: dict[str, str] = {}

    @property
    def first(self) -> str:
        """The address that stands for all of them where it isn't known who was asked."""
        return f"{self._stem}.1"

    def address(self, server: str) -> str:
        """The address of a server by its id in the fleet: the model's name and the lowest number that is free."""
        found = self._known.get(server)
        if found is None:
            taken = set(self._known.values())
            found = next(one for one in (f"{self._stem}.{number}" for number in count(1)) if one not in taken)
            self._known[server] = found
            self._write(WorkerLine(found, self._model, "joined"))
        return found

    def look(self, usable: Collection[str], there: Collection[str]) -> None:
        """Take the fleet's word: servers that take requests now, and all that are there."""
        for server in [one for one in self._known if one not in there]:
            self._write(WorkerLine(self._known.pop(server), self._model, "left"))
        for server in usable:
            self.address(server)

    def close(self) -> None:
        """This job asks none of them any more."""
        self.look((), ())
