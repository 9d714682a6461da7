"""What anybody may ask over HTTP: send a signed message, see what became of it, read pools and leaderboards.

Never takes a deed of the owner, and never believes who a message is from before its signature is proven."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from automate.errors import FlockError, PoolError
from automate.pools import keys, reading
from automate.pools.amounts import as_text
from automate.pools.deeds import Office
from automate.pools.messages import Message, normalised, parse_json
from automate.pools.web.answers import as_json, as_page, of_error, problem, receipt_answer, refusal
from automate.pools.web.clerk import Clerk
from automate.pools.web.limits import FREE, Memory, NoMemoryError, TooLargeError, read_body
from automate.pools.web.openapi import document
from automate.pools.web.page import policy, render, render_list
from automate.settings_pools import PoolHttp


@dataclass(frozen=True)
class Front:
    """What the routes have. `clock`: milliseconds since 1970."""

    clerk: Clerk
    settings: PoolHttp
    memory: Memory
    clock: Callable[[], int]
    asked: dict[object, asyncio.Task[object]] = field(default_factory=dict)

    async def ask(self, what: str, **given: str) -> object:
        """A question of reading.QUESTIONS; many who ask the same at once get one answer. Raises FlockError."""
        key, now = (what, tuple(given.items()), self.clerk.changes), self.clock()
        task = self.asked.get(key)
        if task is None:
            task = asyncio.create_task(self.clerk.call(lambda office: reading.ask(office.exchange, what, now, given)))
            self.asked[key] = task
            task.add_done_callback(lambda done: self._forget(key, done))
        return await asyncio.shield(task)

    def _forget(self, key: object, done: asyncio.Task[object]) -> None:
        self.asked.pop(key, None)
        if not done.cancelled():
            done.exception()  # seen, also where nobody waits for it any more


def routes(front: Front) -> list[Route]:
    """All that is there. HEAD goes with GET."""
    def bound(handler: Callable[[Front, Request], Any]) -> Callable[[Request], Any]:
        async def call(request: Request) -> Response:
            try:
                answer: Response = await handler(front, request)
            except FlockError as error:
                return of_error(error)
            return answer
        return call

    return [Route("/", bound(home)), Route("/message", bound(send), methods=["POST"]),
            Route("/message/{id}", bound(message)), Route("/processes", bound(processes)),
            Route("/pools", bound(pools)), Route("/pools/{id}", bound(pool)),
            Route("/leaderboard/{id}", bound(leaderboard)), Route("/openapi.json", bound(openapi)),
            Route("/health", bound(health))]


# --- messages ---------------------------------------------------------------------------------------
async def send(front: Front, request: Request) -> Response:
    """POST /message: one signed message."""
    limit = front.settings.message_bytes
    with front.memory.share() as take:
        try:
            body = await read_body(request, limit, take)
            given = await asyncio.to_thread(proven, body) if len(body) > FREE else proven(body)
        except TooLargeError:
            return problem(413, f"a message is over {limit} bytes", todo="send less, or several", Connection="close")
        except NoMemoryError:
            return problem(503, "too many large messages at once", todo="send it again later", Connection="close",
                           Retry_After="1")
        except MalformedError as error:
            return refusal(error, 400)
        except PoolError as error:
            return refusal(error, 401)
        return await taken(front, given)


async def taken(front: Front, given: Message) -> Response:
    """A proven message, handled; or where to look for what becomes of it."""
    try:
        return receipt_answer(await asyncio.wait_for(front.clerk.send(given), front.settings.timeout))
    except TimeoutError:
        return problem(503, "the message waits still", given.id, f"see what becomes of it: GET /message/{given.id}")


class MalformedError(PoolError):
    """Not a message at all, whoever sent it."""


def proven(body: bytes) -> Message:
    """The message in a body. Raises MalformedError; PoolError where it is not proven who sent it."""
    try:
        raw = parse_json(body.decode(), "the body")
    except UnicodeDecodeError as error:
        raise MalformedError(f"the body is not UTF-8: {error.reason} at byte {error.start}", where="body") from error
    except PoolError as error:
        raise MalformedError(error.what, where="body", todo=error.todo) from error
    if not isinstance(raw, dict):
        raise MalformedError("a message is a JSON object", where="body", todo="see /openapi.json")
    try:
        return keys.verified(raw, "http")
    except PoolError as error:
        malformed = _malformed(raw)
        if malformed is not None:
            raise malformed from error
        raise


def _malformed(raw: Mapping[str, object]) -> MalformedError | None:
    try:
        normalised(raw, "http")
    except PoolError as error:
        return MalformedError(error.what, where=error.where, todo=error.todo)
    return None


async def message(front: Front, request: Request) -> Response:
    """GET /message/{id}: its receipt."""
    id = request.path_params["id"]
    found = await front.clerk.call(lambda office: office.exchange.receipt(id))
    if found is None:
        return problem(404, f"there is no message {id!r}", "id", "send it: POST /message")
    answer = receipt_answer(found)
    answer.status_code = 200
    return answer


# --- pools ------------------------------------------------------------------------------------------
async def processes(front: Front, request: Request) -> Response:
    """GET /processes: whom messages can be sent to."""
    return as_json(await front.ask("processes"))


async def pools(front: Front, request: Request) -> Response:
    """GET /pools."""
    return as_json(as_text(await front.ask("pools")))


async def pool(front: Front, request: Request) -> Response:
    """GET /pools/{id}."""
    return as_json(as_text(await front.ask("pool", id=request.path_params["id"])))


async def leaderboard(front: Front, request: Request) -> Response:
    """JSON; a page for a browser (Accept) or at {id}.html; always JSON at {id}.json."""
    id, _, kind = str(request.path_params["id"]).partition(".")
    if kind not in ("", "html", "json"):
        return problem(404, f"a leaderboard is not to be had as {kind!r}", "id", "ask for html or json")
    board = await front.ask("leaderboard", id=id)
    if kind == "json" or not (kind == "html" or wants_page(request.headers.get("accept", ""))):
        return as_json(as_text(board), Vary="Accept")
    assert isinstance(board, dict)
    return as_page(await asyncio.to_thread(render, board, front.clock(), home="/"), policy())


def wants_page(accept: str) -> bool:
    """Whether a client names HTML before JSON."""
    names = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    html, json = (names.index(name) if name in names else len(names) for name in ("text/html", "application/json"))
    return html < json


async def home(front: Front, request: Request) -> Response:
    """The list of pools, as a page."""
    found = await front.ask("pools")
    assert isinstance(found, list)
    return as_page(render_list(found, front.clock()), policy())


async def openapi(front: Front, request: Request) -> Response:
    """GET /openapi.json."""
    return as_json(document(front.settings.message_bytes))


async def health(front: Front, request: Request) -> Response:
    """Whether the database answers."""
    await front.clerk.call(_alive)
    return as_json({"status": "ok"})


def _alive(office: Office) -> None:
    office.store.db.execute("SELECT 1").fetchone()
