"""A fleet in the place of one server: the engine asks it, and each request goes to a worker.

Never starts or stops a worker; it knows those that are registered, and how much each has to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from automate.claims import JobAlive
from automate.fleet_places import FleetPlaces
from automate.serving.client import Messages, Reply
from automate.serving.fleet.records import FleetSpec
from automate.serving.limiter import Limiter
from automate.settings_fleet import Routing

Outlook = Callable[[], Awaitable[str | None]]
"""Asked while there is no worker: why there will be none, or None while one may still come."""


@dataclass(frozen=True)
class Load:
    """A worker as the pool sees it: requests that were sent to it and not answered, and how many it may have."""

    worker: str
    in_flight: int
    limit: int
    usable: bool
    done: int


class FleetClient:
    """Looks like a JudgeClient of one server; each call goes to the worker that the pool chooses."""

    async def chat(self, messages: Messages, *, max_tokens: int, temperature: float,
                   extra: Mapping[str, object] | None = None, timeout: float | None = None,
                   affinity: str | None = None) -> Reply:
        """One chat completion by one worker. Raises as JudgeClient.chat; the next try goes to another worker."""
        raise NotImplementedError

    async def count_tokens(self, messages: Messages) -> tuple[int, int | None]:
        """As JudgeClient.count_tokens, by any worker."""
        raise NotImplementedError

    async def metrics(self, timeout: float = 10) -> str:
        """The metrics of all workers, one after the other, as text that can be summed."""
        raise NotImplementedError


class FleetServing:
    """Fits the engine's `Serving`. Async context manager: it watches the registry while it is open.

    `context`: tokens, the least of the workers'; None as long as none is known. `limiter`: how many requests may be in
    flight over all workers; give it to the engine and the referee. `concurrency`: a fixed number for each worker.
    """

    context: int | None
    limiter: Limiter

    def __init__(self, places: FleetPlaces, spec: FleetSpec, model: str, *, say: Callable[[str], None],
                 job_alive: JobAlive, outlook: Outlook, version: str, routing: Routing = "affinity",
                 overload: float = 1.5, concurrency: int | None = None) -> None:
        raise NotImplementedError

    @property
    def up(self) -> bool:
        """Whether any worker is usable."""
        raise NotImplementedError

    async def client(self) -> FleetClient:
        """The client, as soon as there is a usable worker. Raises ServerError when there will be none."""
        raise NotImplementedError

    def suspect(self) -> None:
        """Nothing to do: the worker that failed is known already."""

    def loads(self) -> Sequence[Load]:
        """Every worker that is known now."""
        raise NotImplementedError
