"""Judgment files of every shape that was seen, read into verdicts; what is odd is counted and said."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from automate.arena.verdict import ACCEPTED
from automate.errors import DataError
from automate.results.battles import NO_VERDICT, Judgments
from automate.results.reading.columns import UNNAMED
from automate.results.reading.dialects import AS_MODEL_A
from automate.results.reading.folder import of_data
from automate.results.reading.judgments import read_judgments
from automate.results.reading.upstream import read_as_upstream
from tests.unit.reading_support import BENCH, JUDGE, Row, bench, game, questions, row, rows
from tests.unit.support import real_data, write_lines


def verdicts(read: Judgments, model: str = "m1") -> list[tuple[str, int, int]]:
    """(question, verdict of game 1, of game 2) of a model's rows."""
    battles = read.battles
    return [(battles.questions[question], int(first), int(second))
            for number, question, first, second in zip(battles.model, battles.question, battles.first, battles.second,
                                                       strict=True) if battles.models[number] == model]


def said(read: Judgments) -> str:
    return "\n".join(read.notes)


# --- labels and dialects ---------------------------------------------------------------------------

def test_the_ten_spellings_from_the_models_side(tmp_path: Path) -> None:
    """Game 1 shows the baseline as A, game 2 the model."""
    labels = ["A>>B", "A>B", "A=B", "B>A", "B>>A", "B<<A", "B<A", "B=A", "A<B", "A<<B"]
    read = read_judgments(bench(tmp_path, {"m1": [row(label, label, label) for label in labels]}), (JUDGE,))
    wins = [2, 1, 0, -1, -2, 2, 1, 0, -1, -2]
    assert set(labels) == ACCEPTED
    assert verdicts(read) == [(label, -win, win) for label, win in zip(labels, wins, strict=True)]
    assert read.battles.complete.all()


def test_old_and_mixed_dialects(tmp_path: Path) -> None:
    old = {"question_id": "q1", "model": "m1", "judge": JUDGE,
           "games": [{"user_prompt": "p", "judgment": "j", "score": "A>B"},
                     {"user_prompt": "p", "judgment": "j", "score": "A>>B"}]}
    third = row("q2", {"user_prompt": "p", "judgment": "j", "score": "B>A"},
                {"user_prompt": "p", "judgment": "j", "score": "A=B"})
    read = read_judgments(bench(tmp_path, {"m1": [old, third]}), (JUDGE,))
    assert verdicts(read) == [("q1", -1, 2), ("q2", 1, 0)]
    assert [read.battles.categories[i] for i in read.battles.category] == [BENCH, "hard"]
    assert [read.battles.baselines[i] for i in read.battles.baseline] == [UNNAMED, "base"]
    assert "1 row don't say their baseline" in said(read)


def test_categories_of_old_rows_come_from_the_questions_file(tmp_path: Path) -> None:
    folder = bench(tmp_path, {"m1": [{"question_id": "q1", "model": "m1", "games": [game("A>B"), game("A>B")]}]})
    questions(folder, ["q1"], "sums")
    assert read_judgments(folder, (JUDGE,)).battles.categories == ("sums",)


@pytest.mark.parametrize(("first", "second", "causes"), [
    (None, "A>B", {"null": 1}),
    (game(None), game(None), {"unparsed": 2}),
    (game(None, judgment={"answer": "", "reason": "too_long: 9000 tokens"}), "A>B", {"too_long": 1}),
    (game(None, judgment={"answer": "", "reason": "refused: 400"}), None, {"refused": 1, "null": 1}),
    ("A", "A=B>>B", {"bad_label": 2}),
    ({"score": 1}, "A>B", {"bad_label": 1}),
    ({"score": ["A>B"]}, 7, {"bad_label": 2}),
    ({}, "A>B", {"unparsed": 1}),
])
def test_games_without_a_verdict(tmp_path: Path, first: object, second: object, causes: dict[str, int]) -> None:
    folder = bench(tmp_path, {"m1": [row("q1", first, second), row("q2")]})
    read = read_judgments(folder, (JUDGE,))
    assert read.tallies[0].nulls == causes
    assert list(read.battles.complete) == [False, True]
    assert (read.battles.first[0] == NO_VERDICT) == (not isinstance(first, str) or first not in AS_MODEL_A)
    assert f"{folder.judgments / JUDGE / 'm1.jsonl'}: 1 of 2 rows left out" in said(read)


