"""The OpenAPI document of `pool serve`, with the shapes of all that goes in and out.

Never describes what isn't there: tests compare it with the routes and with real answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import models_json_schema

from automate import __version__

Money = Annotated[str, Field(pattern="^[0-9]+$", description="Money: decimal digits, as a message's Quantity.")]


class Shape(BaseModel):
    """What all shapes share: they may hold more than is said here."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)


class Tag(Shape):
    """A tag: both are text."""

    name: str
    value: str


class SignedMessage(Shape):
    """As `ao.send` shapes a message, and signed. Any further field is a tag: Action, Recipient, Quantity, X-..."""

    Target: str = Field(description="The process (or address) that it is for.")
    Tags: list[Tag] | dict[str, str] = Field(default=[], description="Action must be among the tags.")
    Data: str = ""
    Anchor: str = Field("", description="Any text; makes two equal messages different.")
    Timestamp: int = Field(0, description="Milliseconds since 1970; the sender's word.")
    Owner: str = Field(description="The Ed25519 public key, base64url.")
    Signature: str = Field(description="Over the canonical JSON of From, Target, Anchor, Tags, Data and Timestamp.")
    From: str = Field(description="The address: base64url of SHA-256 of the public key.")
    Id: str = Field(description="base64url of SHA-256 of the text that is signed and the public key.")


class Reply(Shape):
    """A message that was sent to its sender."""

    Id: str
    From: str
    Target: str
    Tags: list[Tag]
    Data: str


class Receipt(Shape):
    """What became of a message. The same message again has no effect and gets the same receipt, as `replayed`."""

    id: str
    state: Literal["handled", "refused", "failed", "delivered", "queued"]
    error: str | None
    replies: list[Reply]
    replayed: bool


class Problem(Shape):
    """What went wrong, where, and what to do."""

    error: str
    where: str | None
    todo: str | None


class Process(Shape):
    """Whom messages can be sent to: the token, the pool process, the router, a data set."""

    id: str
    kind: Literal["token", "pool", "router", "dataset"]
    name: str
    owner: str


class Pool(Shape):
    """A pool. Times are milliseconds since 1970; money is in the token's smallest unit, as digits."""

    id: str
    dataset: str
    dataset_name: str
    funder: str
    funds: Money
    allocation: str
    startTime: int
    endTime: int
    state: Literal["open", "over", "paid", "refunded"]
    updated: int | None


class PoolModel(Shape):
    """A model that joined a pool."""

    model: str
    process: str
    participant: str
    score: float
    progress: float


class Payout(Shape):
    """What a settled pool paid: a reward, the dust of rounding, or a refund."""

    kind: Literal["reward", "dust", "refund"]
    rank: int | None
    model: str | None
    account: str
    amount: Money


class OnePool(Pool):
    """A pool with its models and what was paid."""

    models: list[PoolModel]
    paid: Money
    returned: Money
    payouts: list[Payout]


class ListedPool(Pool):
    """A pool with the number of its models."""

    models: int


class Place(Shape):
    """A row: score is correct/answered, progress answered/total, value correct/total, by which models are ranked."""

    rank: int
    model: str
    process: str
    participant: str
    score: float
    progress: float
    value: float
    low: float
    high: float
    correct: int
    answered: int
    failed: int
    total: int
    joined: int
    updated: int | None
    reward: Money | None


class Leaderboard(Shape):
    """A pool's leaderboard, the best first; low and high bound the score (95 %, Wilson)."""

    pool: str
    dataset: str
    dataset_name: str
    funder: str
    funds: Money
    allocation: str
    start_time: int
    end_time: int
    state: Literal["open", "over", "paid", "refunded"]
    updated: int | None
    places: list[Place]


class Health(Shape):
    """The server answers, and so does its database."""

    status: Literal["ok"]


SHAPES: tuple[type[BaseModel], ...] = (SignedMessage, Receipt, Problem, Process, ListedPool, OnePool, Leaderboard,
                                       Health)
