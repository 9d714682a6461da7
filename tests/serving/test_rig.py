"""The rig itself: a real vLLM answers over its Unix socket as the project expects."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from tests.rigs.vllm import TinyServer

LABELS = ("A>>B", "A>B", "A=B", "B>A", "B>>A")
CHOICES = [f"[[{label}]]" for label in LABELS]
QUESTION = [{"role": "user", "content": "Which answer is better, A or B?"}]


@asynccontextmanager
async def session_for(server: TinyServer) -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.UnixConnector(path=str(server.socket_path))
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession("http://localhost", connector=connector, timeout=timeout) as session:
        yield session


async def post(server: TinyServer, path: str, body: dict[str, Any]) -> tuple[int, Any]:
    async with session_for(server) as session, session.post(path, json=body) as response:
        return response.status, await response.json()


async def metrics(server: TinyServer) -> dict[str, str]:
    """The value of each metric, by its whole name with labels."""
    async with session_for(server) as session, session.get("/metrics") as response:
        assert response.status == 200
        lines = (await response.text()).splitlines()
    parts = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: value for name, _, value in parts}


async def test_health(tiny_vllm: TinyServer) -> None:
    async with session_for(tiny_vllm) as session, session.get("/health") as response:
        assert response.status == 200


async def test_models_names_tiny(tiny_vllm: TinyServer) -> None:
    async with session_for(tiny_vllm) as session, session.get("/v1/models") as response:
        assert response.status == 200
        body = await response.json()
    assert [model["id"] for model in body["data"]] == [tiny_vllm.model_name]
    assert body["data"][0]["max_model_len"] == 16_384


async def test_choice_gives_a_label(tiny_vllm: TinyServer) -> None:
    status, body = await post(
        tiny_vllm,
        "/v1/chat/completions",
        {
            "model": tiny_vllm.model_name,
            "messages": QUESTION,
            "max_tokens": 32,
            "temperature": 0,
            "structured_outputs": {"choice": CHOICES},
        },
    )
    assert status == 200, body
    choice = body["choices"][0]
    assert choice["message"]["content"] in CHOICES
    assert choice["finish_reason"] == "stop"
    assert body["usage"]["completion_tokens"] > 0


async def test_tokenize_counts_a_chat(tiny_vllm: TinyServer) -> None:
    status, body = await post(tiny_vllm, "/tokenize", {"model": tiny_vllm.model_name, "messages": QUESTION})
    assert status == 200, body
    assert body["count"] == len(body["tokens"]) > 0
    assert body["max_model_len"] == 16_384


async def test_prompt_too_long_is_a_400_that_says_so(tiny_vllm: TinyServer) -> None:
    question = [{"role": "user", "content": "answer " * 20_000}]
    ask = {"model": tiny_vllm.model_name, "messages": question, "max_tokens": 8}
    status, body = await post(tiny_vllm, "/v1/chat/completions", ask)
    assert status == 400
    error = body["error"]
    assert (error["type"], error["param"], error["code"]) == ("BadRequestError", "input_tokens", 400)
    assert "maximum context length is 16384 tokens" in error["message"]


async def test_max_tokens_over_the_context_is_a_400(tiny_vllm: TinyServer) -> None:
    ask = {"model": tiny_vllm.model_name, "messages": QUESTION, "max_tokens": 20_000}
    status, body = await post(tiny_vllm, "/v1/chat/completions", ask)
    assert status == 400
    assert body["error"]["param"] == "max_tokens"


async def test_max_tokens_that_do_not_fit_are_cut_in_silence(tiny_vllm: TinyServer) -> None:
    """Prompt and max_tokens fit alone but not together: an answer, shorter than asked for."""
    question = [{"role": "user", "content": "answer " * 16_300}]
    ask = {"model": tiny_vllm.model_name, "messages": question, "max_tokens": 1000, "ignore_eos": True}
    status, body = await post(tiny_vllm, "/v1/chat/completions", ask)
    assert status == 200, body
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] < 1000
    assert body["usage"]["total_tokens"] == 16_384


async def test_metrics_count_prefix_cache(tiny_vllm: TinyServer) -> None:
    long_question = [{"role": "user", "content": "the same beginning of a prompt. " * 60}]
    ask = {"model": tiny_vllm.model_name, "messages": long_question, "max_tokens": 1, "ignore_eos": True}
    for _ in range(2):
        status, body = await post(tiny_vllm, "/v1/chat/completions", ask)
        assert status == 200, body
    names = await metrics(tiny_vllm)
    for counter in ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"):
        values = [float(value) for name, value in names.items() if name.startswith(counter + "{")]
        assert len(values) == 1
        assert values[0] > 0
