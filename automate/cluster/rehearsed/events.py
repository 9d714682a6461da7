"""Which of a scenario's events are due: a pure function of the time, the games played and what happened before.

Never acts; times here are real seconds since the rehearsal began."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from automate.cluster.rehearsed.scenario import Event, share_of


def never_struck(events: Sequence[Event], fired: Mapping[str, int], struck: Mapping[str, int]) -> list[str]:
    """One line for each event that struck nothing, with the reason; both counts by place in the scenario."""
    return [f"event {index + 1} ({event.kind}) never struck: {_why_not(event, bool(fired.get(str(index))))}"
            for index, event in enumerate(events) if not struck.get(str(index))]


def _why_not(event: Event, came: bool) -> str:
    if came:
        target = " and ".join(f"{name} {value}" for name, value in (("batch", event.batch), ("node", event.node))
                              if value is not None)
        return f"nothing of {target} was there to strike" if target else "there was nothing to strike"
    if event.after_games is not None:
        return f"after_games {event.after_games} was not reached"
    return f"the rehearsal ended before {event.at:g} s" if event.at is not None else "its chance never came"


def arrivals(every: float, seed: int, times: int | None) -> Iterator[float]:
    """Moments of something that happens by chance every so often: exponential pauses, the same for one seed."""
    chance, moment, count = random.Random(seed), 0.0, 0
    while times is None or count < times:
        moment += chance.expovariate(1 / every)
        count += 1
        yield moment


@dataclass
class Timeline:
    """A scenario's events in real time. `scale`: rehearsed seconds in a second; `games`: all games of the campaign.

    `due()` gives each event when its time has come; what has no target yet is given `back()` and comes again.
    """

    events: Sequence[Event]
    scale: float
    games: int
    fired: dict[int, int] = field(default_factory=dict)
    _again: set[int] = field(default_factory=set)

    def _next(self, index: int) -> float:
        """The next moment of a random event; infinity after its last."""
        chance = self.events[index].random
        if chance is None:
            return float("inf")
        moments = arrivals(chance.every / self.scale, chance.seed * 1000 + index, chance.times)
        past = self.fired.get(index, 0)
        return next((moment for count, moment in enumerate(moments) if count >= past), float("inf"))

    def _is_due(self, index: int, elapsed: float, played: int) -> bool:
        event = self.events[index]
        if event.random is not None:
            return elapsed >= self._next(index)
        if index in self._again:
            return True
        if self.fired.get(index):
            return False
        if event.at is not None:
            return elapsed >= event.at / self.scale
        return played >= share_of(event.after_games or 0, self.games)

    def due(self, elapsed: float, played: int) -> list[tuple[int, Event]]:
        """Events whose time has come since the last call, with their places in the scenario."""
        found = [(index, event) for index, event in enumerate(self.events) if self._is_due(index, elapsed, played)]
        for index, _ in found:
            if index in self._again:
                self._again.discard(index)
            else:
                self.fired[index] = self.fired.get(index, 0) + 1
        return found

    def back(self, index: int) -> None:
        """An event found nothing to strike: it comes again at the next look; one by chance is let go."""
        if self.events[index].random is None:
            self._again.add(index)
