"""Which workers the router may use now: registered, alive, of this version, and met in person.

Never uses a worker on the word of a file alone: whoever answers at its address must be the one that registered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import aiohttp

from automate.errors import FlockError, StorageError, visible
from automate.serving.fleet.keys import Secrets, client_context
from automate.serving.fleet.meeting import difference
from automate.serving.fleet.records import WorkerRecord
from automate.serving.fleet.registry import Seen, Watch

Say = Callable[[str], None]
MEETING = "/flock-hpc/worker"
PATIENCE = 5.0
AGAIN = 10.0
"""Seconds until a worker that could not be met is tried again."""


@dataclass(frozen=True)
class Present:
    """Usable workers. `by_model`: for each base model, names by URL; `context`: tokens, where a worker says it."""

    by_model: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    context: Mapping[str, int] = field(default_factory=dict)


def title(record: WorkerRecord) -> str:
    """A worker in a line of the screen."""
    return f"{record.id} on {record.node}" + (f" (job {record.job})" if record.job else "")


class Roster:
    """Looks at the registry and meets new workers. Async context manager."""

    def __init__(self, watch: Watch, secrets: Secrets, say: Say) -> None:
        self._watch = watch
        self._secrets = secrets
        self._say = say
        self._met: dict[str, str] = {}
        self._refused: dict[str, tuple[float, str]] = {}
        self._said: dict[str, str] = {}
        self._lost = False
        self._present = Present()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Roster:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=client_context(self._secrets), force_close=True),
            timeout=aiohttp.ClientTimeout(total=PATIENCE), headers={"Authorization": f"Bearer {self._secrets.key}"})
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def look(self) -> Present:
        """Who can be used now; those of the last look while the registry can't be read."""
        try:
            seen = await asyncio.to_thread(self._watch.look)
        except StorageError as error:
            if not self._lost:
                self._say(f"the fleet's registry can't be read, its last known workers are used on: {error.what}")
            self._lost = True
            return self._present
        except FlockError as error:
            self._tell("registry", error.what)
            return self._present
        if self._lost:
            self._say("the fleet's registry can be read again")
        self._lost = False
        why = dict(zip(seen, await asyncio.gather(*(self._why(one) for one in seen.values())), strict=True))
        for worker, one in seen.items():
            self._tell(worker, why[worker] and f"worker {title(one.record)} is left out: {why[worker]}")
        self._forget(seen)
        self._present = self._sorted([one.record for worker, one in seen.items() if not why[worker]])
        return self._present

    def _forget(self, seen: Mapping[str, Seen]) -> None:
        nonces = {one.record.nonce for one in seen.values()}
        self._refused = {nonce: said for nonce, said in self._refused.items() if nonce in nonces}
        for known in (self._met, self._said):
            for worker in [worker for worker in known if worker not in seen and worker != "registry"]:
                del known[worker]

    def _tell(self, worker: str, text: str) -> None:
        if text and self._said.get(worker) != text:
            self._say(visible(text))
        if text:
            self._said[worker] = text
        else:
            self._said.pop(worker, None)

    async def _why(self, one: Seen) -> str:
        """Why a worker is not used; empty where it may be."""
        if not one.usable:
            draining = one.life == "alive" and one.record.state == "draining" and not one.why
            return "it finishes what it has, and ends" if draining else one.why or f"it is {one.life}"
        if self._met.get(one.record.id) == one.record.nonce:
            return ""
        now = asyncio.get_running_loop().time()
        tried, before = self._refused.get(one.record.nonce, (-AGAIN, ""))
        if now - tried < AGAIN:
            return before
        why = await self._meet(one.record)
        if why:
            self._refused[one.record.nonce] = (now, why)
        else:
            self._met[one.record.id] = one.record.nonce
        return why

    async def _meet(self, record: WorkerRecord) -> str:
        if self._session is None:
            return "the router is ending"
        try:
            async with self._session.get(record.url + MEETING, allow_redirects=False) as reply:
                if reply.status != 200:
                    return f"it answers {reply.status} to the fleet's key"
                return difference(record, await reply.json(content_type=None)) or ""
        except aiohttp.ClientConnectorCertificateError:
            return "what answers at its address is not of this fleet (its certificate is another's)"
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            return f"it can't be reached at {record.url} ({type(error).__name__})"

    def _sorted(self, records: list[WorkerRecord]) -> Present:
        by_model: dict[str, dict[str, str]] = {}
        context: dict[str, int] = {}
        for record in records:
            by_model.setdefault(record.model, {})[record.url] = title(record)
            if record.context is not None:
                context[record.model] = min(record.context, context.get(record.model, record.context))
        return Present(by_model, context)