Part = dict[str, Any]
_PROBLEMS = {"400": "Not a message: no JSON, no Target, no Action, a tag twice.",
             "401": "The signature is missing or wrong, or Id or From don't belong to the key.",
             "404": "There is no such thing, or the name fits several.",
             "408": "The request took too long to arrive.", "413": "The message is over {limit} bytes.",
             "429": "Too many requests from this address: see Retry-After.",
             "503": "The server has too much to do, is about to end, or can't use its state: send it again later."}


def document(limit: int) -> Part:
    """OpenAPI 3.1. `limit`: bytes of a message."""
    schemas = models_json_schema([(shape, "serialization") for shape in SHAPES],
                                 ref_template="#/components/schemas/{model}")[1]["$defs"]
    words = {status: text.format(limit=limit) for status, text in _PROBLEMS.items()}
    return {"openapi": "3.1.0", "info": {"title": "flock-hpc benchmark pools", "version": __version__, "description":
            "Signed messages to the token, the pool process, the router and data sets; pools and leaderboards."},
            "paths": _paths(words), "components": {"schemas": schemas}}


def _paths(words: dict[str, str]) -> Part:
    one = "of the pool, the beginning of it, or its data set's name while that has one open pool"
    page = {"text/html": {"schema": {"type": "string"}}}
    return {
        "/": {"get": _operation("home", "The list of pools, as a page.", words, content=page)},
        "/message": {"post": {
            **_operation("send", "Send a signed message.", words, "Receipt", ("400", "401", "408", "413"),
                         receipt=True),
            "requestBody": {"required": True, "content": _content("SignedMessage")}}},
        "/message/{id}": {"get": _operation("message", "What became of a message, and the replies to its sender.",
                                            words, "Receipt", ("404",), id="of the message")},
        "/processes": {"get": _operation("processes", "Whom messages can be sent to.", words,
                                         content=_list("Process"))},
        "/pools": {"get": _operation("pools", "All pools, the newest first.", words, content=_list("ListedPool"))},
        "/pools/{id}": {"get": _operation("pool", "One pool with its models.", words, "OnePool", ("404",), id=one)},
        "/leaderboard/{id}": {"get": _operation(
            "leaderboard", "A leaderboard: JSON, or a page where Accept names text/html first or .html follows "
            "the id; .json for JSON in any case.", words, ok=("404",), id=one,
            content={**_content("Leaderboard"), **page})},
        "/openapi.json": {"get": _operation("openapi", "This document.", words,
                                            content={"application/json": {"schema": {"type": "object"}}})},
        "/health": {"get": _operation("health", "Whether the server and its database answer.", words, "Health")},
    }


def _ref(name: str) -> Part:
    return {"$ref": f"#/components/schemas/{name}"}


def _content(name: str) -> Part:
    return {"application/json": {"schema": _ref(name)}}


def _list(name: str) -> Part:
    return {"application/json": {"schema": {"type": "array", "items": _ref(name)}}}


def _operation(name: str, summary: str, words: dict[str, str], shape: str = "", ok: Sequence[str] = (), *,
               content: Part | None = None, receipt: bool = False, id: str | None = None) -> Part:
    """An operation: what it gives, and the errors it may give besides those that all may give."""
    answers: Part = {"200": {"description": summary, "content": content or _content(shape)}}
    if receipt:
        answers["200"]["description"] = "The message was handled; its receipt."
        answers["202"] = {"description": "It was taken in and waits; ask again.", "content": _content(shape)}
        answers["422"] = {"description": "It was refused, and changed nothing.", "content": _content(shape)}
    for status in sorted({*ok, "429", "503"}):
        answers[status] = {"description": words[status], "content": _content("Problem")}
    answers["500"] = {"description": "A fault of this program: nothing was changed.",
                      "content": {"application/json": {"schema": {"anyOf": [_ref("Receipt"), _ref("Problem")]}}}
                      if receipt else _content("Problem")}
    given = {} if id is None else {"parameters": [{"name": "id", "in": "path", "required": True, "description":
                                                   f"The id {id}.", "schema": {"type": "string"}}]}
    return {"operationId": name, "summary": summary, **given, "responses": answers}
