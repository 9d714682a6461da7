"""Work that may block for long, done in a thread beside, so that its holder can beat, be told to stop, and give up.

Never waits for work that was given up: its thread is left to end by itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def beside(work: Callable[[], T], look: Callable[[], object], every: float,
           cut_off: Callable[[], object] = bool) -> T:
    """What `work` gives or raises. `look` is called every so many seconds meanwhile: what it raises ends the waiting.

    `cut_off` is called then, to have the thread end soon.
    """
    given: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            given.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        thread.join(every)
        while thread.is_alive():
            look()
            thread.join(every)
    except BaseException:
        cut_off()
        raise
    if failed:
        raise failed[0]
    return given[0]
