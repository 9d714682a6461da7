"""Which worker gets a request: by question as long as its worker isn't overloaded, by least workload, or in turn.

Never sends anything: it counts what was sent, and lets a request wait where its worker is full."""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from automate.serving.limiter import Limiter
from automate.settings_fleet import Routing

SLACK = 1 / 8
"""By how much of its limit a question's worker may always have more to do than the least loaded."""
REMEMBERED = 4096
"""Questions whose workers are known."""
_Chosen = tuple[str | None, asyncio.Future["Slot"], "Slot"]
AHEAD = 0.5
"""Requests that may wait for their question's worker, over those that the workers may have."""


@dataclass(eq=False)
class Slot:
    """One worker's counters. `limiter` holds how many requests were sent and not answered, and how many may be."""

    worker: str
    limiter: Limiter
    usable: bool = True
    done: int = 0

    @property
    def in_flight(self) -> int:
        return self.limiter.in_flight

    @property
    def limit(self) -> int:
        return self.limiter.limit

    @property
    def load(self) -> float:
        """Its workload: requests over how many it may have."""
        limiter = self.limiter
        return limiter.in_flight / limiter.limit

    @property
    def room(self) -> bool:
        """Whether it may get a request now."""
        limiter = self.limiter
        return self.usable and limiter.in_flight < limiter.limit


def bound(least: float, overload: float) -> float:
    """The workload up to which a question stays with its worker, given the least workload of all."""
    return max(overload * least, least + SLACK)


def least_loaded(slots: Iterable[Slot]) -> Slot | None:
    """The slot with room that has the least workload; the one that did least so far among equals."""
    return min((slot for slot in slots if slot.room), key=lambda slot: (slot.load, slot.done), default=None)


def choose(slots: Collection[Slot], had: Sequence[Slot], overload: float) -> Slot | None:
    """The worker for a question that workers of `had` (the latest last) know; None: it waits for one of them.

    One that had it keeps it while its workload is within `bound` of the least; where none of them is, or is usable,
    the least loaded gets it. None also where no worker has room.
    """
    least = least_loaded(slots)
    return None if least is None else keep(had, least, keepers(slots, least, overload))


def keepers(slots: Iterable[Slot], least: Slot, overload: float) -> dict[Slot, bool]:
    """Workers that keep their questions, as they haven't much more to do than the least loaded; whether with room."""
    most = bound(least.load, overload)
    return {slot: slot.room for slot in slots if slot.usable and slot.load <= most}


def keep(had: Sequence[Slot], least: Slot, able: Mapping[Slot, bool]) -> Slot | None:
    """The choice, given the least loaded worker with room and those that keep their questions."""
    waits = False
    for slot in reversed(had):
        room = able.get(slot)
        if room:
            return slot
        waits = waits or room is not None
    return None if waits else least