def test_labels_that_none_knows_are_named_and_counted(tmp_path: Path) -> None:
    read = read_judgments(bench(tmp_path, {"m1": [row("q1", "A", "A"), row("q2", "A=B>>B"), row("q3")]}), (JUDGE,))
    assert read.tallies[0].bad_labels == {"A": 2, "A=B>>B": 1}
    assert "labels: 'A' 2x, 'A=B>>B' 1x" in said(read)


@pytest.mark.parametrize(("games", "missing"), [([game("A>B")], 1), ([], 2), (None, 2)])
def test_rows_with_fewer_games(tmp_path: Path, games: object, missing: int) -> None:
    read = read_judgments(bench(tmp_path, {"m1": [row("q1", games=games), row("q2")]}), (JUDGE,))
    assert read.tallies[0].nulls == {"missing_game": missing}
    assert verdicts(read)[0][1] == (-1 if missing == 1 else NO_VERDICT)


# --- lines ------------------------------------------------------------------------------------------

def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    """Prompts hold raw U+2028, U+0085 and the like."""
    odd = row("q1", game("A>B", judgment={"answer": "a\u2028b\u2029c\x85d"}), "A>B")
    assert verdicts(read_judgments(bench(tmp_path, {"m1": [odd]}), (JUDGE,))) == [("q1", -1, 1)]


@pytest.mark.parametrize(("line", "why"), [
    (b'{"uid": "q9", "games": [{"sc', "not JSON"),
    (b"hello\n", "not JSON"),
    (b"[1, 2]\n", "not a JSON object"),
    (b'{"games": []}\n', "no uid"),
    (b'{"uid": "q9"}\n', "no games"),
    (b'{"uid": true, "games": []}\n', "no uid"),
    (b'{"uid": "q9", "games": "two"}\n', "no games"),
    (b'{"uid": "q9", "x": ' + b"[" * 100_000 + b"\n", ""),
    (b"\x00\x00\x00\n", "not JSON"),
])
def test_lines_that_can_not_be_used(tmp_path: Path, line: bytes, why: str) -> None:
    folder = bench(tmp_path, {"m1": [row("q1"), line]})
    read = read_judgments(folder, (JUDGE,))
    assert verdicts(read) == [("q1", 1, 1)]
    (problem,) = read.tallies[0].problems
    assert problem.startswith(f"{folder.judgments / JUDGE / 'm1.jsonl'}:2: left out: ")
    assert why in problem
    assert ("cut off" in problem) == (not line.endswith(b"\n"))
    assert problem in read.notes


def test_a_whole_last_line_needs_no_line_break(tmp_path: Path) -> None:
    folder = bench(tmp_path, {"m1": rows(2)})
    path = folder.judgments / JUDGE / "m1.jsonl"
    path.write_bytes(b"\xef\xbb\xbf\n" + path.read_bytes().rstrip(b"\n"))
    read = read_judgments(folder, (JUDGE,))
    assert len(verdicts(read)) == 2
    assert read.tallies[0].problems == ()


def test_texts_that_other_writers_leave(tmp_path: Path) -> None:
    """Lone surrogates, NaN and broken UTF-8 in texts are no reason to lose a row."""
    head = b'{"uid": "q%d", "category": "hard", "model": "m1", "baseline": "base", "x": '
    tail = b', "games": [{"score": "B>A"}, {"score": "A>B"}]}\n'
    lines = [head % 1 + b'"\\ud800"' + tail, head % 2 + b"NaN" + tail, head % 3 + b'"\xff\xfe"' + tail]
    read = read_judgments(bench(tmp_path, {"m1": lines}), (JUDGE,))
    assert verdicts(read) == [("q1", 1, 1), ("q2", 1, 1), ("q3", 1, 1)]


