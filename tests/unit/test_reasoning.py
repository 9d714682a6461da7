"""Judges that think: a label in a thought never counts, and a thought that was cut off is asked for its verdict.

Against the real rehearsal judge in this process, whose every thought names the label [[B>>A]]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from automate.arena.games import Game
from automate.arena.hearing import CHOICES, CONCLUDE, follow_up, hear, tail
from automate.arena.prompts import Message
from automate.arena.referee import Ask, Referee
from automate.arena.verdict import read_verdict, take_apart
from automate.journal import Record
from automate.serving.client import JudgeClient, Messages, Reply, parse_reply
from automate.serving.limiter import Limiter
from automate.serving.rehearsal_behaviour import Behaviour
from automate.serving.rehearsal_replies import compare
from automate.serving.rehearsal_thoughts import THOUGHT, PrefixCache
from tests.unit.test_judge import Served, game, serve
from tests.unit.test_rehearsal import prompt

ASK = Ask(max_tokens=4096, min_output=8, temperature=0.0, retries=1, structured=True, tokenize=True, retry_wait=0.01)
PAIR = next((a, b) for a, b in ((f"answer {n}" * n, "reply") for n in range(1, 100)) if compare(a, b) == "A>>B")
MESSAGES: list[Message] = [{"role": "system", "content": "Judge."}, {"role": "user", "content": prompt(*PAIR)}]
GAME: Game = game(1)


class Watched(Served):
    """A server whose requests are kept."""

    def __init__(self, inner: Served, context: int) -> None:
        self._client, self.context = inner._client, context
        self.asked: list[Mapping[str, Any]] = []
        chat = self._client.chat

        async def watched(messages: Messages, **more: Any) -> Reply:
            said = orjson.loads(orjson.dumps(messages))
            self.asked.append({"messages": said, **more})
            return await chat(messages, **more)

        self._client.chat = watched  # type: ignore[method-assign]

    async def client(self) -> JudgeClient:
        return self._client


async def play(folder: Path, ask: Ask = ASK, **behaviour: Any) -> tuple[Record, list[Mapping[str, Any]]]:
    """One game's record, and the requests that it took."""
    settings = Behaviour(**behaviour)
    async for served in serve(folder, settings):
        watched = Watched(served, settings.context)
        record = await Referee(watched, ask, Limiter(1)).play(GAME, MESSAGES)
    return record, watched.asked


# Every form of thought


@pytest.mark.parametrize("kind", ["think", "think_apart", "think_only_close"])
async def test_the_answers_label_counts_and_the_thoughts_does_not(tmp_path: Path, kind: str) -> None:
    shares: dict[str, Any] = {kind: 1.0}
    record, asked = await play(tmp_path, **shares)
    assert (record["outcome"], record["label"], len(asked)) == ("verdict", "A>>B", 1)
    assert record["reasoning"] == THOUGHT
    assert "[[B>>A]]" not in record["judgment"]
    assert record["judgment"].endswith("[[A>>B]]")
    assert read_verdict(record["judgment"]).label == "A>>B"
    assert "asked_twice" not in record
    assert "reason" not in record


@pytest.mark.parametrize("kind", ["think_unclosed", "think_cut"])
async def test_a_thought_without_an_end_is_asked_for_its_label(tmp_path: Path, kind: str) -> None:
    shares: dict[str, Any] = {kind: 1.0}
    record, asked = await play(tmp_path, **shares)
    assert (record["outcome"], record["label"], record["asked_twice"]) == ("verdict", "A>>B", True)
    assert record["judgment"] == "[[A>>B]]"
    assert record["reasoning"] == THOUGHT
    assert (record["finish"], record["reason"]) == (
        "length", "the judge was still thinking when its reply ended at the token limit")
    first, second = asked
    assert "extra" not in first or first["extra"] is None
    assert second["extra"] == {"structured_outputs": {"choice": list(CHOICES)},
                               "chat_template_kwargs": {"enable_thinking": False, "thinking": False}}
    assert second["messages"] == [*MESSAGES, {"role": "assistant", "content": THOUGHT},
                                  {"role": "user", "content": CONCLUDE}]


