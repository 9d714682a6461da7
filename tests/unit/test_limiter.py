"""The limiter: never more in flight than the limit, and the limit follows what the server says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from automate.serving.limiter import FIRST, HIGHEST, LOWEST, Limiter
from automate.serving.metrics import ServerMetrics

IDLE = ServerMetrics(waiting=0.0, preemptions=0.0)


async def filled(limiter: Limiter) -> Limiter:
    """A limiter with all its places taken."""
    while limiter.in_flight < limiter.limit:
        await limiter.acquire()
    return limiter


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_no_more_in_flight_than_the_limit() -> None:
    limiter = Limiter(3)
    gate, peak = asyncio.Event(), 0

    async def work() -> None:
        nonlocal peak
        await limiter.acquire()
        peak = max(peak, limiter.in_flight)
        await gate.wait()
        limiter.release()

    tasks = [asyncio.create_task(work()) for _ in range(10)]
    await settle()
    assert (limiter.in_flight, peak) == (3, 3)
    gate.set()
    await asyncio.gather(*tasks)
    assert (limiter.in_flight, peak, limiter.peak) == (0, 3, 3)


async def test_a_cancelled_waiter_takes_no_place() -> None:
    limiter = await filled(Limiter(1))
    waiter = asyncio.create_task(limiter.acquire())
    await settle()
    waiter.cancel()
    await asyncio.wait([waiter])
    limiter.release()
    assert limiter.in_flight == 0
    await limiter.acquire()
    assert limiter.in_flight == 1


async def test_a_rising_limit_lets_waiters_in() -> None:
    limiter = await filled(Limiter(first=8))
    waiters = [asyncio.create_task(limiter.acquire()) for _ in range(3)]
    await settle()
    assert limiter.in_flight == 8
    limiter.observe(IDLE)
    await settle()
    assert (limiter.limit, limiter.in_flight) == (9, 9)
    limiter.size_for(20, 1.0)
    await asyncio.gather(*waiters)
    assert limiter.in_flight == 11


async def test_a_falling_limit_stops_nobody_who_is_in_flight() -> None:
    limiter = await filled(Limiter(first=10))
    limiter.observe(ServerMetrics(waiting=100.0))
    assert (limiter.limit, limiter.in_flight) == (7, 10)
    waiter = asyncio.create_task(limiter.acquire())
    for _ in range(3):
        limiter.release()
        await settle()
        assert not waiter.done()
    limiter.release()
    await waiter
    assert limiter.in_flight == 7


async def test_it_rises_only_while_it_is_in_use_and_nothing_waits() -> None:
    limiter = Limiter()
    assert limiter.limit == FIRST
    limiter.observe(IDLE)
    assert limiter.limit == FIRST
    await filled(limiter)
    limiter.observe(IDLE)
    assert limiter.limit == FIRST + FIRST // 8
    await filled(limiter)
    limiter.observe(ServerMetrics())
    assert limiter.limit == FIRST + FIRST // 8


async def test_it_stays_within_its_bounds() -> None:
    limiter = Limiter()
    for _ in range(100):
        limiter.told_to_wait()
    assert limiter.limit == LOWEST
    for _ in range(100):
        await filled(limiter)
        limiter.observe(IDLE)
    assert limiter.limit == HIGHEST
    assert Limiter(first=10**6).limit == HIGHEST
    assert Limiter(first=0).limit == LOWEST


async def tell_to_wait(limiter: Limiter) -> None:
    limiter.told_to_wait()


async def preempt(limiter: Limiter) -> None:
    limiter.observe(ServerMetrics(waiting=0.0, preemptions=3.0))
    limiter.observe(ServerMetrics(waiting=0.0, preemptions=4.0))


async def make_wait(limiter: Limiter) -> None:
    limiter.observe(ServerMetrics(waiting=1.0))


@pytest.mark.parametrize("trouble", [tell_to_wait, preempt, make_wait])
async def test_it_falls_on_back_pressure(trouble: Callable[[Limiter], Awaitable[None]]) -> None:
    limiter = await filled(Limiter(first=100))
    await trouble(limiter)
    assert LOWEST <= limiter.limit < 100
    fixed = Limiter(100)
    await trouble(fixed)
    assert fixed.limit == 100


async def test_old_preemptions_are_no_trouble() -> None:
    limiter = Limiter(first=100)
    for _ in range(3):
        limiter.observe(ServerMetrics(waiting=0.0, preemptions=7.0))
    assert limiter.limit == 100


async def test_a_busy_signal_counts_from_what_is_in_flight() -> None:
    limiter = Limiter(first=100)
    for _ in range(10):
        await limiter.acquire()
    limiter.told_to_wait()
    assert limiter.limit == 7


async def test_the_first_size_comes_from_the_servers_memory() -> None:
    limiter = Limiter()
    limiter.size_for(300_000, 3000.0)
    assert limiter.limit == 100
    limiter.size_for(100, 3000.0)
    assert limiter.limit == LOWEST
    limiter.size_for(1000, 0.0)
    assert limiter.limit == 1000
    fixed = Limiter(5)
    fixed.size_for(300_000, 3000.0)
    assert fixed.limit == 5
