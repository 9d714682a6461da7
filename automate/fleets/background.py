"""What a worker does every few seconds beside serving; a fault in it is not swallowed.

Never falls out of step: what comes late is left out, and not made up for."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Self

Act = Callable[[], Awaitable[None]]


async def steadily(period: float, act: Act, *, clock: Callable[[], float] = time.monotonic,
                   sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
    """Do something every `period` seconds, for the first time after one, until cancelled."""
    due = clock()
    while True:
        due = max(due + period, clock())
        await sleep(due - clock())
        await act()


class Background:
    """Runs acts, each with its period in seconds, as long as it is open. `failed` is told of a fault in one of them."""

    def __init__(self, acts: Mapping[Act, float], failed: Callable[[BaseException], None]) -> None:
        self._acts, self._failed = acts, failed
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        for act, period in self._acts.items():
            task = asyncio.create_task(steadily(period, act))
            task.add_done_callback(self._ended)
            self._tasks.append(task)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError, Exception):  # told already
                await task

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._failed(error)
