"""The stand-in judge: what it answers, what it gets wrong on request, and how it ends.
It never asks how long anything took.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web import Application, Request

import automate
from automate.serving.rehearsal import HEADER, add_arguments, make_app
from automate.serving.rehearsal_behaviour import Behaviour, Fault
from automate.serving.rehearsal_judge import FINGERPRINT
from automate.serving.rehearsal_replies import (
    END_A,
    END_B,
    LABELS,
    START_A,
    START_B,
    RequestRefusedError,
    check_room,
    choose_fault,
    compare,
    count_chat,
    cut,
    digest,
    find_answers,
    fitting_choice,
    verdict,
)
from automate.serving.rehearsal_room import TokenPool

Client = TestClient[Request, Application]
MIRRORED = dict(zip(LABELS, reversed(LABELS), strict=True))
PATIENCE_S = 30


def prompt(answer_a: str, answer_b: str, question: str = "Which?") -> str:
    return f"<|User Prompt|>\n{question}\n\n{START_A}\n{answer_a}\n{END_A}\n\n{START_B}\n{answer_b}\n{END_B}"


def body(text: str = "no answers here", max_tokens: int | None = 512, **more: object) -> dict[str, object]:
    messages = [{"role": "system", "content": "Judge."}, {"role": "user", "content": text}]
    limit = {} if max_tokens is None else {"max_tokens": max_tokens}
    return {"model": "judge", "messages": messages, **limit, **more}


@asynccontextmanager
async def judge(api_key: str | None = None, **options: Any) -> AsyncIterator[Client]:
    server = TestServer(make_app("judge", Behaviour(**options), api_key))
    async with TestClient(server) as client:
        yield client


async def ask(client: Client, request: dict[str, object]) -> tuple[int, dict[str, Any]]:
    async with client.post("/v1/chat/completions", json=request) as response:
        assert response.headers[HEADER] == "verdicts mean nothing"
        return response.status, await response.json()


async def said(client: Client, request: dict[str, object]) -> str:
    status, answer = await ask(client, request)
    assert status == 200, answer
    content = answer["choices"][0]["message"]["content"]
    assert isinstance(content, str)
    return content


async def read_metrics(client: Client) -> dict[str, float]:
    async with client.get("/metrics") as response:
        lines = (await response.text()).splitlines()
    rows = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    return {name.split("{")[0].removeprefix("vllm:"): float(value) for name, value in rows}


async def wait_for_metrics(client: Client, **wanted: float) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            seen = await read_metrics(client)
            if all(seen[name] == value for name, value in wanted.items()):
                return
            await asyncio.sleep(0.01)


def parse(*options: str) -> Behaviour:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return Behaviour.from_args(parser.parse_args(["--model", "m", "--port", "0", *options]))


# The verdict


def test_swapped_answers_get_the_mirrored_label() -> None:
    seen = Counter[str]()
    for number in range(300):
        first, second = f"answer {number}", f"reply {number} " * (1 + number % 3)
        label = verdict(["Judge.", prompt(first, second)])
        assert verdict(["Judge.", prompt(second, first)]) == MIRRORED[label]
        seen[label] += 1
    assert set(seen) == set(LABELS)


def test_the_verdict_depends_on_the_two_answers_only() -> None:
    assert compare("same", " same\n") == "A=B"
    for number in range(50):
        label = verdict(["Judge.", prompt(f"a{number}", f"b{number}")])
        again = ["Other.", prompt(f"a{number}", f"b{number}", "Why?"), "I cannot say.", "Label?"]
        assert verdict(again) == label


def test_a_prompt_without_both_answers_is_hashed_whole() -> None:
    assert find_answers(f"{START_A} one {END_A}") is None
    assert find_answers(f"{START_A} one {END_A} {START_B} two") is None
    assert {verdict([f"text {number}"]) for number in range(60)} == set(LABELS)
    assert verdict(["text"]) == verdict(["text"])


def test_the_choice_that_carries_the_label_is_taken() -> None:
    assert fitting_choice(["[[A>>B]]", "[[A>B]]"], "A>B") == "[[A>B]]"
    assert fitting_choice(["B>>A", "B>A"], "B>A") == "B>A"
    assert fitting_choice(["first", "second"], "A=B") == "first"


def test_counting_and_cutting() -> None:
    assert count_chat(["abcd", "éé"], 4) == 2 + 2 * 8 + 16
    assert count_chat(["abcde"], 2) == 3 + 8 + 16
    assert (cut("12345678", 2).content, cut("12345678", 2).finish_reason) == ("12345678", "stop")
    short = cut("123é5678", 1)
    assert (short.content, short.tokens, short.finish_reason) == ("123", 1, "length")
    check_room(99, 1, 100)
    for tokens, most, param in ((100, None, "input_tokens"), (99, 2, "max_tokens")):
        with pytest.raises(RequestRefusedError, match="maximum context length is 100") as refused:
            check_room(tokens, most, 100)
        assert (refused.value.param, refused.value.status) == (param, 400)


# The faults


def test_each_fault_strikes_its_share_of_first_tries() -> None:
    behaviour = Behaviour(status_400=0.2, status_429=0.1, status_500=0.1, hang=0.1, drop=0.1, empty=0.1)
    tries = 5000
    seen = Counter(
        choose_fault(behaviour, digest(b"p%d" % number), digest(b"b%d" % number)) for number in range(tries)
    )
    for fault in Fault:
        share = 0.2 if fault is Fault.STATUS_400 else 0.1
        assert abs(seen[fault] / tries - share) < 0.02, fault


def test_options_become_a_behaviour() -> None:
    assert parse() == Behaviour()
    chosen = parse(
        "--latency", "0.5", "--kv-tokens", "100", "--no-label", "1", "--sticky", "--die-after", "3"
    )
    assert chosen == Behaviour(latency=0.5, kv_tokens=100, no_label=1, sticky=True, die_after=3)


@pytest.mark.parametrize(
    "option", [("--drop", "1.5"), ("--latency", "-1"), ("--context", "0"), ("--hang", "nan")]
)
def test_senseless_options_are_refused(option: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(*option)
    assert option[0] in capsys.readouterr().err


def test_exclusive_shares_must_not_exceed_one() -> None:
    with pytest.raises(ValueError, match="more than 1"):
        Behaviour(status_500=0.6, drop=0.6)
    with pytest.raises(ValueError, match="more than 1"):
        Behaviour(no_label=0.6, wrong_label=0.6)
    with pytest.raises(ValueError, match="more than 1"):
        Behaviour(think=0.6, think_cut=0.6)


@pytest.mark.parametrize(("share", "status"), [("status_429", 429), ("status_500", 500)])
async def test_a_transient_status_spares_the_retry(share: str, status: int) -> None:
    async with judge(None, **{share: 1.0}) as client:
        async with client.post("/v1/chat/completions", json=body()) as response:
            assert response.status == status
            assert response.headers.get("Retry-After") == ("0" if status == 429 else None)
            assert (await response.json())["error"]["code"] == status
        assert (await ask(client, body()))[0] == 200
        assert (await ask(client, body("another")))[0] == status


async def test_sticky_faults_and_400_strike_every_try() -> None:
    async with judge(status_500=1.0, sticky=True) as client:
        assert [(await ask(client, body()))[0] for _ in range(3)] == [500] * 3
    async with judge(status_400=1.0) as client:
        for most in (512, 513):
            status, answer = await ask(client, body(max_tokens=most))
            assert (status, answer["error"]["type"]) == (400, "BadRequestError")


async def test_a_dropped_connection_spares_the_retry() -> None:
    async with judge(drop=1.0) as client:
        with pytest.raises(aiohttp.ClientConnectionError):
            await ask(client, body())
        assert (await ask(client, body()))[0] == 200


async def test_a_hanging_request_lasts_until_the_client_goes() -> None:
    async with judge(hang=1.0) as client:
        hanging = asyncio.create_task(ask(client, body()))
        await wait_for_metrics(client, num_requests_running=1)
        assert not hanging.done()
        hanging.cancel()
        await wait_for_metrics(client, num_requests_running=0)
        assert (await ask(client, body()))[0] == 200


async def test_empty_content_is_cut_for_length_once() -> None:
    async with judge(empty=1.0) as client:
        _, answer = await ask(client, body(max_tokens=100))
        assert answer["choices"][0] == {
            "index": 0,
            "message": {"role": "assistant", "content": None},
            "finish_reason": "length",
        }
        assert answer["usage"]["completion_tokens"] == 100
        assert "[[" in await said(client, body(max_tokens=100))


async def test_label_faults_are_decided_by_the_prompt() -> None:
    async with judge(no_label=1.0) as client:
        assert "[[" not in await said(client, body()) + await said(client, body())
    async with judge(wrong_label=1.0) as client:
        texts = [await said(client, body(f"text {number}")) for number in range(20)]
        assert {"[[C]]" in text for text in texts} == {"arr[b]" in text for text in texts} == {True, False}
        assert not any(f"[[{label}]]" in text for text in texts for label in LABELS)
    async with judge(short_label=1.0) as client:
        texts = [await said(client, body(f"text {number}")) for number in range(20)]
        assert {text[-5:] for text in texts} == {"[[A]]", "[[B]]"}
    async with judge(think=1.0) as client:
        thought, _, rest = (await said(client, body("text"))).partition("</think>")
        assert thought.startswith("<think>") and "[[B>>A]]" in thought
        assert rest.endswith(f"[[{verdict(['Judge.', 'text'])}]]")


async def test_structured_choices_always_yield_a_label() -> None:
    choices = [f"[[{label}]]" for label in LABELS]
    label = f"[[{verdict(['Judge.', 'text'])}]]"
    asked = [body("text", structured_outputs={"choice": choices}), body("text", guided_choice=choices)]
    async with judge(no_label=1.0, think=1.0) as client:
        assert [await said(client, request) for request in asked] == [label, label]
    async with judge(no_label=1.0, ignore_structured=True) as client:
        assert "[[" not in await said(client, asked[0])


async def test_probes_are_never_faulted() -> None:
    async with judge(status_400=0.5, drop=0.5, sticky=True, no_label=1.0) as client:
        for number in range(10):
            status, answer = await ask(client, body(f"text {number}", max_tokens=1))
            assert (status, answer["choices"][0]["finish_reason"]) == (200, "length")


# The interface


async def test_a_completion_says_that_it_means_nothing() -> None:
    text = prompt("first", "second")
    async with judge() as client:
        _, answer = await ask(client, body(text, max_tokens=None))
        async with client.post("/tokenize", json=body(text)) as response:
            tokens = await response.json()
    content = answer["choices"][0]["message"]["content"]
    assert content.startswith("Rehearsal verdict; it means nothing.")
    assert content.endswith(f"My final verdict is: [[{compare('first', 'second')}]]")
    assert answer["system_fingerprint"] == FINGERPRINT
    assert answer["choices"][0]["finish_reason"] == "stop"
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert len(tokens.pop("tokens")) == usage["prompt_tokens"]
    assert tokens == {"count": usage["prompt_tokens"], "max_model_len": 1 << 20}


async def test_content_in_parts_is_text_too() -> None:
    parts = [{"type": "text", "text": "te"}, {"type": "text", "text": "xt"}]
    async with judge() as client:
        whole, split = body("text"), body("text")
        split["messages"] = [{"role": "system", "content": "Judge."}, {"role": "user", "content": parts}]
        assert await said(client, split) == await said(client, whole)
        async with client.post("/tokenize", json={"model": "judge", "prompt": "12345"}) as response:
            assert (await response.json())["count"] == 2


async def test_models_and_the_key() -> None:
    async with judge("secret", context=4096) as client:
        for path in ("/v1/models", "/v1/unknown"):
            async with client.get(path, headers={"Authorization": "Bearer wrong"}) as response:
                assert response.status == 401
                assert (await response.json())["error"]["code"] == 401
        assert (await ask(client, body()))[0] == 401
        async with client.get("/v1/models", headers={"Authorization": "Bearer secret"}) as response:
            (model,) = (await response.json())["data"]
        assert (model["id"], model["max_model_len"]) == ("judge", 4096)
        assert "mean nothing" in model["owned_by"]
        for path in ("/health", "/metrics"):
            async with client.get(path) as response:
                assert response.status == 200


async def test_a_loading_judge_answers_nothing_else() -> None:
    async with judge(load_seconds=3600.0) as client:
        for path in ("/health", "/v1/models"):
            async with client.get(path) as response:
                assert response.status == 503
        assert (await ask(client, body()))[0] == 503


async def test_health_fails_after_so_many_answers() -> None:
    async with judge(health_fails_after=2) as client:
        seen = []
        for most in (1, 512, 512):
            await ask(client, body(max_tokens=most))
            async with client.get("/health") as response:
                seen.append(response.status)
    assert seen == [200, 200, 503]


@pytest.mark.parametrize(
    ("request_body", "status", "param"),
    [
        (body(max_tokens=500), 400, "max_tokens"),
        (body("x" * 1000), 400, "input_tokens"),
        (body(max_completion_tokens=500, max_tokens=1), 400, "max_tokens"),
        (body(max_tokens=0), 400, "max_tokens"),
        ({"model": "judge", "messages": []}, 400, "messages"),
        ({"model": "judge", "messages": [{"role": "user", "content": 3}]}, 400, "messages"),
        (body(structured_outputs={"choice": []}), 400, "structured_outputs"),
        (body(stream="piecewise"), 400, "stream"),
        (body(stream_options={"include_usage": True}), 400, "stream_options"),
        ({**body(), "model": "other"}, 404, "model"),
    ],
)
async def test_bad_requests_are_refused(request_body: dict[str, object], status: int, param: str) -> None:
    async with judge(context=200) as client:
        seen, answer = await ask(client, request_body)
    assert (seen, answer["error"]["param"], answer["error"]["code"]) == (status, param, status)


async def test_what_is_not_json_and_unknown_paths_are_refused() -> None:
    async with judge() as client:
        for data in (b"{", b"[]"):
            async with client.post("/v1/chat/completions", data=data) as response:
                assert response.status == 400
        async with client.get("/v1/chat/completions") as response:
            assert (response.status, HEADER in response.headers) == (404, True)


async def test_metrics_count_tokens() -> None:
    async with judge(kv_tokens=1600) as client:
        _, answer = await ask(client, body())
        seen = await read_metrics(client)
        async with client.get("/metrics") as response:
            text = await response.text()
    usage = answer["usage"]
    assert seen["prompt_tokens_total"] == seen["prefix_cache_queries_total"] == usage["prompt_tokens"]
    assert seen["generation_tokens_total"] == usage["completion_tokens"]
    assert seen["num_preemptions_total"] == seen["prefix_cache_hits_total"] == 0
    assert 'vllm:cache_config_info{block_size="16",num_gpu_blocks="100"} 1.0' in text.splitlines()


async def test_metrics_show_the_caches() -> None:
    async with judge(kv_tokens=100, latency=3600.0) as client:
        asking = asyncio.create_task(ask(client, body(max_tokens=8)))
        await wait_for_metrics(client, num_requests_running=1)
        seen = await read_metrics(client)
        assert 0.3 < seen["kv_cache_usage_perc"] < 0.7
        asking.cancel()
        await wait_for_metrics(client, num_requests_running=0, kv_cache_usage_perc=0)
    async with judge() as client:
        usages = [(await ask(client, body("long " * 400 + end)))[1]["usage"] for end in ("one", "two")]
        seen = await read_metrics(client)
    cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]
    assert cached[0] == 0
    assert usages[1]["prompt_tokens"] * 0.7 < cached[1] < usages[1]["prompt_tokens"]
    assert seen["prefix_cache_hits_total"] == cached[1]


async def test_thoughts_come_in_every_form() -> None:
    async def message(**options: Any) -> dict[str, Any]:
        async with judge(**options) as client:
            _, answer = await ask(client, body("text", max_tokens=400))
        choice = answer["choices"][0]
        return {"finish": choice["finish_reason"], **choice["message"]}

    label = f"[[{verdict(['Judge.', 'text'])}]]"
    apart, only_close = await message(think_apart=1.0), await message(think_only_close=1.0)
    assert apart["content"].endswith(label)
    assert "[[B>>A]]" in apart.get("reasoning", "") + apart.get("reasoning_content", "")
    assert "<think>" not in only_close["content"]
    assert only_close["content"].partition("</think>")[2].endswith(label)
    unclosed, cut_off = await message(think_unclosed=1.0), await message(think_cut=1.0)
    assert unclosed["content"].startswith("<think>")
    assert "</think>" not in unclosed["content"]
    assert (unclosed["finish"], cut_off["finish"], cut_off["content"]) == ("length", "length", None)
    refused, parts = await message(refusal=1.0), await message(parts=1.0)
    assert (refused["finish"], refused["content"], bool(refused["refusal"])) == ("stop", None, True)
    assert "".join(part["text"] for part in parts["content"]).endswith(label)


async def test_thinking_can_be_switched_off_unless_it_cant() -> None:
    off: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": False}}
    choices: dict[str, Any] = {"structured_outputs": {"choice": [f"[[{label}]]" for label in LABELS]}}
    cases: list[tuple[dict[str, Any], int, bool]] = [
        ({}, 200, False), ({"think_always": True}, 200, True), ({"refuse_switch": True}, 400, False)]
    for options, status, thought in cases:
        async with judge(think_apart=1.0, **options) as client:
            seen, answer = await ask(client, body("text", **off, **choices))
        assert seen == status
        message = answer["choices"][0]["message"] if status == 200 else {}
        assert bool({"reasoning", "reasoning_content"} & set(message)) is thought


async def test_requests_that_do_not_fit_wait() -> None:
    async with judge(kv_tokens=100, latency=3600.0) as client:
        tasks = [asyncio.create_task(ask(client, body(f"text {number}"))) for number in range(3)]
        await wait_for_metrics(client, num_requests_running=1, num_requests_waiting=2)
        tasks[0].cancel()
        await wait_for_metrics(client, num_requests_running=1, num_requests_waiting=1)
        for task in tasks:
            task.cancel()
        await wait_for_metrics(client, num_requests_running=0, num_requests_waiting=0)


async def test_the_pool_survives_cancelled_waiters() -> None:
    pool = TokenPool(10)
    assert await pool.take(50) == 10
    large, small, last = (asyncio.create_task(pool.take(cost)) for cost in (8, 4, 4))
    await asyncio.sleep(0)
    assert pool.waiting == 3
    pool.give(10)
    large.cancel()  # admitted already, and cancelled before it could run
    last.cancel()
    await asyncio.wait([large, small, last])
    assert (large.cancelled(), small.result(), last.cancelled(), pool.waiting) == (True, 4, True, 0)
    assert await pool.take(6) == 6


# The process


@contextmanager
def judge_process(*options: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A judge that listens on a Unix socket, where a dead one has left its file behind."""
    with tempfile.TemporaryDirectory(prefix="judge-") as folder:
        path = Path(folder) / "socket"
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
        process = start_judge(path, *options)
        try:
            assert process.stderr is not None
            assert "its verdicts mean nothing" in process.stderr.readline()
            yield process, path
        finally:
            process.kill()
            process.communicate()


