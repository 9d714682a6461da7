"""What `llm_judge` reads: validation sets, the checkout's prompts, the task's arguments, what a first step left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from automate.validation.modules.base import InvalidConfigValueException, RecoverableException
from automate.validation.modules.llm_judge.dataset import context, read_items
from automate.validation.modules.llm_judge.prompts import NoPrompt, read_prompts
from automate.validation.modules.llm_judge.schemas import eval_arguments, read_partial
from tests.unit.llm_judge_support import INIT_FILE, PROMPT_FILE, chat, make_checkout, make_partial, write_set

CALL = '{"name": "look", "arguments": {"city": "Bern", "days": 2}}'


def items(tmp_path: Path, *rows: object) -> list[Any]:
    prompts = read_prompts(make_checkout(tmp_path))
    return read_items(write_set(tmp_path / "set.jsonl", *rows), prompts.render_call)


def test_the_last_answer_becomes_the_reference(tmp_path: Path) -> None:
    (one,) = items(tmp_path, chat(" hello ", "hi", "how?", " fine\n", system="Be kind.", tools="[]"))
    assert one.messages == ({"role": "system", "content": "Be kind."}, {"role": "user", "content": "hello"},
                            {"role": "assistant", "content": "hi"}, {"role": "user", "content": "how?"})
    assert (one.reference, one.tools) == (" fine\n", "[]")


def test_a_row_without_system_text_shows_none_to_the_judge(tmp_path: Path) -> None:
    (one,) = items(tmp_path, chat("hello"))
    assert one.messages[0] == {"role": "system", "content": None}
    assert context(one.messages) == "System: None\n\nUser: hello"
    assert one.reference is None


def test_function_calls_and_their_results(tmp_path: Path) -> None:
    said = [{"role": "user", "content": "weather?"}, {"role": "function_call", "content": CALL},
            {"role": "observation", "content": "rain"}, {"role": "function_call", "content": "not json"},
            {"role": "observation", "content": "odd"}, {"role": "function_call", "content": CALL}]
    (one,) = items(tmp_path, {"conversations": said, "tools": [{"name": "look"}]})
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": {"city": "Bern", "days": 2}}}
    assert one.messages[2] == {"role": "assistant", "content": "", "tool_calls": [call]}
    assert one.messages[3] == {"role": "tool", "tool_call_id": "call_1", "content": "rain"}
    assert one.messages[4] == {"role": "assistant", "content": "not json"}
    assert one.messages[5]["tool_call_id"] == "call_unknown"
    assert len(one.messages) == 6
    assert one.reference == "CALL look\ncity=Bern\ndays=2\n"
    assert context(one.messages) == "System: None\n\nUser: weather?\n\nAssistant: \n\nAssistant: not json"


def test_odd_rows_are_read_as_the_client_reads_them(tmp_path: Path) -> None:
    found = items(tmp_path, "", chat("a", "b", "c", "  "), {"user": " only this "}, chat(""), {"conversations": []},
                  {"conversations": [{"role": "assistant", "content": "x"}], "user": "u"}, '{"user": "\u2028"}')
    assert [len(one.messages) for one in found] == [3, 2, 2]  # a blank last answer cuts off the turn before it
    assert found[0].reference == "  "
    assert found[1].messages[1]["content"] == "only this"
    assert found[2].reference == "x"


@pytest.mark.parametrize("row", ["{", "[1]", '"text"', '{"conversations": [1]}', '{"user": NaN}', '{"user": 3}',
                                 '{"conversations": [{"role": "user", "content": null}]}', '{"user": "\\ud800"}',
                                 '{"conversations": [{"role": "user", "content": "q"}, {"content": "x"}]}',
                                 "[" * 100_000,
                                 {"conversations": [{"role": "function_call", "content": "[1]"}]},
                                 {"conversations": [{"role": "function_call", "content":
                                                     '{"name": "x", "arguments": "{}"}'}]}])
def test_a_broken_row_is_named_and_never_the_submissions_fault(tmp_path: Path, row: object) -> None:
    with pytest.raises(RecoverableException, match="row 2 is broken") as found:
        items(tmp_path, chat("fine"), row)
    assert found.value.cause == "data"


@pytest.mark.parametrize("content", [b"", b"\n \n", b'{"user": ""}\n', b"\xff\xfe\n"])
def test_an_empty_or_undecodable_set(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "set.jsonl"
    path.write_bytes(content)
    with pytest.raises(RecoverableException) as found:
        read_items(path, lambda _: "")
    assert found.value.cause == "data"


# --- prompts ----------------------------------------------------------------------------------------
def ask(tmp_path: Path, number: Any, **more: Any) -> str:
    given = {"context": "ctx {x}", "answer": "ans", "reference": "ref", "tools": [{"a": None}]} | more
    user, system = read_prompts(make_checkout(tmp_path)).messages(number, **given)
    assert (user["role"], system) == ("user", {"role": "system", "content": "Be a just judge of tests."})
    return user["content"]


def test_prompts_are_filled(tmp_path: Path) -> None:
    assert ask(tmp_path / "1", 1) == "Rate {1}.\nC=ctx {x}\nA=ans"
    assert ask(tmp_path / "2", 2) == "Rate2.\nC=ctx {x}\nR=ref\nA=ans"
    assert ask(tmp_path / "3", 3) == "Rate3.\nC=ctx {x}\nT=[{'a': None}]\nR=ref\nA=ans"


@pytest.mark.parametrize("number", [0, 4, "2", None, -1])
def test_an_unregistered_prompt_becomes_the_first(tmp_path: Path, number: Any) -> None:
    assert ask(tmp_path, number).startswith("Rate {1}.")


@pytest.mark.parametrize(("number", "more"), [(2, {"reference": None}), (2, {"reference": ""}), (3, {"tools": None}),
                                              (3, {"reference": None}), ([1], {}), ({}, {})])
def test_what_the_client_can_not_fill_is_told_apart(tmp_path: Path, number: Any, more: dict[str, Any]) -> None:
    with pytest.raises(NoPrompt):
        ask(tmp_path, number, **more)


@pytest.mark.parametrize("change", [
    ("prompt", "prompt_id=3", "prompt_id=7"), ("prompt", "template_str =", "other ="),
    ("prompt", "{tools}", "{tools.__class__}"), ("prompt", "{tools}", "{tools!r}"), ("prompt", "{tools}", "{more}"),
    ("prompt", "{tools}", "{tools"), ("prompt", "{tools}", "{tools:>99999999999}"),
    ("prompt", "{tools}", "{tools:{x}}"), ("prompt", "tools=Tools", "tools=reference"),
    ("prompt", "def register", "def register("), ("init", "system_prompt", "other"), ("prompt", "REGISTRY", "\0")])
def test_a_checkout_of_another_form_is_refused_by_its_setting(tmp_path: Path, change: tuple[str, str, str]) -> None:
    which, old, new = change
    texts = {"prompt": PROMPT_FILE, "init": INIT_FILE}
    texts[which] = texts[which].replace(old, new)
    with pytest.raises(InvalidConfigValueException, match=r"validation\.judge_prompts"):
        read_prompts(make_checkout(tmp_path, **texts))


def test_without_a_checkout_the_setting_is_named(tmp_path: Path) -> None:
    for given in (None, tmp_path):
        with pytest.raises(InvalidConfigValueException, match=r"validation\.judge_prompts") as found:
            read_prompts(given)
        assert found.value.cause == "judge-prompts"


def test_a_template_that_reaches_for_python_gets_nothing(tmp_path: Path) -> None:
    hostile = PROMPT_FILE.replace("CALL {{ tool.function.name }}", "{{ message.__class__.__mro__ }}")
    prompts = read_prompts(make_checkout(tmp_path, hostile))
    message = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "x", "arguments": {}}}]}
    with pytest.raises(ValueError, match="reference"):
        prompts.render_call(message)


# --- arguments and what a first step left -------------------------------------------------------------
def test_arguments_and_their_defaults() -> None:
    found = eval_arguments({"eval_model_list": ["b", "a", "b"]})
    assert (found.models, found.temperature, found.prompt) == (("b", "a"), 0.1, 0)
    assert (found.generations, found.tries) == (1, 3)


@pytest.mark.parametrize("raw", [
    {}, {"eval_model_list": []}, {"eval_model_list": "a"}, {"eval_model_list": None}, {"eval_model_list": ["a", ""]},
    {"eval_model_list": [1]}, {"eval_model_list": ["a"], "temperature": "hot"},
    {"eval_model_list": ["a"], "temperature": True},
    {"eval_model_list": ["a"], "temperature": float("nan")}, {"eval_model_list": ["a"], "gen_require": 0},
    {"eval_model_list": ["a"], "eval_require": "3"}, {"eval_model_list": ["a"], "eval_require": -1}])
def test_bad_arguments_are_a_persons_and_no_other_judge_is_taken(raw: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfigValueException, match="eval_args") as found:
        eval_arguments(raw)
    assert found.value.cause == "eval-args"


@pytest.mark.parametrize("change", [{"answers": []}, {"answers": [["x", "y"]]}, {"references": []}, {"tools": None},
                                    {"conversations": [], "references": [], "tools": [], "answers": [[]]}, {"more": 1}])
def test_a_first_step_that_left_too_little(change: dict[str, Any]) -> None:
    with pytest.raises(RecoverableException) as found:
        read_partial(make_partial("x") | change)
    assert found.value.cause == "partial"
