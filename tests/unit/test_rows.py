"""Upstream's judgment rows: read in every dialect, and written as upstream would write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from automate.arena.games import Game, GameState, Match, Recorded, due_games
from automate.arena.prompts import Message
from automate.arena.rows import game_object, make_row, read_rows, unknown_to
from automate.journal import Record
from tests.unit.support import BASELINE, LINE_SEPARATOR, make_answers, make_match, real_data, record_of, write_lines

MATCH = make_match()
ANSWERS = make_answers("m", [question.uid for question in MATCH.questions])
GAMES = MATCH.wanted(ANSWERS)
Row = dict[str, Any]


def render(uid: str, order: int) -> list[Message]:
    question = next(question for question in MATCH.questions if question.uid == uid)
    return MATCH.messages(ANSWERS, question, order)


def v2_game(uid: str, order: int, score: object = "A>B", text: str = "[[A>B]]") -> Row:
    return {"score": score, "judgment": {"answer": text}, "prompt": render(uid, order)}


def v2_row(uid: str = "q0", *games: object, **more: object) -> Row:
    played = list(games) or [v2_game(uid, 1), v2_game(uid, 2)]
    return {"uid": uid, "category": "hard_prompt", "judge": "judge", "model": "m", "baseline": BASELINE,
            "games": played, **more}


def v01_game(score: object = "A>B", text: object = "[[A>B]]") -> Row:
    return {"user_prompt": "<|User Prompt|>...", "judgment": text, "score": score}


def v01_row(uid: str = "q0", *games: object) -> Row:
    return {"question_id": uid, "model": "m", "judge": "judge", "games": list(games) or [v01_game(), v01_game()]}


def assumed(uid: str) -> str | None:
    return BASELINE if uid.startswith("q") else None


def read(path: Path, *rows: Row | bytes) -> tuple[list[Record], list[str], int, int, int]:
    found = read_rows(write_lines(path / "m.jsonl", rows), assumed)
    problems = [problem.removeprefix(f"{path / 'm.jsonl'}:") for problem in found.problems]
    return found.records, problems, found.nulls, found.bad_labels, found.lines


# Reading


def test_a_v2_row_is_verified_by_its_prompt(tmp_path: Path) -> None:
    text = f'{LINE_SEPARATOR} "quoted" 🐑 [[B>A]]'
    records, problems, nulls, bad, lines = read(tmp_path, v2_row("q0", v2_game("q0", 1), v2_game("q0", 2, "B>A", text)))
    assert (problems, nulls, bad, lines) == ([], 0, 0, 1)
    first, second = records
    assert [first["order"], second["order"]] == [1, 2]
    assert [first["prompt_sha"], second["prompt_sha"]] == [GAMES[0].prompt_sha, GAMES[1].prompt_sha]
    assert (second["label"], second["judgment"], second["baseline"]) == ("B>A", text, BASELINE)
    assert (second["source"], second["outcome"], second["from"]) == ("import", "verdict", "m.jsonl:1")
    recorded = Recorded()
    for record in records:
        recorded.add(record)
    assert due_games(GAMES, recorded, 2) == GAMES[2:]


def test_a_v2_row_of_another_prompt_does_not_count(tmp_path: Path) -> None:
    other = {**v2_game("q0", 1), "prompt": [{"role": "user", "content": "another"}]}
    records, *_ = read(tmp_path, v2_row("q0", other, v2_game("q0", 1)))
    recorded = Recorded()
    for record in records:
        recorded.add(record)
    assert due_games(GAMES, recorded, 2) == GAMES


def test_a_v01_row_is_taken_with_its_prompt_against_the_assumed_baseline(tmp_path: Path) -> None:
    records, problems, *_ = read(tmp_path, v01_row("q0"), v01_row("other"))
    assert problems == []
    assert [(r["uid"], r["order"], r["baseline"]) for r in records] == [
        ("q0", 1, BASELINE), ("q0", 2, BASELINE), ("other", 1, None), ("other", 2, None)]
    assert all(r["prompt_sha"] for r in records)  # so that it counts only where it holds the very texts
    assert records[0]["judgment"] == "[[A>B]]"


def test_the_third_dialect_has_new_rows_and_old_games(tmp_path: Path) -> None:
    records, problems, *_ = read(tmp_path, v2_row("q0", v01_game("B>>A", "[[B>>A]]"), v01_game(), baseline="theirs"))
    assert problems == []
    assert [(r["label"], r["baseline"]) for r in records] == [("B>>A", "theirs"), ("A>B", "theirs")]


def test_rows_with_scores_only_are_read(tmp_path: Path) -> None:
    records, *_ = read(tmp_path, v2_row("q0", {"score": "A=B"}, {"score": "B=A"}))
    assert [(r["label"], r["judgment"], r["prompt_sha"]) for r in records] == [("A=B", "", None), ("B=A", "", None)]


def test_uids_like_numbers_stay_text(tmp_path: Path) -> None:
    rows = [v2_row("0253417860914427", v01_game(), v01_game()), {**v01_row(), "question_id": 17}]
    assert [record["uid"] for record in read(tmp_path, *rows)[0]] == ["0253417860914427"] * 2 + ["17"] * 2


def test_null_games_and_null_scores_are_left_due(tmp_path: Path) -> None:
    rows = [v2_row("q0", None, v2_game("q0", 2)), v2_row("q1", v2_game("q1", 1, None), v2_game("q1", 2)),
            v2_row("q2", None, None), v2_row("q3", "text", {})]
    records, problems, nulls, bad, lines = read(tmp_path, *rows)
    assert [(r["uid"], r["order"]) for r in records] == [("q0", 2), ("q1", 2)]
    assert (problems, nulls, bad, lines) == ([], 6, 0, 4)


@pytest.mark.parametrize("label", ["A", "B", "A=B>>B", "a>b", "", "error", "A >B"])
def test_bad_labels_are_left_due(tmp_path: Path, label: str) -> None:
    records, problems, nulls, bad, _ = read(tmp_path, v2_row("q0", v2_game("q0", 1, label), v2_game("q0", 2)))
    assert [(r["uid"], r["order"]) for r in records] == [("q0", 2)]
    assert (problems, nulls, bad) == ([], 0, 1)


@pytest.mark.parametrize("score", [5, 0.5, True])
def test_scores_of_another_type_are_bad_labels(tmp_path: Path, score: object) -> None:
    assert read(tmp_path, v2_row("q0", v2_game("q0", 1, score), v2_game("q0", 2)))[3] == 1


@pytest.mark.parametrize("score", [["A>B"], {"label": "A>B"}])
def test_scores_that_are_lists_or_objects_are_bad_labels(tmp_path: Path, score: object) -> None:
    assert read(tmp_path, v2_row("q0", v2_game("q0", 1, score), v2_game("q0", 2)))[3] == 1


def test_rows_with_one_game_keep_it(tmp_path: Path) -> None:
    rows = [v2_row("q0", v2_game("q0", 1)), {**v2_row("q1"), "games": []},
            v2_row("q2", v2_game("q2", 1), v2_game("q2", 2), v2_game("q2", 1))]
    records, problems, *_ = read(tmp_path, *rows)
    assert [(r["uid"], r["order"]) for r in records] == [("q0", 1), ("q2", 1), ("q2", 2)]
    assert problems == ["1: a row with 1 game(s) instead of 2", "2: a row with 0 game(s) instead of 2"]


def test_bad_lines_lose_nothing_else(tmp_path: Path) -> None:
    torn = orjson.dumps(v2_row("q3"))[:-20]
    bad: tuple[Row | bytes, ...] = (b"garbage\n", {"games": []}, {"uid": "q1"}, {"uid": None, "games": [1, 2]})
    records, problems, _, _, lines = read(tmp_path, v2_row("q0"), *bad, v2_row("q2"), torn)
    assert [(r["uid"], r["order"]) for r in records] == [("q0", 1), ("q0", 2), ("q2", 1), ("q2", 2)]
    assert sorted(problem.partition(":")[0] for problem in problems) == ["2", "3", "4", "5", "7"]
    assert any(problem.startswith("7: torn last line") for problem in problems)
    assert lines == 5


def test_a_last_row_without_newline_is_a_row(tmp_path: Path) -> None:
    assert len(read(tmp_path, v2_row("q0"), orjson.dumps(v2_row("q1")))[0]) == 4


@pytest.mark.parametrize("prompt", [None, "text", [], [{}], ["text"], [{"role": "user"}], {"role": "user"}])
def test_a_prompt_of_another_shape_verifies_nothing(tmp_path: Path, prompt: object) -> None:
    records, problems, *_ = read(tmp_path, v2_row("q0", {**v2_game("q0", 1), "prompt": prompt}, v2_game("q0", 2)))
    assert [r["prompt_sha"] for r in records] == [None, GAMES[1].prompt_sha]
    assert problems == []


def test_no_file_has_no_rows(tmp_path: Path) -> None:
    found = read_rows(tmp_path / "m.jsonl", assumed)
    assert (found.records, found.problems, found.lines) == ([], [], 0)


def test_what_is_recorded_already_is_not_imported_again(tmp_path: Path) -> None:
    records, *_ = read(tmp_path, v2_row("q0"), v2_row("q1"), v2_row("q1"), v01_row("q2"))
    recorded = Recorded()
    recorded.add(record_of(GAMES[0]))
    fresh = unknown_to(recorded, records)
    assert [(r["uid"], r["order"]) for r in fresh] == [("q0", 2), ("q1", 1), ("q1", 2), ("q2", 1), ("q2", 2)]
    for record in fresh:
        recorded.add(record)
    assert unknown_to(recorded, records) == []


# Writing


def states(*records: Record) -> list[GameState]:
    return [GameState(record) for record in records]


def row_of(games: list[Game], *records: Record, match: Match = MATCH) -> Row:
    line = make_row(games, states(*records), match.judge.name, "row-model", "row-baseline", render)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    row = orjson.loads(line)
    assert isinstance(row, dict)
    return row


def test_a_row_has_upstreams_keys_in_upstreams_order() -> None:
    text = f'{LINE_SEPARATOR} "quoted" 🐑\n[[A>B]]'
    row = row_of(GAMES[:2], record_of(GAMES[0], judgment=text, short=True), record_of(GAMES[1]))
    assert list(row) == ["uid", "category", "judge", "model", "baseline", "games"]
    assert [list(game) for game in row["games"]] == [["score", "judgment", "prompt"]] * 2
    assert {key: row[key] for key in list(row)[:5]} == {
        "uid": "q0", "category": "hard_prompt", "judge": "judge", "model": "row-model", "baseline": "row-baseline"}
    assert row["games"][0] == {"score": "A>B", "judgment": {"answer": text}, "prompt": render("q0", 1)}
    assert row["games"][1]["prompt"] == render("q0", 2)
    assert [list(message) for message in row["games"][0]["prompt"]] == [["role", "content"]] * 2


def test_a_final_failure_is_a_null_score_with_its_reason() -> None:
    row = row_of(GAMES[:2], record_of(GAMES[0], "unparsed", reason="no label", judgment="well"),
                 record_of(GAMES[1], "too_long", judgment=None))
    first, second = row["games"]
    assert (first["score"], first["judgment"]) == (None, {"answer": "well", "reason": "unparsed: no label"})
    assert (second["score"], second["judgment"]) == (None, {"answer": "", "reason": "too_long: no reason given"})
    assert list(first) == ["score", "judgment", "prompt"]


def test_an_unfinished_game_makes_no_row() -> None:
    with pytest.raises(ValueError, match="is not finished"):
        make_row(GAMES[:2], [GameState(record_of(GAMES[0])), GameState()], "judge", "m", BASELINE, render)


def test_an_imported_game_keeps_what_it_came_with(tmp_path: Path) -> None:
    old = v2_game("q0", 1)
    old["judgment"]["thought"] = "kept"
    records, *_ = read(tmp_path, v2_row("q0", old, v01_game("B>A", "said")))
    row = row_of(GAMES[:2], *records)
    assert row["games"] == [old, {"user_prompt": "<|User Prompt|>...", "judgment": "said", "score": "B>A"}]


def test_an_imported_game_gets_back_the_prompt_that_was_left_out() -> None:
    raw = {"score": "A>B", "judgment": {"answer": "x"}}
    record = {"source": "import", "outcome": "verdict", "label": "A>B", "game": raw, "prompt_sha": "known"}
    assert game_object(record, render("q0", 1)) == {**raw, "prompt": render("q0", 1)}
    assert game_object({**record, "prompt_sha": None}, []) == raw
    assert list(game_object(record, render("q0", 1))) == ["score", "judgment", "prompt"]


def test_what_is_written_is_read_again_and_is_known(tmp_path: Path) -> None:
    first, second = record_of(GAMES[0]), record_of(GAMES[1], "unparsed")
    line = make_row(GAMES[:2], states(first, second), "judge", "m", BASELINE, render)
    records, problems, nulls, bad, _ = read(tmp_path, line)
    assert (len(records), problems, nulls, bad) == (1, [], 1, 0)
    assert records[0]["prompt_sha"] == GAMES[0].prompt_sha
    recorded = Recorded()
    recorded.add(first)
    assert unknown_to(recorded, records) == []


# Real data


@pytest.mark.parametrize(("path", "rows", "nulls"), [
    ("DeepSeek-R1-Distill-Llama-70B/bagel-8b-v1.0.jsonl", 181, 8),
    ("gpt-3.5-turbo-0125/Nexusflow__Athene-V2-Chat.jsonl", 108, 2),
])
def test_real_v01_rows(path: str, rows: int, nulls: int) -> None:
    found = read_rows(real_data("v01-judgments", path), lambda uid: "gpt-4-0314")
    assert (found.lines, found.problems, found.bad_labels, found.nulls) == (rows, [], 0, nulls)
    assert len(found.records) == 2 * rows - nulls
    assert {record["baseline"] for record in found.records} == {"gpt-4-0314"}
    assert {len(record["uid"]) for record in found.records} == {32}


def test_real_v2_rows() -> None:
    files = sorted(real_data("leaderboard-dev/data/ko/model_judgment/ens").glob("*.jsonl"))
    assert len(files) == 24
    for path in files:
        found = read_rows(path, lambda uid: None)
        assert (found.lines, found.problems, found.nulls, found.bad_labels) == (500, [], 0, 0)
        assert len(found.records) == 1000
        assert {(record["baseline"], record["category"], record["prompt_sha"]) for record in found.records} == {
            ("claude-3.7-sonnet", "ko", None)}
