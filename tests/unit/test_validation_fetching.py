"""Fetching: fair over tasks, within their limits, never too many, never in a hurry, nothing lost."""

from __future__ import annotations

import errno
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from automate.claims import take
from automate.errors import ClaimedError, ConfigError, FlockError, StorageError
from automate.validation import rates
from automate.validation.api_errors import ApiRefused, ApiUnavailable, BadKey, NoSubmissions, RateLimited
from automate.validation.assignments import Assignment, DataFile, State
from automate.validation.fetching import Fetcher, Turn
from automate.validation.rates import LEAST, MOST, Rate
from automate.validation.spool import Spool
from automate.validation_places import ValidationPlaces
from tests.unit.validation_support import NOW, Clock, FakeApi, admit, make_places, make_reply, nothing_needed

NOTHING = NoSubmissions("No task submissions available to validate")


class Server:
    """An API with a queue of submissions a task and a limit of one lookup an `interval` for each."""

    def __init__(self, clock: Clock, interval: float = 0.0, **queues: int) -> None:
        self.clock, self.interval, self.queues = clock, interval, queues
        self.last: dict[str, float] = {}
        self.shared = False
        self.asked: list[str] = []
        self.refused = 0
        self.number = 0

    def request_assignment(self, task_id: str) -> bytes:
        self.asked.append(task_id)
        limited = "*" if self.shared else task_id
        if self.clock() - self.last.get(limited, 0.0) < self.interval:
            self.refused += 1
            raise RateLimited("1 per so many", seconds=self.interval)
        self.last[limited] = self.clock()
        if not self.queues.get(task_id):
            raise NOTHING
        self.queues[task_id] -= 1
        self.number += 1
        return make_reply(self.number, int(task_id))


