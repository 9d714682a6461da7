"""A claim kept alive by a thread while its holder works.

Never takes a claim and never gives one up."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from automate.claims import Claim


class Beat:
    """Whether the claim was lost: somebody else has taken over, so that nothing may be written any more."""

    def __init__(self) -> None:
        self._lost = threading.Event()

    @property
    def lost(self) -> bool:
        return self._lost.is_set()

    def lose(self) -> None:
        """Say that it is lost."""
        self._lost.set()


@contextmanager
def beating(claim: Claim, every: float) -> Iterator[Beat]:
    """Beat every so many seconds until the block ends."""
    beat, done = Beat(), threading.Event()

    def run() -> None:
        while not done.wait(every):
            if not claim.beat():
                beat.lose()
                return

    thread = threading.Thread(target=run, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield beat
    finally:
        done.set()
        thread.join(timeout=5)
