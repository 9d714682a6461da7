"""Answers of a pool's questions by a real vLLM: constrained choices, and log-likelihoods next to transformers' own."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from automate.pools.answering.asking import Asker
from automate.pools.answering.requests import Told
from automate.pools.answering.workers import Roster
from automate.pools.round_records import Answer, Work
from automate.serving.client import Address, JudgeClient
from tests.rigs.vllm import TinyServer, serve_environment, tiny_model, virtual_environment

T = TypeVar("T")
SYSTEM = "Answer with one letter."
QUESTIONS = ("Tracy didn't go home. What will Tracy do?", "Why did 小明 go to the café?", "Which is more, two or ten?")
OPTIONS = (("A", "B", "C"), ("make a new plan", "go home and see Riley", "find somewhere to go, then don't"))
BY_HAND = """
import json, sys
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, asked = sys.argv[1], json.load(sys.stdin)
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder).eval()
found = []
for messages, options in asked:
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    prefix = tokenizer(text, add_special_tokens=False)["input_ids"]
    sums = []
    for option in options:
        own = tokenizer(option, add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            logits = model(torch.tensor([prefix + own])).logits[0].float()
        steps = torch.log_softmax(logits, -1)
        sums.append(sum(float(steps[len(prefix) - 1 + n, token]) for n, token in enumerate(own)))
    found.append(sums)
print(json.dumps(found))
"""


class One:
    """One server in a fleet's place."""

    def __init__(self, client: JudgeClient) -> None:
        self.client = client

    async def ask_worker(self, call: Callable[[JudgeClient, str], Awaitable[T]], question: str | None = None) -> T:
        return await call(self.client, "server-1")


def work(number: int, method: str, options: tuple[str, ...], tokens: int | None = None) -> Work:
    chat = ({"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTIONS[number]})
    return Work(f"r{number}", "tiny", chat, method, options, tokens)


async def answers(server: TinyServer, lines: list[Work], told: dict[str, Told] | None = None) -> list[Answer]:
    async with JudgeClient(Address("http://localhost", str(server.socket_path)), server.model_name) as client:
        asker = Asker(One(client), Roster("tiny", lambda line: None), lambda: 1, told or {}, retries=0)
        return [await asker.answer(line) for line in lines]


def by_hand(lines: list[Work]) -> list[list[float]]:
    """The same sums by transformers, in vLLM's own environment."""
    import os

    asked = json.dumps([[list(line.messages), list(line.choices)] for line in lines])
    done = subprocess.run([str(virtual_environment() / "bin" / "python"), "-c", BY_HAND, str(tiny_model())],
                          input=asked, capture_output=True, text=True, timeout=300, check=False,
                          env={**os.environ, **serve_environment()})
    assert done.returncode == 0, done.stderr
    found: list[list[float]] = json.loads(done.stdout)
    return found


async def test_an_answer_is_one_of_the_choices_and_no_more(tiny_vllm: TinyServer) -> None:
    found = await answers(tiny_vllm, [work(number, "generate", ("A", "B", "C"), 1) for number in range(3)])
    assert [one.error for one in found] == [None] * 3
    assert {one.result for one in found} <= {"A", "B", "C"}
    words = await answers(tiny_vllm, [work(number, "generate", ("first one", "second one"), 12) for number in range(3)])
    assert {one.result for one in words} <= {"first one", "second one"}
    again = await answers(tiny_vllm, [work(number, "generate", ("A", "B", "C"), 1) for number in range(3)])
    assert [one.result for one in again] == [one.result for one in found], "temperature 0 always says the same"


async def test_a_workers_own_settings_hold(tiny_vllm: TinyServer) -> None:
    words = "first second third fourth fifth sixth"
    line = work(0, "generate", (words,), 2)
    short = (await answers(tiny_vllm, [line]))[0].result or ""
    assert len(short) < len(words)
    assert words.startswith(short)
    long = await answers(tiny_vllm, [line], {"tiny.1": Told(max_tokens=60)})
    assert long[0].result == words
    scored = work(0, "loglikelihood", OPTIONS[0])
    plain = await answers(tiny_vllm, [scored])
    other = await answers(tiny_vllm, [scored], {"tiny/*": Told(None, "Speak of something else, at length, and sing.")})
    assert other[0].scores != plain[0].scores, "its own system prompt stands in the data set's place"


async def test_log_likelihoods_are_those_of_transformers(tiny_vllm: TinyServer) -> None:
    lines = [work(number, "loglikelihood", options) for number in range(3) for options in OPTIONS]
    found, hand = await answers(tiny_vllm, lines), by_hand(lines)
    for one, sums in zip(found, hand, strict=True):
        assert one.error is None
        assert one.scores == pytest.approx(sums, abs=0.15), "half precision against full"
        assert all(math.isfinite(score) and score < 0 for score in one.scores)
        best = max(range(len(sums)), key=lambda number: sums[number])
        if sorted(sums)[-1] - sorted(sums)[-2] > 0.3:
            assert one.result == str(best + 1)
    assert len({one.scores for one in found}) == len(lines), "each question has numbers of its own"


async def test_what_does_not_fit_is_an_error_of_that_line_only(tiny_vllm: TinyServer) -> None:
    huge = Work("huge", "tiny", ({"role": "user", "content": "seven " * 20_000},), "generate", ("A", "B"), 1)
    scored = Work("scored", "tiny", huge.messages, "loglikelihood", ("A", "B"), None)
    found = await answers(tiny_vllm, [huge, scored, work(0, "generate", ("A", "B"), 1)])
    assert [one.result is None for one in found] == [True, True, False]
    assert all("context" in str(one.error) or "length" in str(one.error) for one in found[:2])