def test_numbers_as_uids_are_text(tmp_path: Path) -> None:
    read = read_judgments(bench(tmp_path, {"m1": [row(17), row("017")]}), (JUDGE,))
    assert read.battles.questions == ("17", "017")


def test_many_bad_lines_are_counted(tmp_path: Path) -> None:
    read = read_judgments(bench(tmp_path, {"m1": [b"x\n"] * 50 + [b""], "m2": rows(1)}), (JUDGE,))
    assert len(read.tallies[0].problems) == 21
    assert read.tallies[0].problems[-1].endswith("30 more lines left out")


# --- files ------------------------------------------------------------------------------------------

def test_the_last_whole_row_of_a_question_counts(tmp_path: Path) -> None:
    again = [row("q1", "A>B", "B>A"), row("q2"), row("q1", "B>A", "A>B"), row("q2", None, "A>B")]
    read = read_judgments(bench(tmp_path, {"m1": again}), (JUDGE,))
    assert sorted(verdicts(read)) == [("q1", 1, 1), ("q2", 1, 1)]
    assert read.tallies[0].duplicates == 2
    assert read.tallies[0].nulls == {}
    assert "2 rows of a question that stands there again" in said(read)


def test_a_model_is_called_as_its_file(tmp_path: Path) -> None:
    folder = bench(tmp_path, {"m1": rows(2, model="org/m1"), "copy": rows(1, model="m2"), "m2": rows(1)})
    read = read_judgments(folder, (JUDGE,))
    assert read.battles.models == ("copy", "m1", "m2")
    assert "copy.jsonl: its rows name the model 'm2'; it is listed by the file's name, 'copy'" in said(read)
    assert "rows of model 'm2' in 2 files (copy.jsonl, m2.jsonl)" in said(read)
    assert "m1.jsonl" not in said(read)


def test_files_in_order_of_their_names_with_the_ending(tmp_path: Path) -> None:
    read = read_judgments(bench(tmp_path, {name: rows(1) for name in ("a-b", "a", "a.1", "B")}), (JUDGE,))
    assert read.battles.models == ("B", "a-b", "a.1", "a")


def test_games_against_one_baseline(tmp_path: Path) -> None:
    """Those of the usual files, and those of the baseline's own folder, whatever else is there."""
    files = {"m1": [row("q1"), row("q2", baseline="other")], "m2": [row("q1")],
             "compared_with_other/m1": [row("q3", baseline="other"), {**row("q4"), "baseline": None}],
             "compared_with_third/m1": [row("q5", baseline="third")]}
    folder = bench(tmp_path, files)
    read = read_judgments(folder, (JUDGE,), baseline="other")
    assert [uid for uid, *_ in verdicts(read)] == ["q2", "q3", "q4"]
    assert read.battles.baselines == ("other",)
    assert "m2.jsonl: no games of 'm2' against baseline 'other'; it has no score" in said(read)
    usual = read_judgments(folder, (JUDGE,))
    assert [uid for uid, *_ in verdicts(usual)] == ["q1", "q2"]
    assert "category 'hard': games against several baselines ('base' in 2 rows, 'other' in 1 row)" in said(usual)
    with pytest.raises(DataError, match="no games against baseline 'x'") as error:
        read_judgments(folder, (JUDGE,), baseline="x")
    assert error.value.todo == "baselines that are there: base, other, third"


def test_a_question_set_of_another_version(tmp_path: Path) -> None:
    folder = bench(tmp_path, {"m1": rows(4), "m2": rows(2)})
    questions(folder, ["q0", "q1", "q7"])
    read = read_judgments(folder, (JUDGE,))
    assert read.battles.questions == ("q0", "q1")
    assert [len(verdicts(read, name)) for name in ("m1", "m2")] == [2, 2]
    assert "2 rows of questions that are not in it (such as q2, q3); they are left out" in said(read)
    assert "1 question of the questions file not judged for any of 2 models" in said(read)


def test_a_question_set_of_another_bench_is_not_used(tmp_path: Path) -> None:
    folder = bench(tmp_path, {"m1": rows(4)})
    questions(folder, ["x", "y"])
    read = read_judgments(folder, (JUDGE,))
    assert len(read.battles) == 4
    assert "it holds no question of the 4 rows that were read; it was not used" in said(read)


