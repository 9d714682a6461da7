"""An engine has a fleet's servers again: they may have ended while nobody used them, or another engine stopped it.

Never takes a user's stop back that came after the engine began, and never acts where another is in control."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace

from automate.cluster.base import Cluster
from automate.cluster.submit import SubmissionBook, settle_open
from automate.errors import ClaimedError
from automate.fleet_places import FleetPlaces
from automate.fleets.controller import EVERY, EVERY_LOCAL
from automate.fleets.handing import control
from automate.fleets.jobs import alive_of
from automate.fleets.looking import given_up, look
from automate.serving.fleet.records import FleetSpec, Group
from automate.serving.fleet.registry import Watch, read_wish, write_wish

PATIENCE = 10.0
"""Seconds that a worker or a command in control is waited for at the engine's start."""
ENGINE = "engine"


def stopped_by_engine(places: FleetPlaces) -> bool:
    """Whether the fleet is to end because an engine thought that nobody else uses it."""
    wish = read_wish(places)
    return wish.stop and wish.stopped_by == ENGINE


class Revival:
    """What one engine does for its fleet, once, and again whenever another engine has stopped it.

    `left`: games that it has not started; `others`: whether another engine uses the fleet now.
    """

    def __init__(self, places: FleetPlaces, spec: FleetSpec, group: Group, cluster: Cluster, *,
                 left: Callable[[], int], others: Callable[[], bool], say: Callable[[str], None],
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._places, self._spec, self._group, self._cluster = places, spec, group, cluster
        self._left, self._others, self._say, self._clock = left, others, say, clock
        self._every = EVERY if cluster.kind == "slurm" else EVERY_LOCAL
        self._began = self._done = self._joined = False
        self._last = float("-inf")

    def turn(self, *, controls: bool = False) -> None:
        """Do it where it is due. `controls`: the caller holds the control claim. Raises StorageError, ClusterError.

        The first one takes any stop back: the campaign was submitted after it. Where another engine is in control, that
        is said once, and it is tried again: that one may end, and leave fewer servers than are needed.
        """
        first, again = not self._began, stopped_by_engine(self._places)
        self._began = True
        if not first and not again and (self._done or read_wish(self._places).stop):
            return
        if not first and not controls and self._clock() - self._last < self._every:
            return
        self._last = self._clock()
        patience = PATIENCE if first and not self._others() else 0.0
        try:
            with contextlib.nullcontext() if controls else control(self._places, self._cluster, patience=patience):
                self._revive()
        except ClaimedError:
            self._join()
        else:
            self._done = True

    def _join(self) -> None:
        if not self._joined:
            self._joined = True
            self._say(f"fleet '{self._spec.name}': another engine uses it and keeps up its number of servers; "
                      "this one plays on the same")

    def _revive(self) -> None:
        places, spec, number = self._places, self._spec, self._group.number
        settle_open(SubmissionBook(places.submissions), self._cluster)
        watch = Watch(places, spec, alive_of(self._cluster), version=spec.version)
        ended = given_up(look(places, spec, self._cluster, watch))
        wish = read_wish(places)
        wanted = max(wish.wanted.get(number, 0), min(wish.bounds_of(self._group)[0], self._left()))
        new = replace(wish, stop=False, stopped_by=None, wanted={**wish.wanted, number: wanted},
                      dropped=(*wish.dropped, *(job for job in ended if job not in wish.dropped)))
        if new != wish:
            write_wish(places, new)
        if wish.stop:
            self._say(f"fleet '{spec.name}': it was stopped while this engine waited or played; its servers are asked "
                      "for again")