async def test_an_inline_thought_cut_off_by_max_tokens_is_no_verdict(tmp_path: Path) -> None:
    record, asked = await play(tmp_path, replace(ASK, max_tokens=18), think=1.0)
    assert (record["label"], record["finish"], len(asked)) == ("A>>B", "length", 2)
    assert record["reasoning"].startswith("Suppose the second")


async def test_a_judge_that_cant_be_kept_from_thinking_has_room_for_it(tmp_path: Path) -> None:
    record, asked = await play(tmp_path, think_cut=1.0, think_always=True)
    assert record["label"] == "A>>B"
    assert record["judgment"] == "[[A>>B]]"
    assert record["reasoning"] == f"{THOUGHT}\n{THOUGHT}"
    assert asked[1]["max_tokens"] == 2048


async def test_a_constrained_answer_taken_for_a_thought_is_an_answer(tmp_path: Path) -> None:
    record, _ = await play(tmp_path, think_cut=1.0, think_misplaced=True)
    assert (record["label"], record["judgment"], record["reasoning"]) == ("A>>B", "[[A>>B]]", THOUGHT)


async def test_a_server_that_refuses_the_switch_is_asked_without_it_from_then_on(tmp_path: Path) -> None:
    async for served in serve(tmp_path, Behaviour(think_cut=1.0, refuse_switch=True)):
        watched = Watched(served, 1 << 20)
        referee = Referee(watched, ASK, Limiter(1))
        first, second = [await referee.play(GAME, MESSAGES) for _ in range(2)]
    assert first["label"] == second["label"] == "A>>B"
    switched = ["chat_template_kwargs" in (asked["extra"] or {}) for asked in watched.asked]
    assert switched == [False, True, False, False, False]


async def test_somebody_elses_server_gets_no_options_of_vllms(tmp_path: Path) -> None:
    record, asked = await play(tmp_path, replace(ASK, structured=False), think_cut=1.0)
    assert [request["extra"] for request in asked] == [None, None]
    assert (record["outcome"], record["label"], record["judgment"]) == ("unparsed", None, "")
    assert record["reason"].count("still thinking when its reply ended at the token limit") == 2


async def test_a_plain_judge_is_asked_for_its_label_as_before(tmp_path: Path) -> None:
    record, asked = await play(tmp_path, no_label=1.0)
    assert (record["label"], record["asked_twice"], asked[1]["max_tokens"]) == ("A>>B", True, 16)
    assert "chat_template_kwargs" not in asked[1]["extra"]
    assert record["reason"] == "no label in the judge's reply"
    assert record["judgment"].endswith("\n[[A>>B]]")


async def test_null_content_is_asked_again_bare(tmp_path: Path) -> None:
    record, asked = await play(tmp_path, refusal=1.0)
    assert (record["outcome"], record["label"], record["reason"]) == (
        "verdict", "A>>B", "the judge refused to answer: This is a rehearsed refusal.")
    assert "reasoning" not in record
    assert [message["role"] for message in asked[1]["messages"]] == ["system", "user"]
    assert asked[1]["messages"][1]["content"].endswith(CONCLUDE)


async def test_tokens_used_up_on_what_is_not_shown_are_thoughts(tmp_path: Path) -> None:
    record, asked = await play(tmp_path, empty=1.0)
    assert asked[1]["max_tokens"] == 2048
    assert (record["outcome"], record["asked_twice"]) == ("unparsed", True)
    assert record["reason"].count("the judge's reply is empty; it ended at the token limit") == 2


@pytest.mark.parametrize("more", [{}, {"think": 1.0}, {"think_apart": 1.0}])
async def test_content_in_parts_is_one_text(tmp_path: Path, more: dict[str, Any]) -> None:
    record, asked = await play(tmp_path, parts=1.0, **more)
    assert (record["label"], len(asked)) == ("A>>B", 1)


