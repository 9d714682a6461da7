"""What every answer of the server looks like: JSON or a page, with headers that let a browser do nothing else.

Never says what the server is made of, and never shows a traceback."""

from __future__ import annotations

import orjson
from starlette.responses import Response

from automate.errors import ApiError, ClaimedError, ConfigError, DataError, FlockError, PoolError, StorageError
from automate.pools.messages import Receipt
from automate.pools.web.clerk import BusyError

HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY",
           "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store"}
NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
STATES = {"handled": 200, "delivered": 200, "queued": 202, "refused": 422, "failed": 500}
"""The status of a receipt by its state."""


def as_json(value: object, status: int = 200, **headers: str) -> Response:
    """A value as JSON. Keyword arguments: further headers, `_` for `-`."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    body = orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS, default=str)
    return Response(body, status, {**HEADERS, "Content-Security-Policy": NOTHING, **named},
                    "application/json")


def as_page(text: str, policy: str) -> Response:
    """A page, with the policy that lets it show its own style and nothing else."""
    return Response(text, 200, {**HEADERS, "Content-Security-Policy": policy, "Vary": "Accept"},
                    "text/html; charset=utf-8")


def problem(status: int, error: str, where: str | None = None, todo: str | None = None, **headers: str) -> Response:
    """An error as JSON: {error, where, todo}."""
    return as_json({"error": error, "where": where, "todo": todo}, status, **headers)


def refusal(error: FlockError, status: int) -> Response:
    """An error of this package as JSON."""
    return problem(status, error.what, error.where, error.todo)


def of_error(error: FlockError) -> Response:
    """An error of the state or of a question, by its kind."""
    if isinstance(error, BusyError):
        return problem(503, error.what, error.where, error.todo, Retry_After="1")
    if isinstance(error, StorageError | ClaimedError | ConfigError | ApiError):
        return problem(503, "the state can't be read or written", None, "tell who runs this server")
    return refusal(error, 404 if isinstance(error, PoolError | DataError) else 500)


def receipt_answer(receipt: Receipt) -> Response:
    """A receipt, with the status of its state."""
    return as_json({"id": receipt.id, "state": receipt.state, "error": receipt.error,
                    "replies": list(receipt.replies), "replayed": receipt.replayed}, STATES.get(receipt.state, 500))
