"""The words of the Flock API's protocol as a stand-in says and demands them.

Pure; strict where the real server's strictness is not known, so that a test sees every slip."""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

NO_SUBMISSIONS = "No task submissions available to validate"
NOT_VALIDATING = "Validation assignment is not in validating status"
BAD_KEY = "Invalid API key"


Place = Literal["list", "request", "update", "data", "key"]


@dataclass(frozen=True)
class Call:
    """One request as it came in. `fault`: what it met; `status`: of the reply (0: none went out)."""

    place: str
    id: str
    fault: str
    status: int
    detail: str


@dataclass(frozen=True)
class Reply:
    """What goes out: HTTP status, body, type."""

    status: int
    body: bytes
    kind: str = "application/json"

    @classmethod
    def xml(cls, status: int, code: str, message: str = "") -> Reply:
        """An error of the file store."""
        said = f"<Message>{message}</Message>" if message else ""
        text = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code>{said}</Error>'
        return cls(status, text.encode(), "application/xml")

    @classmethod
    def page(cls, status: int) -> Reply:
        """A page that something in front of the server answers with."""
        return cls(status, b"<!DOCTYPE html><html><head><title>Bad gateway</title></head></html>", "text/html")


def detail(status: int, text: str) -> Reply:
    """An error as the API words it."""
    return Reply(status, json.dumps({"detail": text}).encode())


def limit_text(interval: float) -> str:
    """The text of a rate limit of one lookup an `interval` (seconds)."""
    minutes = interval / 60
    often = f"{minutes:g} minutes" if interval >= 60 else f"{interval:g} seconds"
    return f"Rate limit reached for validation assignment lookup: 1 per {often}"


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


def _finite(value: object) -> bool:
    if isinstance(value, dict):
        return all(_finite(one) for one in value.values())
    if isinstance(value, list):
        return all(_finite(one) for one in value)
    return not isinstance(value, float) or math.isfinite(value)


def update_problem(body: bytes, metrics: Collection[str]) -> tuple[dict[str, Any], str | None]:
    """What an update says, and the first breach of the protocol in it (None: none)."""
    try:
        value = json.loads(body, parse_constant=_refuse)
    except ValueError as error:
        return {}, f"the body is not JSON: {error}"
    if not isinstance(value, dict):
        return {}, "the body is no object"
    if value.get("status") == "failed":
        return value, None if set(value) == {"status"} else "a failed update has fields beside `status`"
    if value.get("status") != "completed" or set(value) != {"status", "data"}:
        return value, "expected `status` completed with `data`, or `status` failed"
    data = value["data"]
    if not isinstance(data, dict) or not data:
        return value, "`data` is no object, or empty"
    if not _finite(data):
        return value, "`data` holds a number that is not finite"
    missing = sorted(set(metrics) - set(data))
    return value, f"`data` lacks {', '.join(missing)}" if missing else None
