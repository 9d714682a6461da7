"""A desk at the other end of the private socket: every command works while `pool serve` holds the database.

Never speaks to anything but that socket, and never opens the database."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from pathlib import Path

from automate.errors import ClaimedError, ConfigError, DataError, FlockError, PoolError, StorageError, WorkspaceError
from automate.pools.deeds import receipt_of
from automate.pools.messages import Receipt
from automate.pools.web.sockets import connected

TIMEOUT = 3600.0
"""Seconds that a deed may take, as loading a large file; the socket is this machine's own."""
KINDS: Mapping[str, type[FlockError]] = {one.__name__: one for one in (PoolError, DataError, ConfigError, StorageError,
                                                                      WorkspaceError, ClaimedError)}
"""Errors that keep their kind on the way."""


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, place: Path) -> None:
        super().__init__("desk")
        self.place = place

    def connect(self) -> None:
        self.sock = connected(self.place, TIMEOUT)


class RemoteDesk:
    """Errors of the other end are raised here, with the same words."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def send(self, signed: Mapping[str, object]) -> Receipt:
        found = self._call("/desk/send", signed)
        if not isinstance(found, dict):
            raise PoolError("the serving process gave no receipt", where=str(self.place))
        return receipt_of(found)

    def ask(self, what: str, **given: str | int | None) -> object:
        return self._call("/desk/ask", {"what": what, "given": given})

    def do(self, what: str, **given: str | int | None) -> object:
        return self._call("/desk/do", {"what": what, "given": given})

    def _call(self, path: str, body: Mapping[str, object]) -> object:
        status, answer = self._exchange(path, json.dumps(body).encode())
        if status == 200:
            return answer.get("answer")
        words = {name: str(answer[name]) if answer.get(name) is not None else None for name in ("where", "todo")}
        kind = KINDS.get(str(answer.get("kind")), PoolError)
        raise kind(str(answer.get("error", "the serving process gave no reason")), **words)

    def _exchange(self, path: str, body: bytes) -> tuple[int, dict[str, object]]:
        connection = _Connection(self.place)
        try:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = json.loads(response.read())
            return response.status, answer if isinstance(answer, dict) else {}
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise StorageError("the process that serves the database did not answer", where=str(self.place),
                               todo="look whether `pool serve` still runs; then run the same command again"
                               ) from error
        finally:
            connection.close()
