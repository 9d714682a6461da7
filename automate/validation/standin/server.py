"""A stand-in of the Flock API on loopback: the documented behaviour, and on request every documented misbehaviour.

Never listens on anything but this machine. What it saw and gave is in its books, for tests to assert on."""

from __future__ import annotations

import contextlib
import secrets
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from types import TracebackType

from automate.validation.standin.books import Books, Record
from automate.validation.standin.plan import Fault, Plan, TaskPlan
from automate.validation.standin.protocol import Call, Place
from automate.validation.standin.wire import Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    block_on_close = False

    def __init__(self, standin: StandIn, port: int) -> None:
        self.standin = standin
        self.open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), Handler)

    def hang_up(self) -> None:
        """End every connection there is."""
        for connection in list(self.open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """A fault of the stand-in itself is a breach, so that no test passes over it."""
        self.standin.violations.append(f"the stand-in itself failed: {sys.exception()!r}")


class StandIn:
    """The server; `with StandIn(Plan(...)) as api:` runs it in threads of this process.

    `base_url` is what `validation.base_url` is set to, `key` what it accepts. `assignments`: id -> Record; `calls`:
    what came in, in order; `violations`: breaches of the protocol. `clock` decides expiry and limits. `books`: of
    one that has ended, to go on with (give its `port`, and a plan with a key).
    """

    def __init__(self, plan: Plan | None = None, *, port: int = 0, clock: Callable[[], float] = time.time,
                 books: Books | None = None) -> None:
        self.plan = books.plan if books is not None else plan if plan is not None else Plan()
        self.key = self.plan.key or f"stand-in-{secrets.token_hex(16)}"
        self.books = books if books is not None else Books(self.plan, clock)
        self.calls: list[Call] = []
        self.stopping = threading.Event()
        self._injected: dict[str, deque[Fault]] = {}
        self._lists = 0
        self._server = _Server(self, port)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> StandIn:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server; replies under way are cut off."""
        self.stopping.set()
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()
        self._server.hang_up()

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def base_url(self) -> str:
        """The API's address."""
        return f"{self.origin}/api/v1"

    @property
    def tasks(self) -> tuple[TaskPlan, ...]:
        return self.plan.tasks

    @property
    def assignments(self) -> dict[str, Record]:
        return self.books.assignments

    @property
    def violations(self) -> list[str]:
        return self.books.violations

    def inject(self, place: Place, *faults: Fault) -> None:
        """Let the next calls of a place meet these faults, before those of the schedule."""
        with self.books.lock:
            self._injected.setdefault(place, deque()).extend(faults)

    def fault(self, place: Place, which: str) -> Fault | None:
        """The fault that a call meets, taken from what was injected or from the schedule."""
        with self.books.lock:
            if self._injected.get(place):
                return self._injected[place].popleft()
            if place == "list":
                self._lists += 1
                return self.books.schedule.list_fault(self._lists - 1)
            if place == "request":
                return self.books.next_fault(which)
            record = self.assignments.get(which)
            if record is None or place == "key":
                return None
            queue = record.update_faults if place == "update" else record.data_faults
            return queue.popleft() if queue else None

    def note(self, call: Call) -> None:
        """Write a call into the books."""
        with self.books.lock:
            self.calls.append(call)
            record = self.assignments.get(call.id)
            if call.fault and record is not None:
                record.faults.append(f"{call.place}:{call.fault}")
