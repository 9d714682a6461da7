"""Questions, answers and the models file: read in every dialect, and every bad line named."""

from __future__ import annotations

from pathlib import Path

import pytest

from automate.arena.benchmark import (
    Answers,
    Question,
    missing_uids,
    read_answers,
    read_api_config,
    read_models_file,
    read_questions,
    unique,
)
from automate.errors import ConfigError, DataError, StorageError
from automate.names import name_problem
from tests.unit.support import LINE_SEPARATOR, ROOT, real_data, write_lines

BENCH = "arena-hard-v2.0"
AWKWARD = f'line{LINE_SEPARATOR}separator "quotes" \\ 🐑\r\nend'


def v2_question(uid: object, prompt: str = "p", **more: object) -> dict[str, object]:
    return {"uid": uid, "category": "hard_prompt", "prompt": prompt, **more}


def v2_answer(uid: object, text: object = "said", **more: object) -> dict[str, object]:
    messages = [{"role": "user", "content": "p"}, {"role": "assistant", "content": {"answer": text}}]
    return {"uid": uid, "model": "m", "messages": messages, **more}


def v01_answer(uid: object, text: object = "said", **more: object) -> dict[str, object]:
    return {"question_id": uid, "model_id": "m", "choices": [{"index": 0, "turns": [{"content": text}]}], **more}


# Questions


def test_questions_of_both_dialects_in_file_order(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "question.jsonl", [
        v2_question("b", AWKWARD, subcategory="coding"),
        {"question_id": "a", "category": "arena-hard-v0.1", "cluster": "x", "turns": [{"content": "old"}]},
        b"\n",
        {"uid": "c", "prompt": "no category"},
    ])
    assert read_questions(path, BENCH) == [
        Question("b", "hard_prompt", AWKWARD), Question("a", "arena-hard-v0.1", "old"),
        Question("c", BENCH, "no category"),
    ]


def test_uids_that_look_like_numbers_stay_text(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "question.jsonl", [
        v2_question("0253417860914427"), v2_question("1e5"), v2_question(17), v2_question(2**63), v2_question("017")])
    assert [question.uid for question in read_questions(path, BENCH)] == [
        "0253417860914427", "1e5", "17", str(2**63), "017"]


