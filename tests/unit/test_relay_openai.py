"""OpenAI's own client through the relay to the stand-in judge: whole replies, streams, and errors as it knows them."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from aiohttp import web

from automate.serving.rehearsal import make_app
from automate.serving.rehearsal_behaviour import Behaviour
from automate.serving.relay.relay import Answer, Asked, Relay, Target
from tests.unit.relay_rig import KEY

MESSAGES: list[Any] = [{"role": "user", "content": "Which is better?"}]


@asynccontextmanager
async def judge(**behaviour: Any) -> AsyncIterator[int]:
    """The port of a relay before a stand-in judge."""
    with tempfile.TemporaryDirectory() as folder:
        socket = str(Path(folder) / "s")

        async def pick(asked: Asked) -> Target | Answer:
            return Target(uds=socket if asked.model != "nowhere" else socket + "x")

        runner = web.AppRunner(make_app("judge", Behaviour(**behaviour)), handler_cancellation=True)
        await runner.setup()
        await web.UnixSite(runner, socket).start()
        relay = Relay(KEY, pick)
        try:
            yield await relay.start("127.0.0.1")
            assert relay.in_flight == 0
        finally:
            await relay.close()
            await runner.cleanup()


def client(port: int, key: str = KEY) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=key, max_retries=0)


async def test_openais_client_works_unchanged() -> None:
    async with judge() as port, client(port) as one:
        assert [model.id async for model in await one.models.list()] == ["judge"]
        whole = await one.chat.completions.create(model="judge", messages=MESSAGES)
        stream = await one.chat.completions.create(model="judge", messages=MESSAGES, stream=True,
                                                   stream_options={"include_usage": True})
        chunks = [chunk async for chunk in stream]
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert said == whole.choices[0].message.content
    assert len(chunks) > 4
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens


async def test_openais_client_knows_the_errors() -> None:
    async with judge() as port, client(port) as one, client(port, "wrong") as stranger:
        with pytest.raises(openai.AuthenticationError, match="key is missing or wrong"):
            await stranger.chat.completions.create(model="judge", messages=MESSAGES)
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            await one.chat.completions.create(model="other", messages=MESSAGES)
        with pytest.raises(openai.InternalServerError, match="can't be reached"):
            await one.chat.completions.create(model="nowhere", messages=MESSAGES)
