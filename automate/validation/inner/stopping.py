"""SIGTERM (and Slurm's other ways to say that time is up) turned into an exception, so that modules clean up.

Never writes a result: a start that was told to stop has none."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Stopped(BaseException):
    """This start was told to stop. Not an Exception, so that `except Exception` in a module lets it through."""

    def __init__(self, number: int) -> None:
        super().__init__(f"told to stop by {signal.Signals(number).name}")
        self.number = number


@dataclass
class Stop:
    """Whether a signal came. `closed`: from here on signals are only remembered."""

    number: int | None = None
    closed: bool = False


@contextmanager
def listening() -> Iterator[Stop]:
    """Raise Stopped in the main thread once, at the first signal; later ones are remembered only.

    Children that a module forks get the signals' own handling back.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def told(number: int, frame: FrameType | None) -> None:
        first = stop.number is None
        stop.number = number
        if first and not stop.closed:
            raise Stopped(number)

    _forks.watch()
    before = {number: signal.signal(number, told) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _forks.on = False


class _Forks:
    """Holds the signals back while a process forks: CPython drops one that reaches the child before it is set up."""

    def __init__(self) -> None:
        self.on = False
        self.hooked = False
        self.masks = threading.local()

    def watch(self) -> None:
        self.on = True
        if not self.hooked:
            os.register_at_fork(before=self._before, after_in_parent=self._restore, after_in_child=self._child)
            self.hooked = True

    def _before(self) -> None:
        self.masks.old = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS) if self.on else None

    def _restore(self) -> None:
        old = getattr(self.masks, "old", None)
        if old is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, old)

    def _child(self) -> None:
        if self.on and threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                signal.signal(number, signal.SIG_DFL)
        self._restore()


_forks = _Forks()
