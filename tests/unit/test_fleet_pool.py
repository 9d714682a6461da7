"""Which worker gets a request, and that its workload rises and falls with it, however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automate.errors import ServerError
from automate.serving.fleet.limits import GAME_TOKENS, FleetLimiter, Lengths
from automate.serving.fleet.pool import SLACK, Pool, Slot, bound, choose, least_loaded
from automate.serving.limiter import Limiter
from automate.settings_fleet import Routing


def slot(worker: str, in_flight: int = 0, limit: int = 10, *, usable: bool = True) -> Slot:
    found = Slot(worker, Limiter(limit), usable)
    found.limiter.in_flight = in_flight
    return found


def pool_of(routing: Routing, **limits: int) -> Pool:
    pool = Pool(routing)
    for worker, limit in limits.items():
        pool.join(slot(worker, limit=limit))
    return pool


async def names(pool: Pool, questions: Sequence[str | None]) -> str:
    return "".join([(await pool.take(question)).worker for question in questions])


async def soon(waiting: Awaitable[Slot]) -> Slot:
    """What is waited for; a failure where it doesn't come."""
    return await asyncio.wait_for(waiting, 10)


# --- the choice ---------------------------------------------------------------------------------------
def test_least_is_by_share_of_the_limit_and_only_where_there_is_room() -> None:
    half, third, full = slot("half", 5, 10), slot("third", 10, 30), slot("full", 2, 2)
    assert least_loaded([half, third, full]) is third
    assert least_loaded([full, slot("out", usable=False)]) is None


def test_a_question_stays_with_its_worker_up_to_the_overload() -> None:
    mine, other = slot("mine", 6), slot("other", 4)
    assert choose([mine, other], [mine], 1.5) is mine
    mine.limiter.in_flight = 7
    assert choose([mine, other], [mine], 1.5) is other


def test_a_little_more_never_moves_a_question() -> None:
    mine, other = slot("mine", 2, 20), slot("other", 0, 20)
    assert bound(0, 1.5) == SLACK
    assert choose([mine, other], [mine], 1.5) is mine


def test_a_question_whose_worker_is_full_waits_for_it_while_the_others_have_much_to_do() -> None:
    mine, other = slot("mine", 10), slot("other", 8)
    assert choose([mine, other], [mine], 1.5) is None
    other.limiter.in_flight = 5
    assert choose([mine, other], [mine], 1.5) is other


def test_another_worker_that_had_the_question_comes_before_one_that_had_not() -> None:
    last, before, never = slot("last", 10), slot("before", 9), slot("never", 8)
    assert choose([last, before, never], [before, last], 1.5) is before
    last.usable = before.usable = False
    assert choose([last, before, never], [before, last], 1.5) is never


def test_nobody_has_room() -> None:
    assert choose([slot("a", 10), slot("b", 10)], [], 1.5) is None


# --- the pool -----------------------------------------------------------------------------------------
async def test_questions_spread_and_stay() -> None:
    pool = pool_of("affinity", a=20, b=20)
    assert await names(pool, ["q1", "q1", "q2", "q2", "q1", "q2"]) == "aabbab"


async def test_round_robin_goes_on_in_turn_and_past_full_workers() -> None:
    pool = pool_of("round-robin", a=2, b=1, c=2)
    assert await names(pool, [None] * 5) == "abcac"


async def test_a_place_goes_to_a_request_of_a_question_that_the_worker_had() -> None:
    pool = pool_of("affinity", a=4, b=4)
    first: dict[str, list[Slot]] = {"qa": [], "qb": []}
    for name in ("qa", "qb") * 4:
        first[name].append(await pool.take(name))
    assert {name: {one.worker for one in taken} for name, taken in first.items()} == {"qa": {"a"}, "qb": {"b"}}
    waiting = [asyncio.create_task(pool.take(name)) for name in ("qa", "new", "qb")]
    await asyncio.sleep(0)
    assert pool.waiting == 3
    pool.give(first["qb"][0])
    assert (await soon(waiting[2])).worker == "b"
    assert not waiting[0].done()
    pool.give(first["qb"][1])
    assert (await soon(waiting[1])).worker == "b"
    pool.give(first["qa"][0])
    assert (await soon(waiting[0])).worker == "a"


async def test_what_waits_for_a_worker_goes_elsewhere_when_it_leaves() -> None:
    pool = pool_of("affinity", a=1, b=10)
    for question in ("qa", *[f"q{n}" for n in range(8)]):
        await pool.take(question)
    waiting = asyncio.create_task(pool.take("qa"))
    await asyncio.sleep(0)
    assert pool.waiting == 1
    pool.leave("a")
    assert pool.waiting == 0
    assert (await soon(waiting)).worker == "b"


async def test_there_will_be_no_worker_is_told_to_who_waits_and_who_comes() -> None:
    pool = pool_of("affinity")
    waiting = asyncio.create_task(pool.take("q"))
    await asyncio.sleep(0)
    pool.fail(ServerError("none will come"))
    for asking in (waiting, pool.take("q")):
        with pytest.raises(ServerError, match="none will come"):
            await asking
    pool.fail(None)
    pool.join(slot("a"))
    assert (await pool.take("q")).worker == "a"


