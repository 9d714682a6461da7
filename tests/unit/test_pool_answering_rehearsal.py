"""The rehearsal server as a pool's rounds ask it: choices, tokens, and log-probabilities in vLLM's forms."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web import Application, Request

from automate.serving.rehearsal import make_app
from automate.serving.rehearsal_behaviour import Behaviour
from automate.serving.rehearsal_scoring import LOWEST, chat_tokens, log_probabilities, tokens_of

Client = TestClient[Request, Application]


@asynccontextmanager
async def server(model: str = "m", also: tuple[str, ...] = (), **behaviour: Any) -> AsyncIterator[Client]:
    async with TestClient(TestServer(make_app(model, Behaviour(answers=True, **behaviour), None, also))) as client:
        yield client


def chat(text: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 1, **more}


async def post(client: Client | ClientSession, path: str, body: dict[str, Any]) -> tuple[int, Any]:
    async with client.post(path, json=body) as response:
        return response.status, await response.json()


async def test_a_candidate_takes_one_of_the_choices_and_always_the_same() -> None:
    choice = {"structured_outputs": {"choice": ["A", "B", "C"]}}
    async with server() as client, server() as other, server("n") as model:
        said = []
        for asked in (client, other, model):
            replies = [await post(asked, "/v1/chat/completions", chat(f"question {number}", **choice))
                       for number in range(30)]
            said.append([reply["choices"][0]["message"]["content"] for _, reply in replies])
    assert set(said[0]) == {"A", "B", "C"}
    assert said[0] == said[1]
    assert said[0] != said[2], "another model has answers of its own"


async def test_a_choice_of_one_token_meets_faults_and_a_probe_does_not() -> None:
    async with server(status_500=1.0, sticky=True) as client:
        choice = {"structured_outputs": {"choice": ["A", "B"]}}
        assert (await post(client, "/v1/chat/completions", chat("question", **choice)))[0] == 500
        assert (await post(client, "/v1/chat/completions", chat("question")))[0] == 200
        assert (await post(client, "/v1/completions", {"prompt": [1, 2], "max_tokens": 1}))[0] == 500


async def test_tokens_are_as_many_as_are_counted() -> None:
    async with server() as client:
        _, chatted = await post(client, "/tokenize", chat("Tracy didn't — 小明"))
        _, reply = await post(client, "/v1/chat/completions", chat("Tracy didn't — 小明"))
        _, text = await post(client, "/tokenize", {"prompt": "make a new plan", "add_special_tokens": False})
    assert chatted["count"] == len(chatted["tokens"]) == reply["usage"]["prompt_tokens"]
    assert text["tokens"] == tokens_of("make a new plan", 4.0)
    assert text["count"] == 4


async def test_log_probabilities_are_those_of_each_prompts_tokens_after_what_stands_before() -> None:
    async with server(also=("adapter",)) as client:
        body = {"prompt": [[5, 6, 7], [5, 6, 8, 9]], "max_tokens": 1, "prompt_logprobs": 0}
        _, own = await post(client, "/v1/completions", body)
        _, other = await post(client, "/v1/completions", {**body, "model": "adapter"})
        status, _ = await post(client, "/v1/completions", {**body, "model": "unknown"})
    first, second = (choice["prompt_logprobs"] for choice in own["choices"])
    assert status == 404
    assert [place and list(place) for place in second] == [None, ["6"], ["8"], ["9"]]
    assert first[:2] == second[:2], "the same beginning has the same numbers"
    assert all(-LOWEST <= place["7"]["logprob"] <= 0 for place in first[2:])
    assert other["choices"][0]["prompt_logprobs"][1:] != first[1:], "another model has numbers of its own"
    assert own["usage"]["prompt_tokens"] == 7


@pytest.mark.parametrize("body", [
    {}, {"prompt": []}, {"prompt": [[]]}, {"prompt": ["a", 3]}, {"prompt": [[1, -2]]}, {"prompt": [[True]]},
    {"prompt": [1], "max_tokens": -1}, {"prompt": [1], "max_tokens": "x"}, {"prompt": [1] * 99, "max_tokens": 9},
])
async def test_completions_that_can_not_be_are_refused(body: dict[str, Any]) -> None:
    async with server(context=100) as client:
        status, said = await post(client, "/v1/completions", body)
    assert status == 400
    assert said["error"]["message"]


def test_a_texts_tokens_cover_all_of_it() -> None:
    text = "a" * 10
    assert len(tokens_of(text, 4.0)) == 3
    assert len(tokens_of(text, 2.5)) == 4
    assert tokens_of("", 4.0) == []
    assert tokens_of("abcdX", 4.0)[0] == tokens_of("abcdY", 4.0)[0]
    assert tokens_of("abcdX", 4.0) != tokens_of("abcdY", 4.0)
    assert len(chat_tokens(["a" * 10, "b"], 4.0)) == 3 + 2 * 8 + 16
    assert log_probabilities([], "m") == []