def test_models_without_games_or_verdicts(tmp_path: Path) -> None:
    folder = bench(tmp_path, {"empty": [], "m1": rows(2), "nulls": [row("q0", None, None), row("q1", None, None)]})
    read = read_judgments(folder, (JUDGE,), ["empty", "m1", "nulls", "none"])
    assert {tally.model: tally.rows for tally in read.tallies} == {"empty": 0, "m1": 2, "nulls": 2}
    assert "empty.jsonl: no games of 'empty'; it has no score" in said(read)
    assert "none of the 2 rows of 'nulls' has both verdicts (4 null); it has no score" in said(read)
    assert f"{folder.judgments}: no judgments of none" in said(read)


def test_categories_that_some_models_lack(tmp_path: Path) -> None:
    folder = bench(tmp_path, {"m1": [row("q1"), row("q2", category="poems")], "m2": [row("q1")]})
    read = read_judgments(folder, (JUDGE,))
    assert "category 'poems': 1 of 2 models have no games in it (m2)" in said(read)


def test_several_judges(tmp_path: Path) -> None:
    bench(tmp_path, {"m1": rows(2)})
    folder = bench(tmp_path, {"m1": rows(3)}, judge="second")
    read = read_judgments(folder, folder.chosen_judges(["second", JUDGE]))
    assert read.battles.judges == ("second", JUDGE)
    assert np.bincount(read.battles.judge).tolist() == [3, 2]


# --- folders ----------------------------------------------------------------------------------------

def test_folders_name_what_is_there(tmp_path: Path) -> None:
    folder = bench(tmp_path, {"m1": rows(1)})
    assert of_data(tmp_path, BENCH) == of_data(tmp_path / "data", BENCH) == of_data(tmp_path) == folder
    assert of_data(folder.path).path == folder.path.resolve()
    assert folder.chosen_judges([]) == (JUDGE,)
    for call, what, todo in (
        (lambda: of_data(tmp_path, "x"), "no folder of bench 'x'", "benches that are there: tiny"),
        (lambda: of_data(tmp_path, "../x"), "can't be used", None),
        (lambda: of_data(tmp_path / "none"), "no such folder", None),
        (lambda: folder.chosen_judges(["x"]), "no judgments of judge 'x'", "judges that are there: judge;"),
        (lambda: folder.chosen_judges(["../judge"]), "can't be used", None),
        (lambda: read_judgments(folder, (JUDGE,), ["x"]), "no judgments of x",
         "models that are there: m1"),
    ):
        with pytest.raises(DataError, match=what) as error:
            call()
        assert todo is None or todo in (error.value.todo or "")


def test_one_of_several_judges_has_to_be_named(tmp_path: Path) -> None:
    bench(tmp_path, {"m1": rows(1)})
    folder = bench(tmp_path, {"m1": rows(1)}, judge="second")
    with pytest.raises(DataError, match="judgments of 2 judges: judge, second"):
        folder.chosen_judges([])


# --- as upstream ------------------------------------------------------------------------------------

def test_rows_as_upstream_takes_them(tmp_path: Path) -> None:
    """Doubles and nulls stay; models are called as rows say; what it stops at is left out and said."""
    found: list[Row | bytes] = [
        row("q1", model="org/real"), row("q1", model="real"), row("q2", None, "A>B"), row("q3", "A", "A>B"),
        row("q4", games=[game("A>B")]), b"torn"]
    upstream = read_as_upstream(bench(tmp_path, {"file": found}), (JUDGE,))
    battles = upstream.battles
    assert battles.models == ("real", "file")
    assert [battles.questions[number] for number in battles.question] == ["q1", "q1", "q2"]
    assert int(battles.complete.sum()) == 2
    assert [note.partition("left out: ")[2][:20] for note in upstream.notes] == [
        "1 a label that none ", "1 game missing; Aren", "not JSON: Expecting "]


# --- real files -------------------------------------------------------------------------------------

