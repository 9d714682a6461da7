"""A rehearsed reply as a stream: server-sent events in OpenAI's form, piece by piece.

Never decides what is said; it cuts up a message that is whole."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import orjson
from aiohttp import web

DONE = b"data: [DONE]\n\n"
PIECE = 16
"""Characters of one piece: four tokens of a reply."""


def event(payload: object) -> bytes:
    """One server-sent event."""
    return b"data: " + orjson.dumps(payload) + b"\n\n"


def deltas(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What a stream's chunks add: the role, then thoughts, then what is said, in pieces; a refusal as it is."""
    yield {"role": message["role"], "content": ""}
    for name in ("reasoning", "reasoning_content", "content", "refusal"):
        said = message.get(name) or ""
        text = said if isinstance(said, str) else "".join(part["text"] for part in said)
        for start in range(0, len(text), PIECE):
            yield {name: text[start : start + PIECE]}


def events(completion: dict[str, Any], *, usage: bool) -> list[bytes]:
    """All events of a completion but the last: chunks, the finish, and the counted tokens where they are asked for."""
    base = {name: completion[name] for name in ("id", "created", "model", "system_fingerprint")}
    base["object"] = "chat.completion.chunk"
    choice, counted = completion["choices"][0], {"usage": None} if usage else {}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        return event({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **counted})

    cut = [chunk(delta) for delta in deltas(choice["message"])]
    cut.append(chunk({}, choice["finish_reason"]))
    return [*cut, event({**base, "choices": [], "usage": completion["usage"]})] if usage else cut


class Stream:
    """One reply on its way to a client: `play` its events over some seconds, then `end` it."""

    def __init__(self, request: web.Request, completion: dict[str, Any], *, usage: bool) -> None:
        self._request, self._events = request, events(completion, usage=usage)
        self._response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8",
                                                     "Cache-Control": "no-cache"})

    async def play(self, seconds: float) -> None:
        """Send everything but the end, evenly over so many seconds."""
        pause = seconds / len(self._events)
        for number, one in enumerate(self._events):
            await asyncio.sleep(pause)
            if number == 0:
                await self._response.prepare(self._request)
            await self._response.write(one)

    async def end(self) -> web.StreamResponse:
        """Say that the reply is over."""
        await self._response.write(DONE)
        await self._response.write_eof()
        return self._response
