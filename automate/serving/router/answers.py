"""What the router says for itself, in OpenAI's shape: the list of models, and errors that a client understands.

Pure functions; nothing here asks anybody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from automate.errors import visible
from automate.serving.relay.relay import Answer
from automate.serving.relay.terms import error_answer

_SHOWN = 40


def failure(status: int, message: str, kind: str, *, param: str | None = None, code: str | None = None,
            retry_after: float | None = None) -> Answer:
    """An error in OpenAI's shape."""
    error = {"message": visible(message), "type": kind, "param": param, "code": code}
    return Answer(status, orjson.dumps({"error": error}), retry_after=retry_after)


def model_row(name: str, base: str, created: float, context: int | None = None) -> Mapping[str, object]:
    """A model as `GET /v1/models` lists it; an adapter names its base."""
    return {"id": name, "object": "model", "created": int(created), "owned_by": "flock-hpc", "root": base,
            "parent": None if name == base else base, "max_model_len": context}


def listing(rows: Sequence[Mapping[str, object]]) -> Answer:
    """The answer to `GET /v1/models`."""
    return Answer(200, orjson.dumps({"object": "list", "data": list(rows)}))


def single(rows: Sequence[Mapping[str, object]], name: str) -> Answer:
    """The answer to `GET /v1/models/NAME`."""
    found = next((row for row in rows if row["id"] == name), None)
    return Answer(200, orjson.dumps(found)) if found else no_model(name, [str(row["id"]) for row in rows])


def no_model(name: str, known: Sequence[str]) -> Answer:
    """404 for a model that the fleet does not have, naming those that it has."""
    more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    return failure(404, f"The model {name[:200]!r} is not one of this fleet. It has: {', '.join(known[:_SHOWN])}{more}",
                   "NotFoundError", param="model", code="model_not_found")


def no_model_named() -> Answer:
    """400 for a request whose body does not name a model."""
    return failure(400, "The request's body must be a JSON object with a 'model'.", "BadRequestError", param="model")


def no_path(method: str, path: str, paths: Sequence[str]) -> Answer:
    """404 for what the router does not pass on."""
    return failure(404, f"There is no {method[:10]} {path[:200]} here. There is: GET /v1/models, "
                        + ", ".join(f"POST {one}" for one in paths), "NotFoundError", code="unknown_url")


def no_worker(model: str, waited: float, why: str) -> Answer:
    """503 when no worker came within the time that a request waits."""
    return failure(503, f"No worker of {model} for {waited:.0f} s. {why}", "ServiceUnavailableError",
                   code="no_worker", retry_after=10.0)


def plain(status: int, text: bytes) -> Answer:
    """An error of vllm-router's own, which is plain text."""
    return error_answer(status, visible(text.decode(errors="replace")))


def ending() -> Answer:
    """503 while the router ends."""
    return failure(503, "The router is ending.", "ServiceUnavailableError", code="router_ending", retry_after=5.0)
