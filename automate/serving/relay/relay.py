"""An HTTP/1.1 relay: asks for the key, chooses where a request goes, passes it on and the reply back as it comes.

Never passes a request without the key on, and never has more than one request of a connection on its way."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from dataclasses import astuple

from automate.serving.relay.client import House, Patience
from automate.serving.relay.door import Door
from automate.serving.relay.exchange import Trade
from automate.serving.relay.listening import listen, room
from automate.serving.relay.requests import RequestReader
from automate.serving.relay.terms import Answer, Asked, Counting, Mend, Pick, Quick, Target
from automate.serving.relay.upstream import Pool

__all__ = ["Answer", "Asked", "Counting", "Mend", "Patience", "Pick", "Quick", "Relay", "Target"]

_SWEEP = 1.0
_RETRY_AFTER = 5.0
_PATIENCE = Patience()


class Relay:
    """Listens at one address. `start()`, later `drain()` and `close()`.

    `open_paths`: GET paths that need no key (/health). A request without the key is answered with 401 in OpenAI's
    shape; one whose upstream can't be reached with 502. `quick`: asked before `pick`, and may choose at once, which
    spares a task; `mend`: asked for what a Target with `mend` says in a small plain-text error; `largest`: bytes of a
    request's body; `most`: connections at once, handshakes included, None for what the process can hold: where there
    are more, the oldest that has not shown the key is closed.
    """

    def __init__(self, key: str, pick: Pick, *, tls: ssl.SSLContext | None = None, counting: Counting | None = None,
                 open_paths: frozenset[str] = frozenset({"/health"}), largest: int = 64 << 20,
                 quick: Quick | None = None, patience: Patience = _PATIENCE, most: int | None = None,
                 mend: Mend | None = None) -> None:
        secret, free = key.encode(), frozenset(path.encode() for path in open_paths)
        if not secret:
            raise ValueError("a relay needs a key")
        self._tls, self._pool = tls, Pool()
        self._trade = Trade(pick, quick, counting, self._pool, mend=mend)
        self._house = House(self._trade, lambda: RequestReader(secret, free, largest),
                            most or room(), patience)
        self._pause = min(_SWEEP, *astuple(patience))
        self._door: Door | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    async def start(self, host: str, port: int = 0, *, setting: str = "fleet.router") -> int:
        """Listen; the port. Raises ConfigError where the address is taken or is not this machine's.

        `setting`: under which key of flock-hpc.yaml the host and port stand, for the error's text.
        """
        bound = await listen(host, port, setting)
        number = int(bound.getsockname()[1])
        self._door = Door(self._house, bound, self._tls)
        self._door.open()
        self._sweep()
        return number

    @property
    def in_flight(self) -> int:
        """Requests that are passed on and not answered yet."""
        return self._trade.passed

    async def drain(self, grace: float) -> None:
        """Take no new requests (503, Retry-After), and wait until those in flight have ended, at most `grace` s."""
        self._house.draining = _RETRY_AFTER
        self._house.idle.clear()
        if self._house.busy:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await self._house.idle.wait()

    async def close(self) -> None:
        """Close every connection."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._door is not None:
            self._door.close()
        for client in list(self._house.clients):
            client.close()
        self._pool.close()
        await asyncio.sleep(0)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for client in list(self._house.clients):
            client.check(now)
        self._pool.sweep(now)
        self._sweeper = loop.call_later(self._pause, self._sweep)