async def test_a_place_given_to_a_request_that_was_cancelled_is_free_again() -> None:
    pool = pool_of("affinity", a=1)
    taken = await pool.take("q")
    first, second = (asyncio.create_task(pool.take("q")) for _ in range(2))
    await asyncio.sleep(0)
    pool.give(taken)  # to the first, which has not run yet
    first.cancel()
    assert (await soon(second)).worker == "a"
    assert taken.in_flight == 1


def test_more_may_wait_for_their_own_worker_only_with_affinity_and_several_workers() -> None:
    assert pool_of("affinity", a=4, b=4).places == 12
    assert pool_of("least", a=4, b=4).places == 8
    assert pool_of("affinity", a=4).places == 4
    assert pool_of("affinity").places == 0


# --- whatever happens ---------------------------------------------------------------------------------
EVENT = st.one_of(
    st.tuples(st.just("ask"), st.integers(0, 5)), st.tuples(st.just("end"), st.integers(0, 30)),
    st.tuples(st.just("cancel"), st.integers(0, 30)), st.tuples(st.just("join"), st.integers(1, 4)),
    st.tuples(st.just("leave"), st.integers(0, 5)), st.tuples(st.just("aside"), st.integers(0, 5)),
    st.tuples(st.just("back"), st.integers(0, 5)), st.tuples(st.just("limit"), st.integers(2, 12)),
    st.tuples(st.just("run"), st.just(0)),
)


class Play:
    """Requests against a pool, as events say; every worker that ever was is checked."""

    def __init__(self, routing: Routing) -> None:
        self.pool = Pool(routing)
        self.ever: list[Slot] = []
        self.ends: list[asyncio.Event] = []
        self.asking: list[asyncio.Task[None]] = []
        self.served = 0

    async def request(self, question: str, end: asyncio.Event) -> None:
        taken = await self.pool.take(question)
        try:
            await end.wait()
            self.served += 1
        finally:
            self.pool.give(taken)

    def known(self, number: int) -> Slot | None:
        slots = list(self.pool.slots.values())
        return slots[number % len(slots)] if slots else None

    def happen(self, what: str, number: int) -> None:
        known = self.known(number)
        if what == "ask":
            end = asyncio.Event()
            self.ends.append(end)
            self.asking.append(asyncio.create_task(self.request(f"q{number}", end)))
        elif what == "end" and self.ends:
            self.ends[number % len(self.ends)].set()
        elif what == "cancel" and self.asking:
            self.asking[number % len(self.asking)].cancel()
        elif what == "join":
            self.ever.append(slot(f"w{len(self.ever)}", limit=number))
            self.pool.join(self.ever[-1])
        elif what == "leave" and known:
            self.pool.leave(known.worker)
        elif what in ("aside", "back") and known:
            known.usable = what == "back"
            self.pool.changed()
        elif what == "limit" and known:
            known.limiter.limit = number
            self.pool.changed()

    def check(self) -> None:
        assert all(one.in_flight >= 0 for one in self.ever)
        if self.pool.waiting:
            idle = [one for one in self.pool.slots.values() if one.usable and one.in_flight == 0]
            assert not idle or any(one.usable and one.in_flight for one in self.ever), "who waits is never forgotten"


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["affinity", "least", "round-robin"]), st.lists(EVENT, max_size=60))
def test_workload_is_never_negative_and_nobody_is_forgotten(routing: Routing, events: list[tuple[str, int]]) -> None:
    async def play() -> None:
        one = Play(routing)
        for what, number in events:
            if what == "run":
                for _ in range(3):
                    await asyncio.sleep(0)
            else:
                one.happen(what, number)
            one.check()
        for end in one.ends:
            end.set()
        one.happen("join", 3)
        await asyncio.wait_for(asyncio.gather(*one.asking, return_exceptions=True), 10)
        assert one.served == sum(not task.cancelled() for task in one.asking)
        assert [slot.in_flight for slot in one.ever] == [0] * len(one.ever)
        assert one.pool.waiting == 0

    asyncio.run(play())


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 12)), min_size=1, max_size=6), st.data())
def test_the_choice_has_room_and_waits_only_for_a_worker_that_is_at_work(
        loads: list[tuple[int, int]], data: st.DataObject) -> None:
    slots = [slot(f"w{n}", in_flight, limit) for n, (in_flight, limit) in enumerate(loads)]
    had = data.draw(st.lists(st.sampled_from(slots), unique_by=id))
    chosen = choose(slots, had, 1.5)
    if chosen is not None:
        assert chosen.room
    elif any(one.room for one in slots):
        assert any(one.in_flight and not one.room for one in had)


# --- the engine's limit -------------------------------------------------------------------------------
async def test_the_fleets_limit_wakes_who_waits_and_never_falls_to_nothing() -> None:
    limiter = FleetLimiter()
    limiter.follow(0)
    await limiter.acquire()
    waiting = asyncio.create_task(limiter.acquire())
    await asyncio.sleep(0)
    assert not waiting.done()
    limiter.follow(2)
    await asyncio.wait_for(waiting, 10)
    assert (limiter.limit, limiter.in_flight) == (2, 2)
    limiter.follow(1)
    assert limiter.crowded


def test_the_mean_length_is_taken_once_enough_was_seen() -> None:
    lengths = Lengths()
    for _ in range(19):
        lengths.add(900, 100)
    assert lengths.mean == GAME_TOKENS
    lengths.add(900, 100)
    assert lengths.mean == 1000
