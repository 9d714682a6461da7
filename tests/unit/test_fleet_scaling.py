"""How many servers a fleet is to have: by table, and by properties over all that may be seen of a group."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automate.errors import ConfigError
from automate.fleets.scaling import Decision, Demand, GroupView, Server, decide, is_long, parse_replicas

LONG, SHORT, OVER = Demand(1000, 8), Demand(3, 8), Demand(0, 4)


def ready(*loads: float, quiet: float = 0.0, waiting: float = 0.0) -> tuple[Server, ...]:
    return tuple(Server(f"w{number}", f"{number}", load, waiting, quiet, float(number))
                 for number, load in enumerate(loads))


@pytest.mark.parametrize(("text", "expected"), [("4", (4, 4)), ("2..8", (2, 8)), (" 1..1 ", (1, 1)),
                                                ("1000", (1000, 1000))])
def test_replicas_are_read(text: str, expected: tuple[int, int]) -> None:
    assert parse_replicas(text) == expected


@pytest.mark.parametrize("text", ["", "0", "-1", "8..2", "2..", "..8", "2...8", "a", "1.5", "1001", "٤", "1e3", "2-8",
                                  "0..4", "99999999999"])
def test_other_replicas_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="no number of servers"):
        parse_replicas(text)


CASES: dict[str, tuple[GroupView, Decision]] = {
    "as wanted": (GroupView(2, 2, 2, ready=ready(1, 1)), Decision(2)),
    "one died": (GroupView(2, 2, 2, ready=ready(1)), Decision(2, ask=1)),
    "all died": (GroupView(2, 2, 2), Decision(2, ask=2)),
    "one is asked for already": (GroupView(2, 2, 2, queued=("5",), ready=ready(1)), Decision(2)),
    "one of which nobody can tell counts": (GroupView(2, 2, 2, ready=ready(1), held=1), Decision(2)),
    "and none goes for it": (GroupView(1, 1, 1, ready=ready(0), held=1), Decision(1)),
    "hopeless": (GroupView(2, 2, 2, hopeless="no such model"), Decision(2)),
    "too many wait": (GroupView(1, 1, 1, queued=("5", "6"), ready=ready(0)), Decision(1, cancel=("6", "5"))),
    "a loading one goes before one that serves": (
        GroupView(1, 1, 1, loading=("5",), ready=ready(0)), Decision(1, cancel=("5",))),
    "the least loaded goes": (GroupView(1, 1, 1, ready=ready(3, 1, 2)), Decision(1, retire=("w1", "w2"))),
    "of equals the youngest": (GroupView(1, 1, 1, ready=ready(0, 0)), Decision(1, retire=("w1",))),
    "a long queue": (GroupView(2, 8, 2, ready=ready(4, 4), demand=LONG), Decision(4, ask=2)),
    "never more than most": (GroupView(2, 3, 2, ready=ready(4, 4), demand=LONG), Decision(3, ask=1)),
    "a short queue": (GroupView(2, 8, 2, ready=ready(4, 4), demand=SHORT), Decision(2)),
    "those asked for still wait": (GroupView(2, 8, 4, queued=("7", "8"), ready=ready(4, 4), demand=LONG), Decision(4)),
    "those asked for still load": (GroupView(2, 8, 4, loading=("7", "8"), ready=ready(4, 4), demand=LONG),
                                   Decision(4)),
    "they came late": (GroupView(2, 8, 2, ready=ready(4, 4), demand=LONG, slow=True), Decision(2)),
    "nobody serves yet": (GroupView(2, 8, 2, loading=("1", "2"), demand=LONG), Decision(2)),
    "requests wait at each": (GroupView(1, 4, 2, ready=ready(9, 9, waiting=1)), Decision(4, ask=2)),
    "requests wait at none": (GroupView(1, 4, 2, ready=ready(9, 9)), Decision(2)),
    "quiet ones go, down to the least": (
        GroupView(2, 8, 5, ready=ready(0, 0, 0, 0, 1, quiet=200), idle=100), Decision(2, retire=("w3", "w2", "w1"))),
    "quiet, but not for long": (GroupView(1, 8, 3, ready=ready(0, 0, 0, quiet=50), idle=100), Decision(3)),
    "a fixed number stays": (GroupView(3, 3, 3, ready=ready(0, 0, 0, quiet=9999), idle=100), Decision(3)),
    "the tail": (GroupView(4, 4, 4, queued=("9",), ready=ready(2, 0, 0), demand=OVER, ends=True),
                 Decision(1, cancel=("9",), retire=("w2", "w1"))),
    "the tail keeps all with work": (GroupView(4, 4, 4, ready=ready(2, 1, 1), demand=OVER, ends=True), Decision(3)),
    "the tail keeps one": (GroupView(2, 2, 2, ready=ready(0, 0), demand=Demand(0, 0), ends=True),
                           Decision(1, retire=("w1",))),
    "the tail asks for one where none is left": (GroupView(2, 2, 2, demand=OVER, ends=True), Decision(1, ask=1)),
    "a fleet that others use has no tail": (GroupView(2, 2, 2, ready=ready(0, 0), demand=OVER), Decision(2)),
    "one beside the engine makes a long queue": (
        GroupView(0, 2, 0, demand=LONG, beside=ready(4)), Decision(1, ask=1)),
    "it counts as one that is doubled": (
        GroupView(0, 6, 1, ready=ready(4), demand=LONG, beside=ready(4)), Decision(3, ask=2)),
    "it is enough for the tail": (GroupView(0, 2, 0, demand=OVER, ends=True, beside=ready(4)), Decision(0)),
    "with it the tail keeps none": (
        GroupView(0, 2, 1, ready=ready(0), demand=OVER, ends=True, beside=ready(4)), Decision(0, retire=("w0",))),
    "a tail without servers of its own asks for none": (GroupView(0, 0, 0, demand=OVER, ends=True), Decision(0)),
    "some were cancelled by hand": (GroupView(4, 4, 2, ready=ready(0, 0, quiet=999), idle=100), Decision(2)),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_decided(case: str) -> None:
    view, expected = CASES[case]
    found = decide(view)
    assert (found.wanted, found.ask, found.cancel, found.retire) == (
        expected.wanted, expected.ask, expected.cancel, expected.retire)


def test_hopeless_says_why() -> None:
    assert decide(CASES["hopeless"][0]).why == "no such model"


def test_long_needs_somebody_to_wait_for() -> None:
    assert not is_long(None, ())
    assert not is_long(Demand(0), ready(1))


servers = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 200)), max_size=6)
demands = st.none() | st.builds(Demand, st.integers(0, 300), st.integers(0, 20))


@st.composite
def views(draw: st.DrawFn) -> GroupView:
    beside = ready(*([1.0] * draw(st.integers(0, 1))))
    least = draw(st.integers(0 if beside else 1, 6))
    most = draw(st.integers(least, 12))
    found = tuple(Server(f"w{at}", f"j{at}", float(load), float(min(load, waiting)), float(quiet), float(at))
                  for at, (load, waiting, quiet) in enumerate(draw(servers)))
    names = [f"q{number}" for number in range(draw(st.integers(0, 4)))]
    loading = [f"l{number}" for number in range(draw(st.integers(0, 4)))]
    return GroupView(least, most, draw(st.integers(0, 14)), tuple(names), tuple(loading), found,
                     draw(st.integers(0, 2)), draw(demands), draw(st.booleans()), draw(st.booleans()), (),
                     draw(st.none() | st.just("hopeless")), 100.0, beside)


@given(views())
def test_whatever_is_seen(view: GroupView) -> None:
    found = decide(view)
    tail = view.ends and view.demand is not None and view.demand.left <= 0
    given_back = len(found.cancel) + len(found.retire)
    assert not (found.ask and given_back), "asks and gives back at once"
    assert found.ask == 0 or view.have + found.ask <= view.most
    assert found.ask == 0 or view.hopeless is None
    assert set(found.cancel) <= {*view.queued, *view.loading}
    assert len(set(found.cancel)) == len(found.cancel)
    left = view.have - view.held - given_back
    least = int(not view.beside) if tail else min(view.floor, view.most)
    assert given_back == 0 or left >= least, "fewer than the least"
    if found.ask and view.have >= min(view.wanted, view.most):
        assert not view.queued and not view.loading and not view.slow, "asks for more while those asked for don't come"
    gone = set(found.retire)
    stays = [server for server in view.ready if server.worker not in gone]
    busy = [server for server in view.ready if server.worker in gone and server.load > 0]
    assert not busy or all(server.load > 0 for server in stays), "retires one with work while another is idle"
    if found.retire:
        assert set(found.cancel) == {*view.queued, *view.loading}, "retires a server while jobs wait"


@given(views())
def test_a_decision_that_was_done_is_not_done_again(view: GroupView) -> None:
    """After what was decided has happened, the same view asks for nothing more of the kind."""
    found = decide(view)
    after = GroupView(
        view.least, view.most, found.wanted,
        (*(job for job in view.queued if job not in found.cancel), *(f"new{number}" for number in range(found.ask))),
        tuple(job for job in view.loading if job not in found.cancel),
        tuple(server for server in view.ready if server.worker not in found.retire), view.held, view.demand, view.ends,
        view.slow, view.failed, view.hopeless, view.idle, view.beside)
    again = decide(after)
    assert not (found.ask and again.acts), "takes back what it has just done"
    assert not (found.why.startswith("no request") and again.ask), "asks for what it has just given back"