def start_judge(path: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "automate.serving.rehearsal", "--model", "judge", "--uds", str(path)]
    root = Path(automate.__file__).parents[1]
    return subprocess.Popen(
        [*command, *options],
        cwd=root,
        env={**os.environ, "VLLM_API_KEY": "secret"},
        stderr=subprocess.PIPE,
        text=True,
    )


@asynccontextmanager
async def session(path: Path) -> AsyncIterator[aiohttp.ClientSession]:
    headers = {"Authorization": "Bearer secret"}
    async with aiohttp.ClientSession(
        "http://judge", connector=aiohttp.UnixConnector(str(path)), headers=headers
    ) as client:
        yield client


async def test_sigterm_ends_a_busy_judge_cleanly() -> None:
    with judge_process("--hang", "1") as (process, path):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
        async with session(path) as client:
            hanging = asyncio.create_task(client.post("/v1/chat/completions", json=body()))
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    async with client.get("/metrics") as response:
                        if 'running{engine="0",model_name="judge"} 1.0' in await response.text():
                            break
                    await asyncio.sleep(0.01)
            second = start_judge(path)
            _, complaint = await asyncio.to_thread(second.communicate, timeout=PATIENCE_S)
            assert second.returncode == 1
            assert "listens" in complaint
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, PATIENCE_S) == 0
            assert not path.exists()
            await asyncio.wait([hanging])


async def test_a_judge_dies_after_so_many_answers() -> None:
    with judge_process("--die-after", "3", "--latency", "0.01") as (process, path):
        async with session(path) as client:

            async def answered(number: int) -> bool:
                try:
                    async with client.post("/v1/chat/completions", json=body(f"text {number}")) as response:
                        return FINGERPRINT in orjson.dumps(await response.json()).decode()
                except aiohttp.ClientError:
                    return False

            assert sum(await asyncio.gather(*map(answered, range(8)))) == 3
        assert await asyncio.to_thread(process.wait, PATIENCE_S) == 1
        assert path.exists()


async def test_a_judge_dies_while_loading(tmp_path: Path) -> None:
    process = start_judge(tmp_path / "s", "--die-while-loading", "--load-seconds", "0.1")
    _, complaint = await asyncio.to_thread(process.communicate, timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "Traceback" not in complaint