async def test_what_was_thought_is_left_out_where_the_context_has_no_room_for_it(tmp_path: Path) -> None:
    ask = replace(ASK, max_tokens=64, min_output=4)
    settings = Behaviour(think_cut=1.0)
    async for served in serve(tmp_path, settings):
        tokens, _ = await served._client.count_tokens(MESSAGES)
    bare = len(CONCLUDE) // 4 + 30
    record, asked = await play(tmp_path, ask, think_cut=1.0, context=tokens + bare + 16)
    assert record["label"] == "A>>B"
    assert [message["role"] for message in asked[-1]["messages"]] == ["system", "user"]


async def test_no_room_for_the_last_word_is_said(tmp_path: Path) -> None:
    async for served in serve(tmp_path, Behaviour()):
        tokens, _ = await served._client.count_tokens(MESSAGES)
    record, _ = await play(tmp_path, replace(ASK, max_tokens=12), think_cut=1.0, context=tokens + 14)
    assert (record["outcome"], record["reasoning"]) == ("unparsed", THOUGHT[:48])
    assert "still thinking" in record["reason"]
    assert "asked to conclude:" in record["reason"]
    assert "leave" in record["reason"]


async def test_a_judge_known_to_begin_inside_a_thought(tmp_path: Path) -> None:
    async for served in serve(tmp_path, Behaviour(think_only_close=1.0)):
        referee = Referee(served, ASK, Limiter(1))
        assert (await referee.play(GAME, MESSAGES))["label"] == "A>>B"
        referee.ask = replace(ASK, max_tokens=14)
        cut = await referee.play(GAME, MESSAGES)
    assert "[[B>>A]]" in cut["reasoning"]
    assert (cut["label"], cut["asked_twice"], cut["judgment"]) == ("A>>B", True, "[[A>>B]]")


async def test_a_mixed_crowd_of_forms_loses_no_game_and_takes_no_thought_for_a_verdict(tmp_path: Path) -> None:
    forms = {"think": .2, "think_apart": .2, "think_unclosed": .2, "think_only_close": .2, "think_cut": .2}
    async for served in serve(tmp_path, Behaviour(**forms, parts=.5, refusal=.1, no_label=.1)):  # type: ignore[arg-type]
        referee = Referee(served, ASK, Limiter(1))
        for number in range(60):
            pair = f"answer {number}", f"reply {number}"
            asked: list[Message] = [{"role": "user", "content": prompt(*pair)}]
            record = await referee.play(GAME, asked)
            assert record["label"] == compare(*pair), record
            assert read_verdict(record["judgment"].split("\n")[-1]).label == record["label"]


# The parts


def reply(content: str | None = None, finish: str = "stop", **more: Any) -> Reply:
    return Reply(content, finish, 1, 1, 0, **more)


@pytest.mark.parametrize(("text", "answer", "thoughts", "unclosed", "headless"), [
    ("plain [[A>B]]", "plain [[A>B]]", "", False, False),
    ("<think>a</think>b", "b", "a", False, False),
    ("\n <think>\na\n</think>\n\n b", "b", "a", False, False),
    ("a</think>b", "b", "a", False, True),
    ("</think>b", "b", "", False, True),
    ("<think>a", "", "a", True, False),
    ("<think>a</think>b\n<think>c", "b", "a\nc", True, False),
    ("<think>a</think>b<think>c</think>d", "d", "a</think>b<think>c", False, False),
    ("the tag `<think>` of the answer", "the tag `<think>` of the answer", "", False, False),
    ("", "", "", False, False),
])
def test_a_text_is_taken_apart(text: str, answer: str, thoughts: str, unclosed: bool, headless: bool) -> None:
    said = take_apart(text)
    assert (said.answer, said.thoughts, said.unclosed, said.headless) == (answer, thoughts, unclosed, headless)


