"""What a worker's relay does with a request that came with the key: to the server, or an answer of its own.

Never lets a request for a model through that the server does not have."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import orjson

from automate.errors import FlockError
from automate.serving.fleet.records import Group
from automate.serving.relay.relay import Answer, Asked, Target

WORKER_PATH = "/flock-hpc/worker"
METRICS_PATH = "/metrics"
RETRY_AFTER = 1.0
Metrics = Callable[[], Awaitable[str]]


def refusal(status: int, kind: str, message: str) -> Answer:
    """An error in OpenAI's shape."""
    error = {"message": message, "type": kind, "param": None, "code": status}
    return Answer(status, orjson.dumps({"error": error}), retry_after=RETRY_AFTER if status == 503 else None)


class Gate:
    """Chooses for the relay. It is open while there is a ready server."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._socket: str | None = None
        self._identity: Mapping[str, object] = {}
        self._up: Callable[[], bool] = lambda: False
        self._metrics: Metrics | None = None

    def open(self, socket: str | None, identity: Mapping[str, object], up: Callable[[], bool],
             metrics: Metrics) -> None:
        """A server is ready at a Unix socket. `identity`: what the worker says of itself; `up`: whether the server
        lives, as far as is known; `metrics`: asks it for its numbers."""
        self._socket, self._identity, self._up, self._metrics = socket, identity, up, metrics

    def close(self) -> None:
        """There is no server now."""
        self._socket, self._identity, self._metrics = None, {}, None

    def choose(self, asked: Asked) -> Target | Answer | None:
        """Where a request goes, at once; None: `pick` knows."""
        path = asked.path.partition("?")[0]
        if self._socket is None or not self._up():
            return refusal(503, "ServiceUnavailableError", "this worker's server is not ready")
        if path == "/health":
            return Answer(200, b"", "text/plain")
        if path == WORKER_PATH:
            return Answer(200, orjson.dumps(self._identity))
        if path == METRICS_PATH and asked.method == "GET":
            return None
        if asked.model is not None and asked.model not in self._group.names:
            return refusal(404, "NotFoundError", f"this worker has {', '.join(self._group.names)} and no other model")
        return Target(uds=self._socket)

    async def pick(self, asked: Asked) -> Target | Answer:
        """Where a request goes. A look at the metrics is no work: it is answered here, and not counted."""
        chosen = self.choose(asked)
        if chosen is not None:
            return chosen
        try:
            text = await self._metrics() if self._metrics is not None else ""
        except (FlockError, RuntimeError):  # closed: the server has just ended
            return refusal(502, "BadGatewayError", "the server does not say its metrics now")
        return Answer(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8")
