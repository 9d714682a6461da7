"""The shipped kind `siqa`: rows, the prompt, the result retriever."""

from __future__ import annotations

import pytest

from automate.pools.kinds.base import Count, Question
from automate.pools.kinds.siqa import Siqa

QUESTION = Question("Kim lost a key.", "Why did Kim call?", ("to ask", "to sing", "to sleep"), "1")
RAW = {"context": "Kim lost a key.", "question": "Why did Kim call?", "answerA": "to ask", "answerB": "to sing",
       "answerC": "to sleep"}
RETRIEVED = [
    ("A", "1"), ("B", "2"), ("C", "3"), ("N", "0"), ("", "0"), ("None", "0"), ("Answer: C", "3"),
    (" a", "0"), ("option b", "0"), ("b", "0"),  # lower case: "a" is a word
    ("BC", "0"), ("CAB", "0"), ("Apple", "0"), ("A1", "0"), ("2B", "0"), ("A\u0301", "0"),  # part of something longer
    ("A's", "0"), ("A’s", "0"), ("A-level", "0"), ("vitamin-C", "0"),
    ("A.", "1"), ("(B)", "2"), ("C)", "3"), ("**C**", "3"), ("_B_", "2"), ("\"A\"", "1"), ("'B'", "2"), ("C\n", "3"),
    ("Answer:A", "1"), ("A or B", "2"), ("A\nB\nC", "3"), ("A person would ask. B", "2"),  # the last of several
    ("A, or rather N", "0"), ("N? No: A", "1"),
    ("答案是C。", "3"), ("الجواب B", "2"),
    ("А", "0"), ("В", "0"), ("С", "0"), ("Α", "0"), ("Ａ", "0"), ("Ⓑ", "0"), ("𝐀", "0"),  # look-alikes
    ("1", "0"), ("\x00A\x00", "1"), ("A" * 100_000, "0"),
]


@pytest.mark.parametrize(("text", "result"), RETRIEVED)
def test_the_result_retriever_takes_the_last_letter_that_stands_alone(text: str, result: str) -> None:
    assert Siqa({}).retrieve(text, QUESTION) == result


def test_with_loglikelihood_the_number_of_the_best_choice_is_the_result() -> None:
    kind = Siqa({"Method": "loglikelihood"})
    assert [kind.retrieve(text, QUESTION) for text in ("1", "3", "4", "0", "A", "")] == ["1", "3", "0", "0", "0", "0"]
    assert kind.ask(QUESTION).choices == ("A", "B", "C")
    assert kind.ask(QUESTION).method == "loglikelihood"
    assert Siqa({}).prompt.endswith("A, B or C, or N if you are not sure.")
    assert kind.prompt.endswith("A, B or C.")


def test_a_question_is_asked_in_five_lines_for_one_token() -> None:
    asked = Siqa({}).ask(QUESTION)
    assert asked.messages[1] == {"role": "user", "content": "Context: Kim lost a key.\nQuestion: Why did Kim call?\n"
                                                            "AnswerA: to ask\nAnswerB: to sing\nAnswerC: to sleep"}
    assert asked.messages[0]["role"] == "system"
    assert "context" in asked.messages[0]["content"]
    assert (asked.method, asked.choices, asked.max_tokens) == ("generate", ("A", "B", "C", "N"), 1)


def test_the_system_prompt_is_a_setting_and_may_be_left_out() -> None:
    assert Siqa({"SystemPrompt": "Choose."}).ask(QUESTION).messages[0]["content"] == "Choose."
    assert [one["role"] for one in Siqa({"SystemPrompt": ""}).ask(QUESTION).messages] == ["user"]


@pytest.mark.parametrize("settings", [{"Method": "guess"}, {"Method": 1}, {"SystemPrompt": 5}, {"SystemPrompt": None}])
def test_settings_that_mean_nothing_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Siqa(settings)


@pytest.mark.parametrize("right", [{"result": "1"}, {"label": "1"}, {"result": 1}, {"label": " 1\r\n"},
                                   {"result": "1", "label": 1}, {"result": "1", "id": 77, "prompt": "x"}])
def test_a_row_is_read_as_the_set_and_the_hub_have_it(right: dict[str, object]) -> None:
    assert Siqa({}).row({**RAW, **right}) == QUESTION


@pytest.mark.parametrize(("change", "why"), [
    ({}, "no field 'result'"), ({"result": "4"}, "not 1, 2 or 3"), ({"result": "A"}, "not 1, 2 or 3"),
    ({"result": "0"}, "not 1, 2 or 3"), ({"result": ""}, "empty"), ({"result": None}, "null"),
    ({"result": True}, "bool"), ({"result": "1", "label": "2"}, "differ"), ({"result": "1", "context": None}, "null"),
    ({"result": "1", "answerB": " \n"}, "'answerB' is empty"), ({"result": "1", "answerC": ["x"]}, "list"),
    ({"result": "1.0"}, "not 1, 2 or 3"), ({"result": "１"}, "not 1, 2 or 3")])
def test_a_row_that_is_no_question_says_why(change: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Siqa({}).row({**RAW, **change})


@pytest.mark.parametrize("missing", sorted(RAW))
def test_a_missing_field_is_named(missing: str) -> None:
    with pytest.raises(ValueError, match=f"no field '{missing}'"):
        Siqa({}).row({name: text for name, text in (RAW | {"result": "1"}).items() if name != missing})


def test_score_is_of_those_answered_and_progress_of_all() -> None:
    score = Siqa({}).score
    assert score(Count(total=1350, answered=6, correct=1, failed=0)) == pytest.approx(
        (0.16666666666667, 0.0044444444444444))
    assert score(Count(total=1350, answered=0, correct=0, failed=3)) == (0.0, 0.0)
    assert score(Count(total=0, answered=0, correct=0, failed=0)) == (0.0, 0.0)
