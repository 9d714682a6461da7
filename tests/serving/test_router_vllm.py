"""A real vLLM behind a worker's relay, vllm-router and the front: what clients send and get, unchanged on its way."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import openai
import pytest

from tests.e2e.router_rig import make_fleet, router, worker
from tests.rigs.vllm import TinyServer

pytest.importorskip("vllm_router")
LABELS = ["[[A>>B]]", "[[A>B]]", "[[A=B]]", "[[B>A]]", "[[B>>A]]"]
ASKED: Any = [{"role": "user", "content": "Which answer is better, A or B?"}]


class Way(NamedTuple):
    """The router's URL with /v1, a client of it, and the key."""

    url: str
    client: openai.OpenAI
    key: str


@pytest.fixture(scope="module", params=["consistent_hash", "cache_aware"])
def way(request: pytest.FixtureRequest, tiny_vllm: TinyServer,
        tmp_path_factory: pytest.TempPathFactory) -> Iterator[Way]:
    places = make_fleet(Path(tmp_path_factory.mktemp("fleet")), {tiny_vllm.model_name: ()})
    with (worker(places, 1, "w1", f"uds={tiny_vllm.socket_path}"),
          router(places, "--wait", "60", "--policy", request.param) as (_, url)):
        key = places.key.read_text().strip()
        yield Way(url, openai.OpenAI(base_url=url, api_key=key, timeout=120), key)


def post(way: Way, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    asked = urllib.request.Request(way.url + path, json.dumps(body).encode(), {
        "Content-Type": "application/json", "Authorization": f"Bearer {way.key}"})
    try:
        with urllib.request.urlopen(asked, timeout=120) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_structured_outputs_and_logprobs(way: Way) -> None:
    reply = way.client.chat.completions.create(
        model="tiny", messages=ASKED, max_tokens=32, temperature=0, logprobs=True, top_logprobs=3,
        extra_body={"structured_outputs": {"choice": LABELS}})
    assert reply.choices[0].message.content in LABELS
    logprobs = reply.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert len(logprobs.content[0].top_logprobs) == 3


def test_streaming_says_the_same_in_pieces(way: Way) -> None:
    words: Any = {"model": "tiny", "messages": ASKED, "max_tokens": 64, "temperature": 0, "seed": 1,
                  "extra_body": {"structured_outputs": {"regex": "[a-z]{24}"}}}
    whole = way.client.chat.completions.create(**words)
    parts = list(way.client.chat.completions.create(**words, stream=True, stream_options={"include_usage": True}))
    said = [part.choices[0].delta.content or "" for part in parts if part.choices]
    assert "".join(said) == (whole.choices[0].message.content or "")
    assert len([piece for piece in said if piece]) > 1
    assert parts[-1].usage is not None
    assert whole.usage is not None
    assert parts[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_completions_and_fields_of_vllm(way: Way) -> None:
    reply = way.client.completions.create(model="tiny", prompt="one two", max_tokens=4, temperature=0,
                                          extra_body={"ignore_eos": True, "min_tokens": 4, "top_k": 1})
    assert reply.usage is not None
    assert reply.usage.completion_tokens == 4
    status, body = post(way, "/chat/completions", {
        "model": "tiny", "messages": ASKED, "max_tokens": 4, "ignore_eos": True, "return_token_ids": True,
        "chat_template_kwargs": {"enable_thinking": False}})
    assert status == 200, body
    assert len(body["choices"][0]["token_ids"]) == 4


def test_vllms_own_errors_come_through(way: Way) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        way.client.chat.completions.create(model="tiny", messages=ASKED, max_tokens=10_000_000)
    assert caught.value.param == "max_tokens" or "max_tokens" in str(caught.value)
    status, body = post(way, "/chat/completions", {"model": "tiny", "messages": ASKED, "temperature": -5})
    assert status == 400
    assert "temperature" in body["error"]["message"]


def test_responses_go_beside_vllm_router(way: Way) -> None:
    reply = way.client.responses.create(model="tiny", input="Say something.", max_output_tokens=8)
    assert reply.status in ("completed", "incomplete")
    assert reply.model == "tiny"