def test_bad_questions_are_named_by_line(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "question.jsonl", [
        v2_question("a"), {"category": "x", "prompt": "p"}, v2_question("b", None),  # type: ignore[arg-type]
        v2_question("c", category=3), b"not json\n", v2_question("a"), {"question_id": "d", "turns": ["x"]},
        {"question_id": "e", "turns": []}, v2_question(True), v2_question(1.5), v2_question(""), b'{"uid": "z", "pro'])
    with pytest.raises(DataError) as refused:
        read_questions(path, BENCH)
    lines = [line.strip().removeprefix(f"{path}:") for line in refused.value.what.split("\n")[1:]]
    assert sorted(int(line.partition(":")[0]) for line in lines) == [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    assert "2: no uid (or question_id)" in lines
    assert "6: uid a stands here twice" in lines
    assert refused.value.where == str(path)


def test_no_questions(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no questions file") as refused:
        read_questions(tmp_path / "question.jsonl", BENCH)
    assert refused.value.todo
    with pytest.raises(DataError, match="no questions in it"):
        read_questions(write_lines(tmp_path / "question.jsonl", []), BENCH)


# Answers


def test_answers_of_all_dialects(tmp_path: Path) -> None:
    bare = {"uid": "d", "model": "m", "messages": [{"role": "assistant", "content": "bare text"}]}
    path = write_lines(tmp_path / "m.jsonl", [
        v2_answer("a", AWKWARD, metadata={"token_len": 3}), v01_answer("b", "old"), v2_answer("c", ""), bare])
    answers = read_answers(path, "file-name")
    assert answers.texts == {"a": AWKWARD, "b": "old", "c": "", "d": "bare text"}
    assert (answers.model, answers.row_model, answers.empty) == ("file-name", "m", 1)
    assert (answers.problems, answers.duplicates) == ((), ())


def test_answers_uids_stay_text(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "m.jsonl", [v2_answer("0253417860914427"), v01_answer(17), v2_answer("1e5")])
    assert list(read_answers(path, "m").texts) == ["0253417860914427", "17", "1e5"]


def test_later_answers_win_and_are_listed(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "m.jsonl", [v2_answer("a", "1"), v2_answer("b", "2"), v2_answer("a", "3")])
    answers = read_answers(path, "m")
    assert (answers.texts, answers.duplicates) == ({"a": "3", "b": "2"}, ("a",))


@pytest.mark.parametrize("row", [
    v2_answer("x", None), v2_answer("x", messages=[]), v2_answer("x", messages=["text"]), v2_answer("x", messages={}),
    v2_answer(None), v01_answer("x", choices=[]),
    v01_answer("x", choices=[{}]), v01_answer("x", choices=[{"turns": 1}]),
    {"uid": "x"}, b"[1]\n", b"{\n", b'{"uid": "\xff"}\n', v2_answer("x", 5), v01_answer("x", choices="text"),
    v01_answer("x", choices=[{"turns": [None]}]), v01_answer("x", choices=[{"turns": {}}]),
])
def test_a_bad_answer_is_named_and_loses_no_other(tmp_path: Path, row: dict[str, object] | bytes) -> None:
    path = write_lines(tmp_path / "m.jsonl", [v2_answer("a"), row, v2_answer("b")])
    answers = read_answers(path, "m")
    assert list(answers.texts) == ["a", "b"]
    (problem,) = answers.problems
    assert problem.startswith(f"{path}:2: ")


def test_the_last_answer_may_lack_its_newline_but_not_its_end(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "m.jsonl", [v2_answer("a"), v2_answer("b")])
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert list(read_answers(path, "m").texts) == ["a", "b"]
    path.write_bytes(whole[:-2])
    assert list(read_answers(path, "m").texts) == ["a"]
    assert read_answers(path, "m").problems[0].startswith(f"{path}:2: torn last line")


def test_a_row_without_a_model_has_the_files_name(tmp_path: Path) -> None:
    assert read_answers(write_lines(tmp_path / "m.jsonl", [v2_answer("a", model=None)]), "m").row_model == "m"


def test_no_answer_file_is_an_error_of_the_file_system(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"m\.jsonl"):
        read_answers(tmp_path / "m.jsonl", "m")


def test_missing_answers_are_named_in_the_questions_order() -> None:
    questions = [Question(uid, "c", "p") for uid in ("c", "a", "b")]
    assert missing_uids(Answers("m", Path("m"), {"a": ""}, "m"), questions) == ["c", "b"]


# The models file


def test_the_models_file(tmp_path: Path) -> None:
    path = tmp_path / "models.txt"
    path.write_bytes("\ufeff# models\r\nfirst\r\n\n  second  # why\nwith#hash\nwith space\n#gone\nlast".encode())
    found = read_models_file(path)
    assert found.names == ("first", "second", "with#hash", "with space", "last")
    assert found.problems == ()


def test_bad_and_double_names_are_named_by_line(tmp_path: Path) -> None:
    path = tmp_path / "models.txt"
    path.write_text("good\n../bad\ngood\n-rf\na\u2028b\n", encoding="utf-8")
    found = read_models_file(path)
    assert found.names == ("good",)
    assert [problem.removeprefix(f"{path}:").partition(":")[0] for problem in found.problems] == ["2", "3", "4", "5"]
    assert "stands in the list twice" in found.problems[1]


def test_a_comment_may_follow_a_tab(tmp_path: Path) -> None:
    path = tmp_path / "models.txt"
    path.write_text("first\t# why\n")
    assert read_models_file(path).names == ("first",)


def test_a_models_file_that_cant_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no models file"):
        read_models_file(tmp_path / "none")
    (tmp_path / "latin").write_bytes(b"mod\xe8le\n")
    with pytest.raises(DataError, match="not UTF-8"):
        read_models_file(tmp_path / "latin")
    with pytest.raises(StorageError):
        read_models_file(tmp_path)


def test_the_shipped_models_files_are_good() -> None:
    for folder in (ROOT, ROOT / "configs" / "example"):
        assert read_models_file(folder / "arena_hard_models_to_test.txt").problems == ()


def test_names_once_and_names_twice() -> None:
    assert unique(["b", "a", "b", "c", "a"]) == (("b", "a", "c"), ("b", "a"))


def test_the_endpoint_file(tmp_path: Path) -> None:
    path = tmp_path / "api_config.yaml"
    assert read_api_config(path) is None
    path.write_text("one:\n  model: x\n  parallel: 8\ntwo:\n'0123':\n  model: y\n")
    assert read_api_config(path) == {"one": {"model": "x", "parallel": 8}, "two": {}, "0123": {"model": "y"}}
    path.write_text("one:\n  model: x\none:\n  model: y\n")
    with pytest.raises(ConfigError, match=r"api_config\.yaml:3"):
        read_api_config(path)


# Real data


def test_real_questions() -> None:
    questions = read_questions(real_data("arena-hard-auto/data", BENCH, "question.jsonl"), BENCH)
    assert len({question.uid for question in questions}) == len(questions) == 750
    assert sum(question.category == "hard_prompt" for question in questions) == 500
    assert sum(question.category == "creative_writing" for question in questions) == 250
    assert [question.uid for question in questions if LINE_SEPARATOR in question.prompt] == ["67ce32127cf94a8a"]
    assert {len(question.uid) for question in questions} == {16}
    lengths = [len(question.prompt) for question in questions]
    assert (min(lengths), max(lengths)) == (9, 27_586)


@pytest.mark.parametrize(("model", "empty", "longest", "uid"), [
    ("llama3.1-8b-instruct", 0, 20_537, "7b27be72d38f411c"),
    ("tulu3-8b-rank64-alpha1e5-001-step6000", 328, 24_484, "9d03cd96b41240e3"),
    ("tulu3-8b-rank64-alpha1e5-001-step12000", 204, 24_713, "9d03cd96b41240e3"),
    ("tulu3-8b-rank64-alpha1e5-001-step48000", 169, 188_880, "510f53828ef248ad"),
])
def test_real_answers(model: str, empty: int, longest: int, uid: str) -> None:
    folder = real_data("arena-hard-auto/data", BENCH)
    answers = read_answers(folder / "model_answer" / f"{model}.jsonl", model)
    assert (answers.problems, answers.duplicates, answers.row_model) == ((), (), model)
    assert (len(answers.texts), answers.empty, len(answers.texts[uid])) == (750, empty, longest)
    assert max(map(len, answers.texts.values())) == longest
    assert missing_uids(answers, read_questions(folder / "question.jsonl", BENCH)) == []


def test_the_real_endpoint_file() -> None:
    entries = read_api_config(real_data("arena-hard-auto", "config", "api_config.yaml"))
    assert entries is not None
    assert len(entries) == 5
    assert [name_problem(name) for name in entries] == [None] * 5
