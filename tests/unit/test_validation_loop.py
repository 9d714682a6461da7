"""The loop: every part in its order, none in the way of another, one a workspace, an end when told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from automate.claims import Claim, holder_of, take
from automate.errors import ApiError, ClaimedError, FlockError
from automate.validation.fetching import Turn
from automate.validation.loop import LEAST, Loop, Stop
from automate.validation.submitting import Submitted
from automate.validation_places import ValidationPlaces
from tests.unit.support import ROOT
from tests.unit.validation_support import Clock, make_places

PATIENCE = 60.0


class Parts:
    """Parts that write down when they ran, and fail on request."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.ran: list[tuple[str, float]] = []
        self.fail: dict[str, Exception] = {}
        self.submitted = Submitted()
        self.turn = Turn()
        self.claims: list[Claim | None] = []

    def _run(self, name: str) -> None:
        self.ran.append((name, self.clock()))
        if name in self.fail:
            raise self.fail[name]

    def settle(self) -> None:
        self._run("settle")

    def submit(self, claim: Claim | None) -> Submitted:
        self.claims.append(claim)
        self._run("submit")
        return self.submitted

    def fetch(self) -> Turn:
        self._run("fetch")
        return self.turn

    def hand_in(self) -> None:
        self._run("hand in")

    def clean(self) -> None:
        self._run("clean")

    def names(self) -> list[str]:
        return [name for name, _ in self.ran]


ORDER = ["settle", "submit", "fetch", "hand in", "clean"]


@pytest.fixture
def places(tmp_path: Path) -> ValidationPlaces:
    return make_places(tmp_path)


@pytest.fixture
def parts() -> Parts:
    return Parts(Clock())


def make(places: ValidationPlaces, parts: Parts, said: list[str] | None = None, *, pause: float = 180.0,
         stop: Stop | None = None) -> Loop:
    said = [] if said is None else said
    return Loop(places, settle=parts.settle, submit=parts.submit, fetch=parts.fetch, hand_in=parts.hand_in,
                clean=parts.clean, say=said.append, pause=pause, stop=stop, clock=parts.clock, sleep=parts.clock.sleep,
                stale=0.0)


def test_parts_run_in_the_order_of_their_importance(places: ValidationPlaces, parts: Parts) -> None:
    done = make(places, parts).run(once=True)
    assert parts.names() == ORDER
    assert (done.failures, done.submitted, done.fetched) == ((), parts.submitted, parts.turn)


@pytest.mark.parametrize("name", ORDER)
@pytest.mark.parametrize("error", [ApiError("the API is away"), KeyError("a bug")])
def test_a_part_that_fails_is_told_and_stops_no_other(places: ValidationPlaces, parts: Parts, name: str,
                                                      error: Exception) -> None:
    said: list[str] = []
    parts.fail[name] = error
    done = make(places, parts, said).turn()
    assert parts.names() == ORDER
    assert done.failures == ((name, error),)
    assert len(said) == 1 and said[0].startswith(f"{name}: ")
    assert isinstance(error, FlockError) or "test_validation_loop.py" in said[0]


def test_it_sleeps_until_something_is_due_and_never_spins(places: ValidationPlaces, parts: Parts) -> None:
    now = parts.clock()
    for waits, full, wanted in (({"1": now + 50, "2": now + 70}, False, 50), ({"1": now + 50}, True, 180),
                                ({"1": now - 9}, False, LEAST), ({"1": now + 999}, False, 180), ({}, False, 180)):
        parts.turn = Turn(waits=waits, full=full)
        assert make(places, parts).turn().due == now + wanted
    assert make(places, parts, pause=0.0).turn().due == now + LEAST


def test_it_goes_on_until_it_is_told_to_stop(places: ValidationPlaces, parts: Parts) -> None:
    stop, said = Stop(), list[str]()
    loop = make(places, parts, said, stop=stop)

    def settle() -> None:
        parts.settle()
        if len(parts.ran) > 10:
            stop.set("told")

    loop.settle = settle
    loop.run()
    assert parts.names() == [*ORDER, *ORDER, "settle"]
    assert parts.ran[5][1] - parts.ran[0][1] == pytest.approx(180)
    assert said == ["stopped: told"]


def test_a_sleep_ends_when_told(places: ValidationPlaces, parts: Parts) -> None:
    stop = Stop()
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        stop.set("told")

    stop.wait(1000.0, sleep, parts.clock)
    assert len(slept) == 1 and slept[0] < 1


def test_a_clock_that_is_set_back_prolongs_no_sleep(parts: Parts) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        parts.clock.sleep(seconds)
        if len(slept) == 2:
            parts.clock.now -= 400 * 86400
        assert len(slept) < 100

    Stop().wait(10.0, sleep, parts.clock)
    assert 20 <= len(slept) <= 22