def test_real_judgments_of_24_models() -> None:
    folder = of_data(real_data("leaderboard-dev", "data"), "ko")
    read = read_judgments(folder, folder.chosen_judges([]))
    battles = read.battles
    assert (len(battles), len(battles.models), len(battles.questions), battles.baselines) == (
        12_000, 24, 500, ("claude-3.7-sonnet",))
    assert battles.complete.all()
    assert np.mean(np.sign(battles.first) == np.sign(battles.second)) == pytest.approx(0.7244, abs=5e-5)
    assert read.notes == (f"{folder.questions}: no questions file, so it can't be told which questions are missing",)


@pytest.mark.parametrize(("judge", "model", "count", "nulls", "incomplete"), [
    ("DeepSeek-R1-Distill-Llama-70B", "bagel-8b-v1.0", 181, 8, 6),
    ("gpt-3.5-turbo-0125", "Nexusflow__Athene-V2-Chat", 108, 2, 1),
])
def test_real_old_judgments(tmp_path: Path, judge: str, model: str, count: int, nulls: int, incomplete: int) -> None:
    (tmp_path / "arena-hard-v0.1").mkdir()
    (tmp_path / "arena-hard-v0.1" / "model_judgment").symlink_to(real_data("v01-judgments").resolve())
    read = read_judgments(of_data(tmp_path), (judge,), baseline="gpt-4-0314")
    assert (len(read.battles), read.battles.models, read.battles.baselines) == (count, (model,), ("gpt-4-0314",))
    assert read.tallies[0].nulls == {"unparsed": nulls}
    assert int((~read.battles.complete).sum()) == incomplete
    assert f"{count} rows don't say their baseline" in said(read)


def test_what_is_no_file_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    """A folder, a pipe that nobody writes into, a link that leads nowhere."""
    folder = bench(tmp_path, {"m1": rows(1)})
    place = folder.judgments / JUDGE
    (place / "m2.jsonl").mkdir()
    (place / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    os.mkfifo(place / "pipe.jsonl")
    for notes in (read_judgments(folder, (JUDGE,)).notes, read_as_upstream(folder, (JUDGE,)).notes):
        for said in (f"{place}/m2.jsonl: left out: a folder, not a file of judgments",
                     f"{place}/gone.jsonl: left out: a link that leads nowhere, not a file of judgments",
                     f"{place}/pipe.jsonl: left out: a pipe, socket or device, not a file of judgments"):
            assert said in notes
    assert read_judgments(folder, (JUDGE,)).battles.models == ("m1",)


def test_questions_that_can_not_be_read_are_named_and_no_other_version_is_blamed(tmp_path: Path) -> None:
    folder = bench(tmp_path, {"m1": rows(3)})
    write_lines(folder.questions, [{"uid": "q0"}, {"uid": "q1"}, b'{"uid": "q2\n', {"uid": "q0"}])
    notes = read_judgments(folder, (JUDGE,)).notes
    assert any(note.startswith(f"{folder.questions}:3: left out: not a question: ") for note in notes)
    assert f"{folder.questions}:4: question 'q0' stands there again (first in line 1); the last line counts" in notes
    assert any("1 row of questions that are not in it (such as q2), likely in its 1 line that can't be read" in note
               for note in notes)
    assert not any("another version" in note for note in notes)
    write_lines(folder.questions, [{"uid": "q0"}, b"{\n"])
    assert any("another version: 2 rows" in note for note in read_judgments(folder, (JUDGE,)).notes)


def test_models_that_are_not_there_are_named_with_those_that_are_like_them(tmp_path: Path) -> None:
    folder = bench(tmp_path, {"large-model": rows(1), "other": rows(1)})
    with pytest.raises(DataError, match="no judgments of large-modle; like it there is large-model"):
        read_judgments(folder, (JUDGE,), ["large-modle"])
    assert any("no judgments of large-modle; like it there is large-model" in note
               for note in read_judgments(folder, (JUDGE,), ["large-modle", "other"]).notes)


def test_an_empty_file_after_others(tmp_path: Path) -> None:
    folder = bench(tmp_path, {"m1": rows(1)})
    write_lines(folder.judgments / JUDGE / "m3.jsonl", [])
