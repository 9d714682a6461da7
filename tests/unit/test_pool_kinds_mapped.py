"""The shipped kinds whose columns are a setting: multiple choice and exact match."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from automate.pools.kinds.base import Question
from automate.pools.kinds.exact_match import ExactMatch
from automate.pools.kinds.multiple_choice import MultipleChoice

WANTED = Question("", "What is red?", ("sky", "blood", "grass"), "2")
OPTIONS = ["sky", "blood", "grass"]
HUB = {"text": OPTIONS, "label": ["A", "B", "C"]}


@pytest.mark.parametrize(("settings", "raw"), [
    ({}, {"question": "What is red?", "choices": OPTIONS, "answer": "B"}),
    ({}, {"question": "What is red?", "choices": json.dumps(OPTIONS), "answer": "B"}),
    ({}, {"question": "What is red?", "choices": HUB, "answer": "B"}),
    ({}, {"question": "What is red?", "choices": json.dumps(HUB), "answer": " B "}),
    ({}, {"question": "What is red?", "answer": "2",
          "choices": [{"text": text, "label": str(at)} for at, text in enumerate(OPTIONS, 1)]}),
    ({}, {"question": "What is red?", "answer": "B", "choices": [{"text": text} for text in OPTIONS]}),
    ({"Answer": "label"}, {"question": "What is red?", "choices": {**HUB, "label": ["x", "y", "z"]}, "answer": "y"}),
    ({"Answer": "0"}, {"question": "What is red?", "choices": OPTIONS, "answer": 1}),
    ({"Answer": 0}, {"question": "What is red?", "choices": OPTIONS, "answer": "1"}),
    ({"Answer": "1"}, {"question": "What is red?", "choices": OPTIONS, "answer": 2}),
    ({"Answer": "text"}, {"question": "What is red?", "choices": OPTIONS, "answer": "blood"}),
    ({"Columns": {"question": "stem", "options": ["o1", "o2", "o3", "o4"], "answer": "key"}},
     {"stem": "What is red?", "o1": "sky", "o2": "blood", "o3": "grass", "o4": "", "key": "B"}),
    ({"Columns": '{"question": "stem", "options": "choices"}'},
     {"stem": "What is red?", "choices": OPTIONS, "answer": "B"})])
def test_rows_in_the_shapes_that_sets_come_in(settings: dict[str, object], raw: dict[str, object]) -> None:
    assert MultipleChoice(settings).row(raw) == WANTED


@pytest.mark.parametrize(("settings", "change", "why"), [
    ({}, {"answer": "D"}, "none of the 3 options"), ({}, {"answer": "b"}, "none of the 3"),
    ({}, {"answer": ""}, "empty"), ({}, {"answer": None}, "null"), ({"Answer": "0"}, {"answer": 3}, "none of the 3"),
    ({"Answer": "0"}, {"answer": -1}, "none of the 3"), ({"Answer": "1"}, {"answer": 0}, "none of the 3"),
    ({"Answer": "1"}, {"answer": "9" * 5000}, "none of the 3"), ({"Answer": "1"}, {"answer": "²"}, "none of the 3"),
    ({"Answer": "text"}, {"answer": "Blood"}, "none of the 3"), ({"Answer": "label"}, {"answer": "B"}, "none of the 3"),
    ({"Answer": "text"}, {"answer": "sky", "choices": ["sky", "sky"]}, "more than one"),
    ({}, {"choices": ["one"]}, "1 options"), ({}, {"choices": ["x"] * 27}, "27 options"), ({}, {"choices": []}, "0 "),
    ({}, {"choices": "sky, blood"}, "no list of options"), ({}, {"choices": 5}, "no list"),
    ({}, {"choices": {"label": ["A"]}}, "no list"), ({}, {"choices": {**HUB, "label": ["A", "B"]}}, "2 labels"),
    ({}, {"choices": {**HUB, "label": ["A", "A", "C"]}}, "same label"), ({}, {"choices": ["a", None, "c"]}, "null"),
    ({}, {"choices": ["a", " ", "c"]}, "empty"), ({}, {"choices": ["a", ["b"]]}, "list, not text"),
    ({"Columns": {"options": ["o1", "o2", "o3"]}}, {"o1": "a", "o3": "c"}, "null"),
    ({"Columns": {"context": "passage"}}, {}, "no field 'passage'"),
    ({"Method": "loglikelihood", "Choices": "texts"}, {"choices": ["a", "a"]}, "same text")])
def test_a_row_that_is_no_question_says_why(settings: dict[str, object], change: dict[str, object], why: str) -> None:
    raw: dict[str, object] = {"question": "What is red?", "choices": OPTIONS, "answer": "B"}
    with pytest.raises(ValueError, match=why):
        MultipleChoice(settings).row(raw | change)


@pytest.mark.parametrize(("settings", "why"), [
    ({"Columns": 5}, "object"), ({"Columns": "["}, "JSON"), ({"Columns": {"colour": "x"}}, "no role"),
    ({"Columns": {"answer": ["a", "b"]}}, "a column's name"), ({"Columns": {"options": ["a"]}}, "a column's name"),
    ({"Columns": {"question": ""}}, "a column's name"), ({"Answer": "2"}, "Answer must be one of"),
    ({"Answer": 3}, "Answer must be one of"), ({"Order": "random"}, "Order must"),
    ({"Delimiter": ",,"}, "one character"),
    ({"Delimiter": "\n"}, "one character"), ({"Choices": "texts"}, "goes with Method loglikelihood")])
def test_settings_that_mean_nothing_are_refused(settings: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        MultipleChoice(settings)


def test_how_a_question_with_many_options_is_asked_and_understood() -> None:
    kind = MultipleChoice({"Columns": {"context": "passage"}})
    question = kind.row({"passage": "Red things.", "question": "What is red?", "choices": OPTIONS, "answer": "B"})
    asked = kind.ask(question)
    assert asked.messages[1]["content"] == "Context: Red things.\nQuestion: What is red?\nA: sky\nB: blood\nC: grass"
    assert (asked.method, asked.choices, asked.max_tokens) == ("generate", ("A", "B", "C"), 1)
    assert [kind.retrieve(text, question) for text in ("B", "(C)", "D", "N", "", "A... no, B")] == [
        "2", "3", "0", "0", "0", "2"]


def test_up_to_26_options_have_letters() -> None:
    kind = MultipleChoice({})
    question = kind.row({"question": "q", "choices": [str(at) for at in range(26)], "answer": "N"})
    assert question.result == "14"
    assert len(kind.ask(question).choices) == 26
    assert [kind.retrieve(text, question) for text in ("N", "Z", "z")] == ["14", "26", "0"]


def test_loglikelihood_of_letters_and_of_texts() -> None:
    letters, texts = (MultipleChoice({"Method": "loglikelihood", "Choices": what}) for what in ("letters", "texts"))
    assert letters.ask(WANTED).choices == ("A", "B", "C")
    assert "B: blood" in letters.ask(WANTED).messages[1]["content"]
    assert texts.ask(WANTED).choices == ("sky", "blood", "grass")
    assert "blood" not in texts.ask(WANTED).messages[1]["content"]
    assert [texts.retrieve(text, WANTED) for text in ("2", "3", "4", "B", "blood")] == ["2", "3", "0", "0", "0"]


def test_options_are_shuffled_the_same_way_each_time_and_the_right_one_with_them() -> None:
    kind, seen = MultipleChoice({"Order": "shuffled"}), set()
    for number in range(40):
        raw = {"question": f"q{number}", "choices": ["right", "x", "y", "z"], "answer": "A"}
        question = kind.row(raw)
        assert question == kind.row(raw)
        assert sorted(question.options) == ["right", "x", "y", "z"]
        assert question.options[int(question.result) - 1] == "right"
        seen.add(question.result)
    assert seen == {"1", "2", "3", "4"}


def test_csv_with_a_delimiter_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("question;answer\nWho?;\"O'Neil; he\"\n")
    kind = ExactMatch({"Delimiter": ";"})
    assert [kind.row(raw) for raw in kind.read(path)] == [Question("", "Who?", (), "O'Neil; he")]  # type: ignore[arg-type]


@pytest.mark.parametrize(("how", "right", "said", "same"), [
    ("text", "Paris", " paris. ", True), ("text", "Paris", "Paris, France", False),
    ("text", "New York", "new\n york", True),
    ("text", "５", "5", True), ("text", "5", "-5", False), ("text", "50%", "50", False),
    ("text", "Straße", "STRASSE", True),
    ("text", "0", "", False), ("text", "0", "0", True), ("text", "1.5", "15", False), ("text", "1.5", "'1.5'", True),
    ("exact", "Paris", " Paris\n", True), ("exact", "Paris", "paris", False), ("exact", "0", " ", False),
    ("number", "#### 18", "so 3 + 15 = 18.", True), ("number", "18", "18.00", True),
    ("number", "1234.5", "$1,234.50", True),
    ("number", "18", "-18", False), ("number", "-0", "0", True), ("number", "7", "−7", False),
    ("number", "5", "3-5", True),
    ("number", "0", "none", False), ("number", "0.5", ".5", True), ("number", "18", "18 or 19", False),
    ("number", "12345678901234567890123", "12345678901234567890124", False)])
def test_exact_match_compares_as_its_setting_says(how: str, right: str, said: str, same: bool) -> None:
    kind = ExactMatch({"Normalise": how})
    question = kind.row({"question": "q", "answer": right})
    prediction = kind.retrieve(said, question)
    assert kind.correct(prediction, question.result) is same
    assert (prediction == question.result) is same


def test_an_exact_match_question_is_asked_without_choices() -> None:
    asked = ExactMatch({"MaxTokens": "12"}).ask(Question("Some text.", "Who?", (), "Kim"))
    assert asked.messages[1]["content"] == "Context: Some text.\nQuestion: Who?"
    assert (asked.method, asked.choices, asked.max_tokens) == ("generate", (), 12)


@pytest.mark.parametrize("tokens", [0, -1, 4097, 1.5, "x", "1e3", True, None, "9" * 30])
def test_tokens_that_make_no_sense(tokens: object) -> None:
    with pytest.raises(ValueError, match="MaxTokens must be"):
        ExactMatch({"MaxTokens": tokens})


@pytest.mark.parametrize(("how", "answer"), [("number", "none"), ("text", "..."), ("exact", "\u00a0")])
def test_an_answer_that_nothing_could_equal_is_a_bad_row(how: str, answer: str) -> None:
    with pytest.raises(ValueError, match=r"says nothing|is empty"):
        ExactMatch({"Normalise": how}).row({"question": "q", "answer": answer})
