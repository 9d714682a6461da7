"""Streams of the stand-in judge: they add up to what it says at once, and end as OpenAI's do."""

from __future__ import annotations

from collections import Counter
from typing import Any

import orjson
import pytest
from aiohttp.test_utils import TestClient, TestServer

from automate.serving.rehearsal import make_app
from automate.serving.rehearsal_behaviour import Behaviour
from automate.serving.rehearsal_streaming import PIECE

ASKED = {"model": "judge", "messages": [{"role": "user", "content": "Which is better?"}]}


async def stream(options: dict[str, Any], **behaviour: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The chunks of a streamed reply, and the reply to the same request as a whole."""
    async with TestClient(TestServer(make_app("judge", Behaviour(**behaviour)))) as client:
        async with client.post("/v1/chat/completions", json={**ASKED, "stream": True, **options}) as response:
            assert response.status == 200
            assert response.content_type == "text/event-stream"
            lines = (await response.text()).split("\n\n")
        async with client.post("/v1/chat/completions", json=ASKED) as response:
            whole = await response.json()
    assert lines[-2:] == ["data: [DONE]", ""]
    return [orjson.loads(line.removeprefix("data: ")) for line in lines[:-2]], whole


def added(chunks: list[dict[str, Any]]) -> dict[str, str]:
    """What the chunks' deltas add up to."""
    said: Counter[str] = Counter()
    texts: dict[str, str] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            for name, text in choice["delta"].items():
                said[name] += 1
                texts[name] = texts.get(name, "") + text
    assert said["role"] == 1
    return texts


@pytest.mark.parametrize("behaviour", [{}, {"think_apart": 1.0}, {"parts": 1.0}, {"refusal": 1.0}, {"answers": True}])
async def test_a_stream_adds_up_to_the_whole_reply(behaviour: dict[str, Any]) -> None:
    chunks, whole = await stream({}, **behaviour)
    message = whole["choices"][0]["message"]
    if isinstance(message["content"], list):
        message["content"] = "".join(part["text"] for part in message["content"])
    assert added(chunks) == {name: text or "" for name, text in message.items()}
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert {(chunk["object"], chunk["id"], "usage" in chunk) for chunk in chunks} == {
        ("chat.completion.chunk", chunks[0]["id"], False)}
    assert max(len(text) for chunk in chunks for text in chunk["choices"][0]["delta"].values()) <= max(PIECE, 28)


async def test_the_count_of_tokens_comes_last_where_it_is_asked_for() -> None:
    chunks, whole = await stream({"stream_options": {"include_usage": True}})
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in chunks[:-1])


async def test_a_stream_that_fails_fails_before_it_begins() -> None:
    async with TestClient(TestServer(make_app("judge", Behaviour(status_500=1.0, sticky=True)))) as client:
        response = await client.post("/v1/chat/completions", json={**ASKED, "stream": True})
        assert response.status == 500
        assert (await response.json())["error"]["code"] == 500
