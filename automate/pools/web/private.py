"""What the private socket takes: this user's own commands while the database is served.

Never reached over HTTP: connection.Guarded says which connection is this user's."""

from __future__ import annotations

from collections.abc import Mapping

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from automate.errors import FlockError, PoolError
from automate.pools import deeds, keys, reading
from automate.pools.deeds import receipt_json
from automate.pools.web.answers import as_json
from automate.pools.web.public import Front


def private_routes(front: Front) -> list[Route]:
    """POST /desk/send: a signed message; /desk/ask and /desk/do: {what, given}. The answer: {"answer": ...}."""
    async def call(request: Request) -> Response:
        try:
            body = orjson.loads(await request.body())
            return as_json({"answer": await _answer(front, request.path_params["verb"], body)})
        except FlockError as error:
            return as_json({"kind": type(error).__name__, "error": error.what, "where": error.where,
                            "todo": error.todo}, 422)

    return [Route("/desk/{verb}", call, methods=["POST"])]


async def _answer(front: Front, verb: str, body: Mapping[str, object]) -> object:
    if verb == "send":
        return receipt_json(await front.clerk.send(keys.verified(body, "local")))
    what, given, now = str(body.get("what")), body.get("given"), front.clock()
    if not isinstance(given, dict):
        raise PoolError("a question or deed has no fields", where="given")
    if verb == "ask":
        return await front.clerk.call(lambda office: reading.ask(office.exchange, what, now, given))
    if verb == "do":
        return await front.clerk.call(lambda office: deeds.do(office, what, now, given), changes=True)
    raise PoolError(f"the desk knows no {verb!r}", todo="use the same version of flock-hpc for both commands")
