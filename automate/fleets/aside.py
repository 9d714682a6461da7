"""A call that may hang, such as one to a Slurm that doesn't answer, in a thread of its own.

Never keeps the process: who waits may give up, and the process may end while the call still hangs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def aside(act: Callable[[], T], *, patience: float | None = None) -> T:
    """What `act` gives or raises. Raises TimeoutError after `patience` seconds; what it does then goes on by itself."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: Callable[[], None]) -> None:
        if not future.done():
            result()

    def run() -> None:
        try:
            found = act()
        except BaseException as error:
            failed = error
            tell(lambda: future.set_exception(failed))
        else:
            tell(lambda: future.set_result(found))

    def tell(result: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result)

    threading.Thread(target=run, daemon=True, name="aside").start()
    return await asyncio.wait_for(future, patience)