def test_a_turn_that_is_due_by_a_clock_that_was_set_back_is_not_waited_for(places: ValidationPlaces, parts: Parts,
                                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    stop, waits = Stop(), list[float]()
    loop = make(places, parts, stop=stop)

    def wait(seconds: float, *_: object) -> None:
        waits.append(seconds)
        stop.set("told")

    due = loop._due
    monkeypatch.setattr(stop, "wait", wait)
    monkeypatch.setattr(loop, "_due", lambda fetched: due(fetched) + 400 * 86400)
    loop.run()
    assert waits == [180.0]


def test_an_outage_by_a_wrong_clock_is_not_waited_for(places: ValidationPlaces, parts: Parts) -> None:
    parts.submitted = Submitted(down=True)
    loop = make(places, parts)
    parts.clock.now += 400 * 86400
    loop.turn()
    loop.turn()
    assert parts.names().count("submit") == 1
    parts.clock.now -= 400 * 86400
    loop.turn()
    loop.turn()
    assert parts.names().count("submit") == 2


def test_one_loop_a_workspace(places: ValidationPlaces, parts: Parts) -> None:
    claim = take(places.claim("loop"), stale=90)
    with pytest.raises(ClaimedError, match=f"process {os.getpid()}"):
        make(places, parts).run(once=True)
    assert not parts.ran
    claim.release()
    make(places, parts).run(once=True)
    assert holder_of(places.claim("loop")) is holder_of(places.claim("submit")) is None


def test_it_holds_the_claim_of_submitting_unless_somebody_submits(places: ValidationPlaces, parts: Parts) -> None:
    make(places, parts).run(once=True)
    other = take(places.claim("submit"), stale=90)
    make(places, parts).run(once=True)
    other.release()
    assert [claim is not None for claim in parts.claims] == [True, False]


def test_an_api_that_is_down_is_left_alone_for_longer_and_longer(places: ValidationPlaces, parts: Parts) -> None:
    parts.submitted = Submitted(down=True)
    loop = make(places, parts)
    for _ in range(200):
        loop.turn()
        parts.clock.sleep(10)
    times = [when for name, when in parts.ran if name == "submit"]
    assert [after - before for before, after in pairwise(times)][:6] == [30, 60, 120, 240, 480, 900]
    assert parts.names().count("settle") == parts.names().count("fetch") == 200
    parts.submitted = Submitted()
    parts.clock.sleep(900)
    parts.ran.clear()
    for _ in range(3):
        loop.turn()
    assert parts.names().count("submit") == 3


def test_problems_of_fetching_are_told(places: ValidationPlaces, parts: Parts) -> None:
    said: list[str] = []
    parts.turn = Turn(problems=(ApiError("HTTP 502"),))
    parts.submitted = Submitted(stopped=ApiError("HTTP 503"))
    make(places, parts, said).turn()
    assert said == ["submit: HTTP 503", "fetch: HTTP 502"]


CHILD = """
import sys
from pathlib import Path
from tests.unit.test_validation_loop import Parts, make
from tests.unit.validation_support import make_places
import time, tests.unit.validation_support as support
clock = type("Real", (), {"__call__": lambda self: time.time(), "sleep": lambda self, s: time.sleep(s)})()
parts = Parts(clock)
loop = make(make_places(Path(sys.argv[1])), parts, pause=3600.0)
loop.say = lambda text: print(text, flush=True)
def clean():
    print("cleaned", flush=True)
loop.clean = clean
loop.run()
print("ended", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(places: ValidationPlaces, number: signal.Signals) -> None:
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(places.root)], stdout=subprocess.PIPE, text=True,
                             cwd=ROOT)
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "cleaned\n"
        assert holder_of(places.claim("loop")) is not None
        child.send_signal(number)
        assert child.stdout.read() == f"stopped: told to by {number.name}\nended\n"
        assert child.wait(PATIENCE) == 0
        assert holder_of(places.claim("loop")) is None
    finally:
        child.kill()
        child.wait()


def test_one_whose_claim_was_taken_over_stops(places: ValidationPlaces, parts: Parts) -> None:
    said: list[str] = []
    loop = make(places, parts, said)
    ends = time.monotonic() + PATIENCE

    def settle() -> None:
        folder = places.claim("loop")
        (folder / "g000099.json").write_text("{}")
        while not loop.stop() and time.monotonic() < ends:
            time.sleep(0.01)

    loop.settle = settle
    loop.run()
    assert said == ["stopped: its claim was taken over, or the workspace was moved away"]
    assert not parts.ran