@pytest.fixture
def places(tmp_path: Path) -> ValidationPlaces:
    return make_places(tmp_path, lookup_interval=0.0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def spool(places: ValidationPlaces, clock: Clock) -> Spool:
    return Spool(places, stale=0.0, clock=clock)


def fetcher(spool: Spool, api: object, *tasks: str, most: int = 8,
            acquire: Callable[[Assignment], Assignment] = nothing_needed, **values: object) -> Fetcher:
    return Fetcher(spool.places, spool, api, "example", tasks or ("7",), acquire=acquire,  # type: ignore[arg-type]
                   most=most, clock=spool.clock, **values)  # type: ignore[arg-type]


def admitted(turn: Turn) -> list[str]:
    return [one.task_id for one in turn.admitted]


# By turns


def test_tasks_are_asked_by_turns(spool: Spool, clock: Clock) -> None:
    turn = fetcher(spool, Server(clock, **{"1": 9, "2": 9, "3": 9}), "1", "2", "3", most=7).turn()
    assert Counter(admitted(turn)) == {"1": 3, "2": 2, "3": 2}
    assert turn.full


def test_an_idle_first_task_starves_nobody(spool: Spool, clock: Clock) -> None:
    server = Server(clock, **{"2": 2, "3": 2})
    turn = fetcher(spool, server, "1", "2", "3").turn()
    assert Counter(admitted(turn)) == {"2": 2, "3": 2}
    assert server.asked.count("1") == 1
    assert not turn.full


def test_a_limit_over_all_tasks_starves_none(spool: Spool, clock: Clock) -> None:
    server = Server(clock, 60.0, **{"1": 99, "2": 99, "3": 99})
    server.shared = True
    found: Counter[str] = Counter()
    for _ in range(9):
        found.update(admitted(fetcher(spool, server, "1", "2", "3", most=99).turn()))
        clock.sleep(65)
    assert found == {"1": 3, "2": 3, "3": 3}


def test_a_limit_is_learned_and_kept_to(spool: Spool, clock: Clock) -> None:
    server = Server(clock, 180.0, **{"1": 5, "2": 5})
    fetch = fetcher(spool, server, "1", "2", most=10)
    for _ in range(2000):
        turn = fetch.turn()
        assert all(when >= clock() for when in turn.waits.values())
        clock.sleep(max(LEAST, min(turn.waits.values()) - clock()))
        if turn.full:
            break
    assert spool.count(State.FETCHED) == 10
    assert server.refused == 2  # once for each task: then it is known
    assert clock() - NOW < 180 * 1.03 * 7


def test_what_was_learned_survives_a_restart(spool: Spool, clock: Clock) -> None:
    server = Server(clock, 60.0, **{"1": 5})
    fetcher(spool, server, "1").turn()
    for _ in range(50):
        fetcher(spool, server, "1").turn()
        clock.sleep(1.0)
    assert len(server.asked) == 2
    clock.sleep(12.0)
    fetcher(spool, server, "1").turn()
    assert (len(server.asked), server.number) == (3, 2)


def test_a_process_that_dies_while_asking_keeps_to_the_limit(spool: Spool, places: ValidationPlaces,
                                                            clock: Clock) -> None:
    places = make_places(places.root, lookup_interval=100.0)
    spool = Spool(places, stale=0.0, clock=clock)
    with pytest.raises(KeyboardInterrupt):
        fetcher(spool, FakeApi(KeyboardInterrupt())).turn()
    api = FakeApi()
    turn = fetcher(spool, api).turn()
    assert (api.calls, turn.waits) == ([], {"7": NOW + 100})
    assert len(spool.lookups.lost(NOW * 2)) == 1


@pytest.mark.parametrize("error", [
    NOTHING, RateLimited("?"), RateLimited("?", seconds=0.0), RateLimited("?", seconds=float("nan")),
    RateLimited("?", seconds=-3.0), ApiUnavailable("away"), ApiRefused("what?"), BadKey("no")])
def test_nothing_is_asked_twice_without_a_wait(spool: Spool, clock: Clock, error: Exception) -> None:
    api = FakeApi(*[error] * 50)
    for _ in range(3):
        turn = fetcher(spool, api, "1", "2").turn()
        for when in turn.waits.values():
            assert clock() <= when <= clock() + MOST
    assert len(api.calls) <= (1 if isinstance(error, BadKey) else 2) + 2
    assert Counter(task for _, task, _ in api.calls).most_common(1)[0][1] == 1


def test_outages_are_waited_for_longer_and_longer(spool: Spool, clock: Clock) -> None:
    api = FakeApi(*[ApiUnavailable("away")] * 12, ApiUnavailable("away", retry_after=4000.0))
    waits = []
    for _ in range(13):
        turn = fetcher(spool, api).turn()
        waits.append(turn.waits["7"] - clock())
        clock.now = turn.waits["7"]
    assert waits[:4] == [15, 30, 60, 120]
    assert waits[10:] == [900, 900, 4000]


def test_a_task_that_always_fails_bars_no_other(spool: Spool, clock: Clock) -> None:
    server = Server(clock, **{"2": 6})

    class Half:
        def request_assignment(self, task_id: str) -> bytes:
            if task_id == "1":
                raise ApiUnavailable("HTTP 500", unsure=True)
            return server.request_assignment(task_id)

    assert admitted(fetcher(spool, Half(), "1", "2", most=4).turn()) == ["2"] * 4


# How many


def test_never_more_outstanding_than_may_be(spool: Spool, clock: Clock) -> None:
    for number, state in (("91", State.RUNNING), ("92", State.DONE), ("93", State.SUBMITTED), ("94", State.GIVEN_UP)):
        spool.move(admit(spool, number), state)
    server = Server(clock, **{"7": 9})
    turn = fetcher(spool, server, most=4).turn()
    assert (len(turn.admitted), turn.full) == (2, True)
    assert fetcher(spool, server, most=4).turn() == Turn((), turn.waits, (), True)
    assert len(server.asked) == 2


def test_two_do_not_fetch_at_once(spool: Spool, places: ValidationPlaces) -> None:
    take(places.claim("fetch"), stale=90)
    with pytest.raises(ClaimedError):
        fetcher(spool, FakeApi()).turn()


def test_stopping_and_long_turns(spool: Spool, clock: Clock) -> None:
    server = Server(clock, **{"7": 9})
    assert len(fetcher(spool, server, stop=lambda: bool(server.asked)).turn().admitted) == 1

    def slow(assignment: Assignment) -> Assignment:
        clock.sleep(400)
        return assignment

    assert len(fetcher(spool, server, acquire=slow).turn().admitted) == 2


@pytest.mark.parametrize("task", ["", "../x", "a/b", "x" * 61, "\x1b[31m"])
def test_task_ids_that_can_not_be(spool: Spool, task: str) -> None:
    with pytest.raises(ConfigError):
        fetcher(spool, FakeApi(), task)


# Replies


def test_replies_that_a_crash_left_come_first(spool: Spool) -> None:
    spool.keep(make_reply(5), "7", "example")
    spool.keep(make_reply(5), "7", "example")
    spool.keep(make_reply(6), "7", "example")
    turn = fetcher(spool, FakeApi(NOTHING)).turn()
    assert sorted(one.id for one in turn.admitted) == ["5", "6"]
    assert spool.incoming() == []


def test_a_reply_that_got_no_name_is_admitted(spool: Spool) -> None:
    lookup = spool.lookups.begin("7", "example", NOW)
    lookup.path.write_bytes(make_reply(5))
    assert [one.id for one in fetcher(spool, FakeApi(NOTHING)).turn().admitted] == ["5"]


def test_hostile_replies_are_kept_and_the_others_go_on(spool: Spool, clock: Clock) -> None:
    bodies = [b"", b"\xff\xfe", b"[]", b'{"id": null}', b'{"id": "../../etc"}', b'{"id": {"a": 1}}', b'{"id": 1e400}']
    replies = [*bodies, b'{"id": 5}', make_reply(6, 8), make_reply(7)]
    problems: list[FlockError] = []
    for _ in range(len(replies) + 1):
        problems += fetcher(spool, FakeApi(*replies[:1], NOTHING)).turn().problems
        del replies[:1]
        clock.sleep(LEAST)
    assert len(spool.lookups.refused()) == len(bodies)
    assert [one.id for one in spool.listed(State.GIVEN_UP)] == ["5", "6"]
    assert [one.id for one in spool.listed(State.FETCHED)] == ["7"]
    assert len(problems) == len(bodies) + 2
    assert all(one.cause == "reply" and one.problem for one in spool.listed(State.GIVEN_UP))


@pytest.mark.parametrize("body", [make_reply(5), b"{}", b'{"id": {}}'])
def test_an_api_that_gives_the_same_again_and_again_is_not_hurried(spool: Spool, body: bytes) -> None:
    api = FakeApi(*[body] * 50)
    for _ in range(3):
        fetcher(spool, api).turn()
    assert len(api.calls) <= 2
    assert spool.count(State.FETCHED) <= 1


def test_a_lost_reply_is_noted_and_a_sure_one_is_not(spool: Spool) -> None:
    errors = [ApiUnavailable("cut", unsure=True), ApiUnavailable("refused"), NOTHING, ApiRefused("no")]
    fetcher(spool, FakeApi(*errors), "1", "2", "3", "4").turn()
    assert [one.task_id for one in spool.lookups.lost(NOW * 2)] == ["1"]


# Files


def test_files_that_could_not_be_had_are_tried_again_later(spool: Spool, clock: Clock) -> None:
    tries: list[str] = []

    def acquire(assignment: Assignment) -> Assignment:
        tries.append(assignment.id)
        if len(tries) < 3:
            return spool.save(replace(assignment, problem="404", cause="data"))
        return spool.save(replace(assignment, problem=None, cause=None, data=DataFile("x", 1, "a")))

    fetch = fetcher(spool, FakeApi(make_reply(5, validation_set_url="https://x/y"), *[NOTHING] * 20), acquire=acquire)
    assert "404" in str(fetch.turn().problems[0])
    assert not fetch.turn().problems
    clock.sleep(31)
    assert fetch.turn().problems
    clock.sleep(59)
    fetch.turn()
    assert len(tries) == 2
    clock.sleep(2)
    fetch.turn()
    clock.sleep(9999)
    fetch.turn()
    assert tries == ["5"] * 3
    assert spool.listed()[0].ready


def test_one_whose_url_has_died_takes_up_no_place(spool: Spool, clock: Clock) -> None:
    def acquire(assignment: Assignment) -> Assignment:
        return spool.save(replace(assignment, problem="403", cause="url-expired"))

    def turn(*replies: bytes) -> Turn:
        return fetcher(spool, FakeApi(*replies, NOTHING), acquire=acquire, most=2).turn()

    body = make_reply(5, validation_set_url="https://x/y")
    turn(body)
    clock.sleep(3599)
    turn()
    assert spool.count(State.FETCHED) == 1
    clock.sleep(2)
    turn()
    [given] = spool.listed(State.GIVEN_UP)
    assert (given.cause, "403" in str(given.problem)) == ("url-died", True)
    clock.sleep(60)
    turn(body)
    [again] = spool.listed(State.FETCHED)
    assert again.id == "5"
    assert again.url_expires is not None and again.url_expires > clock() + 3500


def test_one_whose_files_break_something_bars_no_other(spool: Spool) -> None:
    def acquire(assignment: Assignment) -> Assignment:
        if assignment.id == "5":
            raise KeyError("validation_set_url")
        return assignment

    turn = fetcher(spool, FakeApi(make_reply(5), make_reply(6), NOTHING), acquire=acquire).turn()
    assert [one.id for one in turn.admitted] == ["5", "6"]
    assert "KeyError" in str(turn.problems[0])


# A full disk


def test_on_a_full_disk_nothing_is_asked(spool: Spool, places: ValidationPlaces) -> None:
    places = make_places(places.root, min_free_gb=5.0)
    api = FakeApi(make_reply(1))
    turn = fetcher(Spool(places), api, free=lambda _: 4_900_000_000).turn()
    assert "min_free_gb" in str(turn.problems[0])
    assert not api.calls


def test_a_disk_that_is_full_in_the_middle_stops_the_turn(spool: Spool) -> None:
    def acquire(assignment: Assignment) -> Assignment:
        error = OSError(errno.ENOSPC, "full")
        raise StorageError.of(error, "x", "download") from error

    api = FakeApi(make_reply(1), make_reply(2))
    turn = fetcher(spool, api, acquire=acquire).turn()
    assert (len(api.calls), len(turn.problems)) == (1, 1)
    assert spool.places.reserve.exists()


# Arithmetic


@given(some.floats(), some.floats(min_value=0, max_value=1e9), some.integers(0, 10 ** 6))
def test_waits_are_bounded_whatever_is_said(seconds: float, wanted: float, outages: int) -> None:
    rate = Rate(outages=outages)
    for made in (rates.limited(rate, NOW, wanted, seconds), rates.empty(rate, NOW, wanted),
                 rates.outage(rate, NOW, wanted, None if math.isnan(seconds) else seconds),
                 rates.asked(rate, NOW, wanted)):
        assert NOW + LEAST <= made.next <= NOW + MOST
    assert NOW <= rates.granted(rate, NOW, wanted).next <= NOW + MOST


@pytest.mark.parametrize("text", ["", "{", "[]", '{"7": 3}', '{"7": {"limit": "x"}}', '{"7": {"next": 1e999}}',
                                  '{"7": {"other": 1}}', '{"7": {"next": -5}}', '{"7": {"limit": [1]}}'])
def test_a_broken_file_of_rates_is_left_out(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rates.json"
    path.write_text(text)
    assert rates.load(path, NOW) == {}


def test_a_clock_that_was_set_back_costs_little(tmp_path: Path) -> None:
    path = tmp_path / "rates.json"
    rates.save(path, {"7": Rate(60.0, NOW, NOW + 60, 1)})
    assert rates.load(path, NOW) == {"7": Rate(60.0, NOW, NOW + 60, 1)}
    assert rates.load(path, 1000.0) == {"7": Rate(60.0, 1000.0, 1000.0, 1)}
    soon = Rate(60.0, NOW, NOW + MOST, 1)
    rates.save(path, {"7": soon})
    assert rates.load(path, NOW) == {"7": soon}


def test_a_task_that_a_wrong_clock_put_off_is_asked(spool: Spool) -> None:
    away = ApiUnavailable("away")
    spool.clock = Clock(NOW + 400 * 86400)
    fetcher(spool, FakeApi(away)).turn()
    spool.clock = Clock()
    api = FakeApi(away, away)
    for _ in range(2):
        fetcher(spool, api).turn()
        assert len(api.calls) == 1


def test_files_that_a_wrong_clock_put_off_are_had(spool: Spool) -> None:
    clock, asked = Clock(NOW + 400 * 86400), list[str]()

    def acquire(assignment: Assignment) -> Assignment:
        asked.append(assignment.id)
        raise ApiUnavailable("the hub is away")

    spool.clock = clock
    admit(spool, "1", fetched_at=clock.now, needs_data=True)
    one = fetcher(spool, FakeApi(NOTHING), acquire=acquire)
    one.turn()
    one.turn()
    assert asked == ["1"]
    clock.now = NOW
    one.turn()
    one.turn()
    assert asked == ["1", "1"]