@pytest.mark.parametrize("text", ["<think>[[A>B]]", "[[A>B]]\n<think>or rather", "<think>x</think>[[A>B]]\n<think>"])
def test_an_open_thought_leaves_no_verdict(text: str) -> None:
    assert hear(reply(text, "length")).verdict.label is None
    assert read_verdict(text).label is None


def test_a_choice_in_the_thoughts_counts_only_where_it_was_constrained_and_stands_alone() -> None:
    alone = reply(reasoning="[[A>B]]")
    assert hear(alone, constrained=True).verdict.label == "A>B"
    assert hear(alone).verdict.label is None
    assert hear(reply(reasoning="say [[A>B]]"), constrained=True).verdict.label is None
    assert hear(reply("[[B>A]]", reasoning="[[A>B]]"), constrained=True).verdict.label == "B>A"


@pytest.mark.parametrize(("said", "reason"), [
    (reply(None, "content_filter"), "withheld by a content filter"),
    (reply(None), "the judge's reply is empty"),
    (reply(" \n"), "the judge's reply is empty"),
    (reply(None, reasoning="hm"), "thought and gave no answer"),
    (reply(None, refusal="no,\n never"), "refused to answer: no, never"),
    (reply("<think>hm"), "the judge was still thinking when its reply ended"),
])
def test_silence_has_its_reason(said: Reply, reason: str) -> None:
    verdict = hear(said).verdict
    assert verdict.label is None
    assert str(verdict.reason).endswith(reason)


def test_the_follow_up_holds_no_tags_and_ends_with_the_question() -> None:
    heard = hear(reply("<think>a</think>b</think>\n<think>" + "c" * 9000, "length"))
    assert "think>" not in tail(heard)
    assert len(tail(heard)) <= 6000
    assert follow_up(MESSAGES, "")[:-1] == MESSAGES[:-1]


def body(message: object, finish: str = "stop") -> bytes:
    return orjson.dumps({"choices": [{"message": message, "finish_reason": finish}]})


@pytest.mark.parametrize(("message", "content", "reasoning"), [
    ({"content": "a"}, "a", None),
    ({"content": None}, None, None),
    ({}, None, None),
    ({"content": 3}, None, None),
    ({"content": []}, None, None),
    ({"content": "a", "reasoning": "b"}, "a", "b"),
    ({"content": "a", "reasoning_content": "b"}, "a", "b"),
    ({"content": "a", "reasoning": None, "reasoning_content": "b"}, "a", "b"),
    ({"content": "a", "reasoning": "b", "reasoning_content": "b"}, "a", "b"),
    ({"content": None, "reasoning": "b"}, None, "b"),
    ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "ab", None),
    ({"content": [{"text": "a"}, 7, None, {"type": "image_url", "image_url": {}}]}, "a", None),
    ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}, {"type": "text", "text": "a"}]},
     "a", "t"),
    ({"content": [{"type": "reasoning", "text": "t"}]}, None, "t"),
    ({"content": "a", "reasoning": {"odd": 1}}, "a", None),
])
def test_every_shape_of_message_is_read(message: object, content: str | None, reasoning: str | None) -> None:
    found = parse_reply(body(message))
    assert (found.content, found.reasoning) == (content, reasoning)


def test_a_refusal_is_kept() -> None:
    assert parse_reply(body({"content": None, "refusal": "no"})).refusal == "no"


def test_the_prefix_cache_knows_beginnings_only() -> None:
    cache = PrefixCache(1 << 20, 4.0)
    same, other = "s" * 1024, "".join(map(str, range(300)))
    assert cache.look([same + other]) == 0
    assert cache.look([same + "!" + other]) == 1024 // 4
    assert cache.look(["!" + same]) == 0
    assert cache.hits == 256
    small = PrefixCache(64, 4.0)
    assert [small.look([same]) for _ in range(2)] == [0, 0]
