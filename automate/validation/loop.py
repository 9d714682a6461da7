"""The whole circle, for ever: settle, submit, fetch, hand in, clean; what one part runs into stops no other.

Holds no state that a restart could lose: the spool is the state. Never runs twice in a workspace."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TypeVar

from automate.claims import Claim, JobAlive, no_jobs, take
from automate.errors import ClaimedError, FlockError
from automate.validation.fetching import Turn
from automate.validation.rates import first_wait, too_early
from automate.validation.room import with_room
from automate.validation.spool import CLAIM_STALE
from automate.validation.submitting import Submitted
from automate.validation_places import ValidationPlaces

T = TypeVar("T")
LEAST = 1.0
"""Seconds between two turns at least, whatever the settings say."""
STEP = 0.5
"""Seconds after which a sleep looks whether it was told to stop."""
AGAIN, MOST_AGAIN = 30.0, 900.0
"""The wait before the API is reported to again after it was down; doubled each time, up to a bound."""
BEAT = 15.0
"""Seconds between two heartbeats."""


class Stop:
    """Whether to stop, asked between steps. A flag and nothing else, so that a signal may set it at any moment."""

    def __init__(self) -> None:
        self.why = ""

    def __call__(self) -> bool:
        return bool(self.why)

    def set(self, why: str) -> None:
        """Stop at the next step; the first reason stays."""
        self.why = self.why or why

    def wait(self, seconds: float, sleep: Callable[[float], None], clock: Callable[[], float]) -> None:
        """Sleep in short steps until it is time, or until told to stop. A clock that is set back prolongs no sleep."""
        now, left = clock(), seconds
        while not self() and left > 0:
            sleep(min(left, STEP))
            before, now = now, clock()
            left -= max(0.0, now - before)


@dataclass(frozen=True)
class Round:
    """One turn of the loop: what was submitted and fetched (None: left out, or it failed), what failed in which part,
    and the epoch second at which the next turn is due."""

    submitted: Submitted | None
    fetched: Turn | None
    failures: tuple[tuple[str, Exception], ...]
    due: float


class Loop:
    """One loop of a workspace.

    `settle`, `hand_in`, `clean`: what is done with jobs and caches; `submit` gets the claim of submitting where the
    loop holds it; `fetch` is a fetcher's turn. `say` tells a line. `pause`: seconds between two turns (at least 1).
    """

    def __init__(self, places: ValidationPlaces, *, settle: Callable[[], object],
                 submit: Callable[[Claim | None], Submitted], fetch: Callable[[], Turn],
                 hand_in: Callable[[], object], clean: Callable[[], object], say: Callable[[str], None],
                 pause: float | None = None, stop: Stop | None = None, clock: Callable[[], float] = time.time,
                 sleep: Callable[[float], None] = time.sleep, stale: float = CLAIM_STALE,
                 job_alive: JobAlive = no_jobs) -> None:
        self.places = places
        self.settle, self.submit, self.fetch, self.hand_in, self.clean = settle, submit, fetch, hand_in, clean
        self.say, self.clock, self.sleep = say, clock, sleep
        self.pause = max(LEAST, places.settings.time_sleep if pause is None else pause)
        self.stop = stop or Stop()
        self.stale, self.job_alive = stale, job_alive
        self._submitting: Claim | None = None
        self._told: set[str] = set()
        self._outages = 0
        self._submit_wait = (0.0, 0.0)
        """When a report failed last, and for how many seconds from then none is tried."""

    # --- one turn -------------------------------------------------------------------------------
    def turn(self) -> Round:
        """All parts once, those first that bring finished work home; a failure is told, and the next part follows."""
        failures: list[tuple[str, Exception]] = []
        self._part("settle", self.settle, failures)
        submitted = self._submit(failures)
        fetched = self._part("fetch", self.fetch, failures)
        self._tell(fetched)
        self._part("hand in", self.hand_in, failures)
        self._part("clean", self.clean, failures)
        return Round(submitted, fetched, tuple(failures), self._due(fetched))

    def _tell(self, fetched: Turn | None) -> None:
        """What was in the way of fetching, where the turn before did not say the same."""
        problems = {str(problem) for problem in fetched.problems} if fetched else set()
        for problem in sorted(problems - self._told):
            self.say(f"fetch: {problem}")
        self._told = problems

    def _part(self, name: str, part: Callable[[], T], failures: list[tuple[str, Exception]]) -> T | None:
        if self.stop():
            return None
        try:
            return part()
        except FlockError as error:
            failures.append((name, error))
            self.say(f"{name}: {error}")
        except Exception as bug:  # told, never hidden; finished work of the other parts must not wait for it
            failures.append((name, bug))
            self.say(f"{name}: unexpected {type(bug).__name__}: {bug} ({_place(bug)})")
        return None

    def _submit(self, failures: list[tuple[str, Exception]]) -> Submitted | None:
        if too_early(*self._submit_wait, self.clock()):
            return None
        before = len(failures)
        done = self._part("submit", lambda: self.submit(self._submitting), failures)
        if len(failures) > before or (done is not None and (done.down or done.stopped is not None)):
            self._outages += 1
            first = first_wait(AGAIN, self.places.settings.time_sleep)
            self._submit_wait = (self.clock(), min(first * 2 ** min(self._outages - 1, 20), MOST_AGAIN))
        else:
            self._outages, self._submit_wait = 0, (0.0, 0.0)
        if done is not None and done.stopped is not None:
            self.say(f"submit: {done.stopped}")
        return done

    def _due(self, fetched: Turn | None) -> float:
        """When the next turn is due: after the pause, or when a task may be asked again, if that is earlier."""
        now = self.clock()
        waits = list(fetched.waits.values()) if fetched is not None and not fetched.full else []
        return max(now + LEAST, min([now + self.pause, *waits]))

    # --- for ever -------------------------------------------------------------------------------
    def run(self, *, once: bool = False) -> Round:
        """Turn after turn until told to stop (one turn with `once`); the last one. Raises ClaimedError: one is running.
        """
        claim = self._take("loop")
        claims = [claim]
        try:
            self._submitting = self._claim_submitting(claims)
            with self._signals(), self._heart(claims):
                return self._turns(once)
        finally:
            self._submitting = None
            for one in claims:
                one.release()

    def _turns(self, once: bool) -> Round:
        while True:
            done = self.turn()
            if not once:
                self.stop.wait(min(done.due - self.clock(), self.pause), self.sleep, self.clock)
            if once or self.stop():
                if self.stop():
                    self.say(f"stopped: {self.stop.why}")
                return done

    def _take(self, what: str) -> Claim:
        """A claim, on a full disk too: finished work must get out."""
        return with_room(self.places.reserve, lambda: take(self.places.claim(what), stale=self.stale,
                                                           job_alive=self.job_alive))

    def _claim_submitting(self, claims: list[Claim]) -> Claim | None:
        """Held for as long as the loop runs: on a full disk a claim can't be written when it is needed."""
        try:
            claims.append(self._take("submit"))
        except ClaimedError:
            return None  # somebody submits by hand at this moment: each turn tries for itself
        return claims[-1]

    @contextmanager
    def _heart(self, claims: list[Claim]) -> Iterator[None]:
        """Beat the claims from a thread, as a turn may last for hours; stop where somebody has taken one over."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(min(BEAT, max(self.stale / 6, 0.05))):
                alive = [one.beat() for one in claims]  # all of them, whatever the first says
                if not all(alive):
                    self.stop.set("its claim was taken over, or the workspace was moved away")

        thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT stop it between two steps; a second one acts at once. Only in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}

        def told(number: int, _: FrameType | None) -> None:
            self.stop.set(f"told to by {signal.Signals(number).name}")
            for one, handler in before.items():
                signal.signal(one, handler)

        for one in before:
            signal.signal(one, told)
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)


def _place(bug: Exception) -> str:
    """The line of this package at which it came up."""
    trace = bug.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "?" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