class Pool:
    """Gives each request a worker's place. `take()`, later `give()` it back, however the request ended.

    After a change of limits or usability call `changed()`. `overload`: how many times the least workload a question's
    worker may have.
    """

    def __init__(self, routing: Routing = "affinity", overload: float = 1.5) -> None:
        self.routing = routing
        self.overload = overload
        self.slots: dict[str, Slot] = {}
        self._had: OrderedDict[str, tuple[Slot, ...]] = OrderedDict()
        self._waiting: OrderedDict[str | None, deque[asyncio.Future[Slot]]] = OrderedDict()
        self._error: Exception | None = None
        self._turn = 0

    # --- workers ----------------------------------------------------------------------------------
    def join(self, slot: Slot) -> None:
        """A worker that requests may be sent to."""
        self.slots[slot.worker] = slot
        self.changed()

    def leave(self, worker: str) -> None:
        """It gets no more requests; what it has is given back as it ends."""
        slot = self.slots.pop(worker, None)
        if slot is not None:
            slot.usable = False
        self.changed()

    @property
    def usable(self) -> list[Slot]:
        return [slot for slot in self.slots.values() if slot.usable]

    @property
    def places(self) -> int:
        """Requests that may be under way over all usable workers, those that wait for their worker included."""
        usable = self.usable
        sent = sum(slot.limit for slot in usable)
        return sent + int(sent * AHEAD) if self.routing == "affinity" and len(usable) > 1 else sent

    @property
    def waiting(self) -> int:
        """Requests that wait for a worker."""
        return sum(len(queue) for queue in self._waiting.values())

    def changed(self) -> None:
        """Limits or usability changed: whoever waits and can go, goes."""
        while any(slot.room for slot in self.slots.values()) and self._send_one():
            pass

    def fail(self, error: Exception | None) -> None:
        """There will be no worker: raise this to all who wait and will ask. None: there may be one again."""
        self._error = error
        if error is not None:
            waiting = list(itertools.chain.from_iterable(self._waiting.values()))
            self._waiting.clear()
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_exception(error)

    # --- requests ---------------------------------------------------------------------------------
    async def take(self, question: str | None = None) -> Slot:
        """A place at a worker, as soon as there is one; its workload has risen. Raises what `fail` was told."""
        if self._error is not None:
            raise self._error
        slot = self._choose(question) if question not in self._waiting else None
        if slot is not None:
            return self._sent(slot, question)
        waiter: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(question, deque()).append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            self._forget(question, waiter)
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self.give(waiter.result())
            raise

    def give(self, slot: Slot) -> None:
        """A request ended, however it ended: the workload falls, and the place goes to who waits for it."""
        slot.limiter.release()
        slot.done += 1
        if self._waiting:
            self.changed()

    # --- inside -----------------------------------------------------------------------------------
    def _choose(self, question: str | None) -> Slot | None:
        match self.routing:
            case "affinity":
                return choose(self.slots.values(), self._who_had(question), self.overload)
            case "least":
                return least_loaded(self.slots.values())
            case "round-robin":
                return self._in_turn()

    def _in_turn(self) -> Slot | None:
        slots = list(self.slots.values())
        for ahead in range(len(slots)):
            slot = slots[(self._turn + ahead) % len(slots)]
            if slot.room:
                self._turn = (self._turn + ahead + 1) % len(slots)
                return slot
        return None

    def _who_had(self, question: str | None) -> tuple[Slot, ...]:
        return self._had.get(question, ()) if question is not None else ()

    def _sent(self, slot: Slot, question: str | None) -> Slot:
        slot.limiter.in_flight += 1
        slot.limiter.peak = max(slot.limiter.peak, slot.limiter.in_flight)
        if question is not None and self.routing == "affinity":
            self._remember(question, slot)
        return slot

    def _remember(self, question: str, slot: Slot) -> None:
        before = self._had.get(question, ())
        if not before or before[-1] is not slot:
            known = [one for one in before if one is not slot and one.worker in self.slots]
            self._had[question] = (*known, slot)
        self._had.move_to_end(question)
        if len(self._had) > REMEMBERED:
            self._had.popitem(last=False)

    def _send_one(self) -> bool:
        """Send one request of those that wait, if one can go."""
        chosen = self._own_or_oldest() if self.routing == "affinity" else self._oldest()
        if chosen is None:
            return False
        question, waiter, slot = chosen
        self._forget(question, waiter)
        if not waiter.done():  # it was cancelled, and doesn't know yet
            waiter.set_result(self._sent(slot, question))
        return True

    def _own_or_oldest(self) -> _Chosen | None:
        """One whose question's worker has room; where there is none, the oldest that can go elsewhere."""
        least = least_loaded(self.slots.values())
        if least is None:
            return None
        able, oldest = keepers(self.slots.values(), least, self.overload), None
        for question, waiter in self._heads():
            had = self._who_had(question)
            slot = keep(had, least, able)
            if slot is not None and slot in had:
                return question, waiter, slot
            if slot is not None and oldest is None:
                oldest = question, waiter, slot
        return oldest

    def _oldest(self) -> _Chosen | None:
        for question, waiter in self._heads():
            slot = self._choose(question)
            return None if slot is None else (question, waiter, slot)
        return None

    def _heads(self) -> Iterator[tuple[str | None, asyncio.Future[Slot]]]:
        """The first request of each question that waits, in the order in which the questions came."""
        for question, queue in self._waiting.items():
            yield question, queue[0]

    def _forget(self, question: str | None, waiter: asyncio.Future[Slot]) -> None:
        """A request waits no more."""
        queue = self._waiting.get(question)
        if queue is not None and waiter in queue:
            queue.remove(waiter)
            if not queue:
                del self._waiting[question]
