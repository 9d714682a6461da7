"""How many servers a fleet is to have: one decision from what is seen of a group now. Pure.

Never asks a cluster or a clock, and never gives back a server with work while another is idle."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from automate.errors import ConfigError

MOST = 1000
"""The most servers of one model."""
ROUNDS = 2.0
"""The queue is long when more games wait to be started than so many times those in flight."""
_REPLICAS = re.compile(r"(\d{1,6})(?:\.\.(\d{1,6}))?", re.ASCII)


def parse_replicas(text: str) -> tuple[int, int]:
    """`4` or `2..8` as (least, most). Raises ConfigError."""
    match = _REPLICAS.fullmatch(text.strip())
    least = int(match[1]) if match else 0
    most = int(match[2] or match[1]) if match else 0
    if not 1 <= least <= most <= MOST:
        raise ConfigError(f"{text!r} is no number of servers", where="replicas",
                          todo=f"give a number such as 4, or the least and the most such as 2..8 (1 to {MOST}); "
                               "'flock-hpc serve --stop' ends a fleet")
    return least, most


@dataclass(frozen=True)
class Demand:
    """What an engine has still to do. `left`: requests that it has not started yet; `in_flight`: those it waits for.

    `model`: by whom; None: by every group of the fleet.
    """

    left: int
    in_flight: int = 0
    model: str | None = None


@dataclass(frozen=True)
class Server:
    """A registered server that takes requests. `load`: requests sent to it and not answered; `waiting`: those of them
    that its own queue holds; `quiet`: seconds without any, by the reader's clock; `age`: its order, younger is more.
    """

    worker: str
    job: str
    load: float = 0.0
    waiting: float = 0.0
    quiet: float = 0.0
    age: float = 0.0


@dataclass(frozen=True)
class GroupView:
    """One group now. `queued` and `loading`: jobs that wait, and that run without a server yet, oldest first.

    `held`: servers that nobody can say anything of now; none is asked for in their place, and none goes for them.
    `ends`: the fleet was made for this demand and ends with it. `slow`: the last ones asked for came late. `failed`:
    jobs that failed before they were ready, since the last that was; `hopeless`: why no more are asked for. `idle`:
    after how many quiet seconds a server is given back. `beside`: servers that take requests but are no jobs of the
    fleet's own, as the one in an engine's job; none goes, and the counts are without them.
    """

    least: int
    most: int
    wanted: int
    queued: tuple[str, ...] = ()
    loading: tuple[str, ...] = ()
    ready: tuple[Server, ...] = ()
    held: int = 0
    demand: Demand | None = None
    ends: bool = False
    slow: bool = False
    failed: tuple[str, ...] = ()
    hopeless: str | None = None
    idle: float = 900.0
    beside: tuple[Server, ...] = ()

    @property
    def have(self) -> int:
        """Servers that are there or asked for."""
        return len(self.queued) + len(self.loading) + len(self.ready) + self.held

    @property
    def floor(self) -> int:
        """How many are left at least: somebody may have cancelled some by hand."""
        return min(self.least, self.wanted)


@dataclass(frozen=True)
class Decision:
    """What is to be done with one group: ask for more, or give back; and how many are wanted from now on."""

    wanted: int
    ask: int = 0
    cancel: tuple[str, ...] = ()
    retire: tuple[str, ...] = ()
    why: str = ""

    @property
    def acts(self) -> bool:
        return bool(self.ask or self.cancel or self.retire)


def decide(view: GroupView) -> Decision:
    """The one thing to do with a group now."""
    if view.demand is not None and view.demand.left <= 0 and view.ends:
        return _tail(view)
    wanted = min(max(view.wanted, 0), view.most)
    if view.have - view.held > wanted:
        return _give_back(view, view.have - view.held - wanted, wanted, "more than are wanted")
    if view.have < wanted:
        if view.hopeless is not None:
            return Decision(wanted, why=view.hopeless)
        return Decision(wanted, ask=wanted - view.have, why="fewer than are wanted")
    return _elastic(view, wanted)


def _elastic(view: GroupView, wanted: int) -> Decision:
    more = _more(view, wanted)
    if more:
        return Decision(wanted + more, ask=more, why="the queue is long")
    quiet = sum(1 for server in view.ready if server.load <= 0 and server.quiet >= view.idle)
    spare = min(quiet, view.have - view.held - view.floor)
    if spare <= 0:
        return Decision(wanted)
    found = _give_back(view, spare, wanted - spare, f"no request for {view.idle:g} s")
    rest = [server for server in (*view.ready, *view.beside) if server.worker not in found.retire]
    return Decision(wanted) if is_long(view.demand, rest) else found  # it would be asked for again


def _more(view: GroupView, wanted: int) -> int:
    """How many more to ask for: as many again, while the queue is long and all those asked for are at work."""
    at_work = (*view.ready, *view.beside)
    unsettled = view.queued or view.loading or view.held or not at_work
    if unsettled or view.slow or view.hopeless is not None or not is_long(view.demand, at_work):
        return 0
    return max(0, min(wanted + len(view.beside), view.most - wanted))


def is_long(demand: Demand | None, ready: Sequence[Server]) -> bool:
    """Whether there is more to do than the servers get through soon."""
    if demand is not None:
        return demand.left > ROUNDS * max(demand.in_flight, len(ready))
    return bool(ready) and sum(server.waiting for server in ready) >= len(ready)


def _tail(view: GroupView) -> Decision:
    """Nothing is to be started any more: those without work go, but for one, which may be needed for another try."""
    if view.have == 0 and view.most > 0 and not view.beside and view.demand is not None and view.demand.in_flight > 0:
        return Decision(1, ask=int(view.hopeless is None), why=view.hopeless or "none is left for what is in flight")
    busy = sum(1 for server in view.ready if server.load > 0)
    keep = busy if busy or view.beside else min(1, view.have - view.held)
    spare = view.have - view.held - keep
    if spare <= 0:
        return Decision(keep + view.held)
    return _give_back(view, spare, keep + view.held, "nothing is left to start")


def _give_back(view: GroupView, count: int, wanted: int, why: str) -> Decision:
    """Those that wait first, then those that load, then the least loaded; of equals the youngest."""
    jobs = [*reversed(view.queued), *reversed(view.loading)][:count]
    ready = sorted(view.ready, key=lambda server: (server.load, -server.age))[:count - len(jobs)]
    return Decision(wanted, cancel=tuple(jobs), retire=tuple(server.worker for server in ready), why=why)
