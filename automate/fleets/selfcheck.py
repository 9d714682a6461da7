"""Whether a worker can be used as others will use it: by its address, TLS, key, name and one token of chat.

Never says that it is ready because its server does; never shows the key."""

from __future__ import annotations

import asyncio
import ssl

from automate.errors import FlockError, ServerError
from automate.serving.client import Address, JudgeClient, KeyRefused, TransportFailed
from automate.serving.fleet.keys import Secrets, client_context
from automate.serving.fleet.records import WorkerRecord
from automate.serving.server import PROBE

TRIES = 3
PAUSE = 1.0
TIMEOUT = 30.0
CHAT_TIMEOUT = 300.0
_TODO = "see that nodes reach each other at this address, or set fleet.address to one at which they do"


def identity_of(record: WorkerRecord) -> dict[str, object]:
    """What a worker says of itself to whoever has the key."""
    return {"id": record.id, "nonce": record.nonce, "fleet": record.fleet, "model": record.model,
            "also": list(record.also), "version": record.version}


async def check_self(record: WorkerRecord, secrets: Secrets, *, tries: int = TRIES, pause: float = PAUSE) -> None:
    """Ask a worker as others will. Raises ServerError."""
    context = client_context(secrets)
    for left in reversed(range(tries)):
        try:
            await _refuses_strangers(record, context)
            await _serves(record, secrets, context)
            return
        except TransportFailed as error:
            if not left:
                raise ServerError(f"the worker can't be used at its own address: {error.what}", where=record.url,
                                  todo=_TODO) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _other(record) from error
        await asyncio.sleep(pause)


async def _refuses_strangers(record: WorkerRecord, context: ssl.SSLContext) -> None:
    async with JudgeClient(Address(record.url), record.model, tls=context) as stranger:
        try:
            await stranger.worker(TIMEOUT)
        except KeyRefused:
            return
    raise ServerError("the worker answers those who have no key", where=record.url, todo=_TODO)


async def _serves(record: WorkerRecord, secrets: Secrets, context: ssl.SSLContext) -> None:
    async with JudgeClient(Address(record.url), record.model, key=secrets.key, tls=context) as client:
        if await client.worker(TIMEOUT) != identity_of(record):
            raise _other(record)
        served = await client.models(TIMEOUT)
        missing = [name for name in record.names if name not in served]
        if missing:
            error = ServerError(f"its server does not have {', '.join(missing)}", where=record.url,
                                todo="see in the server's log why it was not loaded")
            error.hopeless = True
            raise error
        try:
            await client.chat(PROBE, max_tokens=1, temperature=0.0, timeout=CHAT_TIMEOUT)
        except (ServerError, TransportFailed):
            raise
        except FlockError as error:
            raise ServerError(f"its server refuses one token of chat: {error.what}", where=record.url) from error


def _other(record: WorkerRecord) -> ServerError:
    return ServerError("what answers at the worker's address is not this worker", where=record.url, todo=_TODO)
