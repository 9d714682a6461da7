"""Meeting a worker before it is used: that it is the one that is registered, and has the model.

Never trusts an address: who answers there proves itself by certificate, nonce and key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from automate.errors import FlockError, ServerError
from automate.serving.client import JudgeClient, KeyRefused, RequestRefused
from automate.serving.fleet.records import WorkerRecord

TOLD = ("id", "nonce", "fleet", "model", "version")
"""What a worker must say as its record does."""
_DIFFERS = {"nonce": "it is another process than the one that registered"}
_SHOWN = 80


class NotOurs(FlockError):
    """Who answers at a worker's address is not that worker, or can't be used."""


@dataclass(frozen=True)
class Met:
    """A worker that is what its record says. `context`: tokens, None where it doesn't say. `metrics`: text."""

    context: int | None
    metrics: str


def difference(record: WorkerRecord, said: object) -> str | None:
    """In what a worker's own word differs from its record; None where it doesn't."""
    if not isinstance(said, Mapping):
        return "it does not speak as a worker of flock-hpc"
    for name in TOLD:
        theirs, ours = said.get(name), getattr(record, name)
        if theirs != ours:
            return _DIFFERS.get(name, f"its {name} is {str(theirs)[:_SHOWN]!r}, registered is {ours!r}")
    return None


async def meet(client: JudgeClient, record: WorkerRecord, *, timeout: float = 10) -> Met:
    """Ask a worker who it is and what it has. Raises NotOurs (don't use it) or TransportFailed (not now)."""
    try:
        problem = difference(record, await client.worker(timeout))
        if problem is not None:
            raise NotOurs(problem)
        served = await client.models(timeout)
        if client.model not in served:
            raise NotOurs(f"it has {', '.join(sorted(served))[:_SHOWN] or 'no model'} instead of {client.model}")
        return Met(served[client.model], await client.metrics(timeout))
    except KeyRefused as error:
        raise NotOurs("it refuses the fleet's key") from error
    except (ServerError, RequestRefused) as error:
        raise NotOurs(error.what) from error
    except (ValueError, AttributeError, TypeError) as error:
        raise NotOurs("its answers are not those of a worker of flock-hpc") from error
